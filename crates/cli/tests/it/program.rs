//! Usage, help, completions and a reader that goes away.

use std::process::{Command, Stdio};

use crate::tensoryard;

#[test]
fn every_command_has_help() {
    let dir = tempfile::tempdir().unwrap();
    let output = tensoryard(dir.path()).arg("--help").assert().success().get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    let list = text.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() > 8, "{text}");
    for name in names.into_iter().filter(|&name| name != "help") {
        let output = tensoryard(dir.path()).args([name, "--help"]).assert().success();
        let help = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
        assert!(help.contains(&format!("Usage: tensoryard {name} ")), "{help}");
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [&["nonsense"][..], &["models", "--quiet", "--verbose"], &[]] {
        tensoryard(dir.path()).args(arguments).assert().code(2);
    }
}

#[test]
fn completions_are_written_for_every_shell() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let assert = tensoryard(dir.path()).args(["completions", shell]).assert().success();
        let script = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
        assert!(script.contains("cache-dir"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tensoryard"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_log_filter_that_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    tensoryard(dir.path())
        .arg("models")
        .env("TENSORYARD_LOG", "tensoryard=loud")
        .assert()
        .code(1)
        .stderr_eq("error: TENSORYARD_LOG cannot be read\n  because: [..]\n...\n");
}

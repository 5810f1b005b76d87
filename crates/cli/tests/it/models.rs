//! `tensoryard models`.

use std::fs;

use crate::tensoryard;

#[test]
fn the_list_shows_what_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("models")).unwrap();
    fs::write(dir.path().join("models/base.gguf"), "put there by hand").unwrap();
    tensoryard(dir.path()).arg("models").assert().success().stderr_eq("").stdout_eq(
        "\
NAME     SIZE    FETCHED  LANGUAGES     DESCRIPTION
tiny.en  79 MB   no       English       Whisper tiny, English only: [..]
base     148 MB  yes      99 languages  Whisper base: [..]
",
    );
}

#[test]
fn the_list_is_json_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let assert = tensoryard(dir.path()).args(["models", "--json"]).assert().success();
    let list: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!(list[0]["name"], "tiny.en");
    assert_eq!(list[0]["download_bytes"], 78_090_594);
    assert_eq!(list[0]["path"], serde_json::Value::Null);
    assert_eq!(list[0]["sources"].as_array().unwrap().len(), 2);
}

#[test]
fn removing_takes_the_file_away() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("models")).unwrap();
    let model = dir.path().join("models/base.gguf");
    fs::write(&model, "put there by hand").unwrap();
    tensoryard(dir.path())
        .args(["models", "remove", "base", "tiny.en"])
        .assert()
        .success()
        .stdout_eq("base: removed\ntiny.en: was not there\n");
    assert!(!model.exists());
}

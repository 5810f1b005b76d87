//! `tensoryard eval`.

use std::fs;

use crate::support::{real_model, sample, write_babbling_model};
use crate::tensoryard;

#[test]
fn manifests_that_cannot_be_used_are_told_before_a_model_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("clips.tsv");
    for (text, arguments, problem) in [
        ("", &[][..], "names no column \"file\""),
        ("file\tsplit\na.wav\tx\n", &[], "names no column \"transcript\""),
        ("file\ttranscript\n", &[], "no clip"),
        ("file\ttranscript\na.wav\thi\nb.wav\n", &[], "line 3: 1 columns, 2 are needed"),
        ("file\ttranscript\tsplit\na.wav\thi\tx\n", &["--split", "y"], "no clip of the splits"),
    ] {
        fs::write(&manifest, text).unwrap();
        let assert =
            tensoryard(dir.path()).arg("eval").arg(&manifest).args(arguments).assert().code(1);
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(stderr.contains("clips.tsv") && stderr.contains(problem), "{stderr}");
    }
    fs::write(&manifest, b"file\ttranscript\na.wav\t\xff\n").unwrap();
    tensoryard(dir.path()).arg("eval").arg(&manifest).assert().code(1);
    tensoryard(dir.path()).arg("eval").arg(dir.path().join("missing.tsv")).assert().code(1);
    assert!(!dir.path().join("partial").exists(), "a model was fetched");
}

#[test]
fn error_rates_are_counted_and_held_against_a_limit() {
    let Some(model) = real_model("error_rates_are_counted_and_held_against_a_limit") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (wav, text) = sample();
    let manifest = dir.path().join("clips.tsv");
    let lines = format!("file\ttranscript\tsplit\n{}\t{text}\tright\n", wav.display());
    fs::write(&manifest, &lines).unwrap();
    let eval = |arguments: &[&str]| {
        tensoryard(dir.path()).arg("eval").arg(&manifest).arg("-m").arg(&model).args(arguments)
    };
    let assert = eval(&["--json", "--max-wer", "0"]).assert().success();
    let json: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let words = text.split_whitespace().count();
    assert_eq!(json["splits"]["right"]["words"], words);
    assert_eq!(json["splits"]["right"]["word_errors"], 0);

    let wrong = format!("{lines}{}\tnothing of the kind\twrong\n", wav.display());
    fs::write(&manifest, wrong).unwrap();
    let assert = eval(&["--clips", "--max-wer", "50"]).assert().code(1);
    let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(stderr.contains("split \"wrong\""), "{stderr}");
}

#[test]
fn a_device_that_is_lost_is_told_once_and_all_clips_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (model, manifest) = (dir.path().join("babble.bin"), dir.path().join("clips.tsv"));
    write_babbling_model(&model);
    let clip = format!("{}\thello\n", sample().0.display());
    fs::write(&manifest, format!("file\ttranscript\n{clip}{clip}")).unwrap();
    let eval = |arguments: &[&str]| {
        let command = tensoryard(dir.path()).args(["-q", "eval", "--json", "-m"]).arg(&model);
        let assert = command.arg(&manifest).args(arguments).assert().success();
        let output = assert.get_output();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let heard = |clip: usize| json["clips"][clip]["hypothesis"].as_str().unwrap().to_owned();
        ([heard(0), heard(1)], String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (expected, said) = eval(&[]);
    assert_eq!(said, "");
    let (heard, said) = eval(&["--devices", "sim:lost_at_step=90,cpu"]);
    assert_eq!(heard, expected);
    assert!(said.starts_with("warning: went on without SIM0: ") && said.lines().count() == 1);
}

//! `tensoryard plan`.

use std::path::PathBuf;

use serde_json::Value;
use snapbox::cmd::OutputAssert;
use tempfile::TempDir;

use crate::support::{config, names, write_model};
use crate::tensoryard;

/// A folder with a small model in it.
fn small_model() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.bin");
    write_model(&path, &config(4, 1));
    (dir, path)
}

fn plan(model: &(TempDir, PathBuf), arguments: &[&str]) -> OutputAssert {
    tensoryard(model.0.path()).arg("plan").arg(&model.1).args(arguments).assert()
}

fn stdout_of(assert: &OutputAssert) -> String {
    String::from_utf8_lossy(&assert.get_output().stdout).into_owned()
}

fn stderr_of(assert: &OutputAssert) -> String {
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

#[test]
fn a_plan_is_a_summary_that_a_person_reads() {
    let model = small_model();
    plan(&model, &[]).success().stderr_eq("").stdout_eq(
        "\
small, strategy priority

Devices
  CPU  [..] (cpu)
  No time is predicted: the speed of CPU is not known.

Memory         weights         state       compute          peak         limit
  CPU          0.0 MiB       0.0 MiB       0.0 MiB       0.0 MiB  [..] MiB

encoder (a window of 6 mel frames)
  16 operations in 1 split, 0 copies of 0 B, [..] kFLOP
  split 0   CPU    16 ops

prompt (decoder, the longest prompt: 5 tokens)
  21 operations in 1 split, 0 copies of 0 B, [..] kFLOP
  split 0   CPU    21 ops

token (decoder, one token at position 4)
  21 operations in 1 split, 0 copies of 0 B, [..] kFLOP
  split 0   CPU    21 ops

Everything fits.
",
    );
}

#[test]
fn every_operation_is_listed_on_request() {
    let model = small_model();
    for argument in ["--nodes", "-v"] {
        let text = stdout_of(&plan(&model, &[argument]).success());
        let line = text.lines().find(|line| line.contains("encoder › conv1 ")).unwrap();
        assert!(line.contains(" conv_1d+add+gelu_erf "), "{line}");
        assert!(line.contains(" f32 [4, 6] "), "{line}");
        assert!(line.contains("Its weight encoder.conv1.weight is kept in "), "{line}");
    }
}

#[test]
fn json_holds_everything() {
    let model = small_model();
    let text = stdout_of(&plan(&model, &["--format", "json"]).success());
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&all["version"], &all["fits"]), (&1.into(), &true.into()));
    assert_eq!((&all["title"], &all["strategy"]), (&"small".into(), &"priority".into()));
    let graphs: Vec<_> = all["graphs"].as_array().unwrap().iter().map(|g| &g["name"]).collect();
    assert_eq!(graphs, ["encoder", "prompt", "token"]);
    let first = &all["graphs"][0]["operations"][0];
    assert_eq!((&first["label"], &first["device"]), (&"conv1".into(), &0.into()));
    assert_eq!(first["result"]["shape"], serde_json::json!([4, 6]));
    let memory = &all["memory"][0];
    let bytes = |field: &str| memory[field].as_u64().unwrap();
    assert_eq!(
        bytes("weights_bytes") + bytes("state_bytes") + bytes("compute_bytes"),
        bytes("peak_bytes")
    );
    // Keys and values of both kinds of attention, f16: 2 of [4, 5], 2 of [4, 3], each padded.
    assert!(bytes("state_bytes") >= 2 * 40 + 2 * 24, "{memory}");
}

#[test]
fn the_form_follows_the_ending_of_the_file() {
    let model = small_model();
    for (file, beginning) in [
        ("plan.json", "{"),
        ("plan.dot", "digraph \"small\" {"),
        ("plan.svg", "<svg xmlns="),
        ("plan.HTML", "<!DOCTYPE html>"),
        ("plan.txt", "small, strategy priority"),
    ] {
        let path = model.0.path().join(file);
        let argument = path.to_str().unwrap();
        let assert = plan(&model, &["--output", argument]).success().stdout_eq("");
        assert!(stderr_of(&assert).contains(file), "{}", stderr_of(&assert));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(beginning), "{file}: {}", &text[..40]);
    }
    let path = model.0.path().join("page");
    plan(&model, &["-q", "-f", "html", "-o", path.to_str().unwrap()]).success().stderr_eq("");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn pins_are_told_in_the_reasons() {
    let model = small_model();
    let text = stdout_of(&plan(&model, &["--nodes", "--pin", "mul_mat.*=CPU"]).success());
    assert!(text.contains("You pinned it to CPU."), "{text}");
}

#[test]
fn the_cost_strategy_needs_to_know_how_fast_devices_are() {
    let model = small_model();
    let assert = plan(&model, &["--strategy", "cost"]).code(1).stdout_eq("");
    assert!(
        stderr_of(&assert).contains("the rates of CPU are not known"),
        "{}",
        stderr_of(&assert)
    );
}

#[test]
fn wrong_options_end_with_2() {
    let model = small_model();
    for (arguments, problem) in [
        (["--pin", "encoder.*"], "\"encoder.*\" is no pin, wanted PATTERN=DEVICE"),
        (["--strategy", "luck"], "[possible values: priority, cost]"),
        (["--format", "png"], "[possible values: text, dot, json, svg, html]"),
    ] {
        let assert = plan(&model, &arguments).code(2).stdout_eq("");
        assert!(stderr_of(&assert).contains(problem), "{}", stderr_of(&assert));
    }
}

#[test]
fn what_cannot_be_planned_ends_with_1_and_is_named() {
    let model = small_model();
    for (arguments, problem) in [
        (["--devices", "abacus"], "abacus"),
        (["--devices", "cpu:speed=3"], "speed"),
        (["--pin", "nothing.like.this=cpu"], "no tensor of the model matches the pin"),
        (["--pin", "mul_mat.*=moon"], "moon"),
        (["--output", "/nonexistent/plan.svg"], "cannot write /nonexistent/plan.svg"),
    ] {
        let assert = plan(&model, &arguments).code(1).stdout_eq("");
        assert!(stderr_of(&assert).contains(problem), "{}", stderr_of(&assert));
    }
    assert_eq!(names(model.0.path()), ["small.bin"]);
    let missing = (tempfile::tempdir().unwrap(), PathBuf::from("missing.gguf"));
    let assert = plan(&missing, &[]).code(1).stdout_eq("");
    assert!(stderr_of(&assert).contains("cannot open the model missing.gguf"));
}

#[test]
fn the_help_explains_pins_and_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let text = stdout_of(&tensoryard(dir.path()).args(["plan", "--help"]).assert().success());
    for part in ["--pin <PATTERN=DEVICE>", "whole names", "Exit code 1 when", "--strategy", "html"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

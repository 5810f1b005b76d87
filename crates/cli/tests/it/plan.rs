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
  No time is predicted: the speed of CPU is not known (`tensoryard devices --calibrate` measures it).

Memory         weights         state       compute          peak         limit
  CPU          0.0 MiB       0.0 MiB       0.0 MiB       0.0 MiB  [..] MiB

encoder (a window of 6 mel frames)
  16 operations in 1 split, no copies, [..] kFLOP
  split 0   CPU    16 ops

prompt (decoder, the longest prompt: 5 tokens)
  21 operations in 1 split, no copies, [..] kFLOP
  split 0   CPU    21 ops

token (decoder, one token at position 4)
  21 operations in 1 split, no copies, [..] kFLOP
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
        let all: Value =
            serde_json::from_str(&stdout_of(&plan(&model, &["-f", "json"]).success())).unwrap();
        for operation in all["graphs"][2]["operations"].as_array().unwrap() {
            let name = operation["name"].as_str().unwrap();
            assert!(text.contains(&format!(" {name} ")), "{name}, for pins, is not in\n{text}");
        }
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
fn endings_that_plans_do_not_have_are_refused() {
    let model = small_model();
    for file in ["plan.png", "plan"] {
        let path = model.0.path().join(file);
        let path = path.to_str().unwrap();
        let error = stderr_of(&plan(&model, &["-o", path]).code(1));
        assert!(error.contains(file) && error.contains(": txt, dot, gv, json, svg, "), "{error}");
        assert_eq!(names(model.0.path()), ["small.bin"]);
    }
    let path = model.0.path().join("plan.png");
    plan(&model, &["-f", "text", "-o", path.to_str().unwrap()]).success();
    assert!(path.exists());
}

#[test]
fn the_hint_to_measure_names_the_threads() {
    let model = small_model();
    let text = stdout_of(&plan(&model, &["-t", "1"]).success());
    assert!(text.contains("(`tensoryard devices --calibrate --threads 1` measures it)"), "{text}");
}

#[test]
fn a_damaged_file_of_rates_is_a_warning_and_measuring_replaces_it() {
    let model = small_model();
    let cache = model.0.path().join("cache");
    std::fs::create_dir_all(&cache).unwrap();
    let file = cache.join("speed");
    for garbage in [&b"<html>"[..], &[0xff, 0xfe]] {
        std::fs::write(&file, garbage).unwrap();
        let command = || tensoryard(model.0.path()).env("TENSORYARD_CACHE", &cache);
        let arguments = ["plan", model.1.to_str().unwrap()];
        let error = stderr_of(&command().args(arguments).assert().success());
        assert!(error.starts_with("warning: the speed of devices counts as unknown: "), "{error}");
        assert!(error.contains(file.to_str().unwrap()), "{error}");
        command().args(["devices", "--calibrate"]).assert().success();
        command().args(arguments).assert().success().stderr_eq("");
    }
}

#[test]
fn pins_are_told_in_the_reasons() {
    let model = small_model();
    let text = stdout_of(&plan(&model, &["--nodes", "--pin", "mul_mat.*=CPU"]).success());
    assert!(text.contains("You pinned it to CPU."), "{text}");
}

#[test]
fn a_decoder_pinned_with_its_caches_is_one_split() {
    let model = small_model();
    let mut arguments = vec!["--devices", "sim,cpu", "-f", "json"];
    for pin in ["decoder.*=cpu", "self.*=cpu", "cross.*=cpu"] {
        arguments.extend(["--pin", pin]);
    }
    let assert = plan(&model, &arguments).success().stderr_eq("");
    let all: Value = serde_json::from_str(&stdout_of(&assert)).unwrap();
    for graph in &all["graphs"].as_array().unwrap()[1..] {
        let splits: Vec<_> = graph["splits"].as_array().unwrap().iter().collect();
        assert_eq!((splits.len(), &splits[0]["device"]), (1, &1.into()), "{splits:?}");
    }
}

#[test]
fn pins_that_match_nothing_are_told() {
    let model = small_model();
    let pins = ["--pin", "nothing.*=0", "--pin", "mul_mat.*=CPU", "--format", "json"];
    let assert = plan(&model, &pins).success();
    let warning = "warning: no tensor of the model matches the pin \"nothing.*\"\n";
    assert_eq!(stderr_of(&assert), warning);
    let all: Value = serde_json::from_str(&stdout_of(&assert)).unwrap();
    assert_eq!(all["unmatched_pins"], serde_json::json!(["nothing.*"]));
}

#[test]
fn the_cost_strategy_needs_to_know_how_fast_devices_are() {
    let model = small_model();
    for (arguments, problem) in [
        (&["--devices", "sim,cpu"][..], "CPU is; `tensoryard devices --calibrate` measures it"),
        (
            &["-t", "3"],
            "CPU with 3 threads is; `tensoryard devices --calibrate --threads 3` measures it",
        ),
        (
            &["--devices", "cpu:threads=1"],
            "CPU with 1 thread is; `tensoryard devices --calibrate --threads 1` measures it",
        ),
    ] {
        let assert = plan(&model, &[&["--strategy", "cost"], arguments].concat()).code(1);
        let expected = format!("error: --strategy cost needs to know how fast {problem}\n");
        assert_eq!(stderr_of(&assert), expected);
    }
    // Simulated devices know it of themselves, the CPU once it was measured.
    let predicted = |devices: &str| {
        let arguments = ["--strategy", "cost", "--devices", devices, "-f", "json"];
        let text = stdout_of(&plan(&model, &arguments).success());
        let all: Value = serde_json::from_str(&text).unwrap();
        all["graphs"][0]["predicted_ns"].as_u64().unwrap()
    };
    assert!(predicted("sim,sim:flops=1T") > 0);
    let calibrate = ["devices", "--calibrate", "--threads", "1"];
    tensoryard(model.0.path()).args(calibrate).assert().success();
    assert!(predicted("sim,cpu:threads=1") > 0);
}

#[test]
fn several_devices_have_a_lane_each_and_the_numbers_agree() {
    let model = small_model();
    let devices = "sim:name=first;memory=64KiB,sim:name=second;memory=32KiB,cpu";
    let arguments =
        ["--devices", devices, "--pin", "decoder.blocks.*=second", "--pin", "decoder.token*=cpu"];
    let text = stdout_of(&plan(&model, &[&arguments[..], &["-f", "json"]].concat()).success());
    let all: Value = serde_json::from_str(&text).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let number = |value: &Value| value.as_u64().unwrap();
    let names: Vec<Value> = list(&all["devices"]).iter().map(|d| d["name"].clone()).collect();
    assert_eq!(names, ["first", "second", "CPU"]);
    let memory = list(&all["memory"]);
    for (memory, limit) in memory.iter().zip([64 << 10, 32 << 10]) {
        assert_eq!(number(&memory["limit_bytes"]), limit);
        assert!(number(&memory["weights_bytes"]) > 0, "{memory}");
        assert!(number(&memory["peak_bytes"]) <= limit, "{memory}");
    }
    for memory in &memory {
        let parts = ["weights_bytes", "state_bytes", "compute_bytes"].map(|of| number(&memory[of]));
        assert_eq!(parts.iter().sum::<u64>(), number(&memory["peak_bytes"]), "{memory}");
        assert_eq!(memory["over_bytes"], 0);
    }
    let prompt = &all["graphs"][1];
    let (splits, copies) = (list(&prompt["splits"]), list(&prompt["copies"]));
    let mut next = 0;
    let mut used = [false; 3];
    for split in &splits {
        assert_eq!(number(&split["first_operation"]), next);
        next += number(&split["operations"]);
        used[number(&split["device"]) as usize] = true;
        let bytes = list(&split["copies"])
            .iter()
            .map(|at| number(&copies[number(at) as usize]["bytes"]))
            .sum::<u64>();
        assert_eq!(number(&split["copied_bytes"]), bytes);
    }
    assert_eq!(next, list(&prompt["operations"]).len() as u64);
    assert!(used[1] && used[2], "{splits:?}");
    let bytes: u64 = copies.iter().map(|copy| number(&copy["bytes"])).sum();
    assert_eq!((number(&prompt["copied_bytes"]), bytes > 0), (bytes, true));
    let picture = stdout_of(&plan(&model, &[&arguments[..], &["-f", "svg"]].concat()).success());
    for name in ["first", "second", "CPU"] {
        assert!(picture.contains(&format!(">{name}</text>")), "{name} has no lane");
    }
}

#[test]
fn what_does_not_fit_is_shown_with_the_numbers_and_ends_with_1() {
    let model = small_model();
    let assert = plan(&model, &["--devices", "sim:memory=4KiB", "-f", "json"]).code(1);
    let all: Value = serde_json::from_str(&stdout_of(&assert)).unwrap();
    let memory = &all["memory"][0];
    let bytes = |field: &str| memory[field].as_u64().unwrap();
    assert_eq!((&all["fits"], bytes("limit_bytes")), (&false.into(), 4096));
    assert_eq!(bytes("over_bytes"), bytes("peak_bytes") - 4096);
    let error = stderr_of(&assert);
    assert!(error.starts_with("error: small: Does not fit: SIM0 needs 0.0 MiB of "), "{error}");
    let text = stdout_of(&plan(&model, &["--devices", "sim:memory=4KiB"]).code(1));
    assert!(text.contains("  over by ") && text.contains("\nDoes not fit: SIM0 needs "), "{text}");
    // A tensor larger than any memory is named.
    let assert = plan(&model, &["--devices", "sim:memory=8"]).code(1).stdout_eq("");
    assert!(
        stderr_of(&assert).contains("no device has room for weight "),
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
        (["--pin", "mul_mat.*=moon"], "pinned to moon: --devices has 0 (CPU)\n"),
        (["--pin", "mul_mat.*=1"], "pinned to device 1: --devices has 0 (CPU)\n"),
        (
            ["--devices", "sim:memry=1MiB"],
            "SIM has no parameter \"memry\"; there are: name, kind, ",
        ),
        (["--devices", "sim:ops=mul_mat+ad"], "\"ad\" is none; there are: abs, add, "),
        (["--devices", "sim:0"], "no device \"SIM:0\"; there are: SIM, made on request"),
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

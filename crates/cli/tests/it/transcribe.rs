//! `tensoryard transcribe`: what can be said without a model, and the work with one.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use snapbox::cmd::Command;

use crate::support::{config, names, real_model, sample, write_babbling_model, write_model};
use crate::tensoryard;

/// The program with this model, quiet.
fn transcribe(cache: &Path, model: &Path) -> Command {
    tensoryard(cache).args(["transcribe", "--quiet", "--model"]).arg(model)
}

fn stderr_of(assert: &snapbox::cmd::OutputAssert) -> String {
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

#[test]
fn wrong_options_end_with_2() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, problem) in [
        (["--language", "klingonese"], "klingonese"),
        (["--format", "docx"], "srt"),
        (["--max-hours", "0"], "--max-hours"),
        (["--threads", "many"], "--threads"),
    ] {
        let assert = tensoryard(dir.path()).arg("transcribe").args(arguments).assert().code(2);
        assert!(stderr_of(&assert).contains(problem), "{}", stderr_of(&assert));
    }
}

#[test]
fn files_that_are_not_there_are_told_before_a_model_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    tensoryard(dir.path())
        .args(["transcribe", "/nonexistent/a.wav", "/nonexistent/b.wav"])
        .assert()
        .code(1)
        .stdout_eq("")
        .stderr_eq(
            "\
error: cannot open /nonexistent/a.wav
  because: [..]
error: cannot open /nonexistent/b.wav
  because: [..]
",
        );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn models_that_are_not_there_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for (model, problem) in [
        ("no/such/model", "cannot open the model no/such/model"),
        ("./tiny.en", "cannot open the model ./tiny.en"),
        ("missing.gguf", "cannot open the model missing.gguf"),
        ("tny.en", "did you mean \"tiny.en\"?"),
    ] {
        let assert = tensoryard(dir.path()).args(["transcribe", "--model", model]).assert().code(1);
        assert!(stderr_of(&assert).contains(problem), "{}", stderr_of(&assert));
    }
}

#[test]
fn devices_that_are_not_there_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("tiny.bin");
    write_model(&model, &config(4, 1));
    let (audio, _) = sample();
    for (devices, problem) in [
        ("tpu", "no device \"tpu\"; there are: CPU:0 ("),
        ("cpu,tpu:1", "no device \"tpu:1\"; there are: CPU:0 ("),
        ("cpu:7", "no device \"CPU:7\"; there are: CPU:0 ("),
        ("cpu:speed=9", "CPU has no parameter \"speed\"; there are: threads"),
        ("cpu:threads=many", "CPU: threads is \"many\", wanted a number, 0 for automatic"),
        ("sim:memry=1GiB,cpu", "SIM has no parameter \"memry\"; there are: name, kind, memory, "),
        ("sim:memory=lots", "SIM: memory is \"lots\", wanted a size in bytes, such as 64MiB"),
        ("sim:ops=warp", "SIM: ops is \"warp\", wanted ops joined by +, and \"warp\" is none"),
        ("sim:shares=SIM7,cpu", "SIM: shares is \"SIM7\", wanted own, host, or the name"),
        ("cpu,", "device \"cpu,\": a driver's name is missing"),
    ] {
        let command = transcribe(dir.path(), &model);
        let assert = command.args(["--devices", devices]).arg(&audio).assert().code(1);
        let text = stderr_of(&assert);
        assert!(text.starts_with(&format!("error: {problem}")), "{devices}: {text}");
    }
}

/// The transcript of the sample by a model of random weights, and what was said.
fn babble(cache: &Path, model: &Path, arguments: &[&str]) -> snapbox::cmd::OutputAssert {
    transcribe(cache, model).args(arguments).arg(sample().0).assert()
}

#[test]
fn a_transcript_is_complete_when_a_device_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("babble.bin");
    write_babbling_model(&model);
    let run = |arguments: &[&str]| babble(dir.path(), &model, arguments);
    let stdout = |assert: &snapbox::cmd::OutputAssert| assert.get_output().stdout.clone();
    let expected = stdout(&run(&[]).success().stderr_eq(""));
    let text = String::from_utf8_lossy(&expected).into_owned();
    assert!(text.split_whitespace().collect::<HashSet<_>>().len() > 5, "{text}");
    let simulated = run(&["--devices", "sim:memory=2GiB,cpu"]).success().stderr_eq("");
    assert_eq!(stdout(&simulated), expected);
    // In the encoder, in the prompt, and among the tokens.
    for step in ["0", "30", "90", "200"] {
        let devices = format!("sim:lost_at_step={step},cpu");
        let assert = run(&["--devices", &devices]).success();
        let warning = "warning: went on without SIM0: SIM0 is lost: ";
        let text = stderr_of(&assert);
        assert!(text.starts_with(warning) && text.lines().count() == 1, "step {step}: {text}");
        assert_eq!(stdout(&assert), expected, "step {step}");
    }
    let two = "sim:lost_at_step=40,sim:lost_at_step=60,cpu";
    let assert = run(&["--devices", two]).success();
    assert_eq!((stderr_of(&assert).lines().count(), stdout(&assert)), (2, expected));
    for arguments in [
        ["--devices", "sim:lost_at_step=90,cpu", "--on-device-failure", "stop"],
        ["--devices", "sim:lost_at_step=90", "--on-device-failure", "replan"],
    ] {
        let text = stderr_of(&run(&arguments).code(1));
        assert!(text.contains("cannot transcribe") && text.contains("SIM0 is lost"), "{text}");
    }
}

#[test]
fn pins_that_match_nothing_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("babble.bin");
    write_babbling_model(&model);
    let pins = ["--devices", "sim,cpu", "--pin", "nothing.*=0", "--pin", "decoder.*=cpu"];
    let warning = "warning: no tensor of the model matches the pin \"nothing.*\"\n";
    babble(dir.path(), &model, &pins).success().stderr_eq(warning);
    let text = stderr_of(&babble(dir.path(), &model, &["--pin", "decoder.*=SIM3"]).code(1));
    assert_eq!(text, "error: \"decoder.*\" cannot be pinned to SIM3: --devices has 0 (CPU)\n");
}

#[test]
fn a_model_that_does_not_fit_is_told_with_where_to_see_more() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("babble.bin");
    write_babbling_model(&model);
    let text = stderr_of(&babble(dir.path(), &model, &["--devices", "sim:memory=1MiB"]).code(1));
    assert!(text.contains("babble.bin; `tensoryard plan` with the same devices shows"), "{text}");
    assert!(text.contains("because: no device has room for weight "), "{text}");
}

#[test]
fn a_folder_that_is_called_like_a_model_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tiny.en")).unwrap();
    // Nothing can be fetched here, so the name gets as far as that.
    let run = |model: &str| {
        let command = tensoryard(&dir.path().join("cache")).current_dir(dir.path());
        let command = command.env("ALL_PROXY", "http://127.0.0.1:9").env("PATH", dir.path());
        stderr_of(&command.args(["transcribe", "--quiet", "--model", model]).assert().code(1))
    };
    assert!(run("tiny.en").contains("could not be fetched"), "{}", run("tiny.en"));
    assert!(run("./tiny.en").contains("cannot load the model ./tiny.en"), "{}", run("./tiny.en"));
}

#[test]
fn places_that_cannot_be_written_are_told_before_a_model_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    tensoryard(dir.path())
        .args(["transcribe", "--output", "/nonexistent/folder/out.txt"])
        .assert()
        .code(1)
        .stderr_eq("error: /nonexistent/folder: there is no such folder\n");
    let assert =
        tensoryard(dir.path()).args(["transcribe", "-f", "srt", "-", "-"]).assert().code(1);
    assert!(stderr_of(&assert).contains("--output FOLDER/"), "{}", stderr_of(&assert));
}

#[test]
fn the_sample_is_transcribed_in_every_format() {
    let Some(model) = real_model("the_sample_is_transcribed_in_every_format") else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = sample().1;
    let run = |format: &str| {
        let assert = transcribe(dir.path(), &model).args(["-f", format]).assert().success();
        assert_eq!(stderr_of(&assert), "");
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    assert_eq!(run("text").split_whitespace().collect::<Vec<_>>().join(" "), text);
    let json: serde_json::Value = serde_json::from_str(&run("json")).unwrap();
    assert_eq!(json["text"].as_str().unwrap().trim(), text);
    assert!(run("srt").starts_with("1\n00:00:0"));
    assert!(run("vtt").starts_with("WEBVTT\n"));
}

#[test]
fn standard_input_and_one_thread_give_the_same_text() {
    let Some(model) = real_model("standard_input_and_one_thread_give_the_same_text") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (wav, text) = sample();
    let assert = transcribe(dir.path(), &model)
        .args(["--threads", "1", "-"])
        .stdin(fs::read(wav).unwrap())
        .assert()
        .success();
    let stdout = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert_eq!(stdout.split_whitespace().collect::<Vec<_>>().join(" "), text);
}

#[test]
fn one_bad_input_does_not_stop_the_others() {
    let Some(model) = real_model("one_bad_input_does_not_stop_the_others") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (wav, text) = sample();
    let (bad, out) = (dir.path().join("bad.mp3"), dir.path().join("out"));
    fs::write(&bad, "no audio").unwrap();
    let assert = transcribe(dir.path(), &model)
        .arg("--output")
        .arg(format!("{}/", out.display()))
        .args([&bad, &wav, &dir.path().join("missing.wav")])
        .assert()
        .code(1)
        .stdout_eq("");
    let stderr = stderr_of(&assert);
    assert!(stderr.contains("bad.mp3") && stderr.contains("missing.wav"), "{stderr}");
    assert!(stderr.contains("2 of 3 inputs failed"), "{stderr}");
    assert_eq!(names(&out), ["sample.txt"]);
    let written = fs::read_to_string(out.join("sample.txt")).unwrap();
    assert_eq!(written.split_whitespace().collect::<Vec<_>>().join(" "), text);

    let json = dir.path().join("all.json");
    transcribe(dir.path(), &model)
        .args(["-f", "json", "--output"])
        .args([&json, &bad, &wav])
        .assert()
        .code(1);
    let list: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["transcript"]["text"].as_str().unwrap().trim(), text);
}

#[test]
fn a_failure_leaves_the_output_of_an_earlier_run() {
    let Some(model) = real_model("a_failure_leaves_the_output_of_an_earlier_run") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (bad, out) = (dir.path().join("broken.mp3"), dir.path().join("out.json"));
    fs::write(&bad, "no audio").unwrap();
    fs::write(&out, "precious").unwrap();
    for inputs in [&[&bad][..], &[&bad, &bad]] {
        for format in ["json", "text"] {
            transcribe(dir.path(), &model)
                .args(["-f", format, "--output"])
                .arg(&out)
                .args(inputs)
                .assert()
                .code(1)
                .stdout_eq("");
            assert_eq!(fs::read(&out).unwrap(), b"precious");
        }
    }
    // One that was not there is not made either.
    transcribe(dir.path(), &model)
        .arg("--output")
        .args([&dir.path().join("new.txt"), &bad])
        .assert()
        .code(1);
    assert_eq!(names(dir.path()), ["broken.mp3", "out.json"]);
}

#[test]
fn recordings_beyond_the_limit_are_refused() {
    let test = "recordings_beyond_the_limit_are_refused";
    let Some(model) = real_model(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    // More than an hour of silence at 1 kHz and 8 bits, which is 3.7 MB.
    let mut wav = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    wav.extend([0xe8, 3, 0, 0, 0xe8, 3, 0, 0, 1, 0, 8, 0]);
    wav.extend(b"data\xff\xff\xff\xff");
    wav.resize(wav.len() + 3_700_000, 128);
    let assert =
        transcribe(dir.path(), &model).args(["--max-hours", "1", "-"]).stdin(wav).assert().code(1);
    let stderr = stderr_of(&assert);
    assert!(stderr.contains("limit of 57600000 samples, 1.0 h at 16000 Hz"), "{stderr}");
    assert!(stderr.contains("--max-hours"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_130_and_writes_nothing() {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let Some(model) = real_model("ctrl_c_ends_with_130_and_writes_nothing") else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.txt");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tensoryard"))
        .args(["transcribe", "-", "--model"])
        .arg(&model)
        .arg("--output")
        .arg(&out)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than a pipe holds: when it is taken, the audio is being read.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fs::read(sample().0).unwrap()[..200_000]).unwrap();
    crate::support::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(!out.exists());
}

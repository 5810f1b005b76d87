//! `cargo xtask bench`: transcription time and memory beside whisper.cpp.
//!
//! Both sides run the same weights (f16), clip, number of threads and way of
//! decoding, each run in a process of its own that loads the model, transcribes
//! once to warm up and once more for the figure. Runs come in pairs whose order
//! alternates, so that a change in the machine's load meets both. whisper.cpp
//! comes as the Python package `pywhispercpp`, in a virtual environment under
//! `target/bench`. Nothing is asserted: the ratio is the result, on an idle
//! machine. On a busy one the peer's threads, which wait by spinning, lose much
//! more than ours; `--threads 1` is the fairer figure there.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::Value;

pub const USAGE: &str = "cargo xtask bench [--threads N] [--runs N] [--audio WAV] [--model PATH]";

const PEER: &str = "pywhispercpp==1.5.1";
const PEER_SCRIPT: &str = include_str!("bench_peer.py");

struct Options {
    threads: usize,
    runs: usize,
    audio: PathBuf,
    model: PathBuf,
}

/// The figures of one process.
struct Run {
    load_s: f64,
    first_s: f64,
    second_s: f64,
    cpu_s: f64,
    process_s: f64,
    start_mib: f64,
    peak_mib: f64,
    text: String,
}

/// Prepares both sides, runs them by turns and prints the ratios.
pub fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let options = parse(root, arguments)?;
    let folder = root.join("target/bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let ours = build_example(root, "bench_transcribe")?;
    let convert = build_example(root, "convert")?;
    let [gguf, ggml] = ["bench.gguf", "bench.bin"].map(|name| folder.join(name));
    for file in [&gguf, &ggml] {
        call(Command::new(&convert).arg(&options.model).arg(file))?;
    }
    let python = peer_environment(&folder)?;
    let script = folder.join("bench_peer.py");
    fs::write(&script, PEER_SCRIPT)?;

    let threads = options.threads.to_string();
    let our_run = || measure(Command::new(&ours).arg(&gguf).arg(&options.audio).arg(&threads));
    let peer_run = || {
        let mut command = Command::new(&python);
        measure(command.arg(&script).arg(&ggml).arg(&options.audio).arg(&threads))
    };
    say(&format!("{}, {threads} threads, {} pairs", options.audio.display(), options.runs))?;
    say(&format!("load average before: {}", load_average()))?;
    // Files come into the page cache with the first pair, which does not count.
    say(&format!("ours: {}", our_run()?.text))?;
    say(&format!("peer: {}", peer_run()?.text))?;
    let (mut our_runs, mut peer_runs) = (Vec::new(), Vec::new());
    for pair in 0..options.runs {
        if pair % 2 == 0 {
            our_runs.push(our_run()?);
            peer_runs.push(peer_run()?);
        } else {
            peer_runs.push(peer_run()?);
            our_runs.push(our_run()?);
        }
    }
    say(&format!("load average after: {}", load_average()))?;
    report(&our_runs, &peer_runs)
}

fn report(ours: &[Run], peer: &[Run]) -> anyhow::Result<()> {
    type Figure = (&'static str, fn(&Run) -> f64);
    let figures: [Figure; 7] = [
        ("transcribe, s", |run| run.second_s),
        ("its processor time, s", |run| run.cpu_s),
        ("first transcribe, s", |run| run.first_s),
        ("load, s", |run| run.load_s),
        ("whole process, s", |run| run.process_s),
        ("peak memory, MiB", |run| run.peak_mib),
        ("without what it began with, MiB", |run| run.peak_mib - run.start_mib),
    ];
    say(&format!(
        "{:33}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>12}",
        "", "ours", "peer", "ratio", "min", "min", "ratio", "pair ratio"
    ))?;
    for (name, of) in figures {
        let [our_values, peer_values] =
            [ours, peer].map(|runs| runs.iter().map(of).collect::<Vec<f64>>());
        let pairs = our_values.iter().zip(&peer_values).map(|(a, b)| a / b).collect();
        let (our_median, peer_median) = (median(our_values.clone()), median(peer_values.clone()));
        let [our_least, peer_least] =
            [our_values, peer_values].map(|values| values.into_iter().fold(f64::MAX, f64::min));
        say(&format!(
            "{name:33}{our_median:9.3}{peer_median:9.3}{:9.3}{our_least:9.3}{peer_least:9.3}{:9.3}{:12.3}",
            our_median / peer_median,
            our_least / peer_least,
            median(pairs),
        ))?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Runs a side once and reads the line of JSON that it ends with.
fn measure(command: &mut Command) -> anyhow::Result<Run> {
    let began = Instant::now();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {}", name_of(command)))?;
    let process_s = began.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("{} failed: {}", name_of(command), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    let figures: Value =
        serde_json::from_str(line).with_context(|| format!("no figures in {line:?}"))?;
    let number = |key: &str| figures[key].as_f64().unwrap_or(f64::NAN);
    Ok(Run {
        load_s: number("load_s"),
        first_s: number("first_s"),
        second_s: number("second_s"),
        cpu_s: number("cpu_s"),
        process_s,
        start_mib: number("start_kib") / 1024.0,
        peak_mib: number("peak_kib") / 1024.0,
        text: figures["text"].as_str().unwrap_or_default().to_owned(),
    })
}

fn parse(root: &Path, arguments: &[&str]) -> anyhow::Result<Options> {
    let variable = |name: &str, default: &str| {
        std::env::var_os(name).map_or_else(|| root.join(default), PathBuf::from)
    };
    let audio = variable("TENSORYARD_ASSETS", "../shared/assets").join("audio/en_jfk.wav");
    let sample = root.join("crates/tensoryard/assets/sample.wav");
    let models = variable("TENSORYARD_MODELS", "target/models");
    let mut options = Options {
        threads: 2,
        runs: 7,
        audio: if audio.is_file() { audio } else { sample },
        model: ["whisper-tiny.en-ct2", "tiny.en.gguf", "models/tiny.en.gguf"]
            .map(|name| models.join(name))
            .into_iter()
            .find(|path| path.exists())
            .unwrap_or_default(),
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { bail!("{} needs a value; usage: {USAGE}", pair[0]) };
        let number = || value.parse().with_context(|| format!("{name} {value}: no number"));
        match *name {
            "--threads" => options.threads = number()?,
            "--runs" => options.runs = number()?,
            "--audio" => options.audio = PathBuf::from(value),
            "--model" => options.model = PathBuf::from(value),
            _ => bail!("unknown option {name}; usage: {USAGE}"),
        }
    }
    if options.model.as_os_str().is_empty() {
        bail!(
            "no tiny.en in {}; fetch it with `tensoryard pull --cache-dir {0} tiny.en`, or give \
             another with --model",
            models.display()
        );
    }
    Ok(options)
}

/// Builds an example of the library and returns its program.
fn build_example(root: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--release", "--quiet", "--package", "tensoryard"]);
    command.args(["--example", name, "--message-format=json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("building the example {name} failed");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo names no program for the example {name}"))
}

/// The Python of an environment that has the peer, made when it is missing.
fn peer_environment(folder: &Path) -> anyhow::Result<PathBuf> {
    let environment = folder.join("venv");
    let python = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let python = environment.join(python);
    let has_peer = Command::new(&python)
        .args(["-c", "import pywhispercpp.model"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_peer {
        say(&format!("installing {PEER} in {}", environment.display()))?;
        let system_python = if cfg!(windows) { "python" } else { "python3" };
        call(Command::new(system_python).args(["-m", "venv"]).arg(&environment))?;
        call(Command::new(&python).args(["-m", "pip", "install", "--quiet", PEER]))?;
    }
    Ok(python)
}

fn call(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {}", name_of(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", name_of(command));
    }
    Ok(())
}

fn name_of(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_else(|_| "unknown".to_owned());
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn options_are_read_and_checked() {
        let root = Path::new("nowhere");
        let options = parse(root, &["--model", "m", "--threads", "3", "--runs", "9"]).unwrap();
        assert_eq!((options.threads, options.runs), (3, 9));
        assert_eq!(options.model, Path::new("m"));
        for wrong in [&["--model"][..], &["--threads", "two"], &["--speed", "1"]] {
            assert!(parse(root, wrong).is_err());
        }
    }
}

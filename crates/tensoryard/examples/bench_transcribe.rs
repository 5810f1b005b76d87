//! Our side of `cargo xtask bench`: `bench_transcribe MODEL AUDIO THREADS` prints one line of
//! JSON with seconds to load, to transcribe at first and once more, and memory in KiB.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::time::Instant;

use tensoryard::speech::{ModelOptions, SpeechModel};

/// Largest resident memory so far, where the system tells it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processor time of all threads so far in seconds, where the system tells it.
fn cpu_seconds() -> Option<f64> {
    /// Linux counts in hundredths of a second on every architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in parentheses; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / TICKS_PER_SECOND)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, audio, threads] = &arguments[..] else {
        return Err("usage: bench_transcribe MODEL AUDIO THREADS".into());
    };
    let mut options = ModelOptions::default();
    options.threads = threads.parse()?;
    let samples = tensoryard::audio::load_mono_16k(std::path::Path::new(audio))?;
    let start_kib = peak_kib();

    let began = Instant::now();
    let mut transcriber = SpeechModel::load_with(model, &options, |_, _| true)?.transcriber()?;
    let load_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    transcriber.transcribe(&samples)?;
    let first_s = began.elapsed().as_secs_f64();
    let cpu_began = cpu_seconds();
    let began = Instant::now();
    let transcript = transcriber.transcribe(&samples)?;
    let second_s = began.elapsed().as_secs_f64();
    let cpu_s = cpu_seconds().zip(cpu_began).map(|(end, begin)| end - begin);

    let line = serde_json::json!({
        "load_s": load_s,
        "first_s": first_s,
        "second_s": second_s,
        "cpu_s": cpu_s,
        "start_kib": start_kib,
        "peak_kib": peak_kib(),
        "text": transcript.text,
    });
    println!("{line}");
    Ok(())
}

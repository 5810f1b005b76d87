//! Whether a transcript is complete although a device is lost in the middle of it.
//!
//! `cargo run --release -p tensoryard --example lose_device -- MODEL AUDIO [TIMES]` transcribes a
//! recording on a simulated device beside the processor, first undisturbed, then TIMES times (200
//! unless given) with the device lost at steps spread over the whole run, and compares the texts.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::sync::Arc;

use tensoryard::SpeechModel;
use tensoryard::cpu::{CpuDevice, Isa};
use tensoryard::models::whisper::LoadOptions;
use tensoryard::runtime::{BackendOptions, Device, Selected};
use tensoryard::sim::{Faults, SimDevice, SimDriver, SimOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, audio, rest @ ..] = arguments.as_slice() else {
        return Err("usage: lose_device MODEL AUDIO [TIMES]".into());
    };
    let times: u64 = rest.first().map_or(Ok(200), |text| text.parse())?;
    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new(Isa::detect()));
    let whole = transcribe(&cpu, model, audio, None)?;
    println!("undisturbed, {} steps on the device: {}", whole.steps, whole.text);
    let mut different = 0;
    for time in 0..times {
        let step = whole.first_step + (whole.steps * time + whole.steps / 2) / times;
        let found = transcribe(&cpu, model, audio, Some(step))?;
        if found.lost != 1 || found.text != whole.text {
            different += 1;
            println!("lost at step {step}, {} devices given up: {}", found.lost, found.text);
        }
    }
    println!("lost {times} times, {different} transcripts differ");
    if different > 0 {
        return Err("a transcript is not complete".into());
    }
    Ok(())
}

struct Outcome {
    text: String,
    /// Steps that the device had done before the recording.
    first_step: u64,
    /// Steps that it did for the recording.
    steps: u64,
    /// Devices that the session went on without.
    lost: usize,
}

fn transcribe(
    cpu: &Arc<dyn Device>,
    model: &str,
    audio: &str,
    lost_at_step: Option<u64>,
) -> Result<Outcome, Box<dyn Error>> {
    let device: Arc<SimDevice> =
        SimDriver::new(Arc::clone(cpu)).device(SimOptions::named("fragile"))?;
    let select = |device: Arc<dyn Device>| Selected { device, options: BackendOptions::default() };
    let devices = [select(Arc::clone(&device) as _), select(Arc::clone(cpu))];
    let model = SpeechModel::load_on(model, &devices, &LoadOptions::default(), |_, _| true)?;
    let mut transcriber = model.transcriber()?;
    let first_step = device.counts().steps;
    device.inject(Faults { lost_at_step, ..Faults::default() });
    let text = transcriber.transcribe_file(audio)?.text;
    let steps = device.counts().steps - first_step;
    let lost = transcriber.session().runtime().recoveries().len();
    Ok(Outcome { text, first_step, steps, lost })
}

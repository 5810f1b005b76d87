//! How soon an abort signal acts inside a Whisper model.
//!
//! `cargo run --release -p tensoryard --example abort_delay -- MODEL [THREADS [LEVEL [ROUNDS]]]`
//! runs the encoder, a prompt of 220 tokens and steps of one token, gives the signal at random
//! moments from another thread and prints how long each took to return. LEVEL is an instruction
//! set that this processor has, such as `scalar` or `avx2`. On a busy machine the longest delays
//! are those of the system, which lets another process run.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensoryard::cpu::{CpuDevice, Isa};
use tensoryard::models::Error;
use tensoryard::models::whisper::decode::SpeechModel as _;
use tensoryard::models::whisper::{LoadOptions, WhisperModel, WhisperSession};
use tensoryard::runtime::{BackendOptions, Selected};

const PROMPT_TOKENS: usize = 220;

/// Signals come within twice this time.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: abort_delay MODEL [THREADS [LEVEL [ROUNDS]]]";
    let model = arguments.first().ok_or(usage)?;
    let number = |index: usize, default: usize| {
        arguments.get(index).map_or(Ok(default), |text| text.parse::<usize>())
    };
    let (threads, rounds) = (number(1, 1)?, number(3, 200)?);
    let isa = match arguments.get(2) {
        None => Isa::detect(),
        Some(name) => Isa::available()
            .into_iter()
            .find(|isa| isa.level().name() == name)
            .ok_or_else(|| format!("this processor has no level {name:?}"))?,
    };
    let device = Arc::new(CpuDevice::new(isa));
    let devices = [Selected { device, options: BackendOptions { threads } }];
    let model =
        WhisperModel::load(Path::new(model), &devices, &LoadOptions::default(), |_, _| true)?;
    let mut session = Arc::new(model).session()?;
    let mel_values = session.dims().n_mels * 3000;
    let mel: Vec<f32> = (0..mel_values).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    println!("{isa}, {threads} threads, {rounds} signals each");
    let mut random = Random(1);
    let mut logits = Vec::new();
    let prompt = vec![100; PROMPT_TOKENS];
    measure("encoder", rounds, &mut random, &mut session, |session| session.encode(&mel))?;
    measure("prompt", rounds, &mut random, &mut session, |session| {
        session.decode(&prompt, 0, &[PROMPT_TOKENS - 1], &mut logits)
    })?;
    measure("all logits of the prompt", rounds, &mut random, &mut session, |session| {
        session.decode(&prompt, 0, &(0..PROMPT_TOKENS).collect::<Vec<_>>(), &mut logits)
    })?;
    measure("one token", rounds, &mut random, &mut session, |session| {
        session.decode(&[100], PROMPT_TOKENS, &[0], &mut logits)
    })?;
    Ok(())
}

/// Repeats `work` until the signal ends it, `rounds` times, and prints the delays.
fn measure(
    name: &str,
    rounds: usize,
    random: &mut Random,
    session: &mut WhisperSession,
    mut work: impl FnMut(&mut WhisperSession) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut once = LONGEST_WAIT;
    for _ in 0..2 {
        let start = Instant::now();
        work(session)?;
        once = start.elapsed();
        // What is slow needs no second run without planning.
        if once > LONGEST_WAIT {
            break;
        }
    }
    let within = once.min(LONGEST_WAIT);
    let signal = session.abort_signal();
    let mut delays = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let moment = within.mul_f64(0.2 + 1.8 * random.unit());
        let (given, ended) = std::thread::scope(|scope| {
            let giver = scope.spawn(|| {
                std::thread::sleep(moment);
                let given = Instant::now();
                signal.abort();
                given
            });
            let ended = loop {
                match work(session) {
                    Ok(()) => {}
                    Err(Error::Stopped) => break Ok(Instant::now()),
                    Err(other) => break Err(other),
                }
            };
            (giver.join(), ended)
        });
        if let Ok(given) = given {
            delays.push(ended?.saturating_duration_since(given));
        }
        signal.reset();
        // The values do not matter here, only the time.
        session.runtime().state_mut().accept_torn();
    }
    delays.sort_unstable();
    let share = |part: f64| {
        let index = ((delays.len() as f64 * part) as usize).min(delays.len().saturating_sub(1));
        delays.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    let once = once.as_secs_f64() * 1e3;
    let (median, p90, p99, max) = (share(0.5), share(0.9), share(0.99), share(1.0));
    println!(
        "{name:<26} {once:8.1} ms; delay: median {median:.2}, 90 % {p90:.2}, 99 % {p99:.2}, \
         longest {max:.2} ms"
    );
    Ok(())
}

/// Numbers that only have to be spread out.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

//! Transcribes a file: `cargo run --release --example transcribe -- MODEL AUDIO`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use tensoryard::{SpeechError, SpeechModel};

fn main() -> Result<(), SpeechError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(audio)) = (arguments.next(), arguments.next()) else {
        println!("usage: transcribe MODEL AUDIO");
        return Ok(());
    };
    let mut transcriber = SpeechModel::load(model)?.transcriber()?;
    let transcript = transcriber.transcribe_file(audio)?;
    println!("{}", transcript.text);
    Ok(())
}

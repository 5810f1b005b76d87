//! Converts a model: `cargo run --release --example convert -- IN OUT`, where the name of OUT
//! ends in `.gguf` or, for whisper.cpp, in `.bin`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use tensoryard::ConvertOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(output)) = (arguments.next(), arguments.next()) else {
        println!("usage: convert IN OUT");
        return Ok(());
    };
    let mut tensors = 0;
    let mut count = |_: tensoryard::ConvertProgress<'_>| {
        tensors += 1;
        true
    };
    tensoryard::convert(input, &output, None, ConvertOptions::default(), &mut count)?;
    println!("{output}: {tensors} tensors");
    Ok(())
}

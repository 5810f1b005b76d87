//! Writing to standard output and reporting errors.
//!
//! A reader that closes the pipe early, as `head` does, ends the program
//! quietly: it has what it wanted.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use tensoryard::SpeechError;
use tensoryard::hub::HubError;
use tensoryard::models::Error as ModelError;

use crate::interrupt;

/// For what a reader's eye should find first.
pub const BOLD: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Whoever read standard output has gone.
#[derive(Debug)]
struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ReaderGone {}

/// The user stopped the program.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Says a line to the person at the terminal.
pub fn say(text: &str) {
    // With standard error gone there is nobody left to tell.
    let _ = anstream::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Writes text to standard output. Colours are left out where they are not wanted.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = anstream::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes a value to standard output as JSON, without making the text of it first.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let result = serde_json::to_writer_pretty(&mut stdout, value).map_err(io::Error::from);
    written(result.and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush()))
}

fn written(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
        Ok(()) => Ok(()),
    }
}

/// Whether an error only means that nobody reads standard output any more.
pub fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.is::<ReaderGone>()
}

/// A failure that the user was told of already.
#[derive(Debug)]
pub struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed")
    }
}

impl std::error::Error for Reported {}

/// Tells of an error with its causes; the exit code that goes with it.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if error.is::<ReaderGone>() {
        return ExitCode::SUCCESS;
    }
    if error.is::<Reported>() {
        return ExitCode::FAILURE;
    }
    if error.chain().any(is_interrupt) {
        return ExitCode::from(interrupt::EXIT_CODE);
    }
    // With standard error gone there is nobody left to tell.
    let _ = anstream::stderr().write_all(describe(error).as_bytes());
    ExitCode::FAILURE
}

/// An error with its causes, as text of one or more lines.
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = format!("{ERROR}error:{ERROR:#} {error}\n");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors repeat their cause in their own words.
        if !text.contains(&cause) {
            text.push_str(&format!("  because: {cause}\n"));
        }
    }
    text
}

fn is_interrupt(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(HubError::Cancelled))
        || matches!(error.downcast_ref(), Some(ModelError::Stopped))
        || error.downcast_ref().is_some_and(SpeechError::is_stopped)
        || error.is::<Interrupted>()
}

/// Tells of wrong usage, or prints the help or version that was asked for.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    // As above; a closed standard output ends the help quietly too.
    let _ = error.print();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

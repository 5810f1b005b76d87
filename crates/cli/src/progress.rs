//! Progress on standard error: a bar on a terminal, a few plain lines elsewhere.

use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tensoryard::hub::{FetchEvent, FetchProgress};

use crate::app::App;

const BYTES: &str = "{prefix} {bar:32} {decimal_bytes:>10} of {decimal_total_bytes}  {decimal_bytes_per_sec}  {eta} left";

/// Shows how a model is fetched.
pub struct FetchBar {
    model: String,
    quiet: bool,
    bar: ProgressBar,
}

impl FetchBar {
    /// A bar for one model. Nothing is shown when the user wants quiet; log
    /// lines take the place of the bar when the user wants to see more.
    pub fn new(model: &str, app: &App) -> Self {
        let target = if app.quiet || app.verbose > 0 {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target).with_prefix(model.to_owned());
        if let Ok(style) = ProgressStyle::with_template(BYTES) {
            bar.set_style(style);
        }
        Self { model: model.to_owned(), quiet: app.quiet, bar }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            let line = format!("{}: {text}\n", self.model);
            // A person who closed standard error wants to hear nothing.
            self.bar.suspend(|| {
                let _ = anstream::stderr().write_all(line.as_bytes());
            });
        }
    }
}

impl FetchProgress for FetchBar {
    fn event(&mut self, event: FetchEvent<'_>) {
        match event {
            FetchEvent::Waiting => self.say("another process fetches it; waiting"),
            FetchEvent::Source { label, .. } => self.say(label),
            FetchEvent::SourceFailed { reason, .. } => {
                self.say(&format!("that did not work: {reason}"));
            }
            FetchEvent::Bytes { done, total } => {
                self.bar.set_length(total);
                self.bar.set_position(done);
            }
            FetchEvent::Converting => {
                self.bar.finish_and_clear();
                self.say("converting");
            }
            _ => {}
        }
    }
}

impl Drop for FetchBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows how much of a recording is transcribed.
pub struct AudioBar(ProgressBar);

/// Parts of a second that the bar counts in.
const TICKS: f64 = 100.0;

impl AudioBar {
    /// A bar for a recording of this length, on a terminal only.
    pub fn new(seconds: f64, app: &App) -> Self {
        let target =
            if app.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some((seconds * TICKS) as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        let bar = Self(bar);
        bar.set(0.0);
        bar
    }

    /// So much is done.
    pub fn set(&self, seconds: f64) {
        let total = self.0.length().unwrap_or(0) as f64 / TICKS;
        self.0.set_message(format!("{} of {}", clock(seconds), clock(total)));
        self.0.set_position((seconds * TICKS) as u64);
        self.0.tick();
    }

    /// Prints something without tearing the bar.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// `1:02:03`, or `2:03` below an hour.
fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

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
            FetchEvent::Source { label, .. } => {
                self.bar.reset();
                self.say(label);
            }
            FetchEvent::SourceFailed { reason, .. } => {
                self.bar.reset();
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

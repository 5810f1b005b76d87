//! The speech model that a command works with: found by name or path, fetched
//! when absent, loaded with a progress bar.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use tensoryard::hub::Catalogue;
use tensoryard::models::Error as ModelError;
use tensoryard::models::whisper::LoadOptions;
use tensoryard::runtime::{FailurePolicy, PlanError, Recovery};
use tensoryard::speech::{Language, Transcriber};
use tensoryard::{SpeechError, SpeechModel};

use crate::app::App;
use crate::fetch::{self, DEFAULT_MODEL};
use crate::output;
use crate::placement::{self, PlacementArgs};

/// Which model, and how it runs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Name of a model, or path of a model file
    ///
    /// A name is fetched when it is not in the cache: see `tensoryard models`.
    /// A path may be a GGUF file, a ggml Whisper .bin file or a CTranslate2 folder;
    /// one that is called like a model is written ./NAME.
    #[arg(long, short, value_name = "NAME|PATH", default_value = DEFAULT_MODEL)]
    pub model: String,

    /// Spoken language, by code or English name; `auto` lets the model find out
    ///
    /// Models whose name ends in `.en` know English only. `base` knows 99 languages.
    #[arg(long, short, value_name = "LANGUAGE", default_value = "auto", value_parser = parse_language)]
    pub language: LanguageChoice,

    /// Read the model into memory instead of mapping its file
    #[arg(long)]
    pub no_mmap: bool,

    #[command(flatten)]
    pub placement: PlacementArgs,

    /// What to do when a device fails while it computes
    #[arg(long, value_name = "WHAT", default_value = "replan", help_heading = "Devices")]
    pub on_device_failure: OnFailure,
}

/// What a run does when a device fails, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// Go on without it, if another device is left; the transcript is complete all the same
    Replan,
    /// End with an error that names it
    Stop,
}

/// A language, or the wish to have it detected.
#[derive(Debug, Clone, Copy)]
pub struct LanguageChoice(pub Option<Language>);

fn parse_language(text: &str) -> Result<LanguageChoice, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(LanguageChoice(None));
    }
    text.parse()
        .map(|language| LanguageChoice(Some(language)))
        .map_err(|e: tensoryard::models::Error| e.to_string())
}

/// Where to see more of a model that does not fit.
const PLAN_TELLS: &str = "; `tensoryard plan` with the same devices shows what does not fit";

fn is_too_little_memory(error: &SpeechError) -> bool {
    let SpeechError::Model(ModelError::Model(error)) = error else { return false };
    let error = error.downcast_ref();
    matches!(error, Some(PlanError::NoRoom { .. } | PlanError::DoesNotFit { .. }))
}

/// A loaded model and how long that took.
pub struct Loaded {
    pub model: SpeechModel,
    pub path: PathBuf,
    pub time: Duration,
}

impl ModelArgs {
    /// Finds, fetches if needed, and loads the model.
    pub fn load(&self, app: &App) -> anyhow::Result<Loaded> {
        let (devices, plan) = self.placement.resolve(app)?;
        let path = find(&self.model, app)?;
        let mut options = LoadOptions::default();
        options.mmap = !self.no_mmap;
        options.session.plan = plan;
        options.session.on_failure = match self.on_device_failure {
            OnFailure::Replan => FailurePolicy::Replan,
            OnFailure::Stop => FailurePolicy::Stop,
        };
        let start = Instant::now();
        let interrupt = &app.interrupt;
        let model = SpeechModel::load_on(&path, &devices, &options, |_, _| !interrupt.is_raised());
        let model = model.map_err(|error| {
            let stopped = error.is_stopped();
            let hint = if is_too_little_memory(&error) { PLAN_TELLS } else { "" };
            let error = anyhow::Error::new(error);
            if stopped {
                return error;
            }
            error.context(format!("cannot load the model {}{hint}", path.display()))
        })?;
        Ok(Loaded { model, path, time: start.elapsed() })
    }
}

impl Loaded {
    /// Opens a stream through the model that Ctrl-C stops. Tells of pins that pin nothing.
    pub fn transcriber(&self, app: &App) -> anyhow::Result<Transcriber> {
        let mut transcriber = self
            .model
            .transcriber()
            .with_context(|| format!("cannot start the model {}", self.path.display()))?;
        let session = transcriber.session();
        session.set_abort_signal(app.interrupt.signal());
        for pin in session.runtime().unmatched_pins() {
            placement::warn_of_unmatched(&pin.pattern);
        }
        Ok(transcriber)
    }
}

/// Tells of the devices that a stream went on without, each once.
#[derive(Debug, Default)]
pub struct LostDevices {
    told: usize,
}

impl LostDevices {
    /// Tells of those that failed since the last call.
    pub fn tell(&mut self, transcriber: &mut Transcriber) {
        let recoveries = transcriber.session().runtime().recoveries();
        for Recovery { device, error, .. } in recoveries.iter().skip(self.told) {
            output::say(&format!("warning: went on without {device}: {error}"));
        }
        self.told = recoveries.len();
    }
}

/// The file of a model: the path given, or that of the name, fetched if needed.
pub fn find(model: &str, app: &App) -> anyhow::Result<PathBuf> {
    let path = Path::new(model);
    if names_a_file(model, path.exists()) {
        // A missing file is told with its path, not as an unknown name.
        path.metadata().with_context(|| format!("cannot open the model {}", path.display()))?;
        return Ok(path.to_owned());
    }
    fetch::ensure(model, None, &app.hub()?, app)
}

/// Whether a model was named by its path. What merely lies in the current
/// folder does not stand in for a model of the catalogue.
fn names_a_file(model: &str, exists: bool) -> bool {
    let extension = Path::new(model).extension();
    let looks_like_path = model.contains(std::path::is_separator)
        || extension.is_some_and(|end| end == "gguf" || end == "bin");
    looks_like_path || (exists && Catalogue::default().find(model).is_err())
}

#[cfg(test)]
mod tests {
    use super::names_a_file;

    #[test]
    fn names_of_the_catalogue_win_over_files_of_the_current_folder() {
        for exists in [false, true] {
            assert!(!names_a_file("tiny.en", exists));
            for path in ["./tiny.en", "tiny.en/", "models/base", "tiny.gguf", "ggml-base.bin"] {
                assert!(names_a_file(path, exists), "{path}");
            }
        }
        assert!(names_a_file("my-model", true));
        assert!(!names_a_file("my-model", false), "an unknown name is told with the known ones");
    }
}

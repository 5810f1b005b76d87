//! The speech model that a command works with: found by name or path, fetched
//! when absent, loaded with a progress bar.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tensoryard::hub::Catalogue;
use tensoryard::speech::{Language, ModelOptions};
use tensoryard::{SpeechError, SpeechModel};

use crate::app::App;
use crate::fetch::{self, DEFAULT_MODEL};

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

    /// Threads to compute with; 0 uses every processor
    #[arg(
        long,
        short,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = parse_threads
    )]
    pub threads: usize,

    /// Devices in order of priority, separated by commas: see `tensoryard devices`
    ///
    /// Each is DRIVER[:INDEX|:"NAME"][:key=value[;key=value]...], such as cpu:threads=4.
    /// Quotes protect commas and other separators.
    #[arg(long, value_name = "DEVICES", default_value = "cpu")]
    pub devices: String,

    /// Read the model into memory instead of mapping its file
    #[arg(long)]
    pub no_mmap: bool,
}

/// A language, or the wish to have it detected.
#[derive(Debug, Clone, Copy)]
pub struct LanguageChoice(pub Option<Language>);

fn parse_threads(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "wanted a whole number, 0 or more".to_owned())
}

fn parse_language(text: &str) -> Result<LanguageChoice, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(LanguageChoice(None));
    }
    text.parse()
        .map(|language| LanguageChoice(Some(language)))
        .map_err(|e: tensoryard::models::Error| e.to_string())
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
        let path = find(&self.model, app)?;
        let mut options = ModelOptions::default();
        options.devices = vec![self.devices.clone()];
        options.registry = Some(Arc::new(app.registry()?));
        options.threads = self.threads;
        options.load.mmap = !self.no_mmap;
        let start = Instant::now();
        let interrupt = &app.interrupt;
        let model = SpeechModel::load_with(&path, &options, |_, _| !interrupt.is_raised())
            .map_err(|error| {
                let is_device = matches!(error, SpeechError::Device(_));
                let stopped = error.is_stopped();
                let error = anyhow::Error::new(error);
                if is_device || stopped {
                    error
                } else {
                    error.context(format!("cannot load the model {}", path.display()))
                }
            })?;
        Ok(Loaded { model, path, time: start.elapsed() })
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

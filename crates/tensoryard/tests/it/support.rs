//! Finding recordings and models, loading models once, and measures of error.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tensoryard::default_registry;
use tensoryard::models::whisper::{LoadOptions, WhisperModel};
use tensoryard::runtime::Selected;
use tensoryard::speech::{ModelOptions, SpeechModel};

fn located(variable: &str, default: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os(variable).map_or_else(|| workspace.join(default), PathBuf::from)
}

/// Says that a test is skipped, or fails where nothing may be.
pub fn skip(test: &str, missing: &str) {
    let required = std::env::var_os("TENSORYARD_REQUIRE_ASSETS").is_some_and(|value| value == "1");
    assert!(!required, "{test}: {missing}");
    // Written past the harness, which hides what passing tests print.
    _ = writeln!(std::io::stderr(), "SKIPPED {test}: {missing}");
}

/// The folder of recordings and goldens, if it is there.
pub fn assets(test: &str) -> Option<PathBuf> {
    let root = located("TENSORYARD_ASSETS", "../shared/assets");
    if root.join("golden/whisper").is_dir() {
        return Some(root);
    }
    skip(test, &format!("no goldens in {}", root.display()));
    None
}

/// A model as published or as the program fetched it, if it is there.
pub fn model_path(test: &str, name: &str) -> Option<PathBuf> {
    let root = located("TENSORYARD_MODELS", "target/models");
    let places =
        [format!("whisper-{name}-ct2"), format!("{name}.gguf"), format!("models/{name}.gguf")];
    let found = places.iter().map(|place| root.join(place)).find(|path| path.exists());
    if found.is_none() {
        skip(test, &format!("none of {} in {}", places.join(", "), root.display()));
    }
    found
}

/// The CPU with that many threads.
pub fn cpu(threads: usize) -> Vec<Selected> {
    let registry = default_registry();
    vec![registry.select(&format!("cpu:threads={threads}")).unwrap()]
}

/// Loads a model that runs on one thread, so that tests side by side do not wait for each other.
pub fn load(path: &Path, options: &LoadOptions) -> Arc<WhisperModel> {
    Arc::new(WhisperModel::load(path, &cpu(1), options, |_, _| true).unwrap())
}

/// `tiny.en` or `base` with default options, loaded once.
pub fn model(test: &str, name: &str) -> Option<Arc<WhisperModel>> {
    static TINY_EN: OnceLock<Arc<WhisperModel>> = OnceLock::new();
    static BASE: OnceLock<Arc<WhisperModel>> = OnceLock::new();
    let path = model_path(test, name)?;
    let cell = if name == "base" { &BASE } else { &TINY_EN };
    Some(Arc::clone(cell.get_or_init(|| load(&path, &LoadOptions::default()))))
}

/// `tiny.en` through the facade, loaded once, on one thread.
pub fn speech_model(test: &str) -> Option<SpeechModel> {
    static MODEL: OnceLock<SpeechModel> = OnceLock::new();
    let path = model_path(test, "tiny.en")?;
    let load = || {
        let mut options = ModelOptions::default();
        options.threads = 1;
        SpeechModel::load_with(path, &options, |_, _| true).unwrap()
    };
    Some(MODEL.get_or_init(load).clone())
}

/// Samples of a recording under the assets.
pub fn samples(assets: &Path, file: &str) -> Vec<f32> {
    tensoryard::audio::load_mono_16k(assets.join("audio").join(file)).unwrap()
}

/// Squared error over squared reference.
pub fn nmse(got: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(got.len(), reference.len());
    let square = |x: f64| x * x;
    let pairs = got.iter().zip(reference);
    let error: f64 = pairs.map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    error / reference.iter().map(|&b| square(f64::from(b))).sum::<f64>()
}

/// Largest absolute difference; infinite for anything that is no number.
pub fn max_abs(got: &[f32], reference: &[f32]) -> f32 {
    assert_eq!(got.len(), reference.len());
    let error = |(a, b): (&f32, &f32)| {
        let error = (a - b).abs();
        if error.is_nan() { f32::INFINITY } else { error }
    };
    got.iter().zip(reference).map(error).fold(0.0, f32::max)
}

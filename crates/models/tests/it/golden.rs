//! Finding golden files and models, and skipping loudly without them.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn located(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| workspace().join(default), PathBuf::from)
}

/// The text of a file under the assets folder; `None`, after saying so, without it.
pub fn asset(test: &str, name: &str) -> Option<String> {
    read(test, &located("TENSORYARD_ASSETS", "../shared/assets").join(name))
}

/// As [`asset`], parsed as JSON.
pub fn golden(test: &str, name: &str) -> Option<Value> {
    let text = asset(test, &format!("golden/{name}"))?;
    Some(serde_json::from_str(&text).unwrap())
}

/// The text of a file under the models folder; `None`, after saying so, without it.
pub fn model_file(test: &str, name: &str) -> Option<String> {
    read(test, &located("TENSORYARD_MODELS", "target/models").join(name))
}

fn read(test: &str, path: &Path) -> Option<String> {
    if let Ok(text) = std::fs::read_to_string(path) {
        return Some(text);
    }
    let required = std::env::var_os("TENSORYARD_REQUIRE_ASSETS").is_some_and(|value| value == "1");
    assert!(!required, "{test}: {} is missing", path.display());
    // Written past the harness, which hides what passing tests print.
    _ = writeln!(std::io::stderr(), "SKIPPED {test}: {} is missing", path.display());
    None
}

/// An array of numbers as token ids.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// A number as a float.
pub fn float(value: &Value) -> f32 {
    value.as_f64().unwrap() as f32
}

//! The golden figures of the original, one record for each model and clip.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use tensoryard::speech::Language;

use crate::support::samples;

/// An f32 array, rows of the last dimension one after the other.
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

/// What the original computes for one clip.
pub struct Golden {
    /// `MODEL__CLIP`.
    pub name: String,
    pub json: Value,
    pub arrays: HashMap<String, Array>,
    pub samples: Vec<f32>,
}

impl Golden {
    pub fn load(assets: &Path, model: &str, clip: &str) -> Self {
        let name = format!("{model}__{clip}");
        let folder = assets.join("golden/whisper");
        let json = read_json(&folder.join(format!("{name}.json")));
        let (arrays, _) = safetensors(&folder.join(format!("{name}.safetensors")));
        let samples = samples(assets, json["clip"].as_str().unwrap());
        assert_eq!(samples.len() as u64, json["n_samples"].as_u64().unwrap(), "{name}");
        Self { name, json, arrays, samples }
    }

    /// The language that the original decoded with.
    pub fn language(&self) -> Language {
        language(&self.json["decode_greedy"]["language"])
    }

    pub fn array(&self, name: &str) -> &Array {
        &self.arrays[name]
    }
}

/// All goldens of a model.
pub fn goldens(assets: &Path, model: &str) -> Vec<Golden> {
    let prefix = format!("{model}__");
    let mut clips: Vec<String> = std::fs::read_dir(assets.join("golden/whisper"))
        .unwrap()
        .filter_map(|entry| {
            let file = entry.unwrap().file_name().into_string().unwrap();
            Some(file.strip_prefix(&prefix)?.strip_suffix(".json")?.to_owned())
        })
        .collect();
    clips.sort();
    assert!(clips.len() >= 6, "only {} goldens of {model}", clips.len());
    clips.iter().map(|clip| Golden::load(assets, model, clip)).collect()
}

pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The f32 arrays and the metadata of a safetensors file.
pub fn safetensors(path: &Path) -> (HashMap<String, Array>, Value) {
    let bytes = std::fs::read(path).unwrap();
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes]).unwrap();
    let body = &bytes[8 + header_bytes..];
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let mut arrays = HashMap::new();
    for (name, entry) in header.as_object().unwrap() {
        if name == "__metadata__" {
            continue;
        }
        assert_eq!(entry["dtype"], "F32", "{name}");
        let shape = entry["shape"].as_array().unwrap().iter().map(number).collect();
        let range = number(&entry["data_offsets"][0])..number(&entry["data_offsets"][1]);
        let data = body[range].as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        arrays.insert(name.clone(), Array { shape, data });
    }
    (arrays, header["__metadata__"].clone())
}

/// An array of numbers as token ids.
pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// A number as a float.
pub fn float(value: &Value) -> f32 {
    value.as_f64().unwrap() as f32
}

/// A language by its code.
pub fn language(value: &Value) -> Language {
    value.as_str().unwrap().parse().unwrap()
}

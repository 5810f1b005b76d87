//! Test assets, a small safetensors reader, and signal measures.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The asset folder, or `None` with a loud note when it is absent.
pub fn assets(test: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("TENSORYARD_ASSETS") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/assets"),
    };
    if root.join("audio/manifest.tsv").is_file() {
        return Some(root);
    }
    if std::env::var("TENSORYARD_REQUIRE_ASSETS").is_ok_and(|value| value == "1") {
        panic!("{test}: no test assets in {}", root.display());
    }
    // Written past the harness, which hides what passing tests print.
    _ = writeln!(std::io::stderr(), "SKIPPED {test}: no test assets in {}", root.display());
    None
}

/// One line of the manifest.
pub struct Clip {
    pub file: String,
    pub seconds: f64,
    pub sample_rate: u32,
    pub channels: usize,
    pub codec: String,
}

pub fn manifest(assets: &Path) -> Vec<Clip> {
    let text = std::fs::read_to_string(assets.join("audio/manifest.tsv")).unwrap();
    let clips: Vec<Clip> = text
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Clip {
                file: fields[0].to_owned(),
                seconds: fields[3].parse().unwrap(),
                sample_rate: fields[4].parse().unwrap(),
                channels: fields[5].parse().unwrap(),
                codec: fields[6].to_owned(),
            }
        })
        .collect();
    assert!(clips.len() > 50, "only {} clips in the manifest", clips.len());
    clips
}

pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

/// Reads the f32 arrays and the metadata of a safetensors file.
pub fn safetensors(path: &Path) -> (HashMap<String, Array>, serde_json::Value) {
    let bytes = std::fs::read(path).unwrap();
    let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header_len]).unwrap();
    let body = &bytes[8 + header_len..];
    let mut arrays = HashMap::new();
    for (name, entry) in header.as_object().unwrap() {
        if entry["dtype"] != "F32" {
            continue;
        }
        let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
        let shape = entry["shape"].as_array().unwrap().iter().map(number).collect();
        let range = number(&entry["data_offsets"][0])..number(&entry["data_offsets"][1]);
        let data = body[range].as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        arrays.insert(name.clone(), Array { shape, data });
    }
    (arrays, header["__metadata__"].clone())
}

pub fn sha256_of_f32(samples: &[f32]) -> String {
    let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Correlation of two signals at the best lag within `max_lag` samples.
pub fn best_correlation(a: &[f32], b: &[f32], max_lag: i64) -> (f64, i64) {
    (-max_lag..=max_lag)
        .map(|lag| (correlation(a, b, lag), lag))
        .max_by(|x, y| x.0.total_cmp(&y.0))
        .unwrap()
}

fn correlation(a: &[f32], b: &[f32], lag: i64) -> f64 {
    let (a, b) = if lag >= 0 {
        (a.get(lag as usize..).unwrap_or(&[]), b)
    } else {
        (a, b.get((-lag) as usize..).unwrap_or(&[]))
    };
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&x, &y) in a.iter().zip(b) {
        let (x, y) = (f64::from(x), f64::from(y));
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    ab / (aa * bb).sqrt().max(1e-12)
}

/// A repeatable noise in `-1.0..1.0`.
pub fn noise(n: usize, mut state: u64) -> Vec<f32> {
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Builds a WAV file chunk by chunk.
pub struct WavBuilder(Vec<u8>);

impl WavBuilder {
    pub fn new() -> Self {
        Self(b"RIFF\0\0\0\0WAVE".to_vec())
    }

    pub fn chunk(mut self, id: &[u8; 4], body: &[u8]) -> Self {
        self.0.extend_from_slice(id);
        self.0.extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.0.extend_from_slice(body);
        if body.len() % 2 == 1 {
            self.0.push(0);
        }
        self
    }

    pub fn format(self, tag: u16, channels: u16, rate: u32, bits: u16) -> Self {
        self.chunk(b"fmt ", &format_body(tag, channels, rate, bits))
    }

    /// A data chunk whose declared size is not that of the body.
    pub fn data_declared(mut self, size: u32, body: &[u8]) -> Self {
        self.0.extend_from_slice(b"data");
        self.0.extend_from_slice(&size.to_le_bytes());
        self.0.extend_from_slice(body);
        self
    }

    pub fn build(mut self) -> Vec<u8> {
        let size = self.0.len() as u32 - 8;
        self.0[4..8].copy_from_slice(&size.to_le_bytes());
        self.0
    }

    pub fn build_with_riff_size(mut self, size: u32) -> Vec<u8> {
        self.0[4..8].copy_from_slice(&size.to_le_bytes());
        self.0
    }
}

pub fn format_body(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
    let align = channels.wrapping_mul(bits.div_ceil(8));
    let mut body = Vec::new();
    body.extend_from_slice(&tag.to_le_bytes());
    body.extend_from_slice(&channels.to_le_bytes());
    body.extend_from_slice(&rate.to_le_bytes());
    body.extend_from_slice(&rate.wrapping_mul(u32::from(align)).to_le_bytes());
    body.extend_from_slice(&align.to_le_bytes());
    body.extend_from_slice(&bits.to_le_bytes());
    body
}

//! A model that is made here, the real one if it is there, and signals.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tensoryard::formats::ggml_whisper::{GgmlTensor, GgmlWhisperHeader, write_ggml_whisper};
use tensoryard::formats::whisper::{MelFilters, TensorRole, WhisperConfig, tensor_specs};
use tensoryard::graph::{DType, Shape};

/// The `tiny.en` model, or `None` after saying that a test is skipped.
pub fn real_model(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("TENSORYARD_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
        PathBuf::from,
    );
    let places = ["whisper-tiny.en-ct2", "tiny.en.gguf", "models/tiny.en.gguf"];
    let found = places.iter().map(|place| root.join(place)).find(|path| path.exists());
    if found.is_none() {
        let missing = format!("none of {} in {}", places.join(", "), root.display());
        let required =
            std::env::var_os("TENSORYARD_REQUIRE_ASSETS").is_some_and(|value| value == "1");
        assert!(!required, "{test}: {missing}");
        // Written past the harness, which hides what passing tests print.
        _ = writeln!(std::io::stderr(), "SKIPPED {test}: {missing}");
    }
    found
}

/// The sample that comes with the program, and its text.
pub fn sample() -> (PathBuf, String) {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tensoryard/assets");
    let text = std::fs::read_to_string(assets.join("sample.txt")).unwrap();
    (assets.join("sample.wav"), text.trim().to_owned())
}

/// The smallest shape of a Whisper model, with this state and number of layers.
pub fn config(n_state: usize, n_layers: usize) -> WhisperConfig {
    WhisperConfig {
        n_vocab: 6,
        n_audio_ctx: 3,
        n_audio_state: n_state,
        n_audio_head: 2,
        n_audio_layer: n_layers,
        n_text_ctx: 5,
        n_text_state: n_state,
        n_text_head: 2,
        n_text_layer: n_layers,
        n_mels: 2,
    }
}

/// A file whose long writes leave holes: they are all zeros here.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() < 4096 {
            return self.0.write(bytes);
        }
        self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes an f32 model of zeros as a ggml Whisper file.
pub fn write_model(path: &Path, config: &WhisperConfig) {
    let mel_filters = MelFilters::new(2, 3, vec![0.5; 6]).unwrap();
    let tokens: Vec<Vec<u8>> = (b'a'..b'g').map(|letter| vec![letter]).collect();
    let mut out = Sparse(File::create(path).unwrap());
    write_tensors(&mut out, config, &mel_filters, &tokens, &mut |_, elements| {
        vec![0; 4 * elements]
    });
    let end = out.0.stream_position().unwrap();
    out.0.set_len(end).unwrap();
}

/// The library of the sample driver, built once for all tests.
pub fn sample_driver() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample-driver");
        let package = "tensoryard-sample-driver";
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--offline", "--quiet", "-p", package, "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "the sample driver does not build");
        let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        target.join("debug").join(format!("{prefix}tensoryard_sample_driver{suffix}"))
    });
    &LIBRARY
}

/// Writes an f32 model with the vocabulary of the English models and weights that mean nothing,
/// as a ggml Whisper file: what it writes is nonsense, and the same each time.
pub fn write_babbling_model(path: &Path) {
    let config = WhisperConfig {
        n_vocab: 51_864,
        n_audio_ctx: 1500,
        n_text_ctx: 32,
        n_mels: 80,
        ..config(8, 2)
    };
    let mel_filters = MelFilters::new(80, 201, vec![0.01; 80 * 201]).unwrap();
    let token = |number: usize| match u8::try_from(number) {
        Ok(byte) => vec![byte],
        Err(_) => format!(" word{number}").into_bytes(),
    };
    let tokens: Vec<Vec<u8>> = (0..50_256).map(token).collect();
    let mut state = 7u64;
    let mut out = File::create(path).unwrap();
    write_tensors(&mut out, &config, &mel_filters, &tokens, &mut |name, elements| {
        // Positions count for more than what was written, so that the text varies; times and the
        // end of the text are improbable, so that it is long.
        let (scale, n_random) = match name {
            "decoder.positional_embedding" | "decoder.ln.weight" => (8.0, elements),
            "decoder.token_embedding.weight" => (1.0, tokens.len() * config.n_text_state),
            _ => (1.0, elements),
        };
        let value = |index| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            if index < n_random { scale * random } else { 0.0 }
        };
        (0..elements).map(value).flat_map(f32::to_le_bytes).collect()
    });
}

fn write_tensors(
    out: &mut dyn Write,
    config: &WhisperConfig,
    mel_filters: &MelFilters,
    tokens: &[Vec<u8>],
    content: &mut dyn FnMut(&str, usize) -> Vec<u8>,
) {
    let tensors: Vec<GgmlTensor> = tensor_specs(config)
        .unwrap()
        .into_iter()
        .map(|spec| {
            let [a, b, c, _] = spec.shape.dims();
            // This format has the kernel of convolutions fastest.
            let shape = match spec.role {
                TensorRole::Conv => Shape::new(&[b, a, c]).unwrap(),
                _ => spec.shape,
            };
            GgmlTensor { name: spec.name, dtype: DType::F32, shape, rank: shape.rank() }
        })
        .collect();
    let header = GgmlWhisperHeader { config, matrix_type: DType::F32, mel_filters, tokens };
    write_ggml_whisper(out, &header, &tensors, &mut |index, sink| {
        let GgmlTensor { name, shape, .. } = &tensors[index];
        sink.put(&content(name, shape.elements()))
    })
    .unwrap();
}

/// Names of the files in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Sends Ctrl-C.
#[cfg(unix)]
pub fn interrupt(child: &std::process::Child) {
    let id = child.id().to_string();
    let status = std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(status.success());
}

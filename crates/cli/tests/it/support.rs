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
    let mel_filters = MelFilters::new(2, 3, vec![0.5; 6]).unwrap();
    let tokens: Vec<Vec<u8>> = (b'a'..b'g').map(|letter| vec![letter]).collect();
    let header = GgmlWhisperHeader {
        config,
        matrix_type: DType::F32,
        mel_filters: &mel_filters,
        tokens: &tokens,
    };
    let mut out = Sparse(File::create(path).unwrap());
    write_ggml_whisper(&mut out, &header, &tensors, &mut |index, sink| {
        let mut left = tensors[index].shape.elements() * 4;
        let zeros = vec![0; 1 << 20];
        while left > 0 {
            let part = left.min(zeros.len());
            sink.put(&zeros[..part])?;
            left -= part;
        }
        Ok(())
    })
    .unwrap();
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

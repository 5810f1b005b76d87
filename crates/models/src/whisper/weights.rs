//! A Whisper checkpoint as a source of weights for the runtime.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tensoryard_formats::whisper::WhisperCheckpoint;
use tensoryard_formats::{FileData, OpenOptions};
use tensoryard_graph::{DType, Layout};
use tensoryard_runtime::{SharedBytes, WeightSource};

use super::extras::open_checkpoint;

/// Gives each tensor in the type that the graphs ask for: matrices in one type, vectors as f32.
pub(super) struct CheckpointWeights<'a> {
    pub(super) checkpoint: &'a WhisperCheckpoint,
    pub(super) matrix: DType,
}

/// The weights of a file that is opened again when somebody asks for them: a device that fails
/// takes its weights with it.
pub(super) struct FileWeights {
    path: PathBuf,
    open: OpenOptions,
    matrix: DType,
    checkpoint: OnceLock<Result<WhisperCheckpoint, String>>,
}

impl FileWeights {
    pub(super) fn new(path: &Path, open: OpenOptions, matrix: DType) -> Self {
        Self { path: path.to_owned(), open, matrix, checkpoint: OnceLock::new() }
    }

    fn weights(&self) -> Result<CheckpointWeights<'_>, String> {
        let opened = self.checkpoint.get_or_init(|| {
            open_checkpoint(&self.path, self.open).map_err(|error| error.to_string())
        });
        let checkpoint = opened.as_ref().map_err(Clone::clone)?;
        Ok(CheckpointWeights { checkpoint, matrix: self.matrix })
    }
}

impl WeightSource for FileWeights {
    fn layout(&self, name: &str) -> Option<Layout> {
        self.weights().ok()?.layout(name)
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        self.weights()?.read(name)
    }

    fn converts(&self, name: &str) -> bool {
        self.weights().is_ok_and(|weights| weights.converts(name))
    }

    fn release(&self, name: &str) {
        if let Ok(weights) = self.weights() {
            weights.release(name);
        }
    }
}

/// Bytes of a tensor inside a mapped file.
struct InFile {
    data: Arc<FileData>,
    range: Range<u64>,
}

impl AsRef<[u8]> for InFile {
    fn as_ref(&self) -> &[u8] {
        // Made only where the file said that the range can be borrowed.
        self.data.borrow(&self.range).unwrap_or_default()
    }
}

impl CheckpointWeights<'_> {
    fn dtype(&self, name: &str) -> Option<DType> {
        use tensoryard_formats::whisper::TensorRole;
        let tensor = self.checkpoint.tensor(name)?;
        Some(match tensor.role() {
            TensorRole::Linear | TensorRole::Embedding | TensorRole::Conv => self.matrix,
            TensorRole::Vector | TensorRole::Positional => DType::F32,
        })
    }
}

impl WeightSource for CheckpointWeights<'_> {
    fn layout(&self, name: &str) -> Option<Layout> {
        let shape = self.checkpoint.tensor(name)?.shape();
        Layout::contiguous(self.dtype(name)?, shape).ok()
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        let missing = || "is not in the file".to_owned();
        let tensor = self.checkpoint.tensor(name).ok_or_else(missing)?;
        let dtype = self.dtype(name).ok_or_else(missing)?;
        let in_place = tensor.in_place().filter(|_| !self.converts(name));
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = match in_place {
            Some((data, range)) => Arc::new(InFile { data: Arc::clone(data), range }),
            None => Arc::new(tensor.to_bytes(dtype).map_err(|error| error.to_string())?),
        };
        let bytes = (*owner).as_ref().len();
        SharedBytes::new(owner, 0..bytes).map_err(|error| error.to_string())
    }

    fn converts(&self, name: &str) -> bool {
        self.checkpoint.tensor(name).is_some_and(|tensor| {
            tensor.in_place().is_none() || Some(tensor.dtype()) != self.dtype(name)
        })
    }

    fn release(&self, name: &str) {
        if let Some(tensor) = self.checkpoint.tensor(name) {
            tensor.release();
        }
    }
}

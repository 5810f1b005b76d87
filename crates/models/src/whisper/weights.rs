//! A Whisper checkpoint as a source of weights for the runtime.

use std::ops::Range;
use std::sync::Arc;

use tensoryard_formats::FileData;
use tensoryard_formats::whisper::WhisperCheckpoint;
use tensoryard_graph::{DType, Layout};
use tensoryard_runtime::{SharedBytes, WeightSource};

/// Gives each tensor in the type that the graphs ask for: matrices in one type, vectors as f32.
pub(super) struct CheckpointWeights<'a> {
    pub(super) checkpoint: &'a WhisperCheckpoint,
    pub(super) matrix: DType,
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
        let in_place = tensor.in_place().filter(|_| tensor.dtype() == dtype);
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = match in_place {
            Some((data, range)) => Arc::new(InFile { data: Arc::clone(data), range }),
            None => Arc::new(tensor.to_bytes(dtype).map_err(|error| error.to_string())?),
        };
        let bytes = (*owner).as_ref().len();
        SharedBytes::new(owner, 0..bytes).map_err(|error| error.to_string())
    }

    fn release(&self, name: &str) {
        if let Some(tensor) = self.checkpoint.tensor(name) {
            tensor.release();
        }
    }
}

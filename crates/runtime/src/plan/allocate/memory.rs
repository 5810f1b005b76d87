//! The compute memory of a plan: which value lies where.

use std::sync::Arc;

use tensoryard_graph::{TensorId, TensorMap};

use crate::BufferType;

/// Where the memory of a tensor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// No memory: nothing reads the tensor, or it exists only inside a fused operation.
    None,
    /// A weight or state tensor.
    External,
    /// Memory of its own.
    Fresh(Place),
    /// The memory of a tensor whose last reader this is.
    Reuses {
        /// That tensor.
        parent: TensorId,
        /// The memory, or as much of it as is needed.
        place: Place,
    },
    /// Inside the memory of another tensor.
    Within {
        /// The tensor that owns the memory.
        root: TensorId,
        /// Distance in bytes from its first element.
        offset_bytes: usize,
    },
}

/// A range of a workspace chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the chunk, counted over all pools.
    pub chunk: usize,
    /// First byte.
    pub offset_bytes: usize,
    /// Bytes taken, padding included.
    pub bytes: usize,
}

/// Compute memory of one kind.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The kind of memory.
    pub buffer_type: Arc<dyn BufferType>,
}

/// A piece of compute memory that is one allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its kind, as a position in [`MemoryPlan::pools`].
    pub pool: usize,
    /// Its size.
    pub bytes: usize,
    /// It holds inputs, arrivals and outputs, each of which has its bytes alone for the whole
    /// run. Several copies of it let runs overlap.
    pub staged: bool,
}

/// The compute memory of a plan.
#[derive(Debug, Clone)]
#[doc(alias = "ggml_gallocr")]
pub struct MemoryPlan {
    /// The kinds of memory.
    pub pools: Vec<Pool>,
    /// The chunks of all pools.
    pub chunks: Vec<Chunk>,
    /// How often each staged chunk is there.
    pub copies: usize,
    /// Slots of the graph's tensors.
    pub tensors: TensorMap<Slot>,
    /// Places of the arrivals.
    pub arrivals: Vec<Place>,
    /// Places of the temporaries.
    pub temporaries: Vec<Place>,
}

impl MemoryPlan {
    /// Where a tensor's own first element lies in compute memory; `None` for weights, state and
    /// tensors without memory.
    pub fn locate(&self, id: TensorId) -> Option<Place> {
        let own = |id: TensorId| match self.tensors[id] {
            Slot::None | Slot::External | Slot::Within { .. } => None,
            Slot::Fresh(place) | Slot::Reuses { place, .. } => Some(place),
        };
        match self.tensors[id] {
            Slot::None | Slot::External | Slot::Fresh(_) | Slot::Reuses { .. } => own(id),
            Slot::Within { root, offset_bytes } => {
                let place = own(root)?;
                let bytes = place.bytes.saturating_sub(offset_bytes);
                let offset_bytes = place.offset_bytes + offset_bytes;
                Some(Place { chunk: place.chunk, offset_bytes, bytes })
            }
        }
    }

    /// Bytes of a chunk, of all its copies if it is staged.
    pub fn chunk_bytes(&self, chunk: &Chunk) -> usize {
        if chunk.staged { chunk.bytes.saturating_mul(self.copies) } else { chunk.bytes }
    }

    /// The buffer type of a chunk.
    pub fn buffer_type(&self, chunk: usize) -> Option<&Arc<dyn BufferType>> {
        let chunk = self.chunks.get(chunk)?;
        self.pools.get(chunk.pool).map(|pool| &pool.buffer_type)
    }
}

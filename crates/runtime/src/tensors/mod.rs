//! Tensors that lie in buffers of the caller's, and the movement of their data.
//!
//! A [`Tensors`] is a set of named tensors and views with the buffers that hold them. It is the
//! way to memory for programs that place tensors themselves; sessions do not need it. Everything
//! goes through the set: writing takes it by `&mut`, so that no two threads write a buffer, and
//! what queues still do is waited for. Every error names the tensor, the offset and the size.

mod copy;
mod data;
mod error;
mod place;
mod queue;

use tensoryard_graph::Layout;

pub use copy::CopyPath;
pub use data::Strided;
pub use error::TensorDataError;
pub use place::LinearPlacer;

use crate::Buffer;

/// A tensor of a [`Tensors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorKey(usize);

/// A buffer of a [`Tensors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferKey(usize);

impl BufferKey {
    /// Position among [`Tensors::buffers`].
    pub fn number(self) -> usize {
        self.0
    }
}

/// Where a tensor lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorPlace {
    /// The buffer.
    pub buffer: BufferKey,
    /// Distance in bytes from the start of the buffer to the first element.
    pub offset_bytes: usize,
}

/// What a view looks into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ViewInto {
    /// The tensor that owns the memory; never a view itself.
    pub base: TensorKey,
    /// Distance in bytes from its first element to that of the view.
    pub offset_bytes: usize,
}

/// What is known of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSlot {
    name: String,
    layout: Layout,
    view: Option<ViewInto>,
    place: Option<TensorPlace>,
}

impl TensorSlot {
    /// Name, for errors and reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type, shape and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What it looks into, if it is a view.
    pub fn view(&self) -> Option<ViewInto> {
        self.view
    }

    /// Where it lies, once it was placed or, as a view, initialised.
    pub fn place(&self) -> Option<TensorPlace> {
        self.place
    }
}

/// What copies between tensors have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyCounters {
    /// Tensors copied.
    pub copies: u64,
    /// Bytes of them.
    pub copied_bytes: u64,
    /// Those among them that went from device to device through host memory.
    pub slow_copies: u64,
}

/// Tensors with the buffers that hold them.
#[derive(Debug, Default)]
pub struct Tensors {
    slots: Vec<TensorSlot>,
    buffers: Vec<Buffer>,
    counters: CopyCounters,
}

impl Tensors {
    /// No tensors, no buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor that has no memory yet.
    pub fn add(&mut self, name: impl Into<String>, layout: Layout) -> TensorKey {
        self.push(TensorSlot { name: name.into(), layout, view: None, place: None })
    }

    /// Adds a view of a tensor, or of a view of one. Whether it lies inside is checked when it is
    /// initialised: see [`Tensors::init_view`].
    ///
    /// # Errors
    /// A base that is not of this set.
    pub fn add_view(
        &mut self,
        name: impl Into<String>,
        base: TensorKey,
        offset_bytes: usize,
        layout: Layout,
    ) -> Result<TensorKey, TensorDataError> {
        let view = match self.slot(base)?.view {
            Some(into) => {
                let offset_bytes = into.offset_bytes.saturating_add(offset_bytes);
                ViewInto { base: into.base, offset_bytes }
            }
            None => ViewInto { base, offset_bytes },
        };
        Ok(self.push(TensorSlot { name: name.into(), layout, view: Some(view), place: None }))
    }

    /// Adds a buffer that tensors can be placed in.
    pub fn add_buffer(&mut self, buffer: Buffer) -> BufferKey {
        self.buffers.push(buffer);
        BufferKey(self.buffers.len() - 1)
    }

    fn push(&mut self, slot: TensorSlot) -> TensorKey {
        self.slots.push(slot);
        TensorKey(self.slots.len() - 1)
    }

    /// What is known of a tensor.
    ///
    /// # Errors
    /// A tensor that is not of this set.
    pub fn slot(&self, tensor: TensorKey) -> Result<&TensorSlot, TensorDataError> {
        let unknown = TensorDataError::UnknownTensor { number: tensor.0, count: self.slots.len() };
        self.slots.get(tensor.0).ok_or(unknown)
    }

    /// The first tensor of a name.
    pub fn find(&self, name: &str) -> Option<TensorKey> {
        self.slots.iter().position(|slot| slot.name == name).map(TensorKey)
    }

    /// All tensors in order.
    pub fn keys(&self) -> impl Iterator<Item = TensorKey> + use<> {
        (0..self.slots.len()).map(TensorKey)
    }

    /// A buffer.
    ///
    /// # Errors
    /// A buffer that is not of this set.
    pub fn buffer(&self, buffer: BufferKey) -> Result<&Buffer, TensorDataError> {
        let count = self.buffers.len();
        let unknown = TensorDataError::UnknownBuffer { number: buffer.0, count };
        self.buffers.get(buffer.0).ok_or(unknown)
    }

    fn buffer_mut(&mut self, buffer: BufferKey) -> Result<&mut Buffer, TensorDataError> {
        let count = self.buffers.len();
        let unknown = TensorDataError::UnknownBuffer { number: buffer.0, count };
        self.buffers.get_mut(buffer.0).ok_or(unknown)
    }

    /// All buffers, in the order of their keys.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Sets every byte of a buffer.
    ///
    /// # Errors
    /// A buffer that is not of this set; read-only memory.
    pub fn clear_buffer(&mut self, buffer: BufferKey, byte: u8) -> Result<(), TensorDataError> {
        let buffer = self.buffer_mut(buffer)?;
        buffer.clear(byte).map_err(|error| error::in_buffer(buffer, error))
    }

    /// Resets a buffer and takes its tensors out of it, so that they can be placed anew. The
    /// contents are undefined afterwards.
    ///
    /// # Errors
    /// A buffer that is not of this set.
    pub fn reset_buffer(&mut self, buffer: BufferKey) -> Result<(), TensorDataError> {
        self.buffer_mut(buffer)?.reset();
        for slot in &mut self.slots {
            slot.place = slot.place.filter(|place| place.buffer != buffer);
        }
        Ok(())
    }

    /// What copies into tensors of this set have cost.
    pub fn counters(&self) -> CopyCounters {
        self.counters
    }
}

//! Places for tensors: one by one, one after the other in a buffer, or a whole set at once.

use std::sync::Arc;

use super::error::Access;
use super::{BufferKey, TensorDataError, TensorKey, TensorPlace, TensorSlot, Tensors};
use crate::{Buffer, BufferType, MemoryError, PlacedLayout, Usage};

/// Where the tensors of a set go, before anything is allocated.
#[derive(Debug, Default)]
struct Arrangement {
    /// For each tensor the number of its buffer and the offset there.
    places: Vec<(TensorKey, usize, usize)>,
    sizes: Vec<usize>,
}

impl Tensors {
    /// Gives a tensor a place in a buffer. Nothing keeps two tensors apart here.
    ///
    /// # Errors
    /// A tensor that is placed already, or is a view; a place that is misaligned or, padding
    /// counted, reaches beyond the buffer; a tensor that the memory refuses.
    #[doc(alias = "ggml_backend_tensor_alloc")]
    pub fn place(
        &mut self,
        tensor: TensorKey,
        buffer: BufferKey,
        offset_bytes: usize,
    ) -> Result<(), TensorDataError> {
        let slot = self.unplaced(tensor)?;
        if let Some(view) = slot.view {
            let base = self.slot(view.base)?.name.clone();
            return Err(TensorDataError::PlacedView { tensor: slot.name.clone(), base });
        }
        let into = self.buffer(buffer)?;
        let buffer_type = || into.name().to_owned();
        let alignment = alignment(into, slot);
        let address = into.base().unwrap_or(0).checked_add(offset_bytes);
        if !address.is_some_and(|address| address.is_multiple_of(alignment)) {
            return Err(TensorDataError::Misaligned {
                tensor: slot.name.clone(),
                offset_bytes,
                buffer_type: buffer_type(),
                alignment,
            });
        }
        let bytes = into.tensor_bytes(&slot.layout);
        if offset_bytes.checked_add(bytes).is_none_or(|end| end > into.size()) {
            return Err(TensorDataError::BeyondBuffer {
                tensor: slot.name.clone(),
                offset_bytes,
                bytes,
                buffer_type: buffer_type(),
                size: into.size(),
            });
        }
        let placed = PlacedLayout { offset_bytes, layout: slot.layout, base: None };
        self.init(tensor, buffer, placed)
    }

    /// Gives a view its place in the buffer of its base.
    ///
    /// # Errors
    /// A tensor that is no view, or is initialised already; a base without memory; a view that
    /// reaches beyond its base or is misaligned for its elements; one that the memory refuses.
    #[doc(alias = "ggml_backend_view_init")]
    pub fn init_view(&mut self, view: TensorKey) -> Result<(), TensorDataError> {
        let slot = self.unplaced(view)?;
        let tensor = || slot.name.clone();
        let into = slot.view.ok_or_else(|| TensorDataError::NotAView { tensor: tensor() })?;
        let base = self.slot(into.base)?;
        let unplaced =
            || TensorDataError::BaseUnplaced { tensor: tensor(), base: base.name.clone() };
        let place = base.place.ok_or_else(unplaced)?;
        let (bytes, size) = (slot.layout.extent_bytes(), base.layout.extent_bytes());
        if into.offset_bytes.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(TensorDataError::BeyondBase {
                tensor: tensor(),
                base: base.name.clone(),
                offset_bytes: into.offset_bytes,
                bytes,
                size,
            });
        }
        let buffer = self.buffer(place.buffer)?;
        // Inside the base, which lies inside the buffer.
        let offset_bytes = place.offset_bytes + into.offset_bytes;
        let alignment = slot.layout.dtype().alignment();
        if !(buffer.base().unwrap_or(0) + offset_bytes).is_multiple_of(alignment) {
            return Err(TensorDataError::Misaligned {
                tensor: tensor(),
                offset_bytes,
                buffer_type: buffer.name().to_owned(),
                alignment,
            });
        }
        let placed = PlacedLayout {
            offset_bytes,
            layout: slot.layout,
            base: Some((place.offset_bytes, base.layout)),
        };
        self.init(view, place.buffer, placed)
    }

    /// The sizes of the buffers that [`Tensors::place_all`] would allocate now.
    ///
    /// # Errors
    /// A tensor larger than the largest buffer.
    #[doc(alias = "ggml_backend_alloc_ctx_tensors_from_buft_size")]
    pub fn measure(
        &self,
        buffer_type: &Arc<dyn BufferType>,
    ) -> Result<Vec<usize>, TensorDataError> {
        Ok(self.arrange(buffer_type)?.sizes)
    }

    /// Places every tensor that has no memory yet in new buffers: one, or several when the
    /// largest of that type is too small, or one of no bytes when there is nothing to place.
    /// Then initialises every view of a tensor that has memory.
    ///
    /// # Errors
    /// A tensor larger than the largest buffer; no memory; a tensor or view that cannot be
    /// placed. Nothing is placed or allocated then.
    #[doc(alias = "ggml_backend_alloc_ctx_tensors_from_buft")]
    #[doc(alias = "ggml_backend_alloc_ctx_tensors")]
    pub fn place_all(
        &mut self,
        buffer_type: &Arc<dyn BufferType>,
        usage: Usage,
    ) -> Result<Vec<BufferKey>, TensorDataError> {
        let arrangement = self.arrange(buffer_type)?;
        let (first, known) = (self.buffers.len(), self.slots.clone());
        let allocate = |&bytes: &usize| {
            Buffer::allocate(buffer_type, bytes, usage).map_err(|error| {
                let buffer_type = buffer_type.name().to_owned();
                TensorDataError::Buffer { buffer_type, bytes, error }
            })
        };
        let buffers: Vec<Buffer> =
            arrangement.sizes.iter().map(allocate).collect::<Result<_, _>>()?;
        self.buffers.extend(buffers);
        let outcome = self.carry_out(&arrangement, first);
        if outcome.is_err() {
            self.buffers.truncate(first);
            self.slots = known;
        }
        outcome?;
        Ok((first..self.buffers.len()).map(BufferKey).collect())
    }

    fn carry_out(
        &mut self,
        arrangement: &Arrangement,
        first: usize,
    ) -> Result<(), TensorDataError> {
        for &(tensor, buffer, offset_bytes) in &arrangement.places {
            self.place(tensor, BufferKey(first + buffer), offset_bytes)?;
        }
        for view in self.keys() {
            let slot = self.slot(view)?;
            let Some(into) = slot.view.filter(|_| slot.place.is_none()) else { continue };
            if self.slot(into.base)?.place.is_some() {
                self.init_view(view)?;
            }
        }
        Ok(())
    }

    fn arrange(&self, buffer_type: &Arc<dyn BufferType>) -> Result<Arrangement, TensorDataError> {
        let (alignment, max) = (buffer_type.alignment(), buffer_type.max_size());
        let mut arrangement = Arrangement::default();
        for tensor in self.keys() {
            let slot = self.slot(tensor)?;
            if slot.view.is_some() || slot.place.is_some() {
                continue;
            }
            let bytes = buffer_type.tensor_bytes(&slot.layout);
            if bytes > max {
                let buffer_type = buffer_type.name().to_owned();
                let access = Access { tensor: &slot.name, offset_bytes: 0, bytes };
                return Err(access.memory(MemoryError::TooLarge { buffer_type, bytes, max }));
            }
            let next = arrangement.sizes.last().and_then(|&end| {
                let offset = end.checked_next_multiple_of(alignment)?;
                let end = offset.checked_add(bytes).filter(|&end| end <= max)?;
                Some((offset, end))
            });
            let (offset, end) = next.unwrap_or((0, bytes));
            match arrangement.sizes.last_mut().filter(|_| next.is_some()) {
                Some(last) => *last = end,
                None => arrangement.sizes.push(end),
            }
            arrangement.places.push((tensor, arrangement.sizes.len() - 1, offset));
        }
        if arrangement.sizes.is_empty() {
            arrangement.sizes.push(0);
        }
        Ok(arrangement)
    }

    fn unplaced(&self, tensor: TensorKey) -> Result<&TensorSlot, TensorDataError> {
        let slot = self.slot(tensor)?;
        if slot.place.is_some() {
            return Err(TensorDataError::AlreadyPlaced { tensor: slot.name.clone() });
        }
        Ok(slot)
    }

    fn init(
        &mut self,
        tensor: TensorKey,
        buffer: BufferKey,
        placed: PlacedLayout,
    ) -> Result<(), TensorDataError> {
        let outcome = self.buffer_mut(buffer)?.memory_mut().init_tensor(&placed);
        let PlacedLayout { offset_bytes, layout, .. } = placed;
        let slot = &mut self.slots[tensor.0];
        let bytes = layout.extent_bytes();
        outcome
            .map_err(|error| Access { tensor: &slot.name, offset_bytes, bytes }.memory(error))?;
        slot.place = Some(TensorPlace { buffer, offset_bytes });
        Ok(())
    }
}

fn alignment(buffer: &Buffer, slot: &TensorSlot) -> usize {
    buffer.alignment().max(slot.layout.dtype().alignment())
}

/// Places tensors one after the other in a buffer.
#[derive(Debug, Clone)]
#[doc(alias = "ggml_tallocr")]
pub struct LinearPlacer {
    buffer: BufferKey,
    used_bytes: usize,
}

impl LinearPlacer {
    /// Begins at the start of a buffer.
    #[doc(alias = "ggml_tallocr_new")]
    pub fn new(buffer: BufferKey) -> Self {
        Self { buffer, used_bytes: 0 }
    }

    /// Places a tensor behind those placed before, at the next aligned address.
    ///
    /// # Errors
    /// As of [`Tensors::place`]; nothing is used up then.
    #[doc(alias = "ggml_tallocr_alloc")]
    pub fn place(
        &mut self,
        tensors: &mut Tensors,
        tensor: TensorKey,
    ) -> Result<(), TensorDataError> {
        let slot = tensors.slot(tensor)?;
        let buffer = tensors.buffer(self.buffer)?;
        let base = buffer.base().unwrap_or(0);
        let next = base
            .checked_add(self.used_bytes)
            .and_then(|address| address.checked_next_multiple_of(alignment(buffer, slot)));
        let offset_bytes = next.map_or(usize::MAX, |address| address - base);
        let bytes = buffer.tensor_bytes(&slot.layout);
        tensors.place(tensor, self.buffer, offset_bytes)?;
        self.used_bytes = offset_bytes + bytes;
        Ok(())
    }

    /// Bytes from the start of the buffer to the end of the last tensor.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }
}

//! Setting and getting the data of tensors in the order of a queue.
//!
//! What was queued on a buffer before, on whatever queue, comes first, and what is queued on it
//! later comes after. A queue without transfers is waited for, and the data moved at once.

use std::sync::{Arc, Mutex};

use super::data::{Source, Target};
use super::error::Access;
use super::{BufferKey, Strided, TensorDataError, TensorKey, Tensors};
use crate::shared::SharedMemory;
use crate::submission::{Bindings, BoundRegion, Submission};
use crate::{Backend, DeviceError, Event, Location, PendingRead, Region};

/// Memory of one or two buffers for a transfer.
pub(super) fn bind(buffers: &[&Arc<SharedMemory>]) -> Arc<Bindings> {
    let bound = |shared: &&Arc<SharedMemory>| {
        let shared = Arc::clone(shared);
        BoundRegion { shared, offset_bytes: 0 }
    };
    Arc::new(Bindings {
        weights: Vec::new(),
        states: Vec::new(),
        chunks: buffers.iter().map(bound).collect(),
        splits: Vec::new(),
    })
}

/// What the queue is given next comes after what was queued on the memory before.
pub(super) fn order(backend: &mut dyn Backend, memory: &SharedMemory) -> Result<(), DeviceError> {
    match memory.last() {
        Some(event) => backend.wait(&event),
        None => Ok(()),
    }
}

/// What the queue was given last is the last work on the memory.
pub(super) fn stamp(backend: &mut dyn Backend, memory: &SharedMemory) -> Result<(), DeviceError> {
    let end = if backend.is_asynchronous() { Some(backend.record()?) } else { None };
    memory.set_last(end);
    Ok(())
}

fn location(target: &Target) -> Location {
    let &Target { offset_bytes, layout, .. } = target;
    Location { region: Region::Chunk(0), offset_bytes, layout }
}

impl Tensors {
    /// Writes bytes of a tensor in the order of a queue. The bytes are copied before this returns.
    ///
    /// # Errors
    /// As of [`Tensors::set`]; what the queue refuses. What goes wrong later is told by the queue.
    #[doc(alias = "ggml_backend_tensor_set_async")]
    pub fn set_async(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: &[u8],
    ) -> Result<(), TensorDataError> {
        match self.writable(tensor, offset_bytes, bytes.len())? {
            Some(target) => self.queue_write(backend, tensor, offset_bytes, target, bytes),
            None => Ok(()),
        }
    }

    /// Reads bytes of a tensor in the order of a queue.
    ///
    /// # Errors
    /// As of [`Tensors::get`]; what the queue refuses.
    #[doc(alias = "ggml_backend_tensor_get_async")]
    pub fn get_async(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<PendingRead, TensorDataError> {
        match self.readable(tensor, offset_bytes, bytes)? {
            Some(source) => self.queue_read(backend, tensor, offset_bytes, bytes, &source),
            None => Ok(at_once(Vec::new())),
        }
    }

    /// Sets a range of bytes of a tensor to one value, in the order of a queue.
    ///
    /// # Errors
    /// As of [`Tensors::set_async`].
    pub fn fill_async(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        byte: u8,
    ) -> Result<(), TensorDataError> {
        let Some(target) = self.writable(tensor, offset_bytes, bytes)? else { return Ok(()) };
        let data = self.allocate_bytes(tensor, offset_bytes, bytes, byte)?;
        self.queue_write(backend, tensor, offset_bytes, target, &data)
    }

    /// Writes rows of bytes at even distances, in the order of a queue. The bytes are copied
    /// before this returns.
    ///
    /// # Errors
    /// As of [`Tensors::set_2d`]; what the queue refuses.
    #[doc(alias = "ggml_backend_tensor_set_2d_async")]
    pub fn set_2d_async(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        rows: &Strided,
        src: &[u8],
    ) -> Result<(), TensorDataError> {
        let Some((target, data)) = self.gather(tensor, rows, src)? else { return Ok(()) };
        self.queue_write(backend, tensor, rows.offset_bytes, target, &data)
    }

    /// Reads rows of bytes at even distances, in the order of a queue. The rows follow one
    /// another in the result, whatever the host's distance is.
    ///
    /// # Errors
    /// As of [`Tensors::get_2d`]; what the queue refuses.
    #[doc(alias = "ggml_backend_tensor_get_2d_async")]
    pub fn get_2d_async(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        rows: &Strided,
    ) -> Result<PendingRead, TensorDataError> {
        let packed = Strided { host_stride: rows.row_bytes, ..*rows };
        let bytes = rows.row_bytes.saturating_mul(rows.rows);
        let Some(source) = self.readable_rows(tensor, &packed, bytes)? else {
            return Ok(at_once(Vec::new()));
        };
        if source.cut.is_some() {
            self.synchronize(backend, tensor, rows.offset_bytes, bytes)?;
            let mut data = self.allocate_bytes(tensor, rows.offset_bytes, bytes, 0)?;
            self.get_2d(tensor, &packed, &mut data)?;
            return Ok(at_once(data));
        }
        self.queue_read(backend, tensor, rows.offset_bytes, bytes, &source)
    }

    fn queue_write(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        offset_bytes: usize,
        target: Target,
        data: &[u8],
    ) -> Result<(), TensorDataError> {
        if backend.transfers().is_none() {
            self.synchronize(backend, tensor, offset_bytes, data.len())?;
            return self.write_target(tensor, offset_bytes, target, data);
        }
        let outcome =
            self.in_queue(backend, target.buffer, |backend, memory| match backend.transfers() {
                Some(transfers) => transfers.write(memory, &location(&target), data),
                None => Ok(()),
            })?;
        self.name_device(tensor, offset_bytes, data.len(), outcome)
    }

    fn queue_read(
        &mut self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        source: &Source,
    ) -> Result<PendingRead, TensorDataError> {
        if backend.transfers().is_none() || source.cut.is_some() {
            self.synchronize(backend, tensor, offset_bytes, bytes)?;
            let mut data = self.allocate_bytes(tensor, offset_bytes, bytes, 0)?;
            self.read_source(tensor, offset_bytes, source, &mut data)?;
            return Ok(at_once(data));
        }
        let target = source.target;
        let outcome =
            self.in_queue(backend, target.buffer, |backend, memory| match backend.transfers() {
                Some(transfers) => transfers.read(memory, &location(&target)),
                None => Ok(at_once(Vec::new())),
            })?;
        self.name_device(tensor, offset_bytes, bytes, outcome)
    }

    /// Queues work on a buffer after all that was queued on it before.
    fn in_queue<T>(
        &mut self,
        backend: &mut dyn Backend,
        buffer: BufferKey,
        work: impl FnOnce(&mut dyn Backend, Submission) -> Result<T, DeviceError>,
    ) -> Result<Result<T, DeviceError>, TensorDataError> {
        let shared = self.buffer(buffer)?.shared();
        let queue = || {
            order(backend, shared)?;
            let region = Region::Chunk(0);
            let done = work(backend, Submission::copy(&bind(&[shared]), region, region))?;
            stamp(backend, shared)?;
            Ok(done)
        };
        Ok(queue())
    }

    fn synchronize(
        &self,
        backend: &mut dyn Backend,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
    ) -> Result<(), TensorDataError> {
        self.name_device(tensor, offset_bytes, bytes, backend.synchronize())
    }

    pub(super) fn name_device<T>(
        &self,
        tensor: TensorKey,
        offset_bytes: usize,
        bytes: usize,
        outcome: Result<T, DeviceError>,
    ) -> Result<T, TensorDataError> {
        let tensor = &self.slot(tensor)?.name;
        outcome.map_err(|error| Access { tensor, offset_bytes, bytes }.device(error))
    }
}

fn at_once(bytes: Vec<u8>) -> PendingRead {
    PendingRead::new(Event::done(), Arc::new(Mutex::new(bytes)))
}

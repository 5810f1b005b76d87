//! Buffers of simulated devices.
//!
//! The bytes are plain host memory inside, where the host device computes; to everybody else they
//! are out of reach but for whole reads and writes. The queue of a device writes them through a
//! shared reference, in the order that the executor has made sure of.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use tensoryard_graph::Layout;
use tensoryard_runtime::{HostMemory, Memory, MemoryError, bytes_for};

use crate::pool::Pool;

/// Memory of a simulated device.
#[derive(Debug)]
pub(crate) struct SimMemory {
    pool: Arc<Pool>,
    host: HostMemory,
}

impl SimMemory {
    pub fn new(pool: &Arc<Pool>, host: HostMemory) -> Self {
        Self { pool: Arc::clone(pool), host }
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        self.pool.give_back(self.host.size());
    }
}

/// Where the host device computes: inside the memory of a simulated device.
pub(crate) fn inside(memory: &dyn Memory) -> &dyn Memory {
    memory.as_any().downcast_ref::<SimMemory>().map_or(memory, |memory| &memory.host)
}

/// Writes a tensor in the queue of a device.
///
/// # Safety
/// The memory was lent to the queue, and no other queue works on it now.
pub(crate) unsafe fn write_in_queue(
    memory: &dyn Memory,
    offset: usize,
    layout: &Layout,
    bytes: &[u8],
) -> Result<(), MemoryError> {
    let whole_only =
        || MemoryError::Layout { buffer_type: "this memory".to_owned(), layout: *layout };
    let host = inside(memory).host().ok_or_else(whole_only)?;
    // SAFETY: as the caller promises.
    unsafe { host.write_tensor_shared(offset, layout, bytes) }
}

// SAFETY: it leads to no host memory; what is inside is its own, and the engine reveals it to
// the host device alone.
unsafe impl Memory for SimMemory {
    fn size(&self) -> usize {
        self.host.size()
    }

    fn host(&self) -> Option<&HostMemory> {
        None
    }

    fn read_tensor(
        &self,
        offset: usize,
        layout: &Layout,
        dst: &mut [u8],
    ) -> Result<(), MemoryError> {
        self.pool.fate().check_memory()?;
        self.host.read_tensor(offset, layout, dst)
    }

    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        self.pool.fate().check_memory()?;
        self.host.write_tensor(offset, layout, src)
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        self.pool.fate().check_memory()?;
        self.host.clear(byte)
    }

    fn copy_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: Option<&dyn Memory>,
        src_offset: usize,
    ) -> Result<bool, MemoryError> {
        let src = match src.map(|src| src.as_any().downcast_ref::<SimMemory>()) {
            None => &*self,
            Some(Some(src)) => src,
            Some(None) => return Ok(false),
        };
        if self.pool.has_slow_copies() {
            return Ok(false);
        }
        let mut bytes = bytes_for(layout.data_bytes())?;
        src.read_tensor(src_offset, layout, &mut bytes)?;
        self.write_tensor(offset, layout, &bytes)?;
        Ok(true)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Pinned host memory: as any other, but known by its type.
#[derive(Debug)]
pub(crate) struct PinnedMemory(pub HostMemory);

// SAFETY: its host memory was allocated for it and is given to nobody.
unsafe impl Memory for PinnedMemory {
    fn size(&self) -> usize {
        self.0.size()
    }

    fn host(&self) -> Option<&HostMemory> {
        Some(&self.0)
    }

    fn host_mut(&mut self) -> Option<&mut HostMemory> {
        Some(&mut self.0)
    }

    fn read_tensor(
        &self,
        offset: usize,
        layout: &Layout,
        dst: &mut [u8],
    ) -> Result<(), MemoryError> {
        self.0.read_tensor(offset, layout, dst)
    }

    fn write_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        self.0.write_tensor(offset, layout, src)
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        self.0.clear(byte)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

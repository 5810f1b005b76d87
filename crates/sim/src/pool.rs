//! The kinds of memory of simulated devices: their own, and pinned host memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tensoryard_graph::Layout;
use tensoryard_runtime::{BufferType, DeviceRates, HostMemory, Memory, MemoryError};

use crate::SimOptions;
use crate::faults::Fate;
use crate::memory::{PinnedMemory, SimMemory};

/// Host memory is aligned at least so, for the vectors and cache lines of the host device.
const HOST_ALIGNMENT: usize = 64;

/// The memory that a device has, and others may share.
#[derive(Debug)]
pub(crate) struct Pool {
    name: String,
    capacity: usize,
    used: AtomicUsize,
    max_buffer: usize,
    alignment: usize,
    padding: usize,
    fill: Option<u8>,
    /// What transfers into and out of it cost.
    rates: DeviceRates,
    pinned_speedup: f64,
    slow_copies: bool,
    /// The life of the device that the memory is lost with.
    fate: Arc<Fate>,
}

impl Pool {
    pub fn new(name: &str, options: &SimOptions, fate: &Arc<Fate>) -> Self {
        Self {
            name: format!("{name} memory"),
            capacity: options.memory,
            used: AtomicUsize::new(0),
            max_buffer: options.max_buffer.min(options.memory),
            alignment: options.alignment,
            padding: options.padding,
            fill: options.fill,
            rates: options.rates,
            pinned_speedup: options.pinned_speedup,
            slow_copies: options.slow_copies,
            fate: Arc::clone(fate),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn free(&self) -> usize {
        self.capacity.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    pub fn fate(&self) -> &Fate {
        &self.fate
    }

    pub fn rates(&self) -> &DeviceRates {
        &self.rates
    }

    pub fn has_slow_copies(&self) -> bool {
        self.slow_copies
    }

    /// What transfers between it and pinned memory cost.
    pub fn pinned_rates(&self) -> DeviceRates {
        DeviceRates {
            to_device_bytes_per_s: self.rates.to_device_bytes_per_s * self.pinned_speedup,
            from_device_bytes_per_s: self.rates.from_device_bytes_per_s * self.pinned_speedup,
            ..self.rates
        }
    }

    /// Takes bytes, if there are as many.
    fn take(&self, bytes: usize) -> Result<(), String> {
        let fits = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.capacity);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        let reason = |used| format!("{} of {} bytes are free", self.capacity - used, self.capacity);
        taken.map(drop).map_err(reason)
    }

    pub fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn allocate(self: &Arc<Self>, size: usize) -> Result<SimMemory, MemoryError> {
        self.fate.check_memory()?;
        let no_room = |reason: String| MemoryError::NoRoom {
            buffer_type: self.name.clone(),
            bytes: size,
            alignment: self.alignment,
            padding: self.padding,
            max: self.max_buffer,
            reason,
        };
        if self.fate.allocates() {
            return Err(no_room("it was told to fail".to_owned()));
        }
        if size > self.max_buffer {
            return Err(no_room("the largest buffer is smaller".to_owned()));
        }
        self.take(size).map_err(no_room)?;
        let host = HostMemory::allocate(size, self.alignment.max(HOST_ALIGNMENT));
        let mut host = host.inspect_err(|_| self.give_back(size))?;
        if let Some(byte) = self.fill {
            host.clear(byte)?;
        }
        Ok(SimMemory::new(self, host))
    }
}

/// The kind of memory that a simulated device has for itself.
#[derive(Debug)]
pub(crate) struct SimBufferType(pub Arc<Pool>);

impl BufferType for SimBufferType {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn alignment(&self) -> usize {
        self.0.alignment
    }

    fn max_size(&self) -> usize {
        self.0.max_buffer
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes().saturating_add(self.0.padding)
    }

    fn is_host(&self) -> bool {
        false
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        Ok(Box::new(self.0.allocate(size)?))
    }
}

/// Host memory that simulated devices transfer from and to at a higher rate.
#[derive(Debug)]
pub(crate) struct PinnedBufferType;

impl BufferType for PinnedBufferType {
    fn name(&self) -> &str {
        "SIM_Pinned"
    }

    fn alignment(&self) -> usize {
        HOST_ALIGNMENT
    }

    fn max_size(&self) -> usize {
        isize::MAX as usize - HOST_ALIGNMENT
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes()
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        Ok(Box::new(PinnedMemory(HostMemory::allocate(size, HOST_ALIGNMENT)?)))
    }
}

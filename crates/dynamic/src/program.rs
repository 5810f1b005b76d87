//! Programs of a driver, and the memory that they are bound to.
//!
//! A driver gets memory that was checked: large enough, aligned for its elements, writable where
//! it is written, and what is written apart from all else.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use tensoryard_runtime::{Bound, Operand, Program, Region, Step, Submission};

use crate::abi;
use crate::describe::FlatSteps;
use crate::library::{Failure, Library};
use crate::memory::DynamicMemory;

/// A program of a driver, freed when dropped.
#[derive(Debug)]
pub(crate) struct DynamicProgram {
    library: Arc<Library>,
    pub handle: NonNull<abi::Program>,
    device: u64,
    regions: Vec<RegionUse>,
    reads_host_memory: bool,
}

/// A region, which is one binding, with what the program needs of it.
#[derive(Debug)]
struct RegionUse {
    region: Region,
    bytes: usize,
    is_written: bool,
    alignment: usize,
}

// SAFETY: the header lets programs be used and freed from any thread; they do not change.
unsafe impl Send for DynamicProgram {}
// SAFETY: as for `Send`.
unsafe impl Sync for DynamicProgram {}

impl Drop for DynamicProgram {
    fn drop(&mut self) {
        // SAFETY: the program came from `program_compile` and is freed once.
        _ = unsafe { self.library.call(|f, error| (f.program_free)(self.handle.as_ptr(), error)) };
    }
}

impl Program for DynamicProgram {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Default)]
struct Regions {
    uses: Vec<RegionUse>,
    numbers: HashMap<Region, u32>,
}

impl Regions {
    fn number(&mut self, operand: &Operand, is_written: bool) -> u32 {
        let region = operand.region;
        let number = *self.numbers.entry(region).or_insert_with(|| {
            self.uses.push(RegionUse { region, bytes: 0, is_written: false, alignment: 1 });
            self.uses.len() as u32 - 1
        });
        let used = &mut self.uses[number as usize];
        let end = operand.offset_bytes.saturating_add(operand.layout.extent_bytes());
        used.bytes = used.bytes.max(end);
        used.is_written |= is_written;
        used.alignment = used.alignment.max(operand.layout.dtype().alignment());
        number
    }
}

impl DynamicProgram {
    /// Compiles steps in a queue.
    ///
    /// # Safety
    /// The queue is open.
    pub unsafe fn compile(
        library: &Arc<Library>,
        queue: NonNull<abi::Queue>,
        (device, reads_host_memory): (u64, bool),
        steps: &[Step],
    ) -> Result<Self, Failure> {
        let mut regions = Regions::default();
        let flat = FlatSteps::of_steps(steps, |operand, written| regions.number(operand, written));
        let (steps, count) = (flat.as_slice().as_ptr(), flat.as_slice().len() as u64);
        let bindings = regions.uses.len() as u64;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the queue is open; steps and what they point to live until the call returns;
        // the handle is written through a pointer to it.
        unsafe {
            library.call(|f, error| {
                let queue = queue.as_ptr();
                (f.program_compile)(queue, steps, count, bindings, &raw mut handle, error)
            })
        }?;
        let handle = NonNull::new(handle).ok_or_else(|| Failure {
            status: abi::FAILED,
            reason: "program_compile gave no program".to_owned(),
        })?;
        let (library, regions) = (Arc::clone(library), regions.uses);
        Ok(Self { library, handle, device, regions, reads_host_memory })
    }

    /// Whether the program is for this device.
    pub fn is_of(&self, library: &Arc<Library>, device: u64) -> bool {
        Arc::ptr_eq(&self.library, library) && self.device == device
    }

    /// The memory of a submission as the driver takes it.
    pub fn bind(&self, memory: &Submission, into: &mut Vec<abi::Binding>) -> Result<(), String> {
        into.clear();
        for used in &self.regions {
            let unfit = |what: &str| format!("{:?}: {what}", used.region);
            let bound = memory.get(used.region);
            let Bound { memory, offset_bytes } =
                bound.ok_or_else(|| unfit("no memory is bound"))?;
            let end = offset_bytes.checked_add(used.bytes);
            if end.is_none_or(|end| end > memory.size()) {
                return Err(unfit("the bound memory is too small"));
            }
            let own = memory.as_any().downcast_ref::<DynamicMemory>();
            let own = own.and_then(|memory| memory.buffer_of(&self.library));
            let host = memory.host();
            if own.is_none() && (host.is_none() || !self.reads_host_memory) {
                return Err(unfit("the bound memory is not the device's"));
            }
            if used.is_written && host.is_some_and(|host| !host.is_writable()) {
                return Err(unfit("the bound memory is read only"));
            }
            let host = host.map(|host| host.base().wrapping_add(offset_bytes));
            let address = host.map_or(offset_bytes, |base| base.addr());
            if !address.is_multiple_of(used.alignment) {
                return Err(unfit("the bound memory is not aligned for its elements"));
            }
            into.push(abi::Binding {
                buffer: own.unwrap_or(std::ptr::null_mut()),
                host: host.map_or(std::ptr::null_mut(), <*mut u8>::cast),
                offset: offset_bytes as u64,
                size: used.bytes as u64,
                is_written: u32::from(used.is_written),
                reserved: 0,
            });
        }
        let region = |index: usize| self.regions[index].region;
        match overlap(into) {
            Some((a, b)) => Err(format!("{:?} is bound to memory of {:?}", region(a), region(b))),
            None => Ok(()),
        }
    }
}

/// Two bindings that share a byte which one of them writes.
fn overlap(bindings: &[abi::Binding]) -> Option<(usize, usize)> {
    // Memory of a buffer is told by its handle, other memory by its address alone.
    let place = |binding: &abi::Binding| {
        let (buffer, start) = match NonNull::new(binding.buffer) {
            Some(buffer) => (buffer.addr().get(), binding.offset as usize),
            None => (0, binding.host.addr()),
        };
        (buffer, start, start.saturating_add(binding.size as usize))
    };
    for (a, first) in bindings.iter().enumerate() {
        for (b, second) in bindings.iter().enumerate().skip(a + 1) {
            let ((buffer_a, start_a, end_a), (buffer_b, start_b, end_b)) =
                (place(first), place(second));
            let shared = buffer_a == buffer_b && start_a < end_b && start_b < end_a;
            if shared && (first.is_written != 0 || second.is_written != 0) {
                return Some((a, b));
            }
        }
    }
    None
}

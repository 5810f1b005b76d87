//! A queue of a device in a library.
//!
//! Work is waited for before a submission returns, so that the memory that it was lent is let go
//! at a time that is known here. The table lets a driver overlap what happens inside of one
//! submission as it likes.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use tensoryard_runtime::{
    AbortSignal, Backend, BufferType, DeviceError, MemoryError, Program, Step, Submission,
};

use crate::abi;
use crate::library::{Failure, Library};
use crate::program::DynamicProgram;

/// A queue, closed when dropped.
pub(crate) struct DynamicBackend {
    library: Arc<Library>,
    /// Name of the device.
    name: String,
    device: u64,
    reads_host_memory: bool,
    /// The first of the device.
    buffer_type: Arc<dyn BufferType>,
    queue: NonNull<abi::Queue>,
    /// Kept between runs, so that running allocates nothing.
    bindings: Vec<abi::Binding>,
}

// SAFETY: the header lets queues be used from any thread, one call after the other.
unsafe impl Send for DynamicBackend {}

impl Drop for DynamicBackend {
    fn drop(&mut self) {
        // SAFETY: the queue came from `queue_open` and is closed once.
        _ = unsafe { self.library.call(|f, error| (f.queue_close)(self.queue.as_ptr(), error)) };
    }
}

impl DynamicBackend {
    pub fn open(
        library: &Arc<Library>,
        name: &str,
        device: u64,
        reads_host_memory: bool,
        buffer_type: &Arc<dyn BufferType>,
    ) -> Result<Self, DeviceError> {
        let mut queue = std::ptr::null_mut();
        // SAFETY: the device exists; the handle is written through a pointer to it.
        let opened =
            unsafe { library.call(|f, error| (f.queue_open)(device, &raw mut queue, error)) };
        opened.map_err(|failure| device_error(name, failure))?;
        let queue = NonNull::new(queue).ok_or_else(|| DeviceError::Failed {
            device: name.to_owned(),
            reason: "queue_open gave no queue".to_owned(),
        })?;
        let (library, name) = (Arc::clone(library), name.to_owned());
        let buffer_type = Arc::clone(buffer_type);
        let bindings = Vec::new();
        Ok(Self { library, name, device, reads_host_memory, buffer_type, queue, bindings })
    }

    fn error(&self, failure: Failure) -> DeviceError {
        device_error(&self.name, failure)
    }
}

fn device_error(device: &str, Failure { status, reason }: Failure) -> DeviceError {
    let device = device.to_owned();
    match status {
        abi::CANCELLED => DeviceError::Cancelled,
        abi::LOST => DeviceError::Lost { device, reason },
        abi::OUT_OF_MEMORY => {
            let error = MemoryError::Failed { buffer_type: device.clone(), reason };
            DeviceError::Memory { device, error }
        }
        _ => DeviceError::Failed { device, reason },
    }
}

// SAFETY: the driver's queue is waited for before `submit` returns.
unsafe impl Backend for DynamicBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        for step in steps {
            step.check().map_err(|error| DeviceError::Compile {
                device: self.name.clone(),
                step: step.name.clone(),
                reason: error.to_string(),
            })?;
        }
        let device = (self.device, self.reads_host_memory);
        // SAFETY: the queue is open while this value lives.
        let program = unsafe { DynamicProgram::compile(&self.library, self.queue, device, steps) };
        let failed = |failure: Failure| match failure.status {
            abi::UNSUPPORTED => DeviceError::Compile {
                device: self.name.clone(),
                step: steps.first().map_or_else(String::new, |step| step.name.clone()),
                reason: failure.reason,
            },
            _ => self.error(failure),
        };
        Ok(Arc::new(program.map_err(failed)?))
    }

    fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        let foreign = || DeviceError::ForeignProgram { device: self.name.clone() };
        let program = program.as_any().downcast_ref::<DynamicProgram>().ok_or_else(foreign)?;
        if !program.is_of(&self.library, self.device) {
            return Err(foreign());
        }
        let mut bindings = std::mem::take(&mut self.bindings);
        let bound = program.bind(&memory, &mut bindings);
        let submitted =
            bound.map_err(|reason| DeviceError::Failed { device: self.name.clone(), reason });
        let submitted = submitted.and_then(|()| {
            let (data, count) = (bindings.as_ptr(), bindings.len() as u64);
            let flag = abort.flag().as_ptr().cast::<u8>().cast_const();
            // SAFETY: queue and program are the device's; the bindings were checked, and `memory`
            // keeps them valid until after `synchronize`; the flag lives as long as `abort`.
            let done = unsafe {
                self.library.call(|f, error| {
                    let (queue, program) = (self.queue.as_ptr(), program.handle.as_ptr());
                    (f.queue_submit)(queue, program.cast_const(), data, count, flag, error)
                })
            };
            done.map_err(|failure| self.error(failure))
        });
        self.bindings = bindings;
        // Waited for even after a failure: part of the work may have been begun.
        let ended = self.synchronize();
        drop(memory);
        submitted.and(ended)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the queue is open.
        let done = unsafe {
            self.library.call(|f, error| (f.queue_synchronize)(self.queue.as_ptr(), error))
        };
        done.map_err(|failure| self.error(failure))
    }
}

//! The queue of a simulated device: a thread that does what it is given in order, or the caller's
//! thread for devices that do not work on their own.
//!
//! Dropping a queue waits for what it was given.

use std::sync::{Arc, Mutex};

use tensoryard_runtime::{
    AbortSignal, Backend, BufferType, DeviceError, Event, Location, PendingRead, Program, Step,
    Submission, Transfers,
};

use crate::device::Core;
use crate::engine::{Engine, Work};
use crate::line::{Ended, Line};
use crate::program::SimProgram;

/// An opened queue.
pub(crate) struct SimBackend {
    worker: Worker,
    core: Arc<Core>,
    /// The host device, for compiling.
    host: Box<dyn Backend>,
}

enum Worker {
    /// On the caller's thread.
    Inline(Box<Engine>),
    /// On a thread of its own. Each piece of work comes with the virtual time of the host.
    Thread(Line<(u64, Work)>),
}

impl SimBackend {
    /// Opens a queue. `hosts` are two opened queues of the host device: to compile and to compute.
    pub fn open(core: &Arc<Core>, hosts: [Box<dyn Backend>; 2]) -> Result<Self, DeviceError> {
        let [host, computing] = hosts;
        let mut engine = Engine::new(core, computing);
        let worker = if core.options.asynchronous {
            let name = format!("sim {}", core.info.name);
            let work = move |(host_ns, work)| engine.take(host_ns, work);
            Worker::Thread(Line::begin(name, work).map_err(|error| {
                let device = core.info.name.clone();
                DeviceError::Thread { device, reason: error.to_string() }
            })?)
        } else {
            Worker::Inline(Box::new(engine))
        };
        Ok(Self { worker, core: Arc::clone(core), host })
    }

    /// Hands over a piece of work; on the caller's thread, does it.
    fn give(&mut self, work: Work) -> Result<(), DeviceError> {
        self.core.fate.check()?;
        let host_ns = self.core.clock.host_ns();
        match &mut self.worker {
            Worker::Inline(engine) => {
                engine.take(host_ns, work);
                self.core.clock.host_waits(engine.now_ns());
                engine.settle()
            }
            Worker::Thread(line) => line.give((host_ns, work)).map_err(|Ended| self.ended()),
        }
    }

    fn ended(&self) -> DeviceError {
        let reason = "its queue has ended".to_owned();
        DeviceError::Lost { device: self.core.info.name.clone(), reason }
    }
}

// SAFETY: one engine does the work in order, on its thread or at once, and drops each
// submission behind its work; events are work of the same line.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Backend for SimBackend {
    fn name(&self) -> &str {
        &self.core.info.name
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.core.buffer_types[0]
    }

    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        self.core.fate.check()?;
        Ok(Arc::new(SimProgram::compile(&self.core, &*self.host, steps)?))
    }

    fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        let own = program.as_any().downcast_ref::<SimProgram>();
        if !own.is_some_and(|program| program.is_of(&self.core)) {
            return Err(DeviceError::ForeignProgram { device: self.core.info.name.clone() });
        }
        self.give(Work::Run { program: Arc::clone(program), memory, abort: abort.clone() })
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        match &mut self.worker {
            Worker::Inline(engine) => engine.settle(),
            Worker::Thread(line) => {
                let (signal, event) = Event::pending(&self.core.info.name);
                line.give((0, Work::Settle(signal))).map_err(|Ended| self.ended())?;
                event.wait()
            }
        }
    }

    fn is_asynchronous(&self) -> bool {
        self.core.options.asynchronous
    }

    fn record(&mut self) -> Result<Event, DeviceError> {
        let (signal, event) = Event::pending(&self.core.info.name);
        self.give(Work::Record(signal))?;
        Ok(event)
    }

    fn wait(&mut self, event: &Event) -> Result<(), DeviceError> {
        self.give(Work::Wait(event.clone()))
    }

    fn transfers(&mut self) -> Option<&mut dyn Transfers> {
        Some(self)
    }
}

impl Transfers for SimBackend {
    fn write(
        &mut self,
        memory: Submission,
        to: &Location,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        self.give(Work::Write { memory, to: *to, bytes: bytes.to_vec() })
    }

    fn read(&mut self, memory: Submission, from: &Location) -> Result<PendingRead, DeviceError> {
        let (signal, event) = Event::pending(&self.core.info.name);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let work = Work::Read { memory, from: *from, bytes: Arc::clone(&bytes), signal };
        self.give(work)?;
        Ok(PendingRead::new(event, bytes))
    }

    fn copies(&self, from: &dyn BufferType, to: &dyn BufferType) -> bool {
        self.core.copies(from, to)
    }

    fn copy(
        &mut self,
        memory: Submission,
        from: &Location,
        to: &Location,
    ) -> Result<(), DeviceError> {
        self.give(Work::Copy { memory, from: *from, to: *to })
    }
}

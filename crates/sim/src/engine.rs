//! What a queue does with its work, one piece after the other.
//!
//! After an error everything is skipped, and carries that error, until somebody synchronises.
//! Nothing that the host device does, panics included, ends the queue.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tensoryard_runtime::rates::transfer_ns;
use tensoryard_runtime::{
    AbortSignal, Backend, Bound, DeviceError, DeviceRates, Event, Location, Memory, MemoryError,
    Program, Region, Signal, Submission, bytes_for,
};

use crate::clock::Kind;
use crate::device::Core;
use crate::memory::{PinnedMemory, SimMemory, inside, write_in_queue};
use crate::program::SimProgram;

/// The longest time that a delayed piece of work does not look at its abort signal.
const NAP: Duration = Duration::from_millis(1);

/// A piece of work.
pub(crate) enum Work {
    Run { program: Arc<dyn Program>, memory: Submission, abort: AbortSignal },
    Write { memory: Submission, to: Location, bytes: Vec<u8> },
    Read { memory: Submission, from: Location, bytes: Arc<Mutex<Vec<u8>>>, signal: Signal },
    Copy { memory: Submission, from: Location, to: Location },
    Wait(Event),
    Record(Signal),
    Settle(Signal),
}

/// The working end of a queue.
pub(crate) struct Engine {
    core: Arc<Core>,
    host: Box<dyn Backend>,
    failed: Option<DeviceError>,
    /// Virtual time that the queue has come to.
    now_ns: u64,
    /// Pieces of work so far, for the random delays.
    works: u64,
}

impl Engine {
    pub fn new(core: &Arc<Core>, host: Box<dyn Backend>) -> Self {
        Self { core: Arc::clone(core), host, failed: None, now_ns: 0, works: 0 }
    }

    /// What went wrong since the last call.
    pub fn settle(&mut self) -> Result<(), DeviceError> {
        let failed = self.failed.take();
        self.core.fate.check()?;
        failed.map_or(Ok(()), Err)
    }

    /// Virtual time that the queue has come to.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Does a piece of work that was given when the host had come to `host_ns`.
    pub fn take(&mut self, host_ns: u64, work: Work) {
        self.now_ns = self.now_ns.max(host_ns);
        match work {
            Work::Record(signal) => {
                let outcome = self.failed.clone().map_or(Ok(()), Err);
                signal.complete_at(outcome, Some(self.now_ns));
            }
            Work::Settle(signal) => signal.complete(self.settle()),
            Work::Read { memory, from, bytes, signal } => {
                self.attempt(|engine| engine.read(memory, &from, &bytes));
                let outcome = self.failed.clone().map_or(Ok(()), Err);
                signal.complete_at(outcome, Some(self.now_ns));
            }
            Work::Run { program, memory, abort } => {
                self.attempt(|engine| engine.run(&program, memory, &abort));
            }
            Work::Write { memory, to, bytes } => {
                self.attempt(|engine| engine.write(memory, &to, &bytes));
            }
            Work::Copy { memory, from, to } => {
                self.attempt(|engine| engine.copy(memory, &from, &to));
            }
            Work::Wait(event) => self.attempt(|engine| {
                event.wait()?;
                engine.now_ns = engine.now_ns.max(event.simulated_ns().unwrap_or(0));
                Ok(())
            }),
        }
    }

    /// Does something, unless something before it went wrong.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<(), DeviceError>) {
        if self.failed.is_some() {
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.failed = match outcome {
            Ok(outcome) => outcome.err(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let message = text.unwrap_or("without a text").to_owned();
                Some(DeviceError::Panicked { device: self.core.info.name.clone(), message })
            }
        };
    }

    fn run(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        let device = &self.core.info.name;
        let foreign = || DeviceError::ForeignProgram { device: device.clone() };
        let program = program.as_any().downcast_ref::<SimProgram>().ok_or_else(foreign)?;
        self.pause(Some(abort))?;
        self.core.fate.check()?;
        for &region in &program.regions {
            self.check(region, self.bound(&memory, region)?.memory)?;
        }
        let memory = memory.revealed(inside);
        if let Some(before) = self.core.fate.steps(program.len()) {
            let first = program.first(&*self.host, before)?;
            self.compute(&first, memory, abort)?;
            self.core.fate.lose("in the middle of its work, as it was told to");
            return self.core.fate.check();
        }
        self.compute(&program.inner, memory, abort)?;
        self.pass(program.compute_ns, Kind::Compute);
        Ok(())
    }

    fn compute(
        &mut self,
        program: &Arc<dyn Program>,
        memory: Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        self.host.submit(program, memory, abort)?;
        self.host.synchronize()
    }

    fn write(
        &mut self,
        memory: Submission,
        to: &Location,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        self.pause(None)?;
        self.core.fate.transfers()?;
        let target = self.target(&memory, to.region)?;
        if self.core.options.counts_writes {
            let rates = self.rates(target.memory, false);
            self.pass(transfer_ns(bytes.len(), None, rates.as_ref()), Kind::Transfer);
        }
        self.put(target, to, bytes)
    }

    fn read(
        &mut self,
        memory: Submission,
        from: &Location,
        bytes: &Mutex<Vec<u8>>,
    ) -> Result<(), DeviceError> {
        self.pause(None)?;
        self.core.fate.transfers()?;
        let source = self.bound(&memory, from.region)?;
        let read = self.get(source, from)?;
        let rates = self.rates(source.memory, false);
        self.pass(transfer_ns(read.len(), rates.as_ref(), None), Kind::Transfer);
        *bytes.lock().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    fn copy(
        &mut self,
        memory: Submission,
        from: &Location,
        to: &Location,
    ) -> Result<(), DeviceError> {
        self.pause(None)?;
        self.core.fate.transfers()?;
        let source = self.bound(&memory, from.region)?;
        let target = self.target(&memory, to.region)?;
        let bytes = self.get(source, from)?;
        let is_pinned = |memory: &dyn Memory| memory.as_any().is::<PinnedMemory>();
        let out = self.rates(source.memory, is_pinned(target.memory));
        let into = self.rates(target.memory, is_pinned(source.memory));
        self.pass(transfer_ns(bytes.len(), out.as_ref(), into.as_ref()), Kind::Transfer);
        self.put(target, to, &bytes)
    }

    fn get(&self, source: Bound<'_>, from: &Location) -> Result<Vec<u8>, DeviceError> {
        let bytes = bytes_for(from.layout.data_bytes());
        let mut bytes = bytes.map_err(|error| self.memory_error(error))?;
        let offset = source.offset_bytes.saturating_add(from.offset_bytes);
        let read = source.memory.read_tensor(offset, &from.layout, &mut bytes);
        read.map_err(|error| self.memory_error(error))?;
        Ok(bytes)
    }

    fn put(&self, target: Bound<'_>, to: &Location, bytes: &[u8]) -> Result<(), DeviceError> {
        if let Some(memory) = target.memory.as_any().downcast_ref::<SimMemory>() {
            memory.pool().fate().check_memory().map_err(|error| self.memory_error(error))?;
        }
        let offset = target.offset_bytes.saturating_add(to.offset_bytes);
        // SAFETY: the memory is no weight, so it was lent to this queue, which does one thing at a
        // time; the executor lets no other queue work on it before this one has come past this
        // point.
        let written = unsafe { write_in_queue(target.memory, offset, &to.layout, bytes) };
        written.map_err(|error| self.memory_error(error))
    }

    fn memory_error(&self, error: MemoryError) -> DeviceError {
        match error {
            // The memory may be that of another device.
            MemoryError::Lost { device } => {
                DeviceError::Lost { device, reason: "its memory is gone".to_owned() }
            }
            error => DeviceError::Memory { device: self.core.info.name.clone(), error },
        }
    }

    fn bound<'a>(&self, memory: &'a Submission, region: Region) -> Result<Bound<'a>, DeviceError> {
        memory.get(region).ok_or_else(|| self.unfit(region, "no memory is bound"))
    }

    /// Memory to write: weights are shared by everybody, and lent to nobody alone.
    fn target<'a>(&self, memory: &'a Submission, region: Region) -> Result<Bound<'a>, DeviceError> {
        match region {
            Region::Weight(_) => Err(DeviceError::Failed {
                device: self.core.info.name.clone(),
                reason: format!("a queue does not write weights, such as {region:?}"),
            }),
            Region::State(_) | Region::Chunk(_) => self.bound(memory, region),
        }
    }

    fn unfit(&self, region: Region, reason: &str) -> DeviceError {
        DeviceError::Compile {
            device: self.core.info.name.clone(),
            step: format!("{region:?}"),
            reason: reason.to_owned(),
        }
    }

    /// Whether the device computes in a memory that it was given.
    fn check(&self, region: Region, memory: &dyn Memory) -> Result<(), DeviceError> {
        let own = self.core.pool.as_ref();
        let is_within_reach = match memory.as_any().downcast_ref::<SimMemory>() {
            Some(memory) => own.is_some_and(|pool| Arc::ptr_eq(pool, memory.pool())),
            None => own.is_none() || self.core.options.reads_host,
        };
        if !is_within_reach {
            return Err(self.unfit(region, "the bound memory is not the device's"));
        }
        let lost = own.map_or(Ok(()), |pool| pool.fate().check_memory());
        lost.map_err(|error| self.memory_error(error))
    }

    /// What transfers out of a memory and into it cost; nothing for the host's.
    fn rates(&self, memory: &dyn Memory, other_is_pinned: bool) -> Option<DeviceRates> {
        if let Some(memory) = memory.as_any().downcast_ref::<SimMemory>() {
            let pool = memory.pool();
            return Some(if other_is_pinned { pool.pinned_rates() } else { *pool.rates() });
        }
        memory.host().is_none().then_some(self.core.options.rates)
    }

    /// Lets virtual time pass.
    fn pass(&mut self, ns: u64, kind: Kind) {
        self.now_ns = self.core.clock.work(self.core.number, self.now_ns, ns, kind);
    }

    /// Waits for the real delay of a piece of work.
    fn pause(&mut self, abort: Option<&AbortSignal>) -> Result<(), DeviceError> {
        let is_aborted = || abort.is_some_and(AbortSignal::is_aborted);
        let options = &self.core.options;
        let share = fraction(options.seed ^ mix(self.works));
        self.works += 1;
        let delay = options.delay.saturating_add(options.jitter.mul_f64(share));
        let begin = Instant::now();
        loop {
            if is_aborted() {
                return Err(DeviceError::Cancelled);
            }
            let left = delay.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// Steele's SplitMix64 finaliser.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from 0 to 1.
fn fraction(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1u64 << 53) as f64
}

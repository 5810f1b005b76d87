//! Queues of simulated devices under loom: every order of their threads within a model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tensoryard-sim --release --lib models::`
//! The devices are real, and so are events, submissions and buffers; the host device is a double
//! whose programs add one to a number of its own and to every memory that they are lent. The
//! numbers lie in loom's cells, which report accesses that are not ordered; a wake-up that gets
//! lost is reported as a deadlock.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_runtime::{
    AbortSignal, Backend, BackendOptions, Buffer, BufferType, Device, DeviceError, DeviceInfo,
    DeviceKind, Event, HostMemory, Location, Memory, MemoryError, MemoryInfo, OpCase, Program,
    Region, Step, Submission, Unsupported, Usage, WeightUse, host_buffer_type,
};

use crate::device::Pools;
use crate::line::Line;
use crate::{Shares, SimClock, SimDevice, SimOptions};

/// Memory of one number, which devices write through shared references.
#[derive(Debug)]
struct Cell(UnsafeCell<usize>);

// SAFETY: loom reports accesses that nothing orders.
unsafe impl Sync for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn buffer() -> Buffer {
        Buffer::from_memory(host_buffer_type(), Box::new(Self::new()), Usage::Any)
    }

    fn of(memory: &dyn Memory) -> &Self {
        memory.as_any().downcast_ref().unwrap()
    }

    fn get(&self) -> usize {
        // SAFETY: loom reports it if somebody writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn increase(&self) {
        // SAFETY: loom reports it if somebody accesses the value meanwhile.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

// SAFETY: it has no host memory.
unsafe impl Memory for Cell {
    fn size(&self) -> usize {
        8
    }

    fn host(&self) -> Option<&HostMemory> {
        None
    }

    fn read_tensor(&self, _: usize, _: &Layout, dst: &mut [u8]) -> Result<(), MemoryError> {
        dst.fill(u8::try_from(self.get()).unwrap());
        Ok(())
    }

    fn write_tensor(&mut self, _: usize, _: &Layout, _: &[u8]) -> Result<(), MemoryError> {
        Err(MemoryError::ReadOnly)
    }

    fn clear(&mut self, _: u8) -> Result<(), MemoryError> {
        self.increase();
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The host device.
#[derive(Debug)]
struct Host {
    /// What programs of all its queues write, in an order that is not the host's business.
    number: Arc<Cell>,
    info: DeviceInfo,
    buffer_types: Vec<Arc<dyn BufferType>>,
}

impl Device for Host {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo { free: 0, total: 0 }
    }

    fn features(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.buffer_types
    }

    fn weight_buffer_type(&self, _: &Layout, _: &[WeightUse]) -> Arc<dyn BufferType> {
        Arc::clone(&self.buffer_types[0])
    }

    fn supports_op(&self, _: &OpCase<'_>) -> Result<(), Unsupported> {
        Ok(())
    }

    fn supports_buffer_type(&self, _: &dyn BufferType) -> bool {
        true
    }

    fn open(&self, _: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        Ok(Box::new(HostQueue(Arc::clone(&self.number))))
    }
}

struct HostQueue(Arc<Cell>);

/// Adds one to everything.
#[derive(Debug)]
struct Increase;

impl Program for Increase {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

// SAFETY: it works when it is asked to and drops the submission then.
unsafe impl Backend for HostQueue {
    fn name(&self) -> &str {
        "host"
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        host_buffer_type()
    }

    fn compile(&self, _: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        Ok(Arc::new(Increase))
    }

    fn submit(
        &mut self,
        _: &Arc<dyn Program>,
        memory: Submission,
        _: &AbortSignal,
    ) -> Result<(), DeviceError> {
        self.0.increase();
        for bound in (0..).map_while(|chunk| memory.get(Region::Chunk(chunk))) {
            Cell::of(bound.memory).increase();
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The host's number, and opened queues of devices that compute in the host's memory with a
/// program for each.
fn queues<const N: usize>() -> (Arc<Cell>, [(Box<dyn Backend>, Arc<dyn Program>); N]) {
    let number = Arc::new(Cell::new());
    let info = DeviceInfo {
        name: "host".to_owned(),
        description: String::new(),
        id: None,
        kind: DeviceKind::Cpu,
    };
    let buffer_types = vec![Arc::clone(host_buffer_type())];
    let host: Arc<dyn Device> = Arc::new(Host { number: Arc::clone(&number), info, buffer_types });
    let clock = SimClock::default();
    let queues = std::array::from_fn(|n| {
        let named = SimOptions::named(&format!("S{n}"));
        let options = SimOptions { shares: Shares::Host, ..named };
        let device = SimDevice::new(options, &host, None, &Pools::default(), &clock);
        let backend = device.open(&BackendOptions::default()).unwrap();
        let program = backend.compile(&[]).unwrap();
        (backend, program)
    });
    (number, queues)
}

fn location() -> Location {
    let layout = Layout::contiguous(DType::I8, Shape::new(&[1]).unwrap()).unwrap();
    Location { region: Region::Chunk(0), offset_bytes: 0, layout }
}

/// Tries all orders with at most so many switches away from a thread that could go on.
fn model(preemptions: usize, body: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn a_line_does_all_that_it_was_given_in_order() {
    model(6, || {
        let done = Arc::new(AtomicUsize::new(0));
        let work = {
            let done = Arc::clone(&done);
            move |piece: usize| assert_eq!(done.fetch_add(1, Ordering::Relaxed), piece)
        };
        let line = Line::begin("A".to_owned(), work).unwrap();
        for piece in 0..3 {
            line.give(piece).unwrap();
        }
        drop(line);
        assert_eq!(done.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn the_owner_sees_the_work_of_a_queue() {
    model(5, || {
        let (_, [(mut queue, program)]) = queues();
        let mut buffer = Cell::buffer();
        for _ in 0..2 {
            let lent = Submission::of_chunks([&mut buffer]);
            queue.submit(&program, lent, &AbortSignal::new()).unwrap();
        }
        assert_eq!(Cell::of(buffer.memory()).get(), 2);
        buffer.memory_mut().clear(0).unwrap();
        assert_eq!(Cell::of(buffer.memory()).get(), 3);
        queue.synchronize().unwrap();
    });
}

#[test]
fn work_is_done_when_synchronising_returns() {
    model(5, || {
        let (_, [(mut queue, program)]) = queues();
        let mut buffer = Cell::buffer();
        let event = {
            let lent = Submission::of_chunks([&mut buffer]);
            queue.submit(&program, lent, &AbortSignal::new()).unwrap();
            queue.record().unwrap()
        };
        queue.synchronize().unwrap();
        assert!(event.is_done());
        assert_eq!(Cell::of(buffer.memory()).get(), 1);
    });
}

#[test]
fn a_dropped_queue_does_what_it_was_given() {
    model(5, || {
        let (_, [(mut queue, program)]) = queues();
        let mut buffer = Cell::buffer();
        let lent = Submission::of_chunks([&mut buffer]);
        queue.submit(&program, lent, &AbortSignal::new()).unwrap();
        let event = queue.record().unwrap();
        drop(queue);
        assert!(event.is_done());
        assert_eq!(Cell::of(buffer.memory()).get(), 1);
    });
}

/// Nothing of the caller's.
fn nothing() -> Submission {
    Submission::of_chunks([])
}

#[test]
fn a_queue_that_waits_for_an_event_sees_the_work_of_another() {
    model(3, || {
        let (number, [(mut first, one), (mut second, two)]) = queues();
        let abort = AbortSignal::new();
        first.submit(&one, nothing(), &abort).unwrap();
        second.wait(&first.record().unwrap()).unwrap();
        second.submit(&two, nothing(), &abort).unwrap();
        second.record().unwrap().wait().unwrap();
        assert_eq!(number.get(), 2);
    });
}

#[test]
fn a_read_brings_what_was_there_before_the_owner_wrote() {
    model(4, || {
        let (_, [(mut queue, program)]) = queues();
        let mut buffer = Cell::buffer();
        let lent = Submission::of_chunks([&mut buffer]);
        queue.submit(&program, lent, &AbortSignal::new()).unwrap();
        let lent = Submission::of_chunks([&mut buffer]);
        let read = queue.transfers().unwrap().read(lent, &location()).unwrap();
        let reader = thread::spawn(move || assert_eq!(read.wait().unwrap(), [1]));
        buffer.memory_mut().clear(0).unwrap();
        reader.join().unwrap();
        queue.synchronize().unwrap();
    });
}

#[test]
fn an_error_sticks_until_somebody_synchronises() {
    model(3, || {
        let (_, [(mut queue, program)]) = queues();
        let mut buffer = Cell::buffer();
        let (signal, gone) = Event::pending("B");
        let other = thread::spawn(move || drop(signal));
        queue.wait(&gone).unwrap();
        queue.submit(&program, Submission::of_chunks([&mut buffer]), &AbortSignal::new()).unwrap();
        let event = queue.record().unwrap();
        let is_of_b = |outcome: Result<(), DeviceError>| matches!(outcome, Err(DeviceError::Lost { device, .. }) if device == "B");
        assert!(is_of_b(event.wait()));
        assert_eq!(Cell::of(buffer.memory()).get(), 0);
        assert!(is_of_b(queue.synchronize()));
        queue.submit(&program, Submission::of_chunks([&mut buffer]), &AbortSignal::new()).unwrap();
        queue.synchronize().unwrap();
        assert_eq!(Cell::of(buffer.memory()).get(), 1);
        other.join().unwrap();
    });
}

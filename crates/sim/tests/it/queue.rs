//! Queues given work by hand.

use std::sync::Arc;
use std::time::Duration;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_graph::ops::Scale;
use tensoryard_graph::{DType, GraphBuilder};
use tensoryard_runtime::{
    AbortSignal, Backend, BackendOptions, Buffer, BufferType, Device, DeviceError, Event, Input,
    Location, PlanOptions, Program, Region, Step, Submission, Usage,
};
use tensoryard_sim::{Faults, Shares, SimDevice, SimOptions};

use crate::support::{Bench, buffer, cpu, driver, floats, row, sim, step, values};

const TWICE: Scale = Scale { factor: 2.0, offset: 0.0 };

fn slow(name: &str) -> SimOptions {
    SimOptions { delay: Duration::from_millis(20), ..SimOptions::named(name) }
}

fn open(device: &SimDevice) -> Box<dyn Backend> {
    device.open(&BackendOptions::default()).unwrap()
}

fn location(chunk: u32, elements: usize) -> Location {
    Location { region: Region::Chunk(chunk), offset_bytes: 0, layout: row(elements) }
}

fn memory(device: &SimDevice, elements: usize) -> Buffer {
    let kind = &device.buffer_types()[0];
    Buffer::allocate(kind, 4 * elements, Usage::Any).unwrap()
}

#[test]
fn work_is_done_in_order_while_the_caller_goes_on() {
    let device = sim(slow("A"));
    let mut backend = open(&device);
    let program = backend.compile(&[step(&*device, TWICE, 0, 1, 3)]).unwrap();
    let mut buffers: Vec<Buffer> = (0..4).map(|_| memory(&device, 3)).collect();
    buffers[0] = buffer(&*device, &[1.0, 2.0, 3.0]);
    assert!(backend.is_asynchronous());
    let abort = AbortSignal::new();
    let [first, second, ..] = &mut buffers[..] else { unreachable!() };
    let lent = Submission::of_chunks([first, second]);
    backend.submit(&program, lent, &abort).unwrap();
    let event = backend.record().unwrap();
    assert!(!event.is_done());
    // Looking at the memory waits for the work.
    assert_eq!(values(&buffers[1], 3), [2.0, 4.0, 6.0]);
    event.wait().unwrap();
    assert!(event.simulated_ns().is_some());
    backend.synchronize().unwrap();
    assert_eq!(device.counts().steps, 1);
}

#[test]
fn bytes_given_to_a_write_are_the_callers_again_at_once() {
    let device = sim(SimOptions { delay: Duration::from_millis(1), ..SimOptions::named("A") });
    let mut backend = open(&device);
    let mut target = memory(&device, 256);
    for round in 0..100u8 {
        let mut bytes: Vec<u8> =
            std::iter::repeat_n(f32::from(round).to_ne_bytes(), 256).flatten().collect();
        let lent = Submission::of_chunks([&mut target]);
        backend.transfers().unwrap().write(lent, &location(0, 256), &bytes).unwrap();
        bytes.fill(0xff);
        let lent = Submission::of_chunks([&mut target]);
        let pending = backend.transfers().unwrap().read(lent, &location(0, 256)).unwrap();
        bytes.fill(0x7f);
        assert_eq!(floats(&pending.wait().unwrap()), [f32::from(round); 256]);
    }
}

#[test]
fn a_queue_waits_for_the_events_of_another() {
    let driver = driver();
    let (a, b) =
        (driver.device(slow("A")).unwrap(), driver.device(SimOptions::named("B")).unwrap());
    let (mut first, mut second) = (open(&a), open(&b));
    let program = first.compile(&[step(&*a, TWICE, 0, 1, 2)]).unwrap();
    let (mut x, mut y) = (buffer(&*a, &[1.0, 5.0]), memory(&a, 2));
    let lent = Submission::of_chunks([&mut x, &mut y]);
    first.submit(&program, lent, &AbortSignal::new()).unwrap();
    let done = first.record().unwrap();
    second.wait(&done).unwrap();
    // An event of the host, which knows no simulated time.
    second.wait(&Event::done()).unwrap();
    let after = second.record().unwrap();
    after.wait().unwrap();
    assert!(done.is_done());
    assert!(after.simulated_ns() >= done.simulated_ns() && done.simulated_ns() > Some(0));
}

#[test]
fn a_queue_says_which_device_and_memory_it_has() {
    let driver = driver();
    let device = driver.device(SimOptions::named("A")).unwrap();
    let backend = open(&device);
    assert_eq!((backend.name(), backend.default_buffer_type().name()), ("A", "A memory"));
    let sharing = SimOptions { shares: Shares::Device("A".to_owned()), ..SimOptions::named("B") };
    let sharing = open(&driver.device(sharing).unwrap());
    assert_eq!((sharing.name(), sharing.default_buffer_type().name()), ("B", "A memory"));
}

#[test]
fn a_device_without_events_waits_for_those_of_another_and_gives_its_own() {
    let device = sim(slow("A"));
    let (mut far, mut near) = (open(&device), cpu().open(&BackendOptions { threads: 1 }).unwrap());
    let program = far.compile(&[step(&*device, TWICE, 0, 1, 2)]).unwrap();
    let (mut x, mut y) = (buffer(&*device, &[1.0, 5.0]), memory(&device, 2));
    let lent = Submission::of_chunks([&mut x, &mut y]);
    far.submit(&program, lent, &AbortSignal::new()).unwrap();
    let event = far.record().unwrap();
    assert!(!event.is_done());
    near.wait(&event).unwrap();
    assert!(event.is_done());
    // What the CPU was given is done when it gives an event.
    let event = near.record().unwrap();
    assert!(event.is_done());
    far.wait(&event).unwrap();
    far.synchronize().unwrap();
    // What went wrong before an event is told to whoever waits for it.
    device.lose("unplugged");
    let (signal, event) = Event::pending("A");
    drop(signal);
    assert!(matches!(near.wait(&event), Err(DeviceError::Lost { .. })));
}

#[test]
fn an_error_is_carried_until_somebody_synchronises() {
    let device = sim(SimOptions::named("A"));
    let mut backend = open(&device);
    let program = backend.compile(&[step(&*device, TWICE, 0, 1, 2)]).unwrap();
    let (mut x, mut small) = (buffer(&*device, &[1.0, 5.0]), memory(&device, 1));
    let lent = Submission::of_chunks([&mut x, &mut small]);
    backend.submit(&program, lent, &AbortSignal::new()).unwrap();
    let event = backend.record().unwrap();
    let error = event.wait().unwrap_err();
    assert!(error.to_string().contains("too small"), "{error}");
    // Skipped, though nothing is wrong with it.
    let mut y = memory(&device, 2);
    let lent = Submission::of_chunks([&mut x, &mut y]);
    backend.submit(&program, lent, &AbortSignal::new()).unwrap();
    let lent = Submission::of_chunks([&mut x]);
    let pending = backend.transfers().unwrap().read(lent, &location(0, 2)).unwrap();
    assert_eq!(pending.wait().unwrap_err().to_string(), error.to_string());
    assert_eq!(backend.synchronize().unwrap_err().to_string(), error.to_string());
    backend.synchronize().unwrap();
    let lent = Submission::of_chunks([&mut x, &mut y]);
    backend.submit(&program, lent, &AbortSignal::new()).unwrap();
    backend.synchronize().unwrap();
    assert_eq!(values(&y, 2), [2.0, 10.0]);
    assert_eq!(device.counts().steps, 2);
}

#[test]
fn dropping_a_queue_waits_for_its_work() {
    let device = sim(slow("A"));
    let mut backend = open(&device);
    let program = backend.compile(&[step(&*device, TWICE, 0, 1, 2)]).unwrap();
    let mut pairs: Vec<(Buffer, Buffer)> =
        (0..4u8).map(|i| (buffer(&*device, &[f32::from(i); 2]), memory(&device, 2))).collect();
    for (x, y) in &mut pairs {
        let lent = Submission::of_chunks([x, y]);
        backend.submit(&program, lent, &AbortSignal::new()).unwrap();
    }
    let event = backend.record().unwrap();
    drop(backend);
    assert!(event.is_done());
    event.wait().unwrap();
    for (i, (_, y)) in (0..4u8).zip(&pairs) {
        assert_eq!(values(y, 2), [2.0 * f32::from(i); 2]);
    }
}

#[test]
fn buffers_dropped_before_the_work_live_until_it_is_done() {
    let device = sim(SimOptions { memory: 16, ..slow("A") });
    let mut backend = open(&device);
    let program = backend.compile(&[step(&*device, TWICE, 0, 1, 2)]).unwrap();
    let (mut x, mut y) = (buffer(&*device, &[1.0, 2.0]), memory(&device, 2));
    let lent = Submission::of_chunks([&mut x, &mut y]);
    backend.submit(&program, lent, &AbortSignal::new()).unwrap();
    drop((x, y));
    assert_eq!(device.memory().free, 0);
    backend.synchronize().unwrap();
    assert_eq!(device.memory().free, 16);
}

#[test]
fn work_is_cancelled_while_it_is_queued() {
    let device = sim(SimOptions { delay: Duration::from_secs(600), ..SimOptions::named("A") });
    let mut backend = open(&device);
    let program = backend.compile(&[step(&*device, TWICE, 0, 1, 2)]).unwrap();
    let abort = AbortSignal::new();
    let mut pairs: Vec<(Buffer, Buffer)> =
        (0..3).map(|_| (buffer(&*device, &[1.0; 2]), buffer(&*device, &[7.0; 2]))).collect();
    for (x, y) in &mut pairs {
        backend.submit(&program, Submission::of_chunks([x, y]), &abort).unwrap();
    }
    abort.abort();
    // Ten minutes for each, if it did not act.
    assert!(matches!(backend.synchronize(), Err(DeviceError::Cancelled)));
    for (_, y) in &pairs {
        assert_eq!(values(y, 2), [7.0; 2]);
    }
    assert_eq!(device.counts().steps, 0);
}

#[test]
fn programs_and_memory_of_others_are_refused() {
    let driver = driver();
    let a = driver.device(SimOptions::named("A")).unwrap();
    let b = driver.device(SimOptions::named("B")).unwrap();
    let (mut first, mut second) = (open(&a), open(&b));
    let program = first.compile(&[step(&*a, TWICE, 0, 1, 2)]).unwrap();
    let (mut x, mut y) = (buffer(&*a, &[1.0; 2]), memory(&b, 2));
    let abort = AbortSignal::new();
    let lent = Submission::of_chunks([&mut x, &mut y]);
    let foreign = second.submit(&program, lent, &abort).unwrap_err();
    assert!(matches!(&foreign, DeviceError::ForeignProgram { device } if device == "B"));
    let lent = Submission::of_chunks([&mut x, &mut y]);
    first.submit(&program, lent, &abort).unwrap();
    let error = first.synchronize().unwrap_err();
    assert!(error.to_string().contains("not the device's"), "{error}");
    let lent = Submission::of_chunks([&mut x]);
    first.submit(&program, lent, &abort).unwrap();
    let error = first.synchronize().unwrap_err();
    assert!(error.to_string().contains("no memory is bound"), "{error}");
    // A step in memory that the device does not reach.
    let error = first.compile(&[step(&*b, TWICE, 0, 1, 2)]).unwrap_err();
    assert!(error.to_string().contains("does not compute in B memory"), "{error}");
}

#[test]
fn a_device_is_lost_between_the_steps_of_a_program() {
    let device = sim(SimOptions::named("A"));
    let mut backend = open(&device);
    let steps = [step(&*device, TWICE, 0, 1, 2), step(&*device, TWICE, 1, 2, 2)];
    let program = backend.compile(&steps).unwrap();
    let mut buffers = [(); 3].map(|()| buffer(&*device, &[1.0; 2]));
    device.inject(Faults { lost_at_step: Some(1), ..Faults::default() });
    backend.submit(&program, Submission::of_chunks(&mut buffers), &AbortSignal::new()).unwrap();
    let error = backend.synchronize().unwrap_err();
    assert!(matches!(&error, DeviceError::Lost { device, .. } if device == "A"), "{error}");
    // It stays lost, for everything.
    assert!(matches!(backend.synchronize(), Err(DeviceError::Lost { .. })));
    assert!(matches!(backend.record(), Err(DeviceError::Lost { .. })));
    assert!(matches!(backend.wait(&Event::done()), Err(DeviceError::Lost { .. })));
    assert!(matches!(backend.compile(&steps), Err(DeviceError::Lost { .. })));
    let lent = Submission::of_chunks(&mut buffers);
    let again = backend.submit(&program, lent, &AbortSignal::new());
    assert!(matches!(again, Err(DeviceError::Lost { .. })));
    let lent = Submission::of_chunks(&mut buffers);
    let write = backend.transfers().unwrap().write(lent, &location(0, 2), &[0; 8]);
    assert!(matches!(write, Err(DeviceError::Lost { .. })));
}

#[test]
fn a_panic_of_the_host_device_is_an_error() {
    let device = crate::support::panicking();
    let mut backend = open(&device);
    let program = backend.compile(&[step(&*device, TWICE, 0, 1, 2)]).unwrap();
    let (mut x, mut y) = (buffer(&*device, &[1.0; 2]), memory(&device, 2));
    for _ in 0..2 {
        let lent = Submission::of_chunks([&mut x, &mut y]);
        backend.submit(&program, lent, &AbortSignal::new()).unwrap();
        let error = backend.synchronize().unwrap_err();
        assert!(matches!(&error, DeviceError::Panicked { .. }), "{error}");
        assert!(error.to_string().contains("a kernel of the test"), "{error}");
    }
}

/// Uses the memory that it is lent for a transfer into the first weight.
struct Intruder {
    inner: Box<dyn Backend>,
    copies: bool,
}

// SAFETY: it hands everything on to a queue that keeps the promises.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Backend for Intruder {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        self.inner.default_buffer_type()
    }

    fn compile(&self, steps: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        self.inner.compile(steps)
    }

    fn submit(
        &mut self,
        _: &Arc<dyn Program>,
        memory: Submission,
        _: &AbortSignal,
    ) -> Result<(), DeviceError> {
        let weight = Location { region: Region::Weight(0), offset_bytes: 0, layout: row(2) };
        let transfers = self.inner.transfers().unwrap();
        if self.copies {
            transfers.copy(memory, &location(0, 2), &weight)?;
        } else {
            transfers.write(memory, &weight, &[0; 8])?;
        }
        self.inner.synchronize()
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.inner.synchronize()
    }
}

#[test]
fn weights_which_everybody_shares_are_never_written() {
    let builder = GraphBuilder::new("product");
    let x = builder.input("x", DType::F32, [2]);
    x.mul(builder.weight("w", DType::F32, [2])).named("y").output("y");
    let graph = Arc::new(builder.finish().unwrap());
    let mut weights = MemoryWeights::default();
    weights.insert("w", row(2), encode(DType::F32, &[3.0, 5.0]));
    for copies in [false, true] {
        let device: Arc<dyn Device> = sim(SimOptions::named("A"));
        let mut bench = Bench::open(&graph, &[device], &weights, 0, 0);
        let plan = bench.plan(&graph, &PlanOptions::default());
        let inner = bench.backends.remove(0);
        bench.backends.push(Box::new(Intruder { inner, copies }));
        let error = bench.run(&plan, &[Input::f32("x", &[1.0, 1.0])]).unwrap_err().to_string();
        assert!(error.contains("A: a queue does not write weights"), "{error}");
        assert_eq!(values(bench.weights.get("w").unwrap().buffer(), 2), [3.0, 5.0]);
    }
}

//! Memory of a device that is not the host's, and a queue that moves data in it on a thread.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tensoryard_graph::Layout;
use tensoryard_runtime::{
    AbortSignal, Backend, BufferType, DeviceError, Event, HostMemory, Location, Memory,
    MemoryError, PendingRead, PlacedLayout, Program, Step, Submission, Transfers, host_buffer_type,
};

/// A kind of memory with what tests want to know of it.
#[derive(Debug)]
pub struct DeviceKind {
    pub name: String,
    pub alignment: usize,
    pub max_size: usize,
    pub padding: usize,
    /// Whether it copies on the device.
    pub copies: bool,
    /// Buffers that are alive.
    pub alive: Arc<AtomicUsize>,
    /// Number of the allocation that fails.
    pub fail_at: usize,
    pub allocations: AtomicUsize,
    /// What the memory was told of its tensors, in order.
    pub told: Arc<Mutex<Vec<PlacedLayout>>>,
    /// Whether it refuses views.
    pub refuses_views: bool,
}

impl DeviceKind {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            alignment: 32,
            max_size: 1 << 20,
            padding: 0,
            copies: false,
            alive: Arc::default(),
            fail_at: usize::MAX,
            allocations: AtomicUsize::new(0),
            told: Arc::default(),
            refuses_views: false,
        }
    }
}

impl BufferType for DeviceKind {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn max_size(&self) -> usize {
        self.max_size
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes() + self.padding
    }

    fn is_host(&self) -> bool {
        false
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        if self.allocations.fetch_add(1, Ordering::SeqCst) == self.fail_at {
            return Err(MemoryError::Allocation { bytes: size });
        }
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(DeviceMemory {
            size,
            // Rounded up, as devices do.
            bytes: Mutex::new(HostMemory::allocate(size.next_multiple_of(256), 64)?),
            copies: self.copies,
            alive: Arc::clone(&self.alive),
            told: Arc::clone(&self.told),
            refuses_views: self.refuses_views,
        }))
    }
}

#[derive(Debug)]
pub struct DeviceMemory {
    size: usize,
    bytes: Mutex<HostMemory>,
    copies: bool,
    alive: Arc<AtomicUsize>,
    told: Arc<Mutex<Vec<PlacedLayout>>>,
    refuses_views: bool,
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl DeviceMemory {
    fn of(memory: &dyn Memory) -> &Self {
        memory.as_any().downcast_ref().unwrap()
    }

    fn read(&self, offset: usize, layout: &Layout) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = vec![0; layout.data_bytes()];
        self.read_tensor(offset, layout, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, offset: usize, layout: &Layout, src: &[u8]) -> Result<(), MemoryError> {
        self.bytes.lock().unwrap().write_tensor(offset, layout, src)
    }
}

// SAFETY: it has no host memory.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Memory for DeviceMemory {
    fn size(&self) -> usize {
        self.size.next_multiple_of(256)
    }

    fn host(&self) -> Option<&HostMemory> {
        None
    }

    fn read_tensor(&self, at: usize, layout: &Layout, dst: &mut [u8]) -> Result<(), MemoryError> {
        self.bytes.lock().unwrap().read_tensor(at, layout, dst)
    }

    fn write_tensor(&mut self, at: usize, layout: &Layout, src: &[u8]) -> Result<(), MemoryError> {
        self.write(at, layout, src)
    }

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        Memory::clear(&mut *self.bytes.lock().unwrap(), byte)
    }

    fn copy_tensor(
        &mut self,
        offset: usize,
        layout: &Layout,
        src: Option<&dyn Memory>,
        src_offset: usize,
    ) -> Result<bool, MemoryError> {
        let source = match src {
            Some(other) => other.as_any().downcast_ref::<Self>(),
            None => Some(&*self),
        };
        let Some(source) = source.filter(|source| source.copies && self.copies) else {
            return Ok(false);
        };
        let bytes = source.read(src_offset, layout)?;
        self.write(offset, layout, &bytes)?;
        Ok(true)
    }

    fn init_tensor(&mut self, tensor: &PlacedLayout) -> Result<(), MemoryError> {
        if self.refuses_views && tensor.base.is_some() {
            let (buffer_type, reason) = ("picky".to_owned(), "it takes no views".to_owned());
            return Err(MemoryError::Refused { buffer_type, reason });
        }
        self.told.lock().unwrap().push(*tensor);
        Ok(())
    }

    fn reset(&mut self) {
        self.told.lock().unwrap().clear();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

type Job = Box<dyn FnOnce() -> Result<(), DeviceError> + Send>;

/// A queue on a thread of its own. Each job waits a moment first, so that what should have
/// waited for it would be seen.
pub struct Queue {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<Mutex<Option<DeviceError>>>,
    /// Names of kinds of memory that it copies between.
    pub copies: Vec<String>,
    /// Makes every later transfer fail.
    pub broken: Arc<AtomicBool>,
}

impl Queue {
    pub fn new(delay: Duration) -> Self {
        let (sender, jobs) = channel::<Job>();
        let failed: Arc<Mutex<Option<DeviceError>>> = Arc::default();
        let keeps = Arc::clone(&failed);
        let thread = std::thread::spawn(move || {
            for job in jobs {
                std::thread::sleep(delay);
                if let Err(error) = job() {
                    keeps.lock().unwrap().get_or_insert(error);
                }
            }
        });
        let broken = Arc::default();
        Self { jobs: Some(sender), thread: Some(thread), failed, copies: Vec::new(), broken }
    }

    fn push(&self, job: impl FnOnce() -> Result<(), DeviceError> + Send + 'static) {
        let broken = Arc::clone(&self.broken);
        let job = move || match broken.load(Ordering::SeqCst) {
            true => Err(lost()),
            false => job(),
        };
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
    }
}

fn lost() -> DeviceError {
    DeviceError::Lost { device: "queue".to_owned(), reason: "broken by the test".to_owned() }
}

fn failed(error: MemoryError) -> DeviceError {
    DeviceError::Memory { device: "queue".to_owned(), error }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

// SAFETY: work is done in order by one thread, which lets go of submissions behind it.
#[allow(unsafe_code, reason = "a promise of the trait")]
unsafe impl Backend for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    fn default_buffer_type(&self) -> &Arc<dyn BufferType> {
        host_buffer_type()
    }

    fn compile(&self, _: &[Step]) -> Result<Arc<dyn Program>, DeviceError> {
        Err(lost())
    }

    fn submit(
        &mut self,
        _: &Arc<dyn Program>,
        _: Submission,
        _: &AbortSignal,
    ) -> Result<(), DeviceError> {
        Err(lost())
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.record()?.wait()?;
        self.failed.lock().unwrap().take().map_or(Ok(()), Err)
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn record(&mut self) -> Result<Event, DeviceError> {
        let (signal, event) = Event::pending("queue");
        let failed = Arc::clone(&self.failed);
        let job = move || {
            signal.complete(failed.lock().unwrap().clone().map_or(Ok(()), Err));
            Ok(())
        };
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
        Ok(event)
    }

    fn wait(&mut self, event: &Event) -> Result<(), DeviceError> {
        let event = event.clone();
        self.push(move || event.wait());
        Ok(())
    }

    fn transfers(&mut self) -> Option<&mut dyn Transfers> {
        Some(self)
    }
}

impl Transfers for Queue {
    fn write(
        &mut self,
        memory: Submission,
        to: &Location,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        let (to, bytes) = (*to, bytes.to_vec());
        self.push(move || {
            let bound = memory.get(to.region).unwrap();
            let at = bound.offset_bytes + to.offset_bytes;
            DeviceMemory::of(bound.memory).write(at, &to.layout, &bytes).map_err(failed)
        });
        Ok(())
    }

    fn read(&mut self, memory: Submission, from: &Location) -> Result<PendingRead, DeviceError> {
        let from = *from;
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&bytes);
        self.push(move || {
            let bound = memory.get(from.region).unwrap();
            let at = bound.offset_bytes + from.offset_bytes;
            let read = DeviceMemory::of(bound.memory).read(at, &from.layout).map_err(failed)?;
            *into.lock().unwrap() = read;
            Ok(())
        });
        Ok(PendingRead::new(self.record()?, bytes))
    }

    fn copies(&self, from: &dyn BufferType, to: &dyn BufferType) -> bool {
        [from, to].iter().all(|kind| self.copies.iter().any(|name| name == kind.name()))
    }

    fn copy(
        &mut self,
        memory: Submission,
        from: &Location,
        to: &Location,
    ) -> Result<(), DeviceError> {
        let (from, to) = (*from, *to);
        self.push(move || {
            let source = memory.get(from.region).unwrap();
            let at = source.offset_bytes + from.offset_bytes;
            let bytes = DeviceMemory::of(source.memory).read(at, &from.layout).map_err(failed)?;
            let target = memory.get(to.region).unwrap();
            let at = target.offset_bytes + to.offset_bytes;
            DeviceMemory::of(target.memory).write(at, &to.layout, &bytes).map_err(failed)
        });
        Ok(())
    }
}

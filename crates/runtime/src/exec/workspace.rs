//! Compute memory that plans run in.
//!
//! Grows to the largest plan that it was used with and is never shared between runs. It remembers
//! whose results it holds and which run is still at work in it. Plans with staged memory can
//! overlap: their staged chunks are there several times, and runs take them in turn.
//!
//! Memory is replaced by larger memory while the old still exists, so that a failure changes
//! nothing. Only where there is no room for both does the old go first, once no run uses it, and
//! it comes back when the larger cannot be had even then.

use std::sync::Arc;

use super::bind::Known;
use super::route::ChunkRoute;
use super::ticket::{Flight, RunMark};
use crate::identity::Identity;
use crate::{Buffer, BufferType, DeviceError, MemoryError, Plan, Usage, same_buffer_type};

/// Copies of staged memory at most.
pub const MAX_COPIES: usize = 4;

#[derive(Debug)]
struct PoolBuffers {
    buffer_type: Arc<dyn BufferType>,
    buffers: Vec<Buffer>,
    /// Buffers of staged chunks, for each copy.
    staged: [Vec<Buffer>; MAX_COPIES],
}

/// What runs in a workspace have cost besides computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounters {
    /// Times that memory was allocated because a plan needed more.
    pub growths: u64,
    /// Tensors copied between memories.
    pub copies: u64,
    /// Bytes of them.
    pub copied_bytes: u64,
    /// Those among them that went through host memory because no device copies between the two.
    pub slow_copies: u64,
    /// Copies that were left out because the input was the same as in the run before.
    pub unchanged: u64,
}

/// A run whose results lie in a copy of the workspace.
#[derive(Debug)]
struct LastRun {
    plan: Identity,
    serial: u64,
    /// Whether the results lie in staged chunks.
    staged: bool,
    /// The run, while it may still be at work.
    flight: Option<Arc<Flight>>,
    /// The arrivals that still hold their input.
    arrived: Vec<bool>,
}

impl LastRun {
    /// Whether the run is known to be over, and all was well.
    fn ended_well(&self) -> bool {
        self.flight.as_ref().is_none_or(|flight| flight.is_done() && flight.wait().is_ok())
    }
}

/// Compute memory, by kind.
#[derive(Debug)]
#[doc(alias = "ggml_gallocr")]
pub struct Workspace {
    pools: Vec<PoolBuffers>,
    copies: usize,
    /// The last run in each copy.
    runs: [Option<LastRun>; MAX_COPIES],
    /// Runs whose outcome nobody has looked at.
    unsettled: Vec<Arc<Flight>>,
    /// The copy of the run that was begun last.
    current: usize,
    serial: u64,
    pub(super) known: Vec<Known>,
    /// Bytes of a copy on its way.
    pub(super) staging: Vec<u8>,
    pub(super) counters: RunCounters,
}

impl Default for Workspace {
    fn default() -> Self {
        Self::with_copies(1)
    }
}

impl Workspace {
    /// A workspace without memory; it grows when a plan needs it.
    #[doc(alias = "ggml_gallocr_new")]
    pub fn new() -> Self {
        Self::default()
    }

    /// A workspace in which so many runs of plans with staged memory overlap, at least one and
    /// at most [`MAX_COPIES`].
    #[doc(alias = "ggml_gallocr_new_n")]
    pub fn with_copies(copies: usize) -> Self {
        Self {
            pools: Vec::new(),
            copies: copies.clamp(1, MAX_COPIES),
            runs: Default::default(),
            unsettled: Vec::new(),
            current: 0,
            serial: 0,
            known: Vec::new(),
            staging: Vec::new(),
            counters: RunCounters::default(),
        }
    }

    /// Number of runs that can overlap.
    #[doc(alias = "ggml_backend_sched_get_n_copies")]
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Makes every chunk of the plan available. Existing memory that is large enough stays.
    ///
    /// # Errors
    /// Memory that cannot be had, with the device. The workspace stays usable for what it was
    /// large enough for.
    #[doc(alias = "ggml_backend_sched_reserve")]
    #[doc(alias = "ggml_gallocr_reserve")]
    #[doc(alias = "ggml_gallocr_reserve_n")]
    pub fn reserve(&mut self, plan: &Plan) -> Result<(), DeviceError> {
        for copy in 0..self.copies_of(plan) {
            self.reserve_copy(plan, copy)?;
        }
        Ok(())
    }

    /// Makes every chunk available that the next run of the plan works in. What other runs have
    /// left in their copies stays.
    pub(super) fn reserve_for_run(&mut self, plan: &Plan) -> Result<(), DeviceError> {
        self.reserve_copy(plan, self.next_copy(plan))
    }

    /// The copy that the next run of the plan takes.
    fn next_copy(&self, plan: &Plan) -> usize {
        let copies = self.copies_of(plan);
        if copies > 1 { (self.current + 1) % copies } else { 0 }
    }

    /// The copies that runs of the plan take in turn.
    fn copies_of(&self, plan: &Plan) -> usize {
        if plan.route().is_staged { self.copies } else { 1 }
    }

    fn reserve_copy(&mut self, plan: &Plan, copy: usize) -> Result<(), DeviceError> {
        for (number, chunk) in plan.route().chunks.iter().enumerate() {
            if self.chunk(plan, number, copy).is_some() {
                continue;
            }
            self.grow(chunk, copy).map_err(|error| plan.memory_error(chunk.device, error))?;
            self.counters.growths += 1;
        }
        Ok(())
    }

    /// Allocates a chunk, in place of one that is too small.
    fn grow(&mut self, chunk: &ChunkRoute, copy: usize) -> Result<(), MemoryError> {
        let allocate = |bytes| Buffer::allocate(&chunk.kind, bytes, Usage::Compute);
        let buffers = self.buffers_mut(chunk, copy);
        let Some(old_bytes) = buffers.get(chunk.nth).map(Buffer::size) else {
            buffers.push(allocate(chunk.bytes)?);
            return Ok(());
        };
        match allocate(chunk.bytes) {
            Ok(new) => {
                self.forget_contents(chunk, copy);
                self.buffers_mut(chunk, copy)[chunk.nth] = new;
                Ok(())
            }
            Err(MemoryError::Allocation { .. } | MemoryError::NoRoom { .. }) => {
                // Runs in flight hold the old memory; what went wrong in them, their tickets tell.
                self.unsettled.iter().for_each(|flight| _ = flight.wait());
                self.forget_contents(chunk, copy);
                let buffers = self.buffers_mut(chunk, copy);
                drop(buffers.remove(chunk.nth));
                let grown = allocate(chunk.bytes);
                let (new, outcome) = match grown {
                    Ok(new) => (Ok(new), Ok(())),
                    Err(error) => (allocate(old_bytes), Err(error)),
                };
                match new {
                    Ok(new) => buffers.insert(chunk.nth, new),
                    // Chunks are found by their position.
                    Err(_) => buffers.truncate(chunk.nth),
                }
                outcome
            }
            Err(error) => Err(error),
        }
    }

    fn buffers_mut(&mut self, chunk: &ChunkRoute, copy: usize) -> &mut Vec<Buffer> {
        let pool = self.pool_mut(&chunk.kind);
        if chunk.staged { &mut pool.staged[copy] } else { &mut pool.buffers }
    }

    /// What was looked up, or left in a chunk, names memory that is replaced now.
    fn forget_contents(&mut self, chunk: &ChunkRoute, copy: usize) {
        self.known.clear();
        for (number, run) in self.runs.iter_mut().enumerate() {
            run.take_if(|run| if chunk.staged { number == copy } else { !run.staged });
        }
    }

    /// Gives all memory back. What runs have cost is still known.
    pub(crate) fn release(&mut self) {
        self.known.clear();
        self.runs = Default::default();
        self.pools.clear();
        self.staging = Vec::new();
        self.unsettled.clear();
    }

    fn pool_mut(&mut self, kind: &Arc<dyn BufferType>) -> &mut PoolBuffers {
        let known =
            self.pools.iter().position(|pool| same_buffer_type(&*pool.buffer_type, &**kind));
        let at = known.unwrap_or_else(|| {
            let buffer_type = Arc::clone(kind);
            let (buffers, staged) = (Vec::new(), Default::default());
            self.pools.push(PoolBuffers { buffer_type, buffers, staged });
            self.pools.len() - 1
        });
        &mut self.pools[at]
    }

    /// Whether a run has failed that nobody asked about before.
    pub(super) fn learn_failures(&mut self) -> bool {
        let mut is_news = false;
        self.unsettled.retain(|flight| {
            let is_done = flight.is_done();
            is_news |= is_done && flight.wait().is_err();
            !is_done
        });
        is_news
    }

    /// What failed runs left behind does not keep later ones from running.
    pub(super) fn forget_failures(&self) {
        let buffers = |pool: &PoolBuffers| {
            for buffer in pool.buffers.iter().chain(pool.staged.iter().flatten()) {
                buffer.shared().forget_failure();
            }
        };
        self.pools.iter().for_each(buffers);
    }

    /// Takes the next copy for a run of the plan: from now on nobody's results lie there. Returns
    /// the copy and the arrivals that still hold what they held after the last run of this plan.
    pub(super) fn begin_run(&mut self, plan: &Plan) -> (usize, Vec<bool>) {
        let copy = self.next_copy(plan);
        self.current = copy;
        let last = self.runs[copy].take();
        // Chunks that are not staged are written by every run.
        for run in &mut self.runs {
            run.take_if(|run| !run.staged || !plan.route().is_staged);
        }
        let arrivals = plan.arrivals.len();
        let arrived = match last {
            Some(run) if run.plan == *plan.identity() && run.ended_well() => run.arrived,
            Some(_) | None => Vec::new(),
        };
        let arrived = if arrived.len() == arrivals { arrived } else { vec![false; arrivals] };
        (copy, arrived)
    }

    /// The plan's results lie in the copy, once the flight is over.
    pub(super) fn end_run(
        &mut self,
        plan: &Plan,
        copy: usize,
        flight: Option<Arc<Flight>>,
        arrived: Vec<bool>,
    ) -> RunMark {
        self.serial += 1;
        let (staged, serial) = (plan.route().is_staged, self.serial);
        let plan = plan.identity().clone();
        self.unsettled.extend(flight.clone());
        self.runs[copy] = Some(LastRun { plan, serial, staged, flight, arrived });
        RunMark { copy, serial }
    }

    /// The copy where the results of a run lie, untouched by a later run: of the run that is
    /// named, or of the last. Waits for the run.
    ///
    /// # Errors
    /// What went wrong in the run.
    pub(super) fn copy_with_results(
        &self,
        plan: &Plan,
        mark: Option<RunMark>,
    ) -> Result<Option<usize>, DeviceError> {
        let copy = mark.map_or(self.current, |mark| mark.copy);
        match self.runs.get(copy).and_then(Option::as_ref) {
            Some(run)
                if run.plan == *plan.identity()
                    && mark.is_none_or(|mark| mark.serial == run.serial) =>
            {
                run.flight.as_ref().map_or(Ok(()), |flight| flight.wait())?;
                Ok(Some(copy))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// The buffer of a plan's chunk in a copy, once it was reserved.
    pub(super) fn chunk(&self, plan: &Plan, chunk: usize, copy: usize) -> Option<&Buffer> {
        let route = plan.route().chunks.get(chunk)?;
        let pool =
            self.pools.iter().find(|pool| same_buffer_type(&*pool.buffer_type, &*route.kind))?;
        let buffers = if route.staged { pool.staged.get(copy)? } else { &pool.buffers };
        buffers.get(route.nth).filter(|buffer| buffer.size() >= route.bytes)
    }

    pub(super) fn chunk_mut(
        &mut self,
        plan: &Plan,
        chunk: usize,
        copy: usize,
    ) -> Option<&mut Buffer> {
        let route = plan.route().chunks.get(chunk)?;
        let pool = self
            .pools
            .iter_mut()
            .find(|pool| same_buffer_type(&*pool.buffer_type, &*route.kind))?;
        let buffers = if route.staged { pool.staged.get_mut(copy)? } else { &mut pool.buffers };
        buffers.get_mut(route.nth)
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.sizes().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes by kind of memory.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    #[doc(alias = "ggml_backend_sched_get_buffer")]
    #[doc(alias = "ggml_gallocr_get_buffer_size")]
    pub fn sizes(&self) -> Vec<(String, usize)> {
        let of = |pool: &PoolBuffers| {
            pool.buffers.iter().chain(pool.staged.iter().flatten()).map(Buffer::size).sum()
        };
        self.pools.iter().map(|pool| (pool.buffer_type.name().to_owned(), of(pool))).collect()
    }

    /// What runs have cost so far besides computing.
    pub fn counters(&self) -> RunCounters {
        self.counters
    }
}

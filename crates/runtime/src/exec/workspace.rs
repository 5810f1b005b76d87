//! Compute memory that plans run in.
//!
//! Grows to the largest plan that it was used with and is never shared between runs. It remembers
//! whose results it holds and which run is still at work in it.

use std::sync::Arc;

use super::bind::Known;
use super::ticket::Flight;
use crate::identity::Identity;
use crate::{Buffer, BufferType, DeviceError, Plan, Usage, same_buffer_type};

#[derive(Debug)]
struct PoolBuffers {
    buffer_type: Arc<dyn BufferType>,
    buffers: Vec<Buffer>,
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
}

/// Compute memory, by kind.
#[derive(Debug, Default)]
pub struct Workspace {
    pools: Vec<PoolBuffers>,
    /// The plan whose results lie here, and its run while that may still be at work.
    last_run: Option<(Identity, Option<Arc<Flight>>)>,
    pub(super) known: Vec<Known>,
    /// Bytes of a copy on its way.
    pub(super) staging: Vec<u8>,
    pub(super) counters: RunCounters,
}

impl Workspace {
    /// A workspace without memory; it grows when a plan needs it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every chunk of the plan available. Existing memory that is large enough stays.
    ///
    /// # Errors
    /// Memory that cannot be had, with the device. The workspace stays usable for what it was
    /// large enough for.
    #[doc(alias = "ggml_backend_sched_reserve")]
    pub fn reserve(&mut self, plan: &Plan) -> Result<(), DeviceError> {
        for (number, chunk) in plan.route().chunks.iter().enumerate() {
            if self.chunk(plan, number).is_some() {
                continue;
            }
            let new = Buffer::allocate(&chunk.kind, chunk.bytes, Usage::Compute)
                .map_err(|error| plan.memory_error(chunk.device, error))?;
            // What was looked up before names the memory that is replaced now.
            self.known.clear();
            self.counters.growths += 1;
            let buffers = self.buffers_mut(&chunk.kind);
            match buffers.get_mut(chunk.nth) {
                Some(buffer) => *buffer = new,
                None => buffers.push(new),
            }
        }
        Ok(())
    }

    fn buffers_mut(&mut self, kind: &Arc<dyn BufferType>) -> &mut Vec<Buffer> {
        let known =
            self.pools.iter().position(|pool| same_buffer_type(&*pool.buffer_type, &**kind));
        let at = known.unwrap_or_else(|| {
            self.pools.push(PoolBuffers { buffer_type: Arc::clone(kind), buffers: Vec::new() });
            self.pools.len() - 1
        });
        &mut self.pools[at].buffers
    }

    /// From now on nobody's results lie here.
    pub(super) fn begin_run(&mut self) {
        self.last_run = None;
    }

    /// The plan's results lie here, once the flight is over.
    pub(super) fn end_run(&mut self, plan: &Plan, flight: Option<Arc<Flight>>) {
        self.last_run = Some((plan.identity().clone(), flight));
    }

    /// Whether the plan's results lie here, untouched by a later run. Waits for the run.
    ///
    /// # Errors
    /// What went wrong in the run.
    pub(super) fn holds_results_of(&self, plan: &Plan) -> Result<bool, DeviceError> {
        match &self.last_run {
            Some((identity, flight)) if identity == plan.identity() => {
                flight.as_ref().map_or(Ok(()), |flight| flight.wait())?;
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The buffer of a plan's chunk, once it was reserved.
    pub(super) fn chunk(&self, plan: &Plan, chunk: usize) -> Option<&Buffer> {
        let route = plan.route().chunks.get(chunk)?;
        self.pools
            .iter()
            .find(|pool| same_buffer_type(&*pool.buffer_type, &*route.kind))
            .and_then(|pool| pool.buffers.get(route.nth))
            .filter(|buffer| buffer.size() >= route.bytes)
    }

    pub(super) fn chunk_mut(&mut self, plan: &Plan, chunk: usize) -> Option<&mut Buffer> {
        let route = plan.route().chunks.get(chunk)?;
        self.pools
            .iter_mut()
            .find(|pool| same_buffer_type(&*pool.buffer_type, &*route.kind))
            .and_then(|pool| pool.buffers.get_mut(route.nth))
    }

    /// Bytes of all buffers.
    #[doc(alias = "ggml_backend_sched_get_buffer_size")]
    pub fn bytes(&self) -> usize {
        self.pools.iter().flat_map(|pool| &pool.buffers).map(Buffer::size).sum()
    }

    /// Bytes by kind of memory.
    pub fn sizes(&self) -> Vec<(String, usize)> {
        let of = |pool: &PoolBuffers| pool.buffers.iter().map(Buffer::size).sum();
        self.pools.iter().map(|pool| (pool.buffer_type.name().to_owned(), of(pool))).collect()
    }

    /// What runs have cost so far besides computing.
    pub fn counters(&self) -> RunCounters {
        self.counters
    }
}

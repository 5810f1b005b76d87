//! Compute memory that plans run in.
//!
//! Grows to the largest plan that it was used with and is never shared between runs.

use std::sync::Arc;

use crate::identity::Identity;
use crate::{Buffer, BufferType, MemoryError, Plan, Usage, same_buffer_type};

#[derive(Debug)]
struct PoolBuffers {
    buffer_type: Arc<dyn BufferType>,
    buffers: Vec<Buffer>,
}

/// Compute memory, by kind.
#[derive(Debug, Default)]
pub struct Workspace {
    pools: Vec<PoolBuffers>,
    /// The plan whose results lie here.
    last_run: Option<Arc<Identity>>,
}

/// A chunk of a plan in the workspace.
#[derive(Debug, Clone, Copy)]
struct ChunkSlot {
    pool: usize,
    buffer: usize,
}

impl Workspace {
    /// A workspace without memory; it grows when a plan needs it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every chunk of the plan available. Existing memory that is large enough stays.
    ///
    /// # Errors
    /// Memory that cannot be had. The workspace stays usable for what it was large enough for.
    #[doc(alias = "ggml_backend_sched_reserve")]
    pub fn reserve(&mut self, plan: &Plan) -> Result<(), MemoryError> {
        for chunk in 0..plan.memory.chunks.len() {
            let bytes = plan.memory.chunks[chunk].1;
            let slot = self.slot(plan, chunk);
            let pool = &mut self.pools[slot.pool];
            match pool.buffers.get_mut(slot.buffer) {
                Some(buffer) if buffer.size() >= bytes => {}
                Some(buffer) => {
                    *buffer = Buffer::allocate(&pool.buffer_type, bytes, Usage::Compute)?;
                }
                None => {
                    pool.buffers.push(Buffer::allocate(&pool.buffer_type, bytes, Usage::Compute)?);
                }
            }
        }
        Ok(())
    }

    /// From now on nobody's results lie here.
    pub(crate) fn begin_run(&mut self) {
        self.last_run = None;
    }

    /// The plan's results lie here.
    pub(crate) fn end_run(&mut self, plan: &Plan) {
        self.last_run = Some(Arc::clone(plan.identity()));
    }

    /// Whether the plan's results lie here, untouched by a later run.
    pub(crate) fn holds_results_of(&self, plan: &Plan) -> bool {
        self.last_run.as_ref().is_some_and(|last| Arc::ptr_eq(last, plan.identity()))
    }

    /// The pool and the position in it of a plan's chunk; the pool is made when it is new.
    fn slot(&mut self, plan: &Plan, chunk: usize) -> ChunkSlot {
        let (number, _) = plan.memory.chunks[chunk];
        let buffer_type = &plan.memory.pools[number].buffer_type;
        let buffer = plan.memory.chunks[..chunk].iter().filter(|(pool, _)| *pool == number).count();
        let known =
            self.pools.iter().position(|pool| same_buffer_type(&*pool.buffer_type, &**buffer_type));
        let pool = known.unwrap_or_else(|| {
            let buffer_type = Arc::clone(buffer_type);
            self.pools.push(PoolBuffers { buffer_type, buffers: Vec::new() });
            self.pools.len() - 1
        });
        ChunkSlot { pool, buffer }
    }

    /// The buffer of a plan's chunk, once it was reserved.
    pub(crate) fn chunk(&self, plan: &Plan, chunk: usize) -> Option<&Buffer> {
        let &(number, bytes) = plan.memory.chunks.get(chunk)?;
        let buffer_type = &plan.memory.pools[number].buffer_type;
        let position =
            plan.memory.chunks[..chunk].iter().filter(|(pool, _)| *pool == number).count();
        self.pools
            .iter()
            .find(|pool| same_buffer_type(&*pool.buffer_type, &**buffer_type))
            .and_then(|pool| pool.buffers.get(position))
            .filter(|buffer| buffer.size() >= bytes)
    }

    pub(crate) fn chunk_mut(&mut self, plan: &Plan, chunk: usize) -> Option<&mut Buffer> {
        let slot = self.slot(plan, chunk);
        self.pools[slot.pool].buffers.get_mut(slot.buffer)
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.pools.iter().flat_map(|pool| &pool.buffers).map(Buffer::size).sum()
    }
}

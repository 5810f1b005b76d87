//! Stage 4: compute memory for every value of the run.
//!
//! Guarantee: two values that live at the same time share no byte, unless one was allowed to
//! take the other's memory over at its last use. Inputs are placed first and apart and keep
//! their memory to their last reader, outputs to the end of the run. Preference: reuse in
//! place, then best fit. Accepted weakness: best fit in execution order is not optimal.
//!
//! Devices with one kind of compute memory share one pool. A pool is several chunks when the
//! largest buffer is smaller than the peak; no value straddles two.

use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin, TensorId, TensorMap};

use super::{
    Arrival, ArrivalIndex, DeviceIndex, Operation, Placement, PlanDevice, Value, select::Selected,
};
use crate::{BufferType, PlanError, same_buffer_type};

/// Where the memory of a tensor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// No memory: nothing reads the tensor, or it exists only inside a fused operation.
    None,
    /// A weight or state tensor.
    External,
    /// Memory of its own.
    Fresh(Place),
    /// The memory of a tensor whose last reader this is.
    Reuses(TensorId),
    /// Inside the memory of another tensor.
    Within {
        /// The tensor that owns the memory.
        root: TensorId,
        /// Distance in bytes from its first element.
        offset_bytes: usize,
    },
}

/// A range of a workspace chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the chunk, counted over all pools.
    pub chunk: usize,
    /// First byte.
    pub offset_bytes: usize,
    /// Bytes taken, padding included.
    pub bytes: usize,
}

/// Compute memory of one kind.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The kind of memory.
    pub buffer_type: Arc<dyn BufferType>,
}

/// The compute memory of a plan.
#[derive(Debug, Clone)]
pub struct MemoryPlan {
    /// The kinds of memory.
    pub pools: Vec<Pool>,
    /// For each chunk its pool and its size in bytes.
    pub chunks: Vec<(usize, usize)>,
    /// Slots of the graph's tensors.
    pub tensors: TensorMap<Slot>,
    /// Places of the arrivals.
    pub arrivals: Vec<Place>,
    /// Places of the temporaries.
    pub temporaries: Vec<Place>,
}

impl MemoryPlan {
    /// Where a tensor's own first element lies in compute memory; `None` for weights, state and
    /// tensors without memory.
    pub fn locate(&self, id: TensorId) -> Option<Place> {
        match self.tensors[id] {
            Slot::None | Slot::External => None,
            Slot::Fresh(place) => Some(place),
            Slot::Reuses(other) => self.locate(other),
            Slot::Within { root, offset_bytes } => {
                let place = self.locate(root)?;
                let bytes = place.bytes.saturating_sub(offset_bytes);
                let offset_bytes = place.offset_bytes + offset_bytes;
                Some(Place { chunk: place.chunk, offset_bytes, bytes })
            }
        }
    }
}

#[derive(Debug, Default)]
struct Chunk {
    size: usize,
    /// Free ranges by offset, never touching one another.
    free: Vec<(usize, usize)>,
}

/// The free list of one pool.
struct FreeList {
    buffer_type: Arc<dyn BufferType>,
    chunks: Vec<Chunk>,
}

impl FreeList {
    fn take(&mut self, name: &str, bytes: usize) -> Result<(usize, usize, usize), PlanError> {
        let alignment = self.buffer_type.alignment();
        let bytes = bytes.checked_next_multiple_of(alignment).ok_or(PlanError::Overflow)?;
        let max = self.buffer_type.max_size() / alignment * alignment;
        if bytes > max {
            return Err(PlanError::TooLarge {
                tensor: name.to_owned(),
                bytes,
                buffer_type: self.buffer_type.name().to_owned(),
                max,
            });
        }
        if bytes == 0 {
            if self.chunks.is_empty() {
                self.chunks.push(Chunk::default());
            }
            return Ok((0, 0, 0));
        }
        let best = self
            .chunks
            .iter()
            .enumerate()
            .flat_map(|(chunk, c)| {
                c.free.iter().enumerate().map(move |(at, &(_, len))| (len, chunk, at))
            })
            .filter(|&(len, ..)| len >= bytes)
            .min();
        if let Some((len, chunk, at)) = best {
            let free = &mut self.chunks[chunk].free;
            let offset = free[at].0;
            if len == bytes {
                free.remove(at);
            } else {
                free[at] = (offset + bytes, len - bytes);
            }
            return Ok((chunk, offset, bytes));
        }
        // No hole is large enough: grow the last chunk, from its last hole if that is at its end.
        if let Some(last) = self.chunks.last_mut() {
            let tail = last.free.last().copied().filter(|&(at, len)| at + len == last.size);
            let start = tail.map_or(last.size, |(at, _)| at);
            if start + bytes <= max {
                if tail.is_some() {
                    last.free.pop();
                }
                last.size = start + bytes;
                return Ok((self.chunks.len() - 1, start, bytes));
            }
        }
        self.chunks.push(Chunk { size: bytes, free: Vec::new() });
        Ok((self.chunks.len() - 1, 0, bytes))
    }

    fn give_back(&mut self, chunk: usize, offset: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let free = &mut self.chunks[chunk].free;
        let at = free.partition_point(|&(start, _)| start < offset);
        free.insert(at, (offset, bytes));
        if at + 1 < free.len() && offset + bytes == free[at + 1].0 {
            free[at].1 += free.remove(at + 1).1;
        }
        if at > 0 && free[at - 1].0 + free[at - 1].1 == offset {
            free[at - 1].1 += free.remove(at).1;
        }
    }
}

/// A range of a pool, chunks counted within it.
#[derive(Debug, Clone, Copy)]
struct Block {
    pool: usize,
    chunk: usize,
    offset: usize,
    bytes: usize,
}

struct Allocator<'a> {
    graph: &'a Graph,
    operations: &'a [Operation],
    pools: Vec<FreeList>,
    pool_of_device: Vec<usize>,
    /// Last operation that reads each root, the number of operations for outputs.
    last_use: TensorMap<Option<usize>>,
    blocks: TensorMap<Option<Block>>,
    slots: TensorMap<Slot>,
}

/// Finds a place for every value of the run.
///
/// # Errors
/// A tensor larger than the largest buffer, or memory beyond the address space.
pub fn allocate(
    graph: &Graph,
    devices: &[PlanDevice],
    placement: &Placement,
    arrivals: &[Arrival],
    selected: &Selected,
) -> Result<MemoryPlan, PlanError> {
    let (pools, pool_of_device) = make_pools(devices);
    let mut allocator = Allocator {
        graph,
        operations: &selected.operations,
        pools,
        pool_of_device,
        last_use: TensorMap::filled(None, graph.len()),
        blocks: TensorMap::filled(None, graph.len()),
        slots: TensorMap::filled(Slot::None, graph.len()),
    };
    let starts: Vec<usize> = selected.ranges.iter().map(|range| range.start).collect();
    allocator.find_last_uses(arrivals, &starts);
    allocator.place_inputs(placement)?;
    let (arrival_blocks, temporary_blocks) =
        allocator.place_computed(arrivals, &starts, &selected.temporaries)?;
    allocator.place_views();
    Ok(allocator.finish(&arrival_blocks, &temporary_blocks))
}

fn make_pools(devices: &[PlanDevice]) -> (Vec<FreeList>, Vec<usize>) {
    let mut pools: Vec<FreeList> = Vec::new();
    let mut pool_of_device = Vec::with_capacity(devices.len());
    for device in devices {
        let known = pools
            .iter()
            .position(|pool| same_buffer_type(&*pool.buffer_type, &*device.buffer_type));
        pool_of_device.push(known.unwrap_or(pools.len()));
        if known.is_none() {
            let buffer_type = Arc::clone(&device.buffer_type);
            pools.push(FreeList { buffer_type, chunks: Vec::new() });
        }
    }
    (pools, pool_of_device)
}

impl Allocator<'_> {
    fn find_last_uses(&mut self, arrivals: &[Arrival], starts: &[usize]) {
        for (at, operation) in self.operations.iter().enumerate() {
            for source in operation.sources.iter().flatten() {
                if let Value::Tensor(id) = *source {
                    self.use_until(id, at);
                }
            }
            // A result that nothing reads lives while it is computed.
            if let Value::Tensor(id) = operation.dst {
                self.use_until(id, at);
            }
        }
        for arrival in arrivals {
            self.use_until(arrival.tensor, starts[arrival.split]);
        }
        for id in self.graph.outputs() {
            self.use_until(id, self.operations.len());
        }
    }

    fn use_until(&mut self, id: TensorId, at: usize) {
        let root = self.graph.root(id);
        self.last_use[root] = self.last_use[root].max(Some(at));
    }

    fn take(
        &mut self,
        device: DeviceIndex,
        name: &str,
        layout: &Layout,
    ) -> Result<Block, PlanError> {
        let pool = self.pool_of_device[device.0];
        let bytes = self.pools[pool].buffer_type.tensor_bytes(layout);
        let (chunk, offset, bytes) = self.pools[pool].take(name, bytes)?;
        Ok(Block { pool, chunk, offset, bytes })
    }

    fn give_back(&mut self, block: Block) {
        self.pools[block.pool].give_back(block.chunk, block.offset, block.bytes);
    }

    fn place_inputs(&mut self, placement: &Placement) -> Result<(), PlanError> {
        let graph = self.graph;
        for id in graph.live_leaves(Origin::Input) {
            let desc = graph.tensor(id);
            if let Some(device) = placement.device(id) {
                self.blocks[id] = Some(self.take(device, &desc.name, &desc.layout)?);
            }
        }
        for origin in [Origin::Weight, Origin::State] {
            for id in graph.live_leaves(origin) {
                self.slots[id] = Slot::External;
            }
        }
        Ok(())
    }

    /// Values by the operation that reads them last.
    fn endings(&self, arrivals: usize, temporaries: usize) -> Vec<Vec<Value>> {
        let mut arrival_end = vec![0; arrivals];
        let mut temporary_end = vec![0; temporaries];
        for (at, operation) in self.operations.iter().enumerate() {
            for value in operation.sources.iter().flatten().chain([&operation.dst]) {
                match *value {
                    Value::Tensor(_) => {}
                    Value::Arrival(index) => arrival_end[index.0] = at,
                    Value::Temporary(index) => temporary_end[index] = at,
                }
            }
        }
        let mut endings = vec![Vec::new(); self.operations.len() + 1];
        for (root, last) in self.last_use.iter() {
            if let Some(last) = *last {
                endings[last].push(Value::Tensor(root));
            }
        }
        for (index, &at) in arrival_end.iter().enumerate() {
            endings[at].push(Value::Arrival(ArrivalIndex(index)));
        }
        for (index, &at) in temporary_end.iter().enumerate() {
            endings[at].push(Value::Temporary(index));
        }
        endings
    }

    /// Walks the operations in order: takes memory for results, gives back what was read last.
    fn place_computed(
        &mut self,
        arrivals: &[Arrival],
        starts: &[usize],
        temporaries: &[Layout],
    ) -> Result<(Vec<Block>, Vec<Block>), PlanError> {
        let endings = self.endings(arrivals.len(), temporaries.len());
        let mut arrival_blocks: Vec<Block> = Vec::with_capacity(arrivals.len());
        let mut temporary_blocks: Vec<Block> = Vec::with_capacity(temporaries.len());
        let mut split = 0;
        for (at, operation) in self.operations.iter().enumerate() {
            while starts.get(split) == Some(&at) {
                while let Some(arrival) =
                    arrivals.get(arrival_blocks.len()).filter(|arrival| arrival.split == split)
                {
                    let desc = self.graph.tensor(arrival.tensor);
                    arrival_blocks.push(self.take(arrival.device, &desc.name, &desc.layout)?);
                }
                split += 1;
            }
            match operation.dst {
                Value::Tensor(dst) => self.place_result(at, dst)?,
                Value::Temporary(index) => {
                    let block = self.take(operation.device, "temporary", &temporaries[index])?;
                    temporary_blocks.push(block);
                }
                Value::Arrival(_) => {}
            }
            for value in &endings[at] {
                let block = match *value {
                    // Memory that was taken over ends with its new owner.
                    Value::Tensor(root) => self.blocks[root],
                    Value::Arrival(index) => arrival_blocks.get(index.0).copied(),
                    Value::Temporary(index) => temporary_blocks.get(index).copied(),
                };
                if let Some(block) = block {
                    self.give_back(block);
                }
            }
        }
        Ok((arrival_blocks, temporary_blocks))
    }

    fn place_result(&mut self, at: usize, dst: TensorId) -> Result<(), PlanError> {
        // The result of a write lies in the memory of its base.
        if self.graph.root(dst) != dst {
            return Ok(());
        }
        if let Some(parent) = self.parent_to_reuse(at, dst) {
            self.slots[dst] = Slot::Reuses(parent);
            self.blocks[dst] = self.blocks[parent];
            self.blocks[parent] = None;
            return Ok(());
        }
        let desc = self.graph.tensor(dst);
        let device = self.operations[at].device;
        self.blocks[dst] = Some(self.take(device, &desc.name, &desc.layout)?);
        Ok(())
    }

    /// A source whose memory the result may take over: the op allows it, layouts are equal,
    /// this is the last reader through any view, and it is neither a leaf nor an output.
    fn parent_to_reuse(&self, at: usize, dst: TensorId) -> Option<TensorId> {
        let operation = &self.operations[at];
        let pool = self.pool_of_device[operation.device.0];
        operation.op.may_reuse().iter().find_map(|&operand| {
            let Some(&Some(Value::Tensor(parent))) = operation.sources.get(operand) else {
                return None;
            };
            let desc = self.graph.tensor(parent);
            let same_memory = self.blocks[parent].is_some_and(|block| block.pool == pool);
            // Another operand in the same memory must be the very same elements, and the op must
            // be able to read them there while it writes.
            let no_other_view =
                operation.sources.iter().enumerate().all(|(other, source)| match *source {
                    Some(Value::Tensor(id)) if self.graph.root(id) == parent => {
                        id == parent && operation.op.may_reuse().contains(&other)
                    }
                    Some(Value::Tensor(_) | Value::Arrival(_) | Value::Temporary(_)) | None => true,
                });
            let fits = self.graph.root(parent) == parent
                && desc.is_computed()
                && desc.layout == *self.graph.layout(dst)
                && self.last_use[parent] == Some(at)
                && same_memory
                && no_other_view;
            fits.then_some(parent)
        })
    }

    fn place_views(&mut self) {
        for id in self.graph.ids() {
            let root = self.graph.root(id);
            let used = self.graph.is_live(id);
            if used && root != id {
                let offset_bytes = self.graph.root_offset(id);
                self.slots[id] = Slot::Within { root, offset_bytes };
            }
        }
    }

    fn finish(mut self, arrivals: &[Block], temporaries: &[Block]) -> MemoryPlan {
        let mut first_chunk = Vec::with_capacity(self.pools.len());
        let mut chunks = Vec::new();
        for (number, pool) in self.pools.iter().enumerate() {
            first_chunk.push(chunks.len());
            chunks.extend(pool.chunks.iter().map(|chunk| (number, chunk.size)));
        }
        let place = |block: &Block| Place {
            chunk: first_chunk[block.pool] + block.chunk,
            offset_bytes: block.offset,
            bytes: block.bytes,
        };
        // A block that moved on stays known to its first owner: walk in order of ids, which is
        // the order of taking over, and give each chain's block to its first member.
        let mut slots = self.slots.clone();
        for id in self.graph.ids() {
            let Some(block) = self.blocks[id] else { continue };
            let mut owner = id;
            while let Slot::Reuses(parent) = slots[owner] {
                owner = parent;
            }
            slots[owner] = Slot::Fresh(place(&block));
        }
        self.slots = slots;
        let pools = self.pools.into_iter().map(|pool| Pool { buffer_type: pool.buffer_type });
        MemoryPlan {
            pools: pools.collect(),
            chunks,
            tensors: self.slots,
            arrivals: arrivals.iter().map(place).collect(),
            temporaries: temporaries.iter().map(place).collect(),
        }
    }
}

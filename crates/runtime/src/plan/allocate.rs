//! Stage 4: compute memory for every value of the run.
//!
//! Guarantee: two values that live at the same time share no byte, unless one was allowed to
//! take the other's memory over at its last use. Inputs are placed first and apart and keep
//! their memory to their last reader, outputs to the end of the run, and so do inputs that are
//! copied and their copies. Preference: reuse in place, then best fit. Accepted weakness: best
//! fit in execution order is not optimal. A result in place has the layout of what it takes
//! over, and sizes depend on layout and kind of memory alone, so no tail is left to be freed.
//!
//! Devices with one kind of compute memory share one pool. A pool is several chunks when the
//! largest buffer is smaller than the peak; no value straddles two. Where memory is staged,
//! inputs, arrivals and outputs have chunks of their own in which nothing is ever reused, so
//! that one run can begin while another still reads them.

mod free_list;
mod memory;

use tensoryard_graph::{Graph, Layout, TensorId, TensorMap};

pub use memory::{Chunk, MemoryPlan, Place, Pool, Slot};

use self::free_list::{Block, FreeList};
use super::facts::{External, Facts, Memory};
use super::select::Selected;
use super::split::Splits;
use super::{DeviceIndex, Value};
use crate::PlanError;
use crate::exec::MAX_COPIES;

const NONE: u32 = u32::MAX;

/// The memory of one kind, as it is given out.
#[derive(Debug)]
struct PoolState {
    pool: Pool,
    shared: FreeList,
    staged: FreeList,
    /// Rounded bytes of tensors by class of layout, one more; 0 where not known yet.
    sizes: Vec<usize>,
}

/// What memory a root holds; its slot says where.
#[derive(Debug, Clone, Copy)]
struct Home {
    pool: u32,
    /// It was computed, in memory that others may have later.
    reusable: bool,
}

struct Allocator<'a> {
    facts: &'a Facts<'a>,
    selected: &'a Selected,
    splits: &'a Splits,
    pools: Vec<PoolState>,
    pool_of_kind: Vec<Option<usize>>,
    pool_of_device: Vec<usize>,
    n_chunks: usize,
    /// The last operation that reads each value: roots, then arrivals, then temporaries. The
    /// number of operations for what is wanted at the end; [`NONE`] for what is not used.
    last_use: Vec<u32>,
    /// Memory of roots that they have not given up yet.
    homes: TensorMap<Option<Home>>,
    slots: TensorMap<Slot>,
    arrivals: Vec<Option<Block>>,
    temporaries: Vec<Block>,
    /// Roots of inputs and outputs, where memory is staged.
    staged: Option<TensorMap<bool>>,
    /// How often staged memory is there.
    copies: usize,
}

/// Finds a place for every value of the run. With more than one copy, memory is staged.
///
/// # Errors
/// A tensor larger than the largest buffer, or memory beyond the address space.
#[doc(alias = "ggml_gallocr_alloc_graph")]
pub fn allocate(
    facts: &Facts<'_>,
    memory: &Memory,
    splits: &Splits,
    selected: &Selected,
    copies: usize,
) -> Result<MemoryPlan, PlanError> {
    let graph = facts.graph;
    let (pools, pool_of_kind, pool_of_device) = make_pools(facts);
    let values = graph.len() + splits.arrivals.len() + selected.temporaries.len();
    let mut allocator = Allocator {
        facts,
        selected,
        splits,
        pools,
        pool_of_kind,
        pool_of_device,
        n_chunks: 0,
        last_use: vec![NONE; values],
        homes: TensorMap::filled(None, graph.len()),
        slots: TensorMap::filled(Slot::None, graph.len()),
        arrivals: vec![None; splits.arrivals.len()],
        temporaries: Vec::with_capacity(selected.temporaries.len()),
        staged: (copies > 1).then(|| staged_roots(graph)),
        copies: copies.clamp(1, MAX_COPIES),
    };
    allocator.find_last_uses();
    allocator.place_inputs(memory)?;
    allocator.place_computed()?;
    allocator.place_views();
    Ok(allocator.finish())
}

/// The memory of inputs and outputs.
pub(super) fn staged_roots(graph: &Graph) -> TensorMap<bool> {
    let mut staged = TensorMap::filled(false, graph.len());
    let inputs = graph.live_leaves(tensoryard_graph::Origin::Input);
    for id in inputs.chain(graph.outputs()) {
        staged[graph.root(id)] = true;
    }
    staged
}

/// The pools, by kind of memory and by device.
fn make_pools(facts: &Facts<'_>) -> (Vec<PoolState>, Vec<Option<usize>>, Vec<usize>) {
    let mut pools: Vec<PoolState> = Vec::new();
    let mut pool_of_kind = vec![None; facts.kinds()];
    let pool_of_device = facts.device_indices().map(|device| {
        let kind = facts.kind_of_device(device);
        *pool_of_kind[kind.index()].get_or_insert_with(|| {
            let buffer_type = facts.buffer_type(kind);
            pools.push(PoolState {
                pool: Pool { buffer_type: buffer_type.clone() },
                shared: FreeList::new(&**buffer_type),
                staged: FreeList::new(&**buffer_type),
                sizes: Vec::new(),
            });
            pools.len() - 1
        })
    });
    let pool_of_device = pool_of_device.collect();
    (pools, pool_of_kind, pool_of_device)
}

impl Allocator<'_> {
    fn arrival(&self, index: usize) -> usize {
        self.facts.graph.len() + index
    }

    fn temporary(&self, number: usize) -> usize {
        self.facts.graph.len() + self.splits.arrivals.len() + number
    }

    fn find_last_uses(&mut self) {
        let graph = self.facts.graph;
        let operations = &self.selected.operations;
        for (at, entry) in operations.entries.iter().enumerate() {
            let sources = operations.values.get(entry.sources.clone()).unwrap_or_default();
            // A result that nothing reads lives while it is computed.
            for value in sources.iter().flatten().chain([&entry.dst]) {
                let value = match *value {
                    Value::Tensor(id) => graph.root(id).index(),
                    Value::Copy(index, _) => self.arrival(index.0),
                    Value::Temporary(number) => self.temporary(number),
                };
                self.last_use[value] = at as u32;
            }
        }
        let end = operations.len() as u32;
        for (index, arrival) in self.splits.arrivals.iter().enumerate() {
            let begins = self.selected.ranges[arrival.split].start as u32;
            self.use_until(arrival.tensor, if arrival.kept { end } else { begins });
            if arrival.kept {
                let arrival = self.arrival(index);
                self.last_use[arrival] = end;
            }
        }
        for id in graph.outputs() {
            self.use_until(id, end);
        }
        // What is observed is looked at when its split has ended, before the next operation.
        for (split, range) in self.splits.splits.iter().zip(&self.selected.ranges) {
            for &id in &split.observed {
                self.use_until(id, range.end as u32);
            }
        }
    }

    fn use_until(&mut self, id: TensorId, at: u32) {
        let last = &mut self.last_use[self.facts.graph.root(id).index()];
        *last = if *last == NONE { at } else { at.max(*last) };
    }

    /// Rounded bytes of a tensor of the graph.
    fn size(&mut self, pool: usize, id: TensorId) -> Result<usize, PlanError> {
        let graph = self.facts.graph;
        let class = graph.layout_class(id) as usize;
        let state = &mut self.pools[pool];
        if state.sizes.is_empty() {
            state.sizes = vec![0; graph.layout_classes()];
        }
        if let Some(known) = state.sizes[class].checked_sub(1) {
            return Ok(known);
        }
        let bytes = state.size(graph.layout(id), || graph.tensor(id).name.clone())?;
        state.sizes[class] = bytes + 1;
        Ok(bytes)
    }

    /// Memory for a tensor of the graph.
    fn take(&mut self, pool: usize, id: TensorId, apart: bool) -> Result<Block, PlanError> {
        let bytes = self.size(pool, id)?;
        let state = &mut self.pools[pool];
        Ok(if apart {
            state.staged.take_apart(bytes, &mut self.n_chunks)
        } else {
            state.shared.take(bytes, &mut self.n_chunks)
        })
    }

    fn is_staged(&self, root: TensorId) -> bool {
        self.staged.as_ref().is_some_and(|staged| staged[root])
    }

    /// Inputs, and the copies of inputs that last as long as the run.
    fn place_inputs(&mut self, memory: &Memory) -> Result<(), PlanError> {
        let facts = self.facts;
        for &leaf in facts.graph.leaves() {
            if facts.external(leaf) != External::No {
                self.slots[leaf] = Slot::External;
                continue;
            }
            let pool = memory[leaf].and_then(|kind| self.pool_of_kind[kind.index()]);
            if let Some(pool) = pool {
                let block = self.take(pool, leaf, self.is_staged(leaf))?;
                self.slots[leaf] = Slot::Fresh(place(block));
                self.homes[leaf] = Some(Home::new(pool, false));
            }
        }
        for (index, arrival) in self.splits.arrivals.iter().enumerate() {
            if arrival.kept {
                let pool = self.pool_of_device[arrival.device.0];
                let block = self.take(pool, arrival.tensor, self.staged.is_some())?;
                self.arrivals[index] = Some(block);
            }
        }
        Ok(())
    }

    /// Lists of values by the operation that reads them last: the first of each, and the next.
    fn endings(&self) -> (Vec<u32>, Vec<u32>) {
        let end = self.selected.operations.len();
        let mut first = vec![NONE; end + 1];
        let mut next = vec![NONE; self.last_use.len()];
        for (value, &last) in self.last_use.iter().enumerate().rev() {
            if last != NONE {
                next[value] = std::mem::replace(&mut first[last as usize], value as u32);
            }
        }
        (first, next)
    }

    /// Walks the operations in order: takes memory for results, gives back what was read last.
    fn place_computed(&mut self) -> Result<(), PlanError> {
        let (splits, selected) = (self.splits, self.selected);
        let (first_ending, next_ending) = self.endings();
        // Ids of roots in the lists of endings.
        let ids: Vec<TensorId> = self.facts.graph.ids().collect();
        for (split, range) in splits.splits.iter().zip(&selected.ranges) {
            for &index in &split.arrivals {
                let arrival = &splits.arrivals[index.0];
                if self.arrivals[index.0].is_none() {
                    let pool = self.pool_of_device[arrival.device.0];
                    let block = self.take(pool, arrival.tensor, self.staged.is_some())?;
                    self.arrivals[index.0] = Some(block);
                }
            }
            for at in range.clone() {
                let entry = &selected.operations.entries[at];
                match entry.dst {
                    Value::Tensor(dst) if self.facts.graph.root(dst) == dst => {
                        self.place_result(at, dst)?;
                    }
                    // The result of a write lies in the memory of its base.
                    Value::Tensor(_) | Value::Copy(..) => {}
                    Value::Temporary(number) => {
                        let state = &mut self.pools[self.pool_of_device[entry.device.0]];
                        let layout = &selected.temporaries[number];
                        let bytes = state.size(layout, || "temporary".to_owned())?;
                        let block = state.shared.take(bytes, &mut self.n_chunks);
                        self.temporaries.push(block);
                    }
                }
                let mut ending = first_ending[at];
                while ending != NONE {
                    self.end(ending as usize, &ids, entry.device);
                    ending = next_ending[ending as usize];
                }
            }
        }
        Ok(())
    }

    /// Gives back the memory of a value after its last use, on that device.
    fn end(&mut self, value: usize, ids: &[TensorId], device: DeviceIndex) {
        let is_staged = self.staged.is_some();
        if let Some(&root) = ids.get(value) {
            // Memory that was taken over ends with its new owner.
            if let Some(home) = self.homes[root].take()
                && let Slot::Fresh(place) | Slot::Reuses { place, .. } = self.slots[root]
                && !self.is_staged(root)
            {
                let Place { chunk, offset_bytes: offset, bytes } = place;
                let shared = &mut self.pools[home.pool as usize].shared;
                shared.give_back(Block { chunk, offset, bytes });
            }
            return;
        }
        let pool = self.pool_of_device[device.0];
        let index = value - ids.len();
        let block = match self.splits.arrivals.get(index) {
            Some(_) if is_staged => None,
            Some(_) => self.arrivals[index],
            None => self.temporaries.get(index - self.splits.arrivals.len()).copied(),
        };
        if let Some(block) = block {
            self.pools[pool].shared.give_back(block);
        }
    }

    fn place_result(&mut self, at: usize, dst: TensorId) -> Result<(), PlanError> {
        let device = self.selected.operations.entries[at].device;
        let apart = self.is_staged(dst);
        if !apart && let Some((parent, place)) = self.parent_to_reuse(at, dst) {
            self.homes[dst] = self.homes[parent].take();
            self.slots[dst] = Slot::Reuses { parent, place };
            return Ok(());
        }
        let pool = self.pool_of_device[device.0];
        let block = self.take(pool, dst, apart)?;
        self.slots[dst] = Slot::Fresh(place(block));
        self.homes[dst] = Some(Home::new(pool, !apart));
        Ok(())
    }

    /// A source whose memory the result may take over: the op allows it, layouts are equal,
    /// this is the last reader through any view, and it is neither a leaf nor an output.
    fn parent_to_reuse(&self, at: usize, dst: TensorId) -> Option<(TensorId, Place)> {
        let graph = self.facts.graph;
        let operations = &self.selected.operations;
        let entry = &operations.entries[at];
        let may_reuse = entry.op.may_reuse();
        let sources = operations.values.get(entry.sources.clone()).unwrap_or_default();
        let pool = self.pool_of_device[entry.device.0];
        may_reuse.iter().find_map(|&operand| {
            let Some(&Some(Value::Tensor(parent))) = sources.get(operand) else {
                return None;
            };
            let home = self.homes[parent]?;
            // Another operand in the same memory must be the very same elements, and the op must
            // be able to read them there while it writes.
            let no_other_view = sources.iter().enumerate().all(|(other, source)| match *source {
                Some(Value::Tensor(id)) if graph.root(id) == parent => {
                    id == parent && may_reuse.contains(&other)
                }
                Some(_) | None => true,
            });
            let fits = self.last_use[parent.index()] == at as u32
                && home.reusable
                && home.pool as usize == pool
                && graph.layout_class(parent) == graph.layout_class(dst)
                && graph.root(parent) == parent
                && no_other_view;
            match self.slots[parent] {
                Slot::Fresh(place) | Slot::Reuses { place, .. } if fits => Some((parent, place)),
                Slot::Fresh(_)
                | Slot::Reuses { .. }
                | Slot::None
                | Slot::External
                | Slot::Within { .. } => None,
            }
        })
    }

    fn place_views(&mut self) {
        let graph = self.facts.graph;
        let written = graph.nodes().iter().filter(|node| node.root != node.id);
        for id in graph.live_views().iter().copied().chain(written.map(|node| node.id)) {
            let (root, offset_bytes) = (graph.root(id), graph.root_offset(id));
            self.slots[id] = Slot::Within { root, offset_bytes };
        }
    }

    fn finish(self) -> MemoryPlan {
        let mut chunks = vec![Chunk { pool: 0, bytes: 0, staged: false }; self.n_chunks];
        for (pool, state) in self.pools.iter().enumerate() {
            for (staged, list) in [(false, &state.shared), (true, &state.staged)] {
                for (number, bytes) in list.sizes() {
                    chunks[number] = Chunk { pool, bytes, staged };
                }
            }
        }
        MemoryPlan {
            pools: self.pools.into_iter().map(|state| state.pool).collect(),
            chunks,
            copies: self.copies,
            tensors: self.slots,
            arrivals: self.arrivals.into_iter().flatten().map(place).collect(),
            temporaries: self.temporaries.into_iter().map(place).collect(),
        }
    }
}

impl Home {
    fn new(pool: usize, reusable: bool) -> Self {
        Self { pool: u32::try_from(pool).unwrap_or(u32::MAX), reusable }
    }
}

impl PoolState {
    /// Rounded bytes of a tensor.
    fn size(&self, layout: &Layout, name: impl FnOnce() -> String) -> Result<usize, PlanError> {
        let buffer_type = &self.pool.buffer_type;
        let bytes = buffer_type.tensor_bytes(layout);
        self.shared.rounded(bytes)?.map_err(|max| PlanError::TooLarge {
            tensor: name(),
            bytes: bytes.next_multiple_of(buffer_type.alignment()),
            buffer_type: buffer_type.name().to_owned(),
            max,
        })
    }
}

fn place(block: Block) -> Place {
    Place { chunk: block.chunk, offset_bytes: block.offset, bytes: block.bytes }
}

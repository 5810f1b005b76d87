//! What the executor looks up in every run, found once when a plan is compiled.

use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin, TensorId};

use crate::plan::{Blueprint, Chunk, DeviceIndex, PlanSplit};
use crate::{BufferType, Location, PlanError, Region, StepOp, same_buffer_type};

/// Where an input is written to.
#[derive(Debug)]
pub(crate) struct InputRoute {
    pub id: TensorId,
    pub to: Location,
    pub device: DeviceIndex,
    /// Arrivals that keep their copy of it from run to run.
    pub kept_in: Vec<usize>,
}

/// A copy between two memories.
#[derive(Debug)]
pub(crate) struct CopyRoute {
    /// Whether the copy is still there in the next run.
    pub kept: bool,
    pub from: Location,
    pub from_kind: Arc<dyn BufferType>,
    pub from_device: DeviceIndex,
    pub to: Location,
    pub to_kind: Arc<dyn BufferType>,
    pub to_device: DeviceIndex,
}

/// What a split touches.
#[derive(Debug)]
pub(crate) struct SplitRoute {
    /// The regions besides weights.
    pub regions: Vec<Region>,
    /// Numbers of the state tensors that it writes.
    pub writes: Vec<u32>,
}

/// A chunk as a buffer of the workspace: which of its kind it is.
#[derive(Debug)]
pub(crate) struct ChunkRoute {
    pub kind: Arc<dyn BufferType>,
    /// The first device that computes in it.
    pub device: DeviceIndex,
    pub bytes: usize,
    pub staged: bool,
    pub nth: usize,
}

/// The tables of a plan.
#[derive(Debug)]
pub(crate) struct Route {
    pub inputs: Vec<InputRoute>,
    pub arrivals: Vec<CopyRoute>,
    pub splits: Vec<SplitRoute>,
    pub chunks: Vec<ChunkRoute>,
    /// Whether runs can overlap in copies of some chunks.
    pub is_staged: bool,
    /// For each state tensor, whether a run looks at what it held before.
    pub reads_old_state: Vec<bool>,
}

fn broken(what: impl Into<String>) -> PlanError {
    PlanError::Blueprint(what.into())
}

impl Route {
    pub fn new(blueprint: &Blueprint) -> Result<Self, PlanError> {
        let locator = Locator { blueprint, graph: &blueprint.graph };
        let graph = &blueprint.graph;
        let mut inputs = Vec::new();
        for id in graph.live_leaves(Origin::Input) {
            let (to, device) = (locator.locate(id)?, locator.device(id)?);
            let arrivals = blueprint.arrivals.iter().enumerate();
            let kept_in = arrivals
                .filter(|(_, arrival)| arrival.kept && graph.root(arrival.tensor) == id)
                .map(|(index, _)| index)
                .collect();
            inputs.push(InputRoute { id, to, device, kept_in });
        }
        let mut arrivals = Vec::with_capacity(blueprint.arrivals.len());
        for (index, arrival) in blueprint.arrivals.iter().enumerate() {
            let place = blueprint.memory.arrivals.get(index);
            let place = place.ok_or_else(|| broken(format!("arrival {index} has no place")))?;
            let layout = *graph.layout(arrival.tensor);
            let to = chunk_location(place.chunk, place.offset_bytes, layout);
            arrivals.push(CopyRoute {
                kept: arrival.kept,
                from: locator.locate(arrival.tensor)?,
                from_kind: locator.kind(arrival.tensor)?,
                from_device: locator.device(arrival.tensor)?,
                to,
                to_kind: locator.chunk_kind(place.chunk)?,
                to_device: arrival.device,
            });
        }
        let splits = blueprint.splits.iter().map(|split| split_route(blueprint, split)).collect();
        let mut chunks: Vec<ChunkRoute> = Vec::with_capacity(blueprint.memory.chunks.len());
        let mut counts = vec![[0; 2]; blueprint.memory.pools.len()];
        for (number, &Chunk { pool, bytes, staged }) in blueprint.memory.chunks.iter().enumerate() {
            let counts = counts.get_mut(pool).ok_or_else(|| broken("a chunk is in no pool"))?;
            let count = &mut counts[usize::from(staged)];
            let nth = std::mem::replace(count, *count + 1);
            let kind = locator.chunk_kind(number)?;
            let device = DeviceIndex(
                (blueprint.devices.iter())
                    .position(|device| same_buffer_type(&*device.buffer_type, &*kind))
                    .ok_or_else(|| broken(format!("{} is of no device", kind.name())))?,
            );
            chunks.push(ChunkRoute { kind, device, bytes, staged, nth });
        }
        let reads_old_state =
            (0..blueprint.states.len()).map(|number| reads_old_state(blueprint, number)).collect();
        let is_staged = chunks.iter().any(|chunk| chunk.staged);
        Ok(Self { inputs, arrivals, splits, chunks, is_staged, reads_old_state })
    }
}

fn chunk_location(chunk: usize, offset_bytes: usize, layout: Layout) -> Location {
    let region = Region::Chunk(u32::try_from(chunk).unwrap_or(u32::MAX));
    Location { region, offset_bytes, layout }
}

struct Locator<'a> {
    blueprint: &'a Blueprint,
    graph: &'a Graph,
}

impl Locator<'_> {
    fn name(&self, id: TensorId) -> &str {
        &self.graph.tensor(id).name
    }

    fn locate(&self, id: TensorId) -> Result<Location, PlanError> {
        let root = self.graph.root(id);
        let layout = *self.graph.layout(id);
        let number = |ids: &[TensorId], region: fn(u32) -> Region| {
            let at = ids.iter().position(|&id| id == root)?;
            let offset_bytes = self.graph.root_offset(id);
            Some(Location { region: region(u32::try_from(at).ok()?), offset_bytes, layout })
        };
        let found = match self.graph.tensor(root).origin {
            Origin::Weight => number(&self.blueprint.weights, Region::Weight),
            Origin::State => number(&self.blueprint.states, Region::State),
            Origin::Input | Origin::Op(_) => {
                let place = self.blueprint.memory.locate(id);
                place.map(|place| chunk_location(place.chunk, place.offset_bytes, layout))
            }
        };
        found.ok_or_else(|| broken(format!("{:?} has no memory", self.name(id))))
    }

    fn device(&self, id: TensorId) -> Result<DeviceIndex, PlanError> {
        let device = self.blueprint.placement.device(self.graph.root(id));
        device.ok_or_else(|| broken(format!("{:?} is on no device", self.name(id))))
    }

    fn kind(&self, id: TensorId) -> Result<Arc<dyn BufferType>, PlanError> {
        match self.blueprint.residence.of(self.graph.root(id)) {
            Some(kind) => Ok(Arc::clone(kind)),
            None => match self.locate(id)?.region {
                Region::Chunk(chunk) => self.chunk_kind(chunk as usize),
                Region::Weight(_) | Region::State(_) => {
                    Err(broken(format!("{:?} lies in no kind of memory", self.name(id))))
                }
            },
        }
    }

    fn chunk_kind(&self, chunk: usize) -> Result<Arc<dyn BufferType>, PlanError> {
        let memory = &self.blueprint.memory;
        let kind = memory.buffer_type(chunk).map(Arc::clone);
        kind.ok_or_else(|| broken(format!("chunk {chunk} is of no kind of memory")))
    }
}

fn split_route(blueprint: &Blueprint, split: &PlanSplit) -> SplitRoute {
    let mut route = SplitRoute { regions: Vec::new(), writes: Vec::new() };
    let entries = blueprint.operations.entries.get(split.steps.clone()).unwrap_or_default();
    let results = blueprint.places.results.get(split.steps.clone()).unwrap_or_default();
    for (entry, result) in entries.iter().zip(results) {
        let sources = blueprint.places.sources.get(entry.sources.clone()).unwrap_or_default();
        for located in sources.iter().flatten().chain([result]) {
            let region = located.region;
            if !matches!(region, Region::Weight(_)) && !route.regions.contains(&region) {
                route.regions.push(region);
            }
        }
        if let Region::State(number) = result.region
            && !route.writes.contains(&number)
        {
            route.writes.push(number);
        }
    }
    route
}

/// Whether anything but a write over all of a state tensor comes first.
fn reads_old_state(blueprint: &Blueprint, number: usize) -> bool {
    let Some(&id) = blueprint.states.get(number) else { return true };
    let region = Region::State(u32::try_from(number).unwrap_or(u32::MAX));
    let graph = &blueprint.graph;
    let copied_first = blueprint.arrivals.iter().any(|arrival| graph.root(arrival.tensor) == id);
    if copied_first {
        return true;
    }
    for (entry, result) in blueprint.operations.entries.iter().zip(&blueprint.places.results) {
        let written = match &entry.op {
            StepOp::Op(op) => op.writes(),
            StepOp::NormAffine { .. } | StepOp::Matrix { .. } => None,
        };
        let sources = blueprint.places.sources.get(entry.sources.clone()).unwrap_or_default();
        let reads = sources.iter().enumerate().any(|(operand, source)| {
            Some(operand) != written && source.is_some_and(|source| source.region == region)
        });
        if reads {
            return true;
        }
        if result.region == region {
            let Some(layout) = blueprint.layout(entry.dst) else { return true };
            let overwrites_all = matches!(&entry.op, StepOp::Op(tensoryard_graph::Op::CopyInto(_)))
                && result.offset_bytes == 0
                && layout.is_contiguous()
                && layout.extent_bytes() == graph.layout(id).extent_bytes();
            return !overwrites_all;
        }
    }
    true
}

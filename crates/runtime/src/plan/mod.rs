//! Planning: from a graph and a list of devices to steps in memory.
//!
//! Each stage is a pure function in a file of its own, over side tables that
//! never touch the graph:
//!
//! Before them all, [`assign`](mod@assign) decides where weights and state live, under
//! [memory limits](limits); [`predict`](mod@predict) tells how long the result will take.
//!
//! 1. [`place`](mod@place): a device for every tensor, each with its reason.
//! 2. [`split`](mod@split): runs of nodes on one device, and the tensors that must be copied in.
//! 3. [`select`](mod@select): nodes become operations of the device, several fused into one
//!    where the device offers that; temporaries where an op must not overlap its source.
//! 4. [`allocate`](mod@allocate): compute memory by liveness, reuse in place, best fit.
//! 5. [`lower`](mod@lower): operations with places in memory, ready to compile.
//!
//! [`verify`](mod@verify) checks the result and shares no code with the stages.

pub mod allocate;
mod arrivals;
pub mod assign;
mod assign_cost;
pub mod facts;
mod fuse;
mod judge;
mod leaves;
pub mod limits;
pub mod lower;
pub mod pins;
pub mod place;
pub mod predict;
pub mod report;
mod rough;
pub mod select;
pub mod split;
mod steps;
pub mod strategy;
mod tables;
pub mod verify;

use std::ops::{Deref, Range};
use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin, TensorId};

pub use allocate::{Chunk, MemoryPlan, Place, Pool, Slot};
pub use assign::{Assignment, Home, assign, assign_around};
pub use facts::{Facts, Kind, Memory};
pub use limits::{MemoryLimits, MemoryUse};
pub use lower::{Located, Places};
pub use pins::{DeviceSelector, NamedPin, PinSyntax, Pins};
pub use place::{Pin, Placement, Reason, Stage, Wishes};
pub use predict::{CopyTime, DeviceTime, Prediction, SplitTime, predict};
pub use select::{Operation, OperationEntry, Operations, Value};
pub use split::{Arrival, ArrivalIndex, Split};
pub use strategy::Strategy;

use crate::exec::Route;
use crate::identity::Identity;
use crate::{
    Backend, BufferType, Device, DeviceError, MemoryError, PlanError, Program, State, Weights,
    same_buffer_type,
};

/// Position of a device in the list that planning was given; 0 has the highest priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceIndex(pub usize);

/// A device to plan for, with the kind of memory that its results go to.
#[derive(Debug, Clone)]
pub struct PlanDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Where its compute memory is allocated.
    #[doc(alias = "ggml_backend_sched_get_buffer_type")]
    pub buffer_type: Arc<dyn BufferType>,
}

impl PlanDevice {
    /// A device whose results go to its default kind of memory.
    pub fn new(device: &Arc<dyn Device>) -> Self {
        let buffer_type = Arc::clone(&device.buffer_types()[0]);
        Self { device: Arc::clone(device), buffer_type }
    }
}

/// Options of planning.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// Whether several ops may become one step.
    pub fusion: bool,
    /// Tensors of one graph whose device is fixed.
    pub pins: Vec<Pin>,
    /// Tensors of any graph whose device is fixed, by patterns of their names.
    pub named_pins: Pins,
    /// How much memory may be used.
    pub limits: MemoryLimits,
    /// How devices are chosen. When weights and state are assigned by cost for several graphs,
    /// it is the sum of their predicted times that counts, one run of each, so that one of them
    /// may take longer than by priority.
    pub strategy: Strategy,
    /// How fast the devices are, in their order, for predictions. A device without an entry is
    /// asked.
    pub rates: Vec<crate::DeviceRates>,
    /// Computed tensors and views whose values are wanted while the graph runs: see
    /// [`split::split`].
    pub observed: Vec<TensorId>,
    /// Runs that shall be able to overlap, at most [`MAX_COPIES`](crate::exec::MAX_COPIES); more
    /// is taken as that many. Above one, inputs, arrivals and outputs get chunks of their own,
    /// which are there as many times.
    pub overlapping_runs: usize,
    /// Whether ops with weights in host memory may go to a faster device that wants them.
    pub offload: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            fusion: true,
            pins: Vec::new(),
            named_pins: Pins::new(),
            limits: MemoryLimits::default(),
            strategy: Strategy::default(),
            rates: Vec::new(),
            observed: Vec::new(),
            overlapping_runs: 1,
            offload: false,
        }
    }
}

/// Where the leaves that outlive a run are kept. Planning takes it as given.
#[derive(Debug, Clone)]
pub struct Residence {
    kinds: Vec<Option<Arc<dyn BufferType>>>,
    residents: Vec<Resident>,
}

/// What lives in one kind of memory, for this graph and all others.
#[derive(Debug, Clone)]
pub(crate) struct Resident {
    pub kind: Arc<dyn BufferType>,
    pub weights: usize,
    pub state: usize,
}

impl Residence {
    /// Looks every live weight and state tensor of the graph up.
    ///
    /// # Errors
    /// One that is missing or has another layout; a view of one that is kept as a whole.
    pub fn new(graph: &Graph, weights: &Weights, state: &State) -> Result<Self, PlanError> {
        let mut residents = Vec::new();
        for (kind, bytes) in weights.kinds() {
            assign::resident(&mut residents, kind).weights += bytes;
        }
        for tensor in state.tensors() {
            let buffer = tensor.buffer();
            assign::resident(&mut residents, buffer.buffer_type()).state += buffer.size();
        }
        let of_weight = |name: &str| {
            let weight = weights.get(name)?;
            Some((*weight.layout(), Arc::clone(weight.buffer().buffer_type())))
        };
        let of_state = |name: &str| {
            let tensor = state.get(name)?;
            Some((*tensor.layout(), Arc::clone(tensor.buffer().buffer_type())))
        };
        Self::build(graph, of_weight, of_state, residents)
    }

    /// The residence of leaves that the functions find by name, with all that lives beside them.
    fn build(
        graph: &Graph,
        weight: impl Fn(&str) -> Option<(Layout, Arc<dyn BufferType>)>,
        state: impl Fn(&str) -> Option<(Layout, Arc<dyn BufferType>)>,
        residents: Vec<Resident>,
    ) -> Result<Self, PlanError> {
        let mut kinds: Vec<Option<Arc<dyn BufferType>>> = vec![None; graph.len()];
        for id in graph.ids().filter(|&id| graph.is_live(id)) {
            let desc = graph.tensor(id);
            let (kind, (found, buffer_type)) = match desc.origin {
                Origin::Weight => {
                    let missing = || PlanError::MissingWeight(desc.name.clone());
                    ("weight", weight(&desc.name).ok_or_else(missing)?)
                }
                Origin::State => {
                    let missing = || PlanError::MissingState(desc.name.clone());
                    ("state", state(&desc.name).ok_or_else(missing)?)
                }
                Origin::Input | Origin::Op(_) => continue,
            };
            kinds[id.index()] = Some(buffer_type);
            if found != desc.layout {
                let (name, wanted) = (desc.name.clone(), desc.layout);
                return Err(PlanError::LeafLayout { kind, name, found, wanted });
            }
        }
        for id in graph.ids().filter(|&id| graph.is_live(id) && graph.root(id) != id) {
            let root = graph.root(id);
            if let Some(kind) = kinds[root.index()].as_ref().filter(|kind| !kind.takes_views()) {
                return Err(PlanError::WholeTensorsOnly {
                    tensor: graph.tensor(id).name.clone(),
                    root: graph.tensor(root).name.clone(),
                    buffer_type: kind.name().to_owned(),
                });
            }
        }
        Ok(Self { kinds, residents })
    }

    /// What lives in each kind of memory.
    pub(crate) fn residents(&self) -> &[Resident] {
        &self.residents
    }

    /// Number of tensors of the graph that it is for.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The kind of memory that a weight or state tensor lies in.
    pub fn of(&self, id: TensorId) -> Option<&Arc<dyn BufferType>> {
        self.kinds[id.index()].as_ref()
    }
}

/// A stretch of the run on one device.
#[derive(Debug, Clone)]
pub struct PlanSplit {
    /// The device.
    pub device: DeviceIndex,
    /// Tensors copied in before the steps run.
    pub arrivals: Vec<ArrivalIndex>,
    /// The steps in order, as numbers of operations: see [`Blueprint::steps`].
    pub steps: Range<usize>,
    /// Tensors whose values are wanted as they are behind the steps, in graph order.
    pub observed: Vec<TensorId>,
}

/// Everything that planning decides about a graph, before any device compiles or allocates.
///
/// Plain data: it can be looked at, reported and verified. Only [`Plan`] runs.
#[derive(Debug, Clone)]
pub struct Blueprint {
    /// The graph, unchanged.
    pub graph: Arc<Graph>,
    /// The devices in order of priority.
    pub devices: Vec<PlanDevice>,
    /// Kinds of memory of weights and state.
    pub residence: Residence,
    /// The device of each tensor, with the reason.
    pub placement: Placement,
    /// Tensors that are copied between devices.
    pub arrivals: Vec<Arrival>,
    /// Layouts of temporaries that no tensor of the graph stands for.
    pub temporaries: Vec<Layout>,
    /// The operations of all splits in order, before they were given places in memory.
    pub operations: Operations,
    /// Where the operands of the operations lie.
    pub places: Places,
    /// Compute memory.
    #[doc(alias = "ggml_backend_sched_get_tallocr")]
    pub memory: MemoryPlan,
    /// The splits in order.
    #[doc(alias = "ggml_backend_sched_get_n_splits")]
    pub splits: Vec<PlanSplit>,
    /// The weights that [`crate::Region::Weight`] numbers stand for.
    pub weights: Vec<TensorId>,
    /// The state tensors that [`crate::Region::State`] numbers stand for.
    pub states: Vec<TensorId>,
}

/// A blueprint that its devices have compiled: everything that running a graph needs, made once
/// and used any number of times.
#[derive(Debug)]
#[doc(alias = "ggml_backend_graph_plan_create")]
pub struct Plan {
    blueprint: Blueprint,
    /// The splits as their devices compiled them.
    programs: Vec<Arc<dyn Program>>,
    route: Route,
    /// Tells this plan from all others for as long as anybody remembers it.
    identity: Identity,
}

impl Deref for Plan {
    type Target = Blueprint;

    fn deref(&self) -> &Blueprint {
        &self.blueprint
    }
}

impl Plan {
    /// Lets the devices compile a blueprint. `backends` are the opened queues of its devices,
    /// in the same order.
    ///
    /// # Errors
    /// A device that refuses a step that it claimed to support; tables that do not fit each other.
    #[doc(alias = "ggml_backend_graph_plan_create")]
    pub fn compile(blueprint: Blueprint, backends: &[Box<dyn Backend>]) -> Result<Self, PlanError> {
        tables::check(&blueprint)?;
        let mut programs = Vec::with_capacity(blueprint.splits.len());
        for (number, split) in blueprint.splits.iter().enumerate() {
            let backend = backends.get(split.device.0).ok_or(PlanError::NoDevice)?;
            programs.push(backend.compile(&blueprint.steps(number)?)?);
        }
        let route = Route::new(&blueprint)?;
        Ok(Self { blueprint, programs, route, identity: Identity::default() })
    }

    /// What was decided.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// The compiled splits in order.
    pub(crate) fn programs(&self) -> &[Arc<dyn Program>] {
        &self.programs
    }

    /// Whether a run writes state tensors.
    pub fn writes_state(&self) -> bool {
        self.route.splits.iter().any(|split| !split.writes.is_empty())
    }

    /// What the executor looks up in every run.
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// An error of a device's memory, with the device.
    pub(crate) fn memory_error(&self, device: DeviceIndex, error: MemoryError) -> DeviceError {
        let device = self.devices.get(device.0).map(|device| device.device.info().name.clone());
        DeviceError::Memory { device: device.unwrap_or_default(), error }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Draws up the blueprint of a graph: places, splits, selects, allocates and lowers it.
///
/// # Errors
/// An op that no device runs, a pin that cannot be honoured, a tensor larger than the largest
/// buffer, or more memory than the limits allow.
#[doc(alias = "ggml_backend_sched_reserve_size")]
#[doc(alias = "ggml_backend_sched_split_graph")]
#[doc(alias = "ggml_backend_sched_init_measure")]
#[doc(alias = "ggml_gallocr_reserve_n_size")]
pub fn draft(
    graph: &Arc<Graph>,
    devices: &[PlanDevice],
    residence: Residence,
    options: &PlanOptions,
) -> Result<Blueprint, PlanError> {
    check_devices(devices)?;
    let pins = pins::all(graph, devices, options)?;
    let facts = Facts::new(graph, devices, &residence);
    let wishes = Wishes { pins: &pins, offload: options.offload };
    let placement = match options.strategy {
        Strategy::Priority => place::place(&facts, wishes)?,
        Strategy::Cost => strategy::place_by_cost(&facts, wishes, options)?,
    };
    let held = facts.memory(&placement);
    let splits = split::split(&facts, &placement, &held, &options.observed);
    let selected = select::select(&facts, &held, &splits, options.fusion);
    let memory = allocate::allocate(&facts, &held, &splits, &selected, options.overlapping_runs)?;
    limits::check(devices, &residence, &memory, &options.limits)?;
    let lowered = lower::lower(&facts, &splits.arrivals, &selected, &memory)?;
    let arrivals = splits.arrivals;
    let splits = splits.splits.into_iter().zip(selected.ranges).map(|(split, steps)| {
        let Split { device, arrivals, observed, .. } = split;
        PlanSplit { device, arrivals, steps, observed }
    });
    Ok(Blueprint {
        graph: Arc::clone(graph),
        devices: devices.to_vec(),
        splits: splits.collect(),
        residence,
        placement,
        arrivals,
        temporaries: selected.temporaries,
        operations: selected.operations,
        places: lowered.places,
        memory,
        weights: lowered.weights,
        states: lowered.states,
    })
}

/// What placement by priority has decided after each of its stages, up to the one that fails;
/// for looking at. A tensor that is not placed yet counts as unused.
///
/// # Errors
/// Devices that are missing or given twice, pins of devices that do not exist. That a stage fails
/// is no error here: the stages before it are returned.
pub fn placement_stages(
    graph: &Arc<Graph>,
    devices: &[PlanDevice],
    residence: &Residence,
    options: &PlanOptions,
) -> Result<Vec<(Stage, Placement)>, PlanError> {
    check_devices(devices)?;
    let pins = pins::all(graph, devices, options)?;
    let facts = Facts::new(graph, devices, residence);
    let wishes = Wishes { pins: &pins, offload: options.offload };
    let mut stages = Vec::new();
    // The failure is that of `draft`, which tells it.
    _ = place::place_watched(&facts, wishes, |stage, placed| stages.push((stage, placed.clone())));
    Ok(stages)
}

/// Plans a graph for weights and state that exist, and compiles it.
///
/// `backends` are the opened queues of `devices`, in the same order.
///
/// # Errors
/// A weight or state tensor that does not exist, and what [`draft`] and [`Plan::compile`] refuse.
#[doc(alias = "ggml_backend_sched_alloc_graph")]
pub fn plan(
    graph: &Arc<Graph>,
    devices: &[PlanDevice],
    backends: &[Box<dyn Backend>],
    weights: &Weights,
    state: &State,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    check_devices(devices)?;
    let residence = Residence::new(graph, weights, state)?;
    Plan::compile(draft(graph, devices, residence, options)?, backends)
}

fn check_devices(devices: &[PlanDevice]) -> Result<(), PlanError> {
    if devices.is_empty() {
        return Err(PlanError::NoDevice);
    }
    for (index, device) in devices.iter().enumerate() {
        let name = &device.device.info().name;
        // Errors, pins and reports know devices by their names.
        let is_known = |other: &PlanDevice| other.device.info().name.eq_ignore_ascii_case(name);
        if devices[..index].iter().any(is_known) {
            return Err(PlanError::DuplicateDevice(name.clone()));
        }
    }
    Ok(())
}

/// Whether a device can compute with tensors in that kind of memory: its own, or one it accepts.
pub(crate) fn can_use(device: &PlanDevice, buffer_type: &dyn BufferType) -> bool {
    same_buffer_type(&*device.buffer_type, buffer_type)
        || device.device.supports_buffer_type(buffer_type)
}

/// The kind of memory that a placed tensor lies in.
pub(crate) fn memory_of<'a>(
    graph: &Graph,
    devices: &'a [PlanDevice],
    residence: &'a Residence,
    placement: &Placement,
    id: TensorId,
) -> Option<&'a dyn BufferType> {
    let root = graph.root(id);
    if let Some(kind) = residence.of(root) {
        return Some(&**kind);
    }
    placement.device(root).map(|device| &*devices[device.0].buffer_type)
}

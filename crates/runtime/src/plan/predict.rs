//! The time that a blueprint is predicted to take.
//!
//! The model, which simulated devices reproduce:
//!
//! - All inputs are in memory at time 0, and nothing from an earlier run is kept: every arrival
//!   is copied. Reading outputs is not counted.
//! - Each device is one queue in order. Splits are queued in order of the plan, and before each
//!   split its arrivals, in order.
//! - One piece of work at a time touches a memory: the compute memory of a kind, or a state
//!   tensor. Weights are never written, and anybody may read them at any time. Where memory is
//!   staged, inputs, arrivals and outputs are a memory of their own.
//! - An arrival runs on the queue of the device that owns its source, after what was queued there
//!   before and once nobody works on the memories that it goes from and to. It occupies that
//!   queue for [`transfer_ns`], where an end in host memory costs nothing.
//! - A split begins when its device's queue is free and nobody works on the memories that it
//!   touches. It takes [`split_ns`], and [`step_ns`] for each of its operations.
//!
//! The makespan is the end of the last split or copy.
//!
//! Memory that the largest buffer cuts into several chunks still counts as one here; the executor
//! may then be a little faster than predicted.

use std::ops::Range;

use tensoryard_graph::{Graph, Layout, Origin, TensorId, TensorMap};

use super::allocate::staged_roots;
use super::{
    Arrival, ArrivalIndex, Blueprint, DeviceIndex, Operation, Operations, Placement, PlanDevice,
    Residence, Value, memory_of,
};
use crate::rates::{DeviceRates, Work, split_ns, step_ns, transfer_ns};
use crate::same_buffer_type;

/// When one arrival is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyTime {
    /// The arrival.
    pub arrival: ArrivalIndex,
    /// The device whose queue it runs on.
    pub queue: DeviceIndex,
    /// Bytes copied.
    pub bytes: usize,
    /// When it begins.
    pub start_ns: u64,
    /// When it has come.
    pub end_ns: u64,
}

/// When one split runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitTime {
    /// The device.
    pub device: DeviceIndex,
    /// The copies before it.
    pub copies: Vec<CopyTime>,
    /// When its steps begin.
    pub start_ns: u64,
    /// Time of the steps, with the overhead of the split.
    pub compute_ns: u64,
    /// When its steps have ended.
    pub end_ns: u64,
}

impl SplitTime {
    /// Time of all its copies.
    pub fn copy_ns(&self) -> u64 {
        let times = self.copies.iter().map(|copy| copy.end_ns - copy.start_ns);
        times.fold(0, u64::saturating_add)
    }
}

/// What keeps one device busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceTime {
    /// Time of its splits.
    pub compute_ns: u64,
    /// Time of the copies on its queue.
    pub copy_ns: u64,
}

impl DeviceTime {
    /// Time in which its queue is not idle.
    pub fn busy_ns(&self) -> u64 {
        self.compute_ns.saturating_add(self.copy_ns)
    }
}

/// The predicted course of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// From the begin of the run to its end.
    pub makespan_ns: u64,
    /// The splits in order.
    pub splits: Vec<SplitTime>,
    /// The devices in order.
    pub devices: Vec<DeviceTime>,
}

/// Predicts a run of a blueprint. `rates` are those of its devices, in the same order; a device
/// without rates takes no time.
pub fn predict(blueprint: &Blueprint, rates: &[DeviceRates]) -> Prediction {
    let splits: Vec<Stretch<'_>> = blueprint
        .splits
        .iter()
        .map(|split| {
            let operations = split.steps.clone();
            Stretch { device: split.device, arrivals: &split.arrivals, operations }
        })
        .collect();
    let course = Course {
        graph: &blueprint.graph,
        devices: &blueprint.devices,
        residence: &blueprint.residence,
        placement: &blueprint.placement,
        arrivals: &blueprint.arrivals,
        temporaries: &blueprint.temporaries,
        operations: &blueprint.operations,
        staged: blueprint.memory.chunks.iter().any(|chunk| chunk.staged),
    };
    course.follow(&splits, rates)
}

/// A split, as far as time is concerned.
pub(super) struct Stretch<'a> {
    pub device: DeviceIndex,
    pub arrivals: &'a [ArrivalIndex],
    pub operations: Range<usize>,
}

/// What the time of a run depends on: a blueprint without its memory.
pub(super) struct Course<'a> {
    pub graph: &'a Graph,
    pub devices: &'a [PlanDevice],
    pub residence: &'a Residence,
    pub placement: &'a Placement,
    pub arrivals: &'a [Arrival],
    pub temporaries: &'a [Layout],
    pub operations: &'a Operations,
    /// Whether inputs, arrivals and outputs have a memory of their own.
    pub staged: bool,
}

/// Memory that one piece of work at a time touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    /// A root that has memory of its own.
    State(TensorId),
    /// Compute memory, by the first device of its kind.
    Compute(usize),
    /// The part of it for inputs, arrivals and outputs.
    Staged(usize),
}

/// When the last work on each memory ends.
struct Ends {
    states: TensorMap<u64>,
    compute: Vec<u64>,
    staged: Vec<u64>,
}

impl Ends {
    fn of(&self, memory: Touched) -> u64 {
        match memory {
            Touched::State(root) => self.states[root],
            Touched::Compute(pool) => self.compute[pool],
            Touched::Staged(pool) => self.staged[pool],
        }
    }

    fn set(&mut self, memory: Touched, end_ns: u64) {
        match memory {
            Touched::State(root) => self.states[root] = end_ns,
            Touched::Compute(pool) => self.compute[pool] = end_ns,
            Touched::Staged(pool) => self.staged[pool] = end_ns,
        }
    }
}

impl Course<'_> {
    fn layout(&self, value: Value) -> Option<Layout> {
        match value {
            Value::Tensor(id) | Value::Copy(_, id) => Some(*self.graph.layout(id)),
            Value::Temporary(number) => self.temporaries.get(number).copied(),
        }
    }

    fn work(&self, operation: &Operation<'_>) -> Option<Work> {
        let sources: Vec<Option<Layout>> = operation
            .sources
            .iter()
            .map(|source| source.and_then(|value| self.layout(value)))
            .collect();
        Some(Work::of(&operation.op, &sources, &self.layout(operation.dst)?))
    }

    /// Whether a tensor's memory is the host's.
    fn in_host_memory(&self, id: TensorId) -> bool {
        memory_of(self.graph, self.devices, self.residence, self.placement, id)
            .is_some_and(|kind| kind.is_host())
    }

    /// The first device with each device's kind of memory.
    fn pools(&self) -> Vec<usize> {
        let first = |(index, device): (usize, &PlanDevice)| {
            let kind = &*device.buffer_type;
            let same = |other: &PlanDevice| same_buffer_type(&*other.buffer_type, kind);
            self.devices.iter().position(same).unwrap_or(index)
        };
        self.devices.iter().enumerate().map(first).collect()
    }

    /// The roots that lie apart, where memory is staged.
    fn apart(&self) -> Option<TensorMap<bool>> {
        self.staged.then(|| staged_roots(self.graph))
    }

    /// Lets the splits run in order.
    pub fn follow(&self, splits: &[Stretch<'_>], rates: &[DeviceRates]) -> Prediction {
        let mut clock = Clock {
            course: self,
            rates,
            pools: self.pools(),
            apart: self.apart(),
            queue_free: vec![0; self.devices.len()],
            busy: vec![DeviceTime::default(); self.devices.len()],
            ends: Ends {
                states: TensorMap::filled(0, self.graph.len()),
                compute: vec![0; self.devices.len()],
                staged: vec![0; self.devices.len()],
            },
            touched: Vec::new(),
        };
        let run = |split: &Stretch<'_>| {
            let copies = clock.copy_all(split);
            clock.compute(split, copies)
        };
        let times = splits.iter().map(run).collect();
        let makespan_ns = clock.queue_free.into_iter().max().unwrap_or(0);
        Prediction { makespan_ns, splits: times, devices: clock.busy }
    }
}

/// Devices and memories while the splits run.
struct Clock<'a> {
    course: &'a Course<'a>,
    rates: &'a [DeviceRates],
    pools: Vec<usize>,
    apart: Option<TensorMap<bool>>,
    /// When each queue has done what it was given.
    queue_free: Vec<u64>,
    busy: Vec<DeviceTime>,
    ends: Ends,
    /// What the split at hand touches. Kept, so that splits allocate once.
    touched: Vec<Touched>,
}

impl<'a> Clock<'a> {
    fn rates_of(&self, device: DeviceIndex) -> &'a DeviceRates {
        self.rates.get(device.0).unwrap_or(&DeviceRates::UNLIMITED)
    }

    /// Where what is copied to a device lies.
    fn arrived(&self, device: DeviceIndex) -> Touched {
        let pool = self.pools[device.0];
        if self.apart.is_some() { Touched::Staged(pool) } else { Touched::Compute(pool) }
    }

    fn memory_of_root(&self, root: TensorId) -> Option<Touched> {
        match self.course.graph.tensor(root).origin {
            Origin::Weight => None,
            Origin::State => Some(Touched::State(root)),
            Origin::Input | Origin::Op(_) => {
                let pool = self.pools[self.course.placement.device(root)?.0];
                let is_apart = self.apart.as_ref().is_some_and(|apart| apart[root]);
                Some(if is_apart { Touched::Staged(pool) } else { Touched::Compute(pool) })
            }
        }
    }

    fn memory_of(&self, value: Value, device: DeviceIndex) -> Option<Touched> {
        match value {
            Value::Tensor(id) => self.memory_of_root(self.course.graph.root(id)),
            Value::Copy(..) => Some(self.arrived(device)),
            Value::Temporary(_) => Some(Touched::Compute(self.pools[device.0])),
        }
    }

    /// Copies what a split needs, each tensor in the queue of the device that has it.
    fn copy_all(&mut self, split: &Stretch<'_>) -> Vec<CopyTime> {
        let course = self.course;
        let mut copies = Vec::with_capacity(split.arrivals.len());
        for &index in split.arrivals {
            let Some(arrival) = course.arrivals.get(index.0) else { continue };
            let root = course.graph.root(arrival.tensor);
            let queue = course.placement.device(root).unwrap_or(split.device);
            let from = (!course.in_host_memory(root)).then(|| self.rates_of(queue));
            let to_host = course.devices[arrival.device.0].buffer_type.is_host();
            let to = (!to_host).then(|| self.rates_of(arrival.device));
            let bytes = course.graph.layout(arrival.tensor).data_bytes();
            let (source, target) = (self.memory_of_root(root), self.arrived(arrival.device));
            let free = source.map_or(0, |memory| self.ends.of(memory)).max(self.ends.of(target));
            let start_ns = self.queue_free[queue.0].max(free);
            let time = transfer_ns(bytes, from, to);
            let end_ns = start_ns.saturating_add(time);
            self.queue_free[queue.0] = end_ns;
            let busy = &mut self.busy[queue.0];
            busy.copy_ns = busy.copy_ns.saturating_add(time);
            for memory in source.into_iter().chain([target]) {
                self.ends.set(memory, end_ns);
            }
            copies.push(CopyTime { arrival: index, queue, bytes, start_ns, end_ns });
        }
        copies
    }

    /// Runs the operations of a split once its queue and all memory that it touches are free.
    fn compute(&mut self, split: &Stretch<'_>, copies: Vec<CopyTime>) -> SplitTime {
        let (course, device) = (self.course, split.device);
        let rates = self.rates_of(device);
        let mut compute_ns = split_ns(rates);
        self.touched.clear();
        for operation in course.operations.slice(split.operations.clone()) {
            for value in operation.sources.iter().flatten().chain([&operation.dst]) {
                if let Some(memory) = self.memory_of(*value, device)
                    && !self.touched.contains(&memory)
                {
                    self.touched.push(memory);
                }
            }
            let work = course.work(&operation);
            let time = work.map_or(0, |work| step_ns(&work, rates));
            compute_ns = compute_ns.saturating_add(time);
        }
        let free = self.touched.iter().map(|&memory| self.ends.of(memory)).max().unwrap_or(0);
        let start_ns = self.queue_free[device.0].max(free);
        let end_ns = start_ns.saturating_add(compute_ns);
        self.queue_free[device.0] = end_ns;
        let busy = &mut self.busy[device.0];
        busy.compute_ns = busy.compute_ns.saturating_add(compute_ns);
        for &memory in &self.touched {
            self.ends.set(memory, end_ns);
        }
        SplitTime { device, copies, start_ns, compute_ns, end_ns }
    }
}

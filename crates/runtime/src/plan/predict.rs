//! The time that a blueprint is predicted to take.
//!
//! The model, which simulated devices reproduce:
//!
//! - All inputs are in memory at time 0, and nothing from an earlier run is kept: every arrival
//!   is copied. Reading outputs is not counted.
//! - Each device is one queue in order. Splits are queued in order of the plan, and before each
//!   split its arrivals, in order.
//! - An arrival runs on the queue of the device that owns its source, after what was queued there
//!   before and after the last split that wrote the source. It occupies that queue for
//!   [`transfer_ns`], where an end in host memory costs nothing. The device that it goes to
//!   computes meanwhile.
//! - A split begins when its device's queue is free, its arrivals have come, and the last split
//!   that wrote something it reads in shared memory has ended. It takes [`split_ns`], and
//!   [`step_ns`] for each of its operations.
//!
//! The makespan is the end of the last split or copy.

use std::ops::Range;

use tensoryard_graph::{Graph, Layout, TensorId, TensorMap};

use super::{
    Arrival, ArrivalIndex, Blueprint, DeviceIndex, Operation, Operations, Placement, PlanDevice,
    Residence, Value, memory_of,
};
use crate::rates::{DeviceRates, Work, split_ns, step_ns, transfer_ns};

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

    /// Lets the splits run in order.
    pub fn follow(&self, splits: &[Stretch<'_>], rates: &[DeviceRates]) -> Prediction {
        let rates_of = |device: DeviceIndex| rates.get(device.0).unwrap_or(&DeviceRates::UNLIMITED);
        let mut queue_free = vec![0u64; self.devices.len()];
        let mut busy = vec![DeviceTime::default(); self.devices.len()];
        // When the memory of each root was last written.
        let mut written = TensorMap::filled(0u64, self.graph.len());
        let mut times = Vec::with_capacity(splits.len());
        for split in splits {
            let mut ready = 0;
            let mut copies = Vec::with_capacity(split.arrivals.len());
            for &index in split.arrivals {
                let Some(arrival) = self.arrivals.get(index.0) else { continue };
                let root = self.graph.root(arrival.tensor);
                let queue = self.placement.device(root).unwrap_or(split.device);
                let from = (!self.in_host_memory(root)).then(|| rates_of(queue));
                let to_host = self.devices[arrival.device.0].buffer_type.is_host();
                let to = (!to_host).then(|| rates_of(arrival.device));
                let bytes = self.graph.layout(arrival.tensor).data_bytes();
                let start_ns = queue_free[queue.0].max(written[root]);
                let time = transfer_ns(bytes, from, to);
                let end_ns = start_ns.saturating_add(time);
                queue_free[queue.0] = end_ns;
                busy[queue.0].copy_ns = busy[queue.0].copy_ns.saturating_add(time);
                ready = ready.max(end_ns);
                copies.push(CopyTime { arrival: index, queue, bytes, start_ns, end_ns });
            }
            let device = split.device;
            let operations = || self.operations.slice(split.operations.clone());
            let mut compute_ns = split_ns(rates_of(device));
            for operation in operations() {
                for source in operation.sources.iter().flatten() {
                    if let Value::Tensor(id) = source {
                        ready = ready.max(written[self.graph.root(*id)]);
                    }
                }
                let work = self.work(&operation);
                let time = work.map_or(0, |work| step_ns(&work, rates_of(device)));
                compute_ns = compute_ns.saturating_add(time);
            }
            let start_ns = queue_free[device.0].max(ready);
            let end_ns = start_ns.saturating_add(compute_ns);
            queue_free[device.0] = end_ns;
            busy[device.0].compute_ns = busy[device.0].compute_ns.saturating_add(compute_ns);
            for operation in operations() {
                if let Value::Tensor(id) = operation.dst {
                    written[self.graph.root(id)] = end_ns;
                }
            }
            times.push(SplitTime { device, copies, start_ns, compute_ns, end_ns });
        }
        let makespan_ns = queue_free.into_iter().max().unwrap_or(0);
        Prediction { makespan_ns, splits: times, devices: busy }
    }
}

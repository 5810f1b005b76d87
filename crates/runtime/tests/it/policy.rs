//! What the tests of planning policy share: graphs, devices with rates, drafts.

use std::sync::Arc;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::{Graph, GraphBuilder, Origin, TensorId};
use tensoryard_runtime::plan::{Assignment, Prediction, predict};
use tensoryard_runtime::{
    Blueprint, DeviceIndex, DeviceRates, PlanDevice, PlanError, PlanOptions, plan,
};

use crate::support::full;

pub const A: DeviceIndex = DeviceIndex(0);
pub const B: DeviceIndex = DeviceIndex(1);

pub fn build(make: impl FnOnce(&GraphBuilder)) -> Arc<Graph> {
    tensoryard_conformance::graphs::build("policy", make)
}

pub fn weights_of(graph: &Graph) -> MemoryWeights {
    let mut weights = MemoryWeights::default();
    for id in graph.live_leaves(Origin::Weight) {
        let desc = graph.tensor(id);
        let values = vec![0.5; desc.layout.shape().elements()];
        weights.insert(desc.name.clone(), desc.layout, encode(desc.layout.dtype(), &values));
    }
    weights
}

pub fn devices(options: Vec<ReferenceOptions>) -> Vec<PlanDevice> {
    let devices = options.into_iter().map(ReferenceOptions::build);
    devices
        .map(|device| {
            let buffer_type = Arc::clone(&device.buffer_types()[0]);
            PlanDevice { device, buffer_type }
        })
        .collect()
}

/// A device that computes and transfers at so many flops and bytes a nanosecond.
pub fn rated(name: &str, flops_per_ns: f64, bytes_per_ns: f64) -> ReferenceOptions {
    let (flops, bytes) = (flops_per_ns * 1e9, bytes_per_ns * 1e9);
    let rates = DeviceRates {
        matrix_f32_flops_per_s: flops,
        matrix_f16_flops_per_s: flops,
        matrix_quantised_flops_per_s: flops,
        other_flops_per_s: flops,
        to_device_bytes_per_s: bytes,
        from_device_bytes_per_s: bytes,
        ..DeviceRates::UNLIMITED
    };
    ReferenceOptions { rates: Some(rates), ..full(name) }
}

pub fn rates(devices: &[PlanDevice]) -> Vec<DeviceRates> {
    devices.iter().map(|device| device.device.rates().unwrap()).collect()
}

pub fn options(change: impl FnOnce(&mut PlanOptions)) -> PlanOptions {
    let mut options = PlanOptions { fusion: false, ..PlanOptions::default() };
    change(&mut options);
    options
}

/// A draft for leaves that all live on one device.
pub fn draft_on(
    graph: &Arc<Graph>,
    devices: &[PlanDevice],
    holder: usize,
    options: &PlanOptions,
) -> Result<Blueprint, PlanError> {
    let assignment = Assignment::on_device(&[graph], &*devices[holder].device)?;
    plan::draft(graph, devices, assignment.residence(graph)?, options)
}

pub fn predicted(blueprint: &Blueprint) -> Prediction {
    predict(blueprint, &rates(&blueprint.devices))
}

pub fn find(graph: &Graph, name: &str) -> TensorId {
    graph.ids().find(|&id| graph.tensor(id).name == name).unwrap()
}

/// Devices of the tensors of these names.
pub fn placed(blueprint: &Blueprint, names: &[&str]) -> Vec<usize> {
    let device = |name: &&str| blueprint.placement.device(find(&blueprint.graph, name)).unwrap().0;
    names.iter().map(device).collect()
}

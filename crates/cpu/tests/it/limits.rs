//! Planning for the memory that the processor has.

use std::sync::Arc;

use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::plan::{MemoryLimits, assign, draft};
use tensoryard_runtime::{Device, PlanDevice, PlanError, PlanOptions};

/// A product with the first 64 of `rows` rows of a matrix when `part`, else with all of them.
fn product(rows: usize, part: bool) -> Arc<Graph> {
    let g = GraphBuilder::new("limits");
    let x = g.input("x", DType::F32, [64, 1]);
    let w = g.weight("w", DType::F16, [64, rows]);
    let w = if part { w.slice(1, 0, 64) } else { w };
    w.mul_mat(x).output("y");
    Arc::new(g.finish().unwrap())
}

fn devices() -> [PlanDevice; 1] {
    let device: Arc<dyn Device> = Arc::new(CpuDevice::new(Isa::detect()));
    [PlanDevice::new(&device)]
}

#[test]
fn more_than_the_machine_has_is_refused_before_anything_is_allocated() {
    let devices = devices();
    let memory = devices[0].device.memory();
    assert!(memory.free > 0 && memory.free <= memory.total, "{memory:?}");
    // 128 bytes a row, twice as much as there is in all.
    let graph = product(memory.total / 64, false);
    let error = assign(&[&graph], &devices, &PlanOptions::default()).unwrap_err();
    let PlanError::NoRoom { name, bytes, reasons, .. } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), *bytes), ("w", memory.total / 64 * 128));
    assert!(reasons.starts_with("CPU: limit "), "{error}");
    let limits = MemoryLimits { spill: false, ..MemoryLimits::default() };
    let options = PlanOptions { limits, ..PlanOptions::default() };
    let error = assign(&[&graph], &devices, &options).unwrap_err();
    let PlanError::DoesNotFit { device, by, needed, limit, .. } = &error else { panic!("{error}") };
    assert_eq!((device.as_str(), *by), ("CPU", needed - limit));
}

#[test]
fn packed_and_plain_memory_are_one_memory() {
    let (graph, devices) = (product(64, false), devices());
    let assignment = assign(&[&graph], &devices, &PlanOptions::default()).unwrap();
    assert_eq!(assignment.weight("w").unwrap().buffer_type.name(), "CPU_Packed");
    assert_eq!(assignment.memory().len(), 1);
    let memory = &assignment.memory()[0];
    assert_eq!(memory.name, "CPU");
    assert!(memory.weights >= 64 * 128 && memory.compute >= 512, "{memory:?}");
    // The limit is for both together, to the byte.
    let peak = memory.peak();
    let plan = |limit| {
        let limits = MemoryLimits { devices: vec![Some(limit)], spill: true };
        let options = PlanOptions { limits, ..PlanOptions::default() };
        draft(&graph, &devices, assignment.residence(&graph).unwrap(), &options)
    };
    assert!(plan(peak).is_ok());
    let error = plan(peak - 1).unwrap_err();
    assert!(matches!(error, PlanError::DoesNotFit { by: 1, .. }), "{error}");
}

#[test]
fn a_weight_that_is_looked_into_is_not_packed() {
    let (whole, part, devices) = (product(128, false), product(128, true), devices());
    let options = PlanOptions::default();
    let assignment = assign(&[&whole, &part], &devices, &options).unwrap();
    assert_eq!(assignment.weight("w").unwrap().buffer_type.name(), "CPU");
    assert!(assignment.residence(&part).is_ok());
}

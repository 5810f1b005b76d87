//! What planning costs: graphs of 3,000 tiny nodes on two devices, cut into 1, 100 or 701 splits.
//!
//! `cargo bench -p tensoryard-runtime --bench planning` prints the time of each stage and of all
//! of them from nothing. The devices compute nothing; compiling is not part of it. Nodes are
//! sums, products with a row, scalings, and a matrix product with a weight every tenth node; the
//! second device runs the functions that cut the graph.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::sync::Arc;

use divan::{Bencher, black_box};
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, OpKind, Tensor};
use tensoryard_runtime::plan::{self, Facts, Residence, Wishes};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Device, DeviceError, DeviceInfo, DeviceKind, Memory,
    MemoryError, MemoryInfo, OpCase, PlanDevice, PlanOptions, StepOp, Unsupported, WeightUse,
};

const NODES: usize = 3000;
const SPLITS: [usize; 3] = [1, 100, 701];

fn main() {
    divan::main();
}

/// Memory that is never allocated.
#[derive(Debug)]
struct NullMemory(&'static str);

impl BufferType for NullMemory {
    fn name(&self) -> &str {
        self.0
    }

    fn alignment(&self) -> usize {
        64
    }

    fn max_size(&self) -> usize {
        1 << 40
    }

    fn tensor_bytes(&self, layout: &Layout) -> usize {
        layout.extent_bytes()
    }

    fn is_host(&self) -> bool {
        false
    }

    fn allocate(&self, size: usize) -> Result<Box<dyn Memory>, MemoryError> {
        Err(MemoryError::Allocation { bytes: size })
    }
}

/// A device that claims ops and computes nothing.
#[derive(Debug)]
struct NullDevice {
    info: DeviceInfo,
    buffer_types: [Arc<dyn BufferType>; 1],
    functions: bool,
}

impl NullDevice {
    fn device(name: &'static str, functions: bool) -> Arc<dyn Device> {
        let info = DeviceInfo {
            name: name.to_owned(),
            description: name.to_owned(),
            id: None,
            kind: DeviceKind::Accelerator,
        };
        Arc::new(Self { info, buffer_types: [Arc::new(NullMemory(name))], functions })
    }
}

impl Device for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> MemoryInfo {
        MemoryInfo::default()
    }

    fn features(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        &self.buffer_types
    }

    fn weight_buffer_type(&self, _: &Layout, _: &[WeightUse]) -> Arc<dyn BufferType> {
        Arc::clone(&self.buffer_types[0])
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        let is_function = matches!(case.op, StepOp::Op(op) if op.kind() == OpKind::Unary);
        if is_function == self.functions { Ok(()) } else { Err(Unsupported("lacks it".into())) }
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        buffer_type.name() == self.buffer_types[0].name()
    }

    fn open(&self, _: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        Err(DeviceError::Option {
            device: self.info.name.clone(),
            option: "open",
            value: String::new(),
            wanted: "nothing".to_owned(),
        })
    }
}

struct Scene {
    graph: Arc<Graph>,
    devices: Vec<PlanDevice>,
    residence: Residence,
    options: PlanOptions,
}

fn scene(splits: usize) -> Scene {
    let g = GraphBuilder::new("planning");
    let weight = g.weight("weight", DType::F32, [4, 4]);
    let row = g.weight("row", DType::F32, [4]);
    let mut x: Tensor<'_> = g.input("x", DType::F32, [4, 2]).scale(1.0, 0.0);
    let mut before = x;
    let mut cuts = 0;
    for node in 1..NODES {
        let next = match node % 10 {
            // Each function on the second device makes two splits.
            _ if cuts < splits / 2 && node * (splits / 2) >= cuts * NODES => {
                cuts += 1;
                x.unary(UnaryKind::Relu)
            }
            0 => weight.mul_mat(x),
            1 | 4 | 7 => x.add(before),
            2 | 5 | 8 => x.mul(row),
            _ => x.scale(0.5, 0.0),
        };
        (before, x) = (x, next);
    }
    x.output("y");
    let graph = Arc::new(g.finish().unwrap());
    let devices: Vec<PlanDevice> = [NullDevice::device("A", false), NullDevice::device("B", true)]
        .into_iter()
        .map(|device| PlanDevice { buffer_type: Arc::clone(&device.buffer_types()[0]), device })
        .collect();
    let assignment = plan::Assignment::on_device(&[&graph], &*devices[0].device).unwrap();
    let residence = assignment.residence(&graph).unwrap();
    let blueprint = plan::draft(&graph, &devices, residence.clone(), &PlanOptions::default());
    let found = blueprint.unwrap().splits.len();
    assert!(found.abs_diff(splits) <= 1, "{found} splits");
    Scene { graph, devices, residence, options: PlanOptions::default() }
}

/// All stages, from nothing.
#[divan::bench(args = SPLITS)]
fn all(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    bencher.with_inputs(|| scene.residence.clone()).bench_values(|residence| {
        plan::draft(black_box(&scene.graph), &scene.devices, residence, &scene.options).unwrap()
    });
}

/// The tables that the stages share.
#[divan::bench(args = SPLITS)]
fn facts(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    bencher.bench_local(|| Facts::new(black_box(&scene.graph), &scene.devices, &scene.residence));
}

#[divan::bench(args = SPLITS)]
fn place(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    let facts = Facts::new(&scene.graph, &scene.devices, &scene.residence);
    bencher.bench_local(|| plan::place::place(black_box(&facts), Wishes::default()).unwrap());
}

#[divan::bench(args = SPLITS)]
fn split(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    let facts = Facts::new(&scene.graph, &scene.devices, &scene.residence);
    let placement = plan::place::place(&facts, Wishes::default()).unwrap();
    bencher.bench_local(|| {
        let memory = facts.memory(black_box(&placement));
        (plan::split::split(&facts, &placement, &memory, &[]), memory)
    });
}

#[divan::bench(args = SPLITS)]
fn select(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    let facts = Facts::new(&scene.graph, &scene.devices, &scene.residence);
    let placement = plan::place::place(&facts, Wishes::default()).unwrap();
    let memory = facts.memory(&placement);
    let splits = plan::split::split(&facts, &placement, &memory, &[]);
    bencher.bench_local(|| plan::select::select(&facts, &memory, black_box(&splits), true));
}

#[divan::bench(args = SPLITS)]
fn allocate(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    let facts = Facts::new(&scene.graph, &scene.devices, &scene.residence);
    let placement = plan::place::place(&facts, Wishes::default()).unwrap();
    let memory = facts.memory(&placement);
    let splits = plan::split::split(&facts, &placement, &memory, &[]);
    let selected = plan::select::select(&facts, &memory, &splits, true);
    bencher.bench_local(|| {
        plan::allocate::allocate(&facts, &memory, &splits, black_box(&selected), 1).unwrap()
    });
}

#[divan::bench(args = SPLITS)]
fn lower(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    let facts = Facts::new(&scene.graph, &scene.devices, &scene.residence);
    let placement = plan::place::place(&facts, Wishes::default()).unwrap();
    let held = facts.memory(&placement);
    let splits = plan::split::split(&facts, &placement, &held, &[]);
    let selected = plan::select::select(&facts, &held, &splits, true);
    let memory = plan::allocate::allocate(&facts, &held, &splits, &selected, 1).unwrap();
    bencher.bench_local(|| {
        plan::lower::lower(&facts, &splits.arrivals, black_box(&selected), &memory).unwrap()
    });
}

/// The steps that devices would compile; not part of planning.
#[divan::bench(args = SPLITS)]
fn steps(bencher: Bencher<'_, '_>, splits: usize) {
    let scene = scene(splits);
    let residence = scene.residence.clone();
    let blueprint = plan::draft(&scene.graph, &scene.devices, residence, &scene.options).unwrap();
    bencher.bench_local(|| {
        let splits = 0..black_box(&blueprint).splits.len();
        splits.map(|split| blueprint.steps(split).unwrap()).collect::<Vec<_>>()
    });
}

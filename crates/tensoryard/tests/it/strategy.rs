//! Predicted and simulated times of real graphs by both strategies, on machines that are easy and
//! hard to plan for. `cargo test --release -p tensoryard --test it strategy -- --nocapture`
//! prints the table.

use std::sync::Arc;

use tensoryard::cpu::{CpuDevice, Isa};
use tensoryard::formats::whisper::WhisperConfig;
use tensoryard::graph::ops::UnaryKind;
use tensoryard::graph::{DType, Graph, GraphBuilder, Layout, Origin};
use tensoryard::models::whisper::config::GraphConfig;
use tensoryard::models::whisper::decoder::{DecoderShape, decoder_graph};
use tensoryard::models::whisper::encoder::{AudioOutput, encoder_graph};
use tensoryard::runtime::plan::{MemoryLimits, Strategy, assign, draft, predict};
use tensoryard::runtime::{
    AbortSignal, BackendOptions, Device, DeviceRates, Input, Plan, PlanDevice, PlanOptions,
    SharedBytes, State, WeightSource, Weights, Workspace, exec,
};
use tensoryard::sim::{SimDriver, SimOptions};
use tensoryard_conformance::random_graph::random_graph;

/// A device by its Gflop/s, its memory and its link in GB/s, and what an op costs in µs.
fn device(
    driver: &SimDriver,
    name: &str,
    gflops: f64,
    memory: f64,
    link: f64,
    op_us: f64,
) -> PlanDevice {
    let rates = DeviceRates {
        matrix_f32_flops_per_s: gflops * 1e9,
        matrix_f16_flops_per_s: 2.0 * gflops * 1e9,
        matrix_quantised_flops_per_s: 2.0 * gflops * 1e9,
        other_flops_per_s: gflops * 1e8,
        memory_bytes_per_s: memory * 1e9,
        op_overhead_ns: op_us * 1e3,
        split_overhead_ns: 2.0 * op_us * 1e3,
        to_device_bytes_per_s: link * 1e9,
        from_device_bytes_per_s: link * 1e9,
        transfer_latency_ns: 5e3,
    };
    let device = driver.device(SimOptions { rates, ..SimOptions::named(name) }).unwrap();
    PlanDevice::new(&(device as Arc<dyn Device>))
}

/// Name, devices in order of priority, limits in MiB, and whether priority is poor there.
struct Machine {
    name: &'static str,
    driver: SimDriver,
    devices: Vec<PlanDevice>,
    limits_mib: Vec<Option<usize>>,
    is_hard: bool,
}

fn machines() -> Vec<Machine> {
    type Make = fn(&SimDriver, &str) -> PlanDevice;
    let gpu: Make = |driver, name| device(driver, name, 8000.0, 400.0, 12.0, 4.0);
    let cpu: Make = |driver, name| device(driver, name, 200.0, 20.0, 40.0, 0.3);
    let stick: Make = |driver, name| device(driver, name, 40.0, 8.0, 0.4, 20.0);
    let host: Arc<dyn Device> = Arc::new(CpuDevice::new(Isa::detect()));
    let machine = |devices: &[(&'static str, Make)], name, limits_mib, is_hard| {
        let driver = SimDriver::new(Arc::clone(&host));
        let devices = devices.iter().map(|(name, make)| make(&driver, name)).collect();
        Machine { name, driver, devices, limits_mib, is_hard }
    };
    vec![
        machine(&[("gpu", gpu), ("cpu", cpu)], "gpu, cpu", vec![], false),
        machine(&[("gpu", gpu), ("cpu", cpu)], "small gpu, cpu", vec![Some(32)], false),
        machine(&[("stick", stick), ("cpu", cpu)], "stick, cpu", vec![], true),
        machine(
            &[("stick", stick), ("near", cpu), ("gpu", gpu), ("far", cpu)],
            "stick, cpu, gpu, cpu",
            vec![None, None, Some(48)],
            true,
        ),
    ]
}

/// A decoder of 12 layers with gated feed-forward parts, one token of one sequence.
fn twelve_layers() -> Graph {
    let (width, heads, slots, hidden) = (512, 8, 256, 1408);
    let head = width / heads;
    let g = GraphBuilder::new("12-layer decoder");
    let ids = g.input("position", DType::I32, [1]);
    let mut x = g.input("x", DType::F32, [width, 1]);
    for layer in 0..12 {
        let weight =
            |name: &str, dims: [usize; 2]| g.weight(format!("{layer}.{name}"), DType::F16, dims);
        let gain = |name: &str| g.weight(format!("{layer}.{name}"), DType::F32, [width]);
        let cache = |name: &str, rows| {
            let cache = g.state(format!("{layer}.{name}"), DType::F16, [width, slots]);
            let cache = cache.set_rows(rows, ids);
            cache.reshape([head, heads, slots]).permute([0, 2, 1, 3])
        };
        let normed = x.rms_norm(1e-6).mul(gain("norm"));
        let [q, k, v] = ["q", "k", "v"].map(|name| weight(name, [width, width]).mul_mat(normed));
        let q = q.reshape([head, heads, 1]).permute([0, 2, 1, 3]);
        let attended = q.attention(cache("keys", k), cache("values", v), None, 0.125);
        x = weight("out", [width, width]).mul_mat(attended.reshape([width, 1])).add(x);
        let normed = x.rms_norm(1e-6).mul(gain("norm 2"));
        let gate = weight("gate", [width, hidden]).mul_mat(normed).unary(UnaryKind::Silu);
        let up = weight("up", [width, hidden]).mul_mat(normed);
        x = weight("down", [hidden, width]).mul_mat(gate.mul(up)).add(x);
    }
    x.output("y");
    g.finish().unwrap()
}

fn graphs() -> Vec<(String, Graph)> {
    let sizes = WhisperConfig {
        n_vocab: 51864,
        n_audio_ctx: 1500,
        n_audio_state: 384,
        n_audio_head: 6,
        n_audio_layer: 4,
        n_text_ctx: 448,
        n_text_state: 384,
        n_text_head: 6,
        n_text_layer: 4,
        n_mels: 80,
    };
    let config = GraphConfig { sizes, matrix: DType::F16, cache: DType::F16 };
    let mut graphs = vec![
        ("whisper encoder".to_owned(), encoder_graph(&config, AudioOutput::State).unwrap()),
        (
            "whisper decoder".to_owned(),
            decoder_graph(&config, DecoderShape::new(&config, 100, 1, 1)).unwrap(),
        ),
        ("12-layer decoder".to_owned(), twelve_layers()),
    ];
    graphs.extend((0..3).map(|seed| (format!("random {seed}"), random_graph(seed, 40).graph)));
    graphs
}

/// Weights that are all zero: times do not depend on values.
struct Zeros(Arc<Graph>);

impl WeightSource for Zeros {
    fn layout(&self, name: &str) -> Option<Layout> {
        self.0.leaf(name).map(|id| *self.0.layout(id))
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        let bytes = self.layout(name).ok_or("no such weight")?.data_bytes();
        SharedBytes::new(Arc::new(vec![0u8; bytes]), 0..bytes).map_err(|error| error.to_string())
    }
}

struct Times {
    predicted_ns: u64,
    simulated_ns: u64,
}

/// What a run of the graph is predicted to take, and takes in virtual time.
fn times(graph: &Arc<Graph>, machine: &Machine, strategy: Strategy) -> Times {
    let devices = &machine.devices;
    let limits = machine.limits_mib.iter().map(|mib| mib.map(|mib| mib << 20)).collect();
    let limits = MemoryLimits { devices: limits, spill: true };
    let options = PlanOptions { strategy, limits, ..PlanOptions::default() };
    let rates: Vec<_> = devices.iter().map(|device| device.device.rates().unwrap()).collect();
    let assignment = assign(&[graph], devices, &options).unwrap();
    let residence = assignment.residence(graph).unwrap();
    let blueprint = draft(graph, devices, residence, &options).unwrap();
    let predicted_ns = predict(&blueprint, &rates).makespan_ns;
    let open = |device: &PlanDevice| device.device.open(&BackendOptions::default()).unwrap();
    let mut backends: Vec<_> = devices.iter().map(open).collect();
    let source = Zeros(Arc::clone(graph));
    let weights = Weights::load(&source, &[graph], &assignment, |_, _| true).unwrap();
    let mut state = State::create(&[graph], &assignment).unwrap();
    let plan = Plan::compile(blueprint, &backends).unwrap();
    let inputs: Vec<(&str, Vec<u8>)> = graph
        .ids()
        .map(|id| graph.tensor(id))
        .filter(|desc| desc.origin == Origin::Input && graph.leaf(&desc.name).is_some())
        .map(|desc| (desc.name.as_str(), vec![0; desc.layout.data_bytes()]))
        .collect();
    let inputs: Vec<Input<'_>> = inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
    machine.driver.clock().reset();
    exec::run(
        &plan,
        &mut backends,
        &weights,
        &mut state,
        &mut Workspace::new(),
        &inputs,
        &AbortSignal::new(),
    )
    .unwrap();
    Times { predicted_ns, simulated_ns: machine.driver.clock().makespan_ns() }
}

#[test]
fn real_graphs_are_never_slower_by_cost_and_faster_where_priority_is_poor() {
    println!(
        "{:17} {:20} {:>12} {:>12} {:>12} {:>12} {:>6}",
        "graph", "machine", "priority µs", "simulated", "cost µs", "simulated", "ratio"
    );
    for (graph_name, graph) in graphs() {
        let graph = Arc::new(graph);
        for machine in machines() {
            let name = machine.name;
            let priority = times(&graph, &machine, Strategy::Priority);
            let cost = times(&graph, &machine, Strategy::Cost);
            let micros = |ns: u64| ns as f64 / 1e3;
            println!(
                "{graph_name:17} {name:20} {:>12.1} {:>12.1} {:>12.1} {:>12.1} {:>6.3}",
                micros(priority.predicted_ns),
                micros(priority.simulated_ns),
                micros(cost.predicted_ns),
                micros(cost.simulated_ns),
                cost.simulated_ns as f64 / priority.simulated_ns as f64
            );
            let what = format!("{graph_name} on {name}");
            for times in [&priority, &cost] {
                assert_eq!(times.predicted_ns, times.simulated_ns, "{what}");
            }
            let (priority, cost) = (priority.simulated_ns, cost.simulated_ns);
            assert!(cost <= priority, "{what}: {cost} ns, {priority} ns");
            if machine.is_hard && !graph_name.starts_with("random") {
                assert!(cost * 10 < priority * 9, "{what}: {cost}, {priority} ns");
            }
        }
    }
}

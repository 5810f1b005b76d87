//! Predicted times of real graphs by both strategies, on machines that are easy and hard to plan
//! for. `cargo test -p tensoryard-models strategy -- --nocapture` prints the table.

use std::sync::Arc;

use tensoryard_conformance::random_graph::random_graph;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_formats::whisper::WhisperConfig;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_models::whisper::config::GraphConfig;
use tensoryard_models::whisper::decoder::{DecoderShape, decoder_graph};
use tensoryard_models::whisper::encoder::{AudioOutput, encoder_graph};
use tensoryard_runtime::plan::{MemoryLimits, Strategy, assign, draft, predict};
use tensoryard_runtime::{DeviceRates, PlanDevice, PlanOptions};

/// A device by its Gflop/s, its memory and its link in GB/s, and what an op costs in µs.
fn device(name: &str, gflops: f64, memory: f64, link: f64, op_us: f64) -> PlanDevice {
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
    let device = ReferenceOptions { rates: Some(rates), ..ReferenceOptions::new(name) }.build();
    let buffer_type = Arc::clone(&device.buffer_types()[0]);
    PlanDevice { device, buffer_type }
}

/// Name, devices in order of priority, limits in MiB, and whether priority is poor there.
struct Machine {
    name: &'static str,
    devices: Vec<PlanDevice>,
    limits_mib: Vec<Option<usize>>,
    is_hard: bool,
}

fn machines() -> Vec<Machine> {
    let gpu = |name| device(name, 8000.0, 400.0, 12.0, 4.0);
    let cpu = |name| device(name, 200.0, 20.0, 40.0, 0.3);
    let stick = |name| device(name, 40.0, 8.0, 0.4, 20.0);
    let machine =
        |name, devices, limits_mib, is_hard| Machine { name, devices, limits_mib, is_hard };
    vec![
        machine("gpu, cpu", vec![gpu("gpu"), cpu("cpu")], vec![], false),
        machine("small gpu, cpu", vec![gpu("gpu"), cpu("cpu")], vec![Some(32)], false),
        machine("stick, cpu", vec![stick("stick"), cpu("cpu")], vec![], true),
        machine(
            "stick, cpu, gpu, cpu",
            vec![stick("stick"), cpu("near"), gpu("gpu"), cpu("far")],
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

#[test]
fn real_graphs_are_never_predicted_worse_by_cost_and_better_where_priority_is_poor() {
    println!(
        "{:18} {:22} {:>13} {:>13} {:>7}",
        "graph", "machine", "priority µs", "cost µs", "ratio"
    );
    for (graph_name, graph) in graphs() {
        let graph = Arc::new(graph);
        for Machine { name, devices, limits_mib, is_hard } in machines() {
            let limits = limits_mib.iter().map(|mib| mib.map(|mib| mib << 20)).collect();
            let limits = MemoryLimits { devices: limits, spill: true };
            let rates: Vec<_> =
                devices.iter().map(|device| device.device.rates().unwrap()).collect();
            let predicted = |strategy| {
                let limits = limits.clone();
                let options = PlanOptions { strategy, limits, ..PlanOptions::default() };
                let assignment = assign(&[&graph], &devices, &options).unwrap();
                let residence = assignment.residence(&graph).unwrap();
                let blueprint = draft(&graph, &devices, residence, &options).unwrap();
                predict(&blueprint, &rates).makespan_ns
            };
            let (priority, cost) = (predicted(Strategy::Priority), predicted(Strategy::Cost));
            println!(
                "{graph_name:18} {name:22} {:>13.1} {:>13.1} {:>7.3}",
                priority as f64 / 1e3,
                cost as f64 / 1e3,
                cost as f64 / priority as f64
            );
            assert!(cost <= priority, "{graph_name} on {name}: {cost} ns, {priority} ns");
            if is_hard && !graph_name.starts_with("random") {
                assert!(cost * 10 < priority * 9, "{graph_name} on {name}: {cost}, {priority} ns");
            }
        }
    }
}

//! What a step costs beside its arithmetic: programs of 3,000 tiny steps.
//!
//! `cargo bench -p tensoryard-cpu --bench overhead` prints nanoseconds per step of whole runs
//! through a session, on one thread, on two (which leave tiny steps to one of them), and on two
//! that share every step and meet after it. Arguments select lines that contain one of them.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Instant;

use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder, Tensor};
use tensoryard_runtime::{BackendOptions, Input, Selected, Session, SessionOptions, Weights};

const STEPS: usize = 3000;

type Adapt = fn(CpuDevice) -> CpuDevice;
type Link = for<'g> fn(usize, Tensor<'g>, Tensor<'g>) -> Tensor<'g>;

fn main() {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let chains: [(&str, Link); 6] = [
        ("scale", |_, x, _| x.scale(0.5, 1.0)),
        ("add, mul, scale", |step, x, y| match step % 3 {
            0 => x.add(y.slice(1, step % 4, 1)),
            1 => x.mul(y.slice(1, step % 4, 1)),
            _ => x.scale(0.5, 1.0),
        }),
        ("unary", |step, x, _| {
            x.unary(if step.is_multiple_of(2) { UnaryKind::Tanh } else { UnaryKind::Abs })
        }),
        ("soft_max", |_, x, _| x.soft_max(1.0, None)),
        ("layer_norm", |_, x, _| x.norm(1e-5)),
        ("mul_mat", |_, x, y| y.mul_mat(x)),
    ];
    let device = || CpuDevice::new(Isa::detect());
    let teams: [(&str, usize, Adapt); 3] = [
        ("1 thread", 1, |device| device),
        ("2 threads", 2, |device| device),
        ("2 threads, all steps shared", 2, CpuDevice::sharing_every_step),
    ];
    for (team, threads, adapt) in teams {
        for (name, link) in chains {
            let name = format!("{name}, {team}");
            if filters.is_empty() || filters.iter().any(|filter| name.contains(filter)) {
                let nanoseconds = measure(adapt(device()), threads, &chain(link));
                println!("{name:<48} {nanoseconds:7.1} ns a step");
            }
        }
    }
}

/// Each step works on the result of the one before; four elements a row.
fn chain(link: Link) -> Arc<Graph> {
    let g = GraphBuilder::new("chain");
    let y = g.input("y", DType::F32, [4, 4]);
    let mut x = g.input("x", DType::F32, [4]);
    for step in 0..STEPS {
        x = link(step, x, y);
    }
    x.output("z");
    Arc::new(g.finish().unwrap())
}

/// Nanoseconds of a step in the fastest of many runs.
fn measure(device: CpuDevice, threads: usize, graph: &Arc<Graph>) -> f64 {
    let selected = Selected { device: Arc::new(device), options: BackendOptions { threads } };
    let weights = Arc::new(Weights::default());
    let mut session =
        Session::open(&[selected], weights, &[graph], SessionOptions::default()).unwrap();
    let y: Vec<f32> = (0..16).map(|index| index as f32 * 0.01).collect();
    let inputs = [Input::f32("x", &y[..4]), Input::f32("y", &y)];
    let mut fastest = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.5 {
        let start = Instant::now();
        session.run(graph, &inputs).unwrap();
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    fastest / STEPS as f64 * 1e9
}

//! What a split costs beside its steps: graphs of 3,000 tiny nodes that go to and fro between the
//! processor and a device with memory of its own, both at work when they are asked to be.
//!
//! `cargo bench -p tensoryard-sim --bench splits` prints the time of whole runs through a
//! session, what each split adds with its copies, and the time to find the plan of a graph that
//! was planned before: the same graph, and an equal one that was built again.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::{BackendOptions, Device, Input, Selected, Session, SessionOptions};
use tensoryard_sim::{SimDriver, SimOptions};

const NODES: usize = 3000;
const SPLITS: [usize; 3] = [1, 101, 701];
const ROUNDS: usize = 200;

fn main() {
    for threads in [1, 2] {
        let times = SPLITS.map(|splits| measure(splits, threads));
        for (splits, time) in SPLITS.iter().zip(times) {
            let each = time.saturating_sub(times[0]).as_nanos() as f64 / (splits - 1).max(1) as f64;
            let added = if *splits > 1 { format!("{each:6.0} ns a split") } else { String::new() };
            println!("{threads} threads, {splits:4} splits: {:7.1} µs {added}", micros(time));
        }
    }
    find_plans();
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Scalings on the processor, with a function on the other device wherever the graph is cut.
fn graph(splits: usize) -> Arc<Graph> {
    let g = GraphBuilder::new("splits");
    let mut x = g.input("x", DType::F32, [4]);
    let cuts = splits / 2;
    let mut made = 0;
    for node in 0..NODES {
        let cut = made < cuts && node * cuts >= made * NODES && node > 0;
        made += usize::from(cut);
        x = if cut { x.unary(UnaryKind::Relu).named("cut") } else { x.scale(1.0, 0.5) };
    }
    x.output("y");
    Arc::new(g.finish().unwrap())
}

fn session(graph: &Arc<Graph>, threads: usize) -> Session {
    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new(Isa::detect()));
    let options = SimOptions { asynchronous: false, ..SimOptions::named("A") };
    let sim = SimDriver::new(Arc::clone(&cpu)).device(options).unwrap();
    let select =
        |device: Arc<dyn Device>, threads| Selected { device, options: BackendOptions { threads } };
    let devices = [select(sim, 0), select(cpu, threads)];
    let mut options = SessionOptions::default();
    options.plan.named_pins.parse("*=CPU").unwrap();
    options.plan.named_pins.parse("cut=A").unwrap();
    Session::open(&devices, Arc::default(), &[graph], options).unwrap()
}

/// Median time of a run.
fn measure(splits: usize, threads: usize) -> Duration {
    let graph = graph(splits);
    let mut session = session(&graph, threads);
    assert_eq!(session.plan(&graph).unwrap().splits.len(), splits);
    let x = [1.0f32; 4];
    median(|| {
        session.run(&graph, &[Input::f32("x", &x)]).unwrap();
    })
}

fn find_plans() {
    let (first, again) = (graph(101), graph(101));
    let mut session = session(&first, 1);
    session.plan(&first).unwrap();
    for (name, graph) in [("the same graph", &first), ("an equal graph", &again)] {
        let time = median(|| {
            black_box(session.plan(black_box(graph)).unwrap());
        });
        println!("plan of {name}: {:.2} µs", micros(time));
    }
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}

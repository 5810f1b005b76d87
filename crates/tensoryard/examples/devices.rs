//! A graph with state on a simulated device beside the processor: a plan, a node observed, times,
//! runs that overlap, and the device lost.
//!
//! `cargo run --release -p tensoryard --example devices`
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;

use tensoryard::graph::{DType, Graph, GraphBuilder, TensorId};
use tensoryard::runtime::plan::NamedPin;
use tensoryard::runtime::{
    BackendOptions, Device, Input, Observer, Seen, Selected, Session, SessionOptions, Weights,
};
use tensoryard::sim::{Faults, SimDevice, SimDriver, SimOptions};

/// Prints the node `sum` as soon as it is computed.
struct Print;

impl Observer for Print {
    fn wants(&mut self, graph: &Graph, node: TensorId) -> bool {
        graph.tensor(node).name == "sum"
    }

    fn observe(&mut self, seen: &Seen<'_>) -> ControlFlow<()> {
        println!("{} on {}: {:?}", seen.name(), seen.device().info().name, seen.f32());
        ControlFlow::Continue(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // What is added up stays from run to run.
    let g = GraphBuilder::new("running total");
    let (x, total) = (g.input("x", DType::F32, [4]), g.state("total", DType::F32, [4]));
    let sum = total.add(x).named("sum");
    sum.copy_into(total);
    sum.scale(2.0, 0.0).output("twice");
    let graph = Arc::new(g.finish()?);

    let cpu = tensoryard::default_registry().select("cpu:threads=1")?;
    let card: Arc<SimDevice> =
        SimDriver::new(Arc::clone(&cpu.device)).device(SimOptions::named("card"))?;
    let first: Arc<dyn Device> = Arc::clone(&card) as _;
    let devices = [Selected { device: first, options: BackendOptions::default() }, cpu];
    let options = SessionOptions { overlapping_runs: 2, ..SessionOptions::default() };
    let mut session = Session::open(&devices, Arc::new(Weights::default()), &[&graph], options)?;
    session.pin(NamedPin::new("twice", "cpu"));
    println!("{}", session.plan(&graph)?.dump());

    let ones = [Input::f32("x", &[1.0; 4])];
    let twice = session.run_observed(&graph, &ones, &mut Print)?.f32("twice")?;
    println!("twice the total: {twice:?}");

    let mut timings = Vec::new();
    session.run_timed(&graph, &ones, &mut timings)?;
    for split in &timings {
        println!("split {}: copies {:?}, steps {:?}", split.split, split.copy, split.compute);
    }

    // The second run is queued before the first one is waited for.
    let runs = [session.submit(&graph, &ones)?, session.submit(&graph, &ones)?];
    for run in &runs {
        println!("twice the total: {:?}", session.results(run)?.f32("twice")?);
    }

    // The next step of the device is its last. The total is made anew on the processor.
    let lost_at_step = Some(card.counts().steps);
    card.inject(Faults { lost_at_step, ..Faults::default() });
    let twice = session.run(&graph, &ones)?.f32("twice")?;
    println!("twice the total, without the device: {twice:?}");
    for recovery in session.recoveries() {
        let (device, runs) = (&recovery.device, recovery.repeated_runs);
        println!("lost {device} ({}), repeated {runs} runs", recovery.error);
    }
    if twice != [10.0; 4] {
        return Err("the total is not that of five runs".into());
    }
    Ok(())
}

//! Observers of devices that work on their own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tensoryard_graph::{DType, Graph, GraphBuilder, TensorId};
use tensoryard_runtime::{
    Device, Input, Observer, Seen, Selected, Session, SessionOptions, Weights,
};
use tensoryard_sim::SimOptions;

use crate::support::driver;

/// y = (2x + 1)ᵀ on A and 3 times that on B, with a state that adds it up.
fn graph() -> Arc<Graph> {
    let g = GraphBuilder::new("observed");
    let x = g.input("x", DType::F32, [2, 3]);
    let far = x.scale(2.0, 1.0).named("far").transpose().named("turned");
    let near = far.cont().named("flat").scale(3.0, 0.0).named("near");
    let sum = g.state("sum", DType::F32, [3, 2]);
    near.add(sum).named("next").copy_into(sum).named("written").output("y");
    Arc::new(g.finish().unwrap())
}

fn session(graph: &Arc<Graph>) -> Session {
    let driver = driver();
    let make = |name: &str| -> Arc<dyn Device> {
        let jitter = Duration::from_micros(500);
        driver.device(SimOptions { jitter, fill: Some(0xff), ..SimOptions::named(name) }).unwrap()
    };
    let selected = [make("A"), make("B")].map(Selected::new);
    let mut options = SessionOptions { overlapping_runs: 2, ..SessionOptions::default() };
    options.plan.named_pins.parse("far=A").unwrap();
    for name in ["flat", "near", "sum", "next", "y"] {
        options.plan.named_pins.parse(&format!("{name}=B")).unwrap();
    }
    Session::open(&selected, Arc::new(Weights::default()), &[graph], options).unwrap()
}

#[derive(Default)]
struct Recorder {
    asked: usize,
    seen: Vec<(String, String, Vec<f32>)>,
    stop_at: Option<&'static str>,
}

impl Observer for Recorder {
    fn wants(&mut self, graph: &Graph, node: TensorId) -> bool {
        self.asked += 1;
        ["far", "turned", "near", "y"].contains(&&*graph.tensor(node).name)
    }

    fn observe(&mut self, seen: &Seen<'_>) -> ControlFlow<()> {
        let device = seen.device().info().name.clone();
        self.seen.push((seen.name().to_owned(), device, seen.f32().unwrap()));
        match self.stop_at {
            Some(name) if name == seen.name() => ControlFlow::Break(()),
            Some(_) | None => ControlFlow::Continue(()),
        }
    }
}

const X: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

#[test]
fn nodes_are_shown_once_their_device_has_computed_them() {
    let graph = graph();
    let mut session = session(&graph);
    for round in 1..=20u8 {
        let mut recorder = Recorder::default();
        session.run_observed(&graph, &[Input::f32("x", &X)], &mut recorder).unwrap();
        assert_eq!(recorder.asked, graph.nodes().len() + graph.live_views().len());
        let near = [3.0, 15.0, 27.0, 9.0, 21.0, 33.0];
        let expected = [
            ("far", "A", [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]),
            ("turned", "A", [1.0, 5.0, 9.0, 3.0, 7.0, 11.0]),
            ("near", "B", near),
            ("y", "B", near.map(|value| value * f32::from(round))),
        ];
        let expected = expected
            .map(|(name, device, values)| (name.to_owned(), device.to_owned(), values.to_vec()));
        assert_eq!(recorder.seen, expected);
    }
}

#[test]
fn an_observer_that_stops_leaves_queues_that_work() {
    let graph = graph();
    let mut session = session(&graph);
    for stop_at in ["far", "turned", "near"] {
        let mut recorder = Recorder { stop_at: Some(stop_at), ..Recorder::default() };
        let inputs = [Input::f32("x", &X)];
        let error = session.run_observed(&graph, &inputs, &mut recorder).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
        assert_eq!(recorder.seen.last().unwrap().0, stop_at);
        session.state_mut().clear().unwrap();
        let y = session.run(&graph, &inputs).unwrap().f32("y").unwrap();
        assert_eq!(y, [3.0, 15.0, 27.0, 9.0, 21.0, 33.0], "stopped at {stop_at}");
        session.state_mut().clear().unwrap();
    }
}

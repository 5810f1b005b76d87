//! Looking into runs: observers, timings, copies that are left out, runs that overlap.

use std::ops::ControlFlow;
use std::sync::Arc;

use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, GraphBuilder, OpKind, TensorId};
use tensoryard_runtime::{
    BackendOptions, Device, Input, Observer, RunError, Seen, Selected, Session, SessionOptions,
    Weights,
};

use crate::support::{full, without};

fn session(
    devices: &[Arc<dyn Device>],
    graph: &Arc<Graph>,
    mut options: SessionOptions,
) -> Session {
    options.plan.named_pins.parse("twice=A").unwrap();
    options.plan.named_pins.parse("y=A").unwrap();
    let selected: Vec<Selected> = devices
        .iter()
        .map(|device| Selected { device: Arc::clone(device), options: BackendOptions::default() })
        .collect();
    Session::open(&selected, Arc::new(Weights::default()), &[graph], options).unwrap()
}

/// A lacks the tanh, so that y = tanh(2x) + x takes three splits.
fn two_devices() -> [Arc<dyn Device>; 2] {
    [without("A", &[OpKind::Unary]).build(), full("B").build()]
}

fn graph() -> Arc<Graph> {
    let g = GraphBuilder::new("watched");
    let x = g.input("x", DType::F32, [2, 2]);
    let turned = x.scale(2.0, 0.0).named("twice").transpose().named("turned");
    let y = turned.unary(UnaryKind::Tanh).named("tanh").transpose().add(x);
    y.output("y");
    Arc::new(g.finish().unwrap())
}

#[derive(Default)]
struct Recorder {
    wanted: Vec<&'static str>,
    asked: Vec<String>,
    seen: Vec<(String, String, Vec<f32>)>,
    stop_at: Option<&'static str>,
}

impl Observer for Recorder {
    fn wants(&mut self, graph: &Graph, node: TensorId) -> bool {
        let name = graph.tensor(node).name.clone();
        let wants = self.wanted.contains(&name.as_str());
        self.asked.push(name);
        wants
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

const X: [f32; 4] = [0.0, 0.25, 0.5, 1.0];

#[test]
fn an_observer_is_asked_once_for_each_node_and_shown_what_it_wants_in_order() {
    let graph = graph();
    let mut session = session(&two_devices(), &graph, SessionOptions::default());
    let mut recorder = Recorder { wanted: vec!["twice", "turned", "tanh"], ..Default::default() };
    let inputs = [Input::f32("x", &X)];
    session.run_observed(&graph, &inputs, &mut recorder).unwrap();
    assert_eq!(recorder.asked.len(), 5);
    assert_eq!(recorder.asked[..3], ["twice", "turned", "tanh"]);
    assert_eq!(recorder.asked[4], "y");
    let names: Vec<&str> = recorder.seen.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["twice", "turned", "tanh"]);
    let (_, device, twice) = &recorder.seen[0];
    assert_eq!((device.as_str(), twice.as_slice()), ("A", [0.0, 0.5, 1.0, 2.0].as_slice()));
    assert_eq!(recorder.seen[1].2, [0.0, 1.0, 0.5, 2.0]);
    let (_, device, tanh) = &recorder.seen[2];
    assert_eq!(device, "B");
    for (value, x) in tanh.iter().zip([0.0_f64, 1.0, 0.5, 2.0]) {
        assert!((f64::from(*value) - x.tanh()).abs() < 1e-6);
    }
}

#[test]
fn an_observer_that_stops_ends_the_run_as_cancelled() {
    let graph = graph();
    let mut session = session(&two_devices(), &graph, SessionOptions::default());
    let wanted = vec!["twice", "tanh", "y"];
    let mut recorder = Recorder { wanted, stop_at: Some("tanh"), ..Default::default() };
    let inputs = [Input::f32("x", &X)];
    let error = session.run_observed(&graph, &inputs, &mut recorder).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!(recorder.seen.len(), 2);
    let outputs = session.run(&graph, &inputs).unwrap();
    assert_eq!(outputs.f32("y").unwrap()[0], 0.0);
}

#[test]
fn timings_name_every_split_and_what_was_copied() {
    let graph = graph();
    let mut session = session(&two_devices(), &graph, SessionOptions::default());
    let mut timings = Vec::new();
    session.run_timed(&graph, &[Input::f32("x", &X)], &mut timings).unwrap();
    let plan = session.plan(&graph).unwrap();
    let splits: Vec<usize> = plan.splits.iter().map(|split| split.device.0).collect();
    let timed: Vec<usize> = timings.iter().map(|timing| timing.device.0).collect();
    assert_eq!(timed, splits);
    let copied: usize = timings.iter().map(|timing| timing.copied_bytes).sum();
    let counters = session.counters();
    assert_eq!(copied as u64, counters.copied_bytes);
    assert!(copied > 0);
}

#[test]
fn a_changed_input_is_copied_again() {
    let graph = graph();
    let mut session = session(&two_devices(), &graph, SessionOptions::default());
    let first = session.run(&graph, &[Input::f32("x", &X)]).unwrap().f32("y").unwrap();
    let once = session.counters();
    let changed: Vec<f32> = X.iter().map(|x| x + 1.0).collect();
    let other = session.run(&graph, &[Input::f32("x", &changed)]).unwrap().f32("y").unwrap();
    assert_ne!(first, other);
    assert_eq!(session.counters().copies, 2 * once.copies);
    let again = session.run(&graph, &[Input::f32("x", &X)]).unwrap().f32("y").unwrap();
    assert_eq!(first, again);
}

#[test]
fn results_of_overlapping_runs_are_read_from_each() {
    let graph = graph();
    let options = SessionOptions { overlapping_runs: 2, ..SessionOptions::default() };
    let mut session = session(&two_devices(), &graph, options);
    let zeros = [0.0; 4];
    let first = session.submit(&graph, &[Input::f32("x", &zeros)]).unwrap();
    let second = session.submit(&graph, &[Input::f32("x", &X)]).unwrap();
    assert_eq!(session.results(&first).unwrap().f32("y").unwrap(), zeros);
    let y = session.results(&second).unwrap().f32("y").unwrap();
    assert!((f64::from(y[3]) - (2.0_f64.tanh() + 1.0)).abs() < 1e-6);
    let third = session.submit(&graph, &[Input::f32("x", &X)]).unwrap();
    // The third run works where the first one did.
    let gone = session.results(&first).unwrap().f32("y").unwrap_err();
    assert!(matches!(gone, RunError::NotAnOutput(_)), "{gone}");
    assert_eq!(session.results(&third).unwrap().f32("y").unwrap(), y);
    assert_eq!(session.results(&second).unwrap().f32("y").unwrap(), y);
}

//! Sessions: plan cache, inputs, outputs, state over runs.

use std::sync::Arc;

use tensoryard_conformance::graphs::build;
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph};
use tensoryard_runtime::{
    AbortSignal, BackendOptions, DeviceError, Input, PlanError, RunError, Selected, Session,
    SessionOptions, Weights,
};

fn open(graphs: &[&Arc<Graph>]) -> Session {
    let device = ReferenceOptions::new("A").build();
    let selected = Selected { device, options: BackendOptions::default() };
    Session::open(&[selected], Arc::new(Weights::default()), graphs, SessionOptions::default())
        .unwrap()
}

/// n0 = x + 1, n1 = n0 · 2, n2 = n1 · 3.
fn chain() -> Arc<Graph> {
    build("session", |g| {
        let n0 = g.input("x", DType::F32, [2]).scale(1.0, 1.0).named("n0");
        let n1 = n0.scale(2.0, 0.0).named("n1");
        n1.scale(3.0, 0.0).output("n2");
    })
}

#[test]
fn equal_sizes_with_other_wiring_never_reuse_a_plan() {
    let first = chain();
    // Now both n1 and n2 are outputs, and n2 reads n0.
    let second = build("session", |g| {
        let n0 = g.input("x", DType::F32, [2]).scale(1.0, 1.0).named("n0");
        n0.scale(2.0, 0.0).output("n1");
        n0.scale(3.0, 0.0).output("n2");
    });
    let mut session = open(&[&first]);
    let x = [Input::f32("x", &[1.0, 10.0])];
    assert_eq!(session.run(&first, &x).unwrap().f32("n2").unwrap(), [12.0, 66.0]);
    let outputs = session.run(&second, &x).unwrap();
    assert_eq!(outputs.f32("n2").unwrap(), [6.0, 33.0]);
    assert_eq!(outputs.f32("n1").unwrap(), [4.0, 22.0]);
}

#[test]
fn the_same_graph_built_again_has_the_same_plan() {
    let (first, again) = (chain(), chain());
    let mut session = open(&[&first]);
    let plan = session.plan(&first).unwrap();
    assert!(Arc::ptr_eq(&plan, &session.plan(&first).unwrap()));
    assert!(Arc::ptr_eq(&plan, &session.plan(&again).unwrap()));
    let other = build("session", |g| {
        g.input("x", DType::F32, [2]).scale(1.0, 1.5).output("n2");
    });
    assert!(!Arc::ptr_eq(&plan, &session.plan(&other).unwrap()));
}

#[test]
fn reserving_twice_changes_nothing() {
    let graph = chain();
    let before = graph.dump();
    let mut session = open(&[&graph]);
    session.reserve(&graph).unwrap();
    let bytes = session.workspace_bytes();
    session.reserve(&graph).unwrap();
    assert!(bytes > 0);
    assert_eq!(session.workspace_bytes(), bytes);
    assert_eq!(graph.dump(), before);
}

#[test]
fn wrong_inputs_are_named() {
    let graph = chain();
    let mut session = open(&[&graph]);
    let error = session.run(&graph, &[]).unwrap_err();
    assert!(matches!(&error, RunError::MissingInput(name) if name == "x"), "{error}");
    let both = [Input::f32("x", &[1.0, 2.0]), Input::f32("y", &[1.0])];
    let error = session.run(&graph, &both).unwrap_err();
    assert!(matches!(&error, RunError::UnknownInput(name) if name == "y"), "{error}");
    let error = session.run(&graph, &[Input::f32("x", &[1.0])]).unwrap_err();
    assert_eq!(error.to_string(), r#"input "x" has 4 bytes, f32 [2] takes 8"#);
    // A name of the graph that is no input.
    let error = session.run(&graph, &[Input::f32("n2", &[1.0, 2.0])]).unwrap_err();
    assert!(matches!(error, RunError::UnknownInput(_)), "{error}");
}

#[test]
fn only_outputs_can_be_read_and_only_as_their_type() {
    let graph = build("session", |g| {
        let x = g.input("x", DType::F32, [2]).named("x");
        let hidden = x.scale(2.0, 0.0).named("hidden");
        hidden.cast(DType::F16).output("half");
        hidden.scale(1.0, 0.0).output("y");
    });
    let mut session = open(&[&graph]);
    let outputs = session.run(&graph, &[Input::f32("x", &[1.0, 2.0])]).unwrap();
    let error = outputs.f32("hidden").unwrap_err();
    assert!(matches!(&error, RunError::NotAnOutput(name) if name == "hidden"), "{error}");
    let error = outputs.f32("half").unwrap_err();
    assert_eq!(error.to_string(), r#"output "half" is f16 [2], it cannot be read as f32"#);
    assert_eq!(outputs.f32("y").unwrap(), [2.0, 4.0]);
}

#[test]
fn state_persists_over_runs_and_graphs() {
    let step = build("session", |g| {
        let sum = g.state("sum", DType::F32, [2]);
        _ = sum.add(g.input("x", DType::F32, [2])).copy_into(sum);
    });
    let read = build("session", |g| {
        g.state("sum", DType::F32, [2]).scale(10.0, 0.0).output("y");
    });
    let mut session = open(&[&step, &read]);
    for _ in 0..3 {
        session.run(&step, &[Input::f32("x", &[1.0, 2.0])]).unwrap();
    }
    assert_eq!(session.run(&read, &[]).unwrap().f32("y").unwrap(), [30.0, 60.0]);
    session.state_mut().clear().unwrap();
    assert_eq!(session.run(&read, &[]).unwrap().f32("y").unwrap(), [0.0, 0.0]);
    assert!(matches!(session.state().read("nothing"), Err(RunError::UnknownState(_))));
    assert!(session.state_mut().write("sum", &[0; 4]).is_err());
}

#[test]
fn graphs_that_disagree_about_a_state_are_refused() {
    let graph = |n: usize| {
        build("session", |g| {
            g.state("s", DType::F32, [n]).scale(1.0, 0.0).output("y");
        })
    };
    let (small, large) = (graph(2), graph(3));
    let device = ReferenceOptions::new("A").build();
    let selected = [Selected { device, options: BackendOptions::default() }];
    let weights = Arc::new(Weights::default());
    let options = SessionOptions::default();
    let error = Session::open(&selected, weights.clone(), &[&small, &large], options.clone());
    let text = error.unwrap_err().to_string();
    assert_eq!(text, r#"state "s" is f32 [2] in one graph and f32 [3] in another"#);
    // A graph that was not named when the session was opened.
    let mut session =
        Session::open(&selected, weights.clone(), &[&small], options.clone()).unwrap();
    let error = session.run(&large, &[]).unwrap_err();
    assert!(matches!(error, RunError::Plan(PlanError::LeafLayout { .. })), "{error}");
    let mut session = Session::open(&selected, weights, &[], options.clone()).unwrap();
    let error = session.run(&small, &[]).unwrap_err();
    assert!(matches!(error, RunError::Plan(PlanError::MissingState(_))), "{error}");
    assert!(Session::open(&[], Arc::default(), &[], options).is_err());
}

#[test]
fn a_signal_stops_the_run_and_can_be_taken_back() {
    let graph = chain();
    let mut session = open(&[&graph]);
    let signal = AbortSignal::new();
    session.set_abort_signal(signal.clone());
    signal.abort();
    let x = [Input::f32("x", &[1.0, 2.0])];
    let error = session.run(&graph, &x).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    session.abort_signal().reset();
    assert_eq!(session.run(&graph, &x).unwrap().f32("n2").unwrap(), [12.0, 18.0]);
}

#[test]
fn options_that_a_device_does_not_take_are_refused() {
    let device = ReferenceOptions::new("A").build();
    let selected = [Selected { device, options: BackendOptions { threads: 4 } }];
    let opened = Session::open(&selected, Arc::default(), &[], SessionOptions::default());
    assert!(matches!(opened, Err(RunError::Device(DeviceError::Option { option: "threads", .. }))));
}

#[test]
fn an_id_outside_its_table_stops_the_run() {
    let graph = build("session", |g| {
        let table = g.state("table", DType::F32, [2, 3]);
        table.get_rows(g.input("ids", DType::I32, [1])).unary(UnaryKind::Neg).output("y");
    });
    let mut session = open(&[&graph]);
    for id in [-1, 3, 999_999] {
        let error = session.run(&graph, &[Input::i32("ids", &[id])]).unwrap_err();
        assert!(matches!(error, RunError::Device(DeviceError::Value { .. })), "{error}");
    }
    assert_eq!(
        session.run(&graph, &[Input::i32("ids", &[2])]).unwrap().f32("y").unwrap(),
        [-0.0; 2]
    );
}

#[test]
fn outputs_are_read_as_their_own_type() {
    let graph = build("session", |g| {
        let ids = g.input("ids", DType::I32, [3]);
        ids.reshape([1, 3]).permute([1, 0, 2, 3]).cont().output("ids");
        g.input("x", DType::F32, [2]).cast(DType::F16).output("half");
    });
    let mut session = open(&[&graph]);
    let inputs = [Input::i32("ids", &[7, -1, 3]), Input::f32("x", &[1.5, -2.0])];
    let outputs = session.run(&graph, &inputs).unwrap();
    assert_eq!(outputs.i32("ids").unwrap(), [7, -1, 3]);
    // 1.5 is 0x3e00 and -2 is 0xc000 in IEEE 754 binary16.
    assert_eq!(outputs.f16_bits("half").unwrap(), [0x3e00, 0xc000]);
    assert!(matches!(outputs.f32("half"), Err(RunError::OutputType { .. })));
    assert!(matches!(outputs.i32("x"), Err(RunError::NotAnOutput(_))));
}

#[test]
fn the_whole_of_a_tensor_is_read_after_a_write_into_a_part() {
    let graph = build("session", |g| {
        let a = g.input("x", DType::F32, [2, 3]).scale(1.0, 0.0);
        let row = g.input("row", DType::F32, [2, 1]);
        let written = row.copy_into(a.slice(1, 1, 1));
        written.whole().scale(2.0, 0.0).output("all");
    });
    let mut session = open(&[&graph]);
    let inputs =
        [Input::f32("x", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Input::f32("row", &[-1.0, -2.0])];
    let all = session.run(&graph, &inputs).unwrap().f32("all").unwrap();
    assert_eq!(all, [2.0, 4.0, -2.0, -4.0, 10.0, 12.0]);
}

//! Memory limits of one plan, and what a plan needs of each memory.

use std::sync::Arc;

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, OpKind};
use tensoryard_runtime::plan::MemoryLimits;
use tensoryard_runtime::{
    DeviceIndex, PlanError, RunError, Selected, Session, SessionOptions, Weights,
};

use crate::policy::{build, devices, draft_on, options};
use crate::support::{full, only, without};

/// Weights of 64 and 16 bytes, a state of 48, two inputs of 16 and 4 bytes, results of 16.
fn graph() -> Arc<Graph> {
    build(|g| {
        let x = g.input("x", DType::F32, [4, 1]);
        let y = g.weight("w", DType::F32, [4, 4]).mul_mat(x);
        let y = y.add(g.weight("b", DType::F32, [4]));
        let ids = g.input("ids", DType::I32, [1]);
        let cache = g.state("cache", DType::F32, [4, 3]).set_rows(y, ids);
        cache.slice(1, 0, 1).add(y).output("y");
    })
}

#[test]
fn a_plan_tells_what_each_memory_holds() {
    let graph = graph();
    let devices = devices(vec![full("A"), full("B")]);
    let blueprint = draft_on(&graph, &devices, 0, &options(|_| ())).unwrap();
    let limits = MemoryLimits { devices: vec![Some(300), None], spill: true };
    let uses = blueprint.memory_use(&limits);
    assert_eq!(uses.len(), 2);
    // Everything in steps of 32 bytes.
    assert_eq!((uses[0].weights, uses[0].state), (64 + 32, 64));
    assert_eq!((uses[1].weights, uses[1].state), (0, 0));
    let compute: usize = blueprint.compute_bytes().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(uses[0].compute + uses[1].compute, compute);
    assert_eq!(uses[0].peak(), 160 + uses[0].compute);
    assert_eq!(uses[0].over_by(), (160 + uses[0].compute).saturating_sub(300));
    assert_eq!(uses[1].over_by(), 0);
}

#[test]
fn a_graph_beyond_the_limit_is_refused_before_anything_is_allocated() {
    let graph = graph();
    let devices = devices(vec![full("A"), full("B")]);
    let blueprint = draft_on(&graph, &devices, 0, &options(|_| ())).unwrap();
    let needed = blueprint.memory_use(&MemoryLimits::default())[0].peak();
    let draft = |limit| {
        let limits = options(|o| o.limits.devices = vec![Some(limit)]);
        draft_on(&graph, &devices, 0, &limits)
    };
    assert!(draft(needed).is_ok());
    let error = draft(needed - 1).unwrap_err();
    let PlanError::DoesNotFit { device, needed: told, limit, by, weights, state, compute } = error
    else {
        panic!("{error}");
    };
    assert_eq!((device.as_str(), told, limit, by), ("A", needed, needed - 1, 1));
    assert_eq!((weights, state, compute), (96, 64, needed - 160));
}

#[test]
fn memory_that_devices_share_is_counted_once() {
    let graph = graph();
    let shared = |name: &str| ReferenceOptions { memory: "shared".into(), ..full(name) };
    let devices = devices(vec![shared("A"), shared("B")]);
    let blueprint = draft_on(&graph, &devices, 0, &options(|_| ())).unwrap();
    let limits = MemoryLimits { devices: vec![Some(5000), Some(700)], spill: true };
    let uses = blueprint.memory_use(&limits);
    assert_eq!(uses.len(), 1);
    assert_eq!(uses[0].devices, [DeviceIndex(0), DeviceIndex(1)]);
    assert_eq!(uses[0].limit, Some(700));
    let compute: usize = blueprint.memory.chunks.iter().map(|chunk| chunk.bytes).sum();
    assert_eq!(uses[0].compute, compute);
    let tight = options(|o| o.limits.devices = vec![None, Some(100)]);
    let error = draft_on(&graph, &devices, 0, &tight).unwrap_err().to_string();
    assert!(error.starts_with("A, B: "), "{error}");
}

#[test]
fn free_memory_stands_in_for_limits_that_are_not_given() {
    let given = |name: &str, memory_bytes| ReferenceOptions { memory_bytes, ..full(name) };
    let devices = devices(vec![given("A", 1000), given("B", 2000), given("C", 0)]);
    let limits = MemoryLimits { devices: vec![None, Some(5)], spill: false };
    let filled = limits.or_free(&devices);
    // A device that has no memory to speak of does not say how much it has.
    assert_eq!(filled.devices, [Some(1000), Some(5), None]);
    assert!(!filled.spill);
}

#[test]
fn several_chunks_of_one_kind_add_up() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [16, 1]);
        let y = x.scale(2.0, 0.0);
        y.add(x.scale(3.0, 0.0)).output("y");
    });
    let devices = devices(vec![ReferenceOptions { max_size: 64, ..full("A") }]);
    let blueprint = draft_on(&graph, &devices, 0, &options(|_| ())).unwrap();
    assert!(blueprint.memory.chunks.len() > 1);
    let uses = blueprint.memory_use(&MemoryLimits::default());
    assert_eq!(uses[0].compute, 64 * blueprint.memory.chunks.len());
}

#[test]
fn what_is_staged_counts_once_for_each_run_that_overlaps() {
    let graph = build(|g| {
        let x = g.input("x", DType::F32, [16, 1]);
        let y = x.unary(UnaryKind::Neg).scale(2.0, 0.0);
        y.unary(UnaryKind::Neg).scale(3.0, 0.0).output("y");
    });
    let lacking = || vec![without("A", &[OpKind::Unary]), only("B", &[OpKind::Unary])];
    let none = MemoryLimits::default();
    let draft = |overlapping_runs, limit| {
        let options = options(|o| {
            o.overlapping_runs = overlapping_runs;
            o.limits.devices = vec![limit];
        });
        draft_on(&graph, &devices(lacking()), 0, &options)
    };
    let once = draft(2, None).unwrap();
    let chunks = once.memory.chunks.iter();
    let staged: usize = chunks.clone().filter(|c| c.staged).map(|c| c.bytes).sum();
    let shared: usize = chunks.filter(|c| !c.staged).map(|c| c.bytes).sum();
    assert!(staged > 0 && shared > 0);
    for copies in 2..=4 {
        let blueprint = draft(copies, None).unwrap();
        let uses = blueprint.memory_use(&none);
        let compute: usize = uses.iter().map(|memory| memory.compute).sum();
        assert_eq!(compute, copies * staged + shared);
        // Exactly what a session takes, and what limits compare with.
        let selected: Vec<Selected> =
            lacking().into_iter().map(|device| Selected::new(device.build())).collect();
        let options = SessionOptions { overlapping_runs: copies, ..SessionOptions::default() };
        let weights = Arc::new(Weights::default());
        let mut session = Session::open(&selected, weights, &[&graph], options).unwrap();
        session.reserve(&graph).unwrap();
        assert_eq!(session.workspace_bytes(), compute);
        assert!(draft(copies, Some(uses[0].compute)).is_ok());
        let error = draft(copies, Some(uses[0].compute - 1)).unwrap_err();
        assert!(matches!(error, PlanError::DoesNotFit { by: 1, .. }), "{error}");
    }
}

#[test]
fn a_session_refuses_graphs_beyond_what_was_free_when_it_began() {
    let make = |rows: usize| {
        build(|g| {
            let x = g.input("x", DType::F32, [16, rows]);
            x.scale(2.0, 0.0).add(x).output("y");
        })
    };
    let given = ReferenceOptions { memory_bytes: 4096, ..full("A") };
    let device = Selected::new(given.build());
    let open = |graph: &Arc<Graph>| {
        let options = SessionOptions::default();
        Session::open(
            std::slice::from_ref(&device),
            Arc::new(Weights::default()),
            &[graph],
            options,
        )
    };
    let (small, large) = (make(8), make(80));
    let mut session = open(&small).unwrap();
    assert!(session.plan(&small).is_ok());
    let error = session.plan(&large).unwrap_err();
    assert!(matches!(error, RunError::Plan(PlanError::DoesNotFit { limit: 4096, .. })), "{error}");
    let error = open(&large).unwrap_err();
    assert!(matches!(error, RunError::Plan(PlanError::DoesNotFit { .. })), "{error}");
}

//! Runs of plans on devices that work at once: orders that races would break.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tensoryard_conformance::data::MemoryWeights;
use tensoryard_conformance::graphs::build;
use tensoryard_graph::ops::UnaryKind;
use tensoryard_graph::{DType, Graph, Layout, OpKind, Shape};
use tensoryard_runtime::plan::Pin;
use tensoryard_runtime::{
    AbortSignal, Device, DeviceError, DeviceIndex, Input, PlanOptions, RunError, Selected, Session,
    SessionOptions, Weights,
};
use tensoryard_sim::{Shares, SimOptions};

use crate::support::{Bench, cpu, driver};

fn pins(graph: &Graph, wanted: &[(&str, usize)]) -> PlanOptions {
    let pin = |&(name, device): &(&str, usize)| {
        let tensor = graph.ids().find(|&id| graph.tensor(id).name == name).unwrap();
        Pin { tensor, device: DeviceIndex(device) }
    };
    let pins = wanted.iter().map(pin).collect();
    PlanOptions { pins, ..PlanOptions::default() }
}

fn jittery(name: &str) -> SimOptions {
    SimOptions {
        fill: Some(0xff),
        delay: Duration::from_micros(100),
        jitter: Duration::from_micros(300),
        ..SimOptions::named(name)
    }
}

fn weights(entries: &[(&str, &[f32])]) -> MemoryWeights {
    let mut weights = MemoryWeights::default();
    for (name, values) in entries {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        weights.insert(*name, crate::support::row(values.len()), bytes);
    }
    weights
}

#[test]
fn inputs_rewritten_at_once_are_never_torn() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [512]);
        let far = x.scale(2.0, 0.0).named("far");
        far.scale(1.0, 1.0).named("y").output("y");
    });
    let driver = driver();
    let devices: Vec<Arc<dyn Device>> =
        vec![driver.device(jittery("A")).unwrap(), driver.device(jittery("B")).unwrap()];
    let mut bench = Bench::open(&graph, &devices, &MemoryWeights::default(), 0, 0);
    let plan = bench.plan(&graph, &pins(&graph, &[("far", 0), ("y", 1)]));
    assert!(!plan.arrivals.is_empty());
    let abort = AbortSignal::new();
    let mut x = vec![0.0f32; 512];
    for round in 0..100u8 {
        x.fill(f32::from(round));
        let ticket = bench.submit(&plan, &[Input::f32("x", &x)], &abort).unwrap();
        x.fill(f32::NAN);
        let expected = vec![2.0 * f32::from(round) + 1.0; 512];
        if round % 3 == 0 {
            // Reading waits, whether or not somebody waits for the ticket.
            drop(ticket);
        } else {
            ticket.wait().unwrap();
        }
        assert_eq!(bench.output(&plan, "y").unwrap(), expected, "round {round}");
    }
}

#[test]
fn runs_queued_behind_each_other_do_not_mix() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [64]);
        let sum = g.state("sum", DType::F32, [64]);
        let far = x.scale(3.0, 0.0).named("far");
        _ = far.add(sum).named("next").copy_into(sum).named("write");
    });
    let driver = driver();
    let devices: Vec<Arc<dyn Device>> =
        vec![driver.device(jittery("A")).unwrap(), driver.device(jittery("B")).unwrap()];
    let mut bench = Bench::open(&graph, &devices, &MemoryWeights::default(), 1, 1);
    let plan = bench.plan(&graph, &pins(&graph, &[("far", 0), ("next", 1)]));
    let abort = AbortSignal::new();
    let mut tickets = Vec::new();
    let mut expected = 0.0;
    for round in 0..40u8 {
        let x = vec![f32::from(round); 64];
        tickets.push(bench.submit(&plan, &[Input::f32("x", &x)], &abort).unwrap());
        expected += 3.0 * f32::from(round);
    }
    assert_eq!(crate::support::floats(&bench.state.read("sum").unwrap()), [expected; 64]);
    for ticket in tickets {
        assert!(ticket.is_done());
        ticket.wait().unwrap();
    }
}

#[test]
fn host_devices_that_share_memory_are_ordered_without_copies() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [128]);
        let late = x.scale(2.0, 0.0).named("late");
        let next = late.scale(1.0, 1.0).named("next");
        let back = next.scale(3.0, 0.0).named("back");
        back.add(late).named("y").output("y");
    });
    let shared = SimOptions { shares: Shares::Host, ..jittery("A") };
    let late: Arc<dyn Device> = driver().device(shared).unwrap();
    let mut bench = Bench::open(&graph, &[late, cpu()], &MemoryWeights::default(), 0, 0);
    let wanted = [("late", 0), ("next", 1), ("back", 0), ("y", 1)];
    let options = PlanOptions { fusion: false, ..pins(&graph, &wanted) };
    let plan = bench.plan(&graph, &options);
    assert_eq!((plan.splits.len(), plan.arrivals.len()), (4, 0));
    for round in 0..50u8 {
        let x = vec![f32::from(round); 128];
        bench.run(&plan, &[Input::f32("x", &x)]).unwrap();
        let expected = 3.0 * (2.0 * f32::from(round) + 1.0) + 2.0 * f32::from(round);
        assert_eq!(bench.output(&plan, "y").unwrap(), vec![expected; 128]);
    }
}

#[test]
fn a_forgotten_ticket_is_no_fault() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [32]);
        let w = g.weight("w", DType::F32, [32]);
        let kept = g.state("kept", DType::F32, [32]);
        let far = x.add(w).named("far");
        _ = far.scale(2.0, 0.0).named("near").copy_into(kept).named("write");
    });
    let source = weights(&[("w", &[1.0; 32])]);
    // Everything that the run uses is dropped while it is at work, in any order.
    for order in 0..12 {
        let driver = driver();
        let devices: Vec<Arc<dyn Device>> =
            vec![driver.device(jittery("A")).unwrap(), driver.device(jittery("B")).unwrap()];
        let mut bench = Bench::open(&graph, &devices, &source, 0, 1);
        let plan = bench.plan(&graph, &pins(&graph, &[("far", 0), ("near", 1)]));
        for round in 0..3 {
            let x = [round as f32; 32];
            let inputs = [Input::f32("x", &x)];
            std::mem::forget(bench.submit(&plan, &inputs, &AbortSignal::new()).unwrap());
        }
        drop(driver);
        let Bench { devices: planned, backends, weights, state, workspace } = bench;
        let mut parts: Vec<Box<dyn std::any::Any>> = vec![
            Box::new((devices, planned)),
            Box::new(backends),
            Box::new(weights),
            Box::new(state),
            Box::new(workspace),
            Box::new(plan),
        ];
        parts.rotate_left(order % 6);
        if order >= 6 {
            parts.reverse();
        }
        for part in parts {
            drop(part);
        }
    }
}

#[test]
fn a_second_run_sees_its_own_inputs() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [16]);
        let y = g.input("y", DType::F32, [16]);
        let far = x.mul(y).named("far");
        far.add(y).named("z").output("z");
    });
    let driver = driver();
    let devices: Vec<Arc<dyn Device>> =
        vec![driver.device(jittery("A")).unwrap(), driver.device(jittery("B")).unwrap()];
    let mut bench = Bench::open(&graph, &devices, &MemoryWeights::default(), 0, 0);
    let plan = bench.plan(&graph, &pins(&graph, &[("far", 0), ("z", 1)]));
    for (x, y) in [(2.0, 3.0), (5.0, 3.0), (5.0, 7.0), (5.0, 7.0)] {
        bench.run(&plan, &[Input::f32("x", &[x; 16]), Input::f32("y", &[y; 16])]).unwrap();
        assert_eq!(bench.output(&plan, "z").unwrap(), [x * y + y; 16]);
    }
}

#[test]
fn sixty_four_leaves_on_one_device_are_added_on_another() {
    let graph = build("test", |g| {
        let leaves: Vec<_> = (0..64).map(|n| g.input(format!("x{n}"), DType::F32, [8])).collect();
        let mut sum = leaves[0];
        for &leaf in &leaves[1..] {
            sum = sum.add(leaf);
        }
        sum.output("sum");
    });
    let driver = driver();
    let adder = driver.device(jittery("A")).unwrap();
    let lacking = SimOptions {
        ops: OpKind::ALL.iter().copied().filter(|op| *op != OpKind::Binary).collect(),
        ..jittery("B")
    };
    let devices: Vec<Arc<dyn Device>> = vec![adder, driver.device(lacking).unwrap()];
    let mut bench = Bench::open(&graph, &devices, &MemoryWeights::default(), 0, 0);
    let plan = bench.plan(&graph, &PlanOptions::default());
    assert_eq!((plan.splits.len(), plan.arrivals.len()), (1, 64));
    let values: Vec<[f32; 8]> = (0..64u8).map(|n| [f32::from(n); 8]).collect();
    let names: Vec<String> = (0..64).map(|n| format!("x{n}")).collect();
    let inputs: Vec<Input<'_>> =
        names.iter().zip(&values).map(|(name, values)| Input::f32(name, values)).collect();
    for _ in 0..3 {
        bench.run(&plan, &inputs).unwrap();
        assert_eq!(bench.output(&plan, "sum").unwrap(), [2016.0; 8]);
    }
}

#[test]
fn rows_written_where_the_device_cannot_compute_them_change_the_base() {
    // B lacks the op that makes the rows and has the base that they are written to.
    let graph = build("test", |g| {
        let base = g.state("base", DType::F32, [4, 6]);
        let x = g.input("x", DType::F32, [4, 2]);
        let ids = g.input("ids", DType::I32, [2]);
        let rows = x.unary(UnaryKind::Relu).named("rows");
        _ = base.set_rows(rows, ids).named("written");
    });
    let driver = driver();
    let lacking = SimOptions {
        ops: OpKind::ALL.iter().copied().filter(|op| *op != OpKind::Unary).collect(),
        ..jittery("B")
    };
    let devices: Vec<Arc<dyn Device>> =
        vec![driver.device(lacking).unwrap(), driver.device(jittery("A")).unwrap()];
    let mut bench = Bench::open(&graph, &devices, &MemoryWeights::default(), 0, 0);
    let plan = bench.plan(&graph, &PlanOptions::default());
    let x = [-1.0, 2.0, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0];
    bench.run(&plan, &[Input::f32("x", &x), Input::i32("ids", &[4, 1])]).unwrap();
    let base = crate::support::floats(&bench.state.read("base").unwrap());
    let mut expected = [0.0; 24];
    expected[16..20].copy_from_slice(&[0.0, 2.0, 3.0, 4.0]);
    expected[4..8].copy_from_slice(&[5.0, 0.0, 7.0, 8.0]);
    assert_eq!(base, expected);
}

#[test]
fn weights_in_host_memory_are_read_where_they_lie() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [8]);
        let w = g.weight("w", DType::F32, [8]);
        x.add(w).named("y").output("y");
    });
    let source = weights(&[("w", &[0.5; 8])]);
    for reads_host in [false, true] {
        let options = SimOptions { reads_host, ..jittery("A") };
        let devices: Vec<Arc<dyn Device>> = vec![driver().device(options).unwrap(), cpu()];
        let mut bench = Bench::open(&graph, &devices, &source, 1, 1);
        let plan = bench.plan(&graph, &pins(&graph, &[("y", 0)]));
        // x is an input on the CPU; the weight is copied, too, where it is out of reach.
        assert_eq!(plan.arrivals.len(), if reads_host { 0 } else { 2 });
        bench.run(&plan, &[Input::f32("x", &[1.0; 8])]).unwrap();
        assert_eq!(bench.output(&plan, "y").unwrap(), [1.5; 8]);
    }
}

#[test]
fn packed_weights_of_the_host_are_read_where_they_lie() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [3, 1]);
        let w = g.weight("w", DType::F32, [3, 2]);
        w.mul_mat(x).named("y").output("y");
    });
    let mut source = MemoryWeights::default();
    let shape = Shape::new(&[3, 2]).unwrap();
    let layout = Layout::contiguous(DType::F32, shape).unwrap();
    let bytes = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|w| w.to_ne_bytes()).collect();
    source.insert("w", layout, bytes);
    for reads_host in [false, true] {
        let options = SimOptions { reads_host, ..jittery("A") };
        let devices: Vec<Arc<dyn Device>> = vec![driver().device(options).unwrap(), cpu()];
        let mut bench = Bench::open(&graph, &devices, &source, 1, 1);
        assert_eq!(bench.weights.sizes()[0].0, "CPU_Packed");
        let plan = bench.plan(&graph, &pins(&graph, &[("y", 0)]));
        assert_eq!(plan.arrivals.len(), if reads_host { 0 } else { 2 });
        bench.run(&plan, &[Input::f32("x", &[1.0, 10.0, 100.0])]).unwrap();
        assert_eq!(bench.output(&plan, "y").unwrap(), [321.0, 654.0]);
    }
}

#[test]
fn overlapping_runs_do_not_mix() {
    // A makes a part of y from x, B the rest; both work at once on different runs.
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [64]);
        let sum = g.state("sum", DType::F32, [64]);
        let far = x.unary(UnaryKind::Relu).scale(3.0, 0.0).named("far");
        let next = far.add(sum).named("next").copy_into(sum).named("write");
        next.scale(1.0, 1.0).named("y").output("y");
    });
    for overlapping_runs in 1..=4 {
        let driver = driver();
        let lacking = SimOptions {
            ops: OpKind::ALL.iter().copied().filter(|op| *op != OpKind::Binary).collect(),
            ..jittery("A")
        };
        let devices: Vec<Arc<dyn Device>> =
            vec![driver.device(lacking).unwrap(), driver.device(jittery("B")).unwrap()];
        let selected: Vec<Selected> = devices.into_iter().map(Selected::new).collect();
        let options = SessionOptions { overlapping_runs, ..SessionOptions::default() };
        let weights = Arc::new(Weights::default());
        let mut session = Session::open(&selected, weights, &[&graph], options).unwrap();
        let mut sum = 0.0;
        let mut submitted = VecDeque::new();
        for round in 0..24u8 {
            let x = [f32::from(round); 64];
            sum += 3.0 * f32::from(round);
            let run = session.submit(&graph, &[Input::f32("x", &x)]).unwrap();
            submitted.push_back((sum + 1.0, run));
            if submitted.len() < overlapping_runs {
                continue;
            }
            let (expected, run) = submitted.pop_front().unwrap();
            let outputs = session.results(&run).unwrap();
            assert_eq!(outputs.f32("y").unwrap(), [expected; 64], "{overlapping_runs} at once");
        }
    }
}

#[test]
fn a_run_is_cancelled_while_it_waits_in_the_queue() {
    let graph = build("test", |g| {
        let x = g.input("x", DType::F32, [8]);
        let far = x.scale(2.0, 0.0).named("far");
        far.scale(2.0, 0.0).named("y").output("y");
    });
    let driver = driver();
    let never = SimOptions { delay: Duration::from_millis(200), ..SimOptions::named("A") };
    let devices: Vec<Arc<dyn Device>> =
        vec![driver.device(never).unwrap(), driver.device(jittery("B")).unwrap()];
    let mut bench = Bench::open(&graph, &devices, &MemoryWeights::default(), 0, 0);
    let plan = bench.plan(&graph, &pins(&graph, &[("far", 0), ("y", 1)]));
    let abort = AbortSignal::new();
    let ticket = bench.submit(&plan, &[Input::f32("x", &[1.0; 8])], &abort).unwrap();
    abort.abort();
    assert!(matches!(ticket.wait(), Err(DeviceError::Cancelled)));
    let unread = bench.output(&plan, "y").unwrap_err();
    assert!(matches!(unread, RunError::Device(DeviceError::Cancelled)), "{unread}");
    // The queues take work again.
    abort.reset();
    for value in [3.0, 4.0] {
        let ticket = bench.submit(&plan, &[Input::f32("x", &[value; 8])], &abort).unwrap();
        ticket.wait().unwrap();
        assert_eq!(bench.output(&plan, "y").unwrap(), [4.0 * value; 8]);
    }
}

//! Devices that fail in the middle of runs: errors that name them, and what is left whole.

use std::sync::Arc;

use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::plan::Pin;
use tensoryard_runtime::{
    AbortSignal, Device, DeviceError, DeviceIndex, Input, MemoryError, Plan, PlanOptions, RunError,
    StateStatus,
};
use tensoryard_sim::{Faults, SimCounts, SimDevice, SimOptions};

use crate::support::{Bench, driver, floats};

/// Five steps to and fro between two devices, with a state on each.
fn graph() -> (Arc<Graph>, PlanOptions) {
    let builder = GraphBuilder::new("small");
    let x = builder.input("x", DType::F32, [4]);
    let near = builder.state("near", DType::F32, [4]);
    let far = builder.state("far", DType::F32, [4]);
    let a = x.scale(2.0, 1.0).named("a");
    let b = a.scale(3.0, 0.0).named("b");
    _ = b.add(near).named("c").copy_into(near).named("write near");
    let d = b.scale(1.0, 5.0).named("d");
    _ = d.add(far).named("e").copy_into(far).named("write far");
    d.scale(1.0, 1.0).named("y").output("y");
    let graph = Arc::new(builder.finish().unwrap());
    let find = |name: &str| graph.ids().find(|&id| graph.tensor(id).name == name).unwrap();
    let wanted = [("a", 0), ("b", 1), ("c", 1), ("d", 0), ("e", 1), ("y", 0)];
    let pins = wanted.map(|(name, at)| Pin { tensor: find(name), device: DeviceIndex(at) });
    (graph, PlanOptions { pins: pins.to_vec(), fusion: false, ..PlanOptions::default() })
}

struct Machine {
    devices: [Arc<SimDevice>; 2],
    bench: Bench,
    plan: Plan,
}

fn machine(asynchronous: bool) -> Machine {
    let driver = driver();
    let make =
        |name: &str| driver.device(SimOptions { asynchronous, ..SimOptions::named(name) }).unwrap();
    let devices = [make("A"), make("B")];
    let shared: Vec<Arc<dyn Device>> = devices.iter().map(|d| Arc::clone(d) as _).collect();
    let (graph, options) = graph();
    // Both states on B: what A loses is compute memory.
    let bench = Bench::open(&graph, &shared, &Default::default(), 1, 1);
    let plan = bench.plan(&graph, &options);
    Machine { devices, bench, plan }
}

fn run(machine: &mut Machine, x: f32) -> Result<Vec<f32>, RunError> {
    machine.bench.run(&machine.plan, &[Input::f32("x", &[x; 4])])?;
    machine.bench.output(&machine.plan, "y")
}

/// What each device does in one run.
fn counts(asynchronous: bool) -> [SimCounts; 2] {
    let mut machine = machine(asynchronous);
    assert_eq!(run(&mut machine, 1.0).unwrap(), [15.0; 4]);
    machine.devices.each_ref().map(|device| device.counts())
}

fn assert_lost(error: &RunError, name: &str, what: &str) {
    let lost = match error {
        RunError::Device(DeviceError::Lost { device, .. })
        | RunError::Device(DeviceError::Memory { error: MemoryError::Lost { device }, .. })
        | RunError::Memory(MemoryError::Lost { device }) => device,
        other => panic!("{what}: {other}"),
    };
    assert_eq!(lost, name, "{what}: {error}");
}

#[test]
fn a_device_lost_at_any_step_is_an_error_that_names_it() {
    for asynchronous in [true, false] {
        let once = counts(asynchronous);
        assert_eq!(once.map(|counts| counts.steps), [3, 5]);
        for (victim, name) in [(0, "A"), (1, "B")] {
            for step in 0..2 * once[victim].steps {
                let what = format!("{name} at step {step}, asynchronous {asynchronous}");
                let mut machine = machine(asynchronous);
                let faults = Faults { lost_at_step: Some(step), ..Faults::default() };
                machine.devices[victim].inject(faults);
                let survives_first = step >= once[victim].steps;
                let first = run(&mut machine, 1.0);
                assert_eq!(first.is_ok(), survives_first, "{what}");
                let error = first.and_then(|_| run(&mut machine, 2.0)).unwrap_err();
                assert_lost(&error, name, &what);
                // Whoever tries again learns the same, and nothing hangs. Both states are on B.
                machine.bench.state.accept_torn();
                let error = run(&mut machine, 3.0).unwrap_err();
                let statuses =
                    ["near", "far"].map(|name| machine.bench.state.status(name).unwrap());
                if name == "A" {
                    assert_lost(&error, name, &what);
                    assert!(!statuses.contains(&StateStatus::Lost), "{what}");
                } else {
                    assert_eq!(statuses, [StateStatus::Lost; 2], "{what}");
                    let RunError::StateUnusable { status, .. } = &error else { panic!("{error}") };
                    assert_eq!(*status, StateStatus::Lost, "{what}");
                }
            }
        }
    }
}

#[test]
fn state_that_no_failed_split_touched_is_committed() {
    let mut machine = machine(true);
    run(&mut machine, 1.0).unwrap();
    // B's memory survives; A goes before B does anything in the second run.
    let first = machine.devices[0].counts().steps;
    machine.devices[0].inject(Faults { lost_at_step: Some(first), ..Faults::default() });
    let error = run(&mut machine, 2.0).unwrap_err();
    assert_lost(&error, "A", "second run");
    machine.bench.state.accept_torn();
    assert_eq!(floats(&machine.bench.state.read("near").unwrap()), [9.0; 4]);
    assert_eq!(floats(&machine.bench.state.read("far").unwrap()), [14.0; 4]);
}

#[test]
fn a_device_lost_at_any_transfer_is_an_error_that_names_it() {
    let once = counts(true);
    for (victim, name) in [(0, "A"), (1, "B")] {
        assert!(once[victim].transfers > 0, "{once:?}");
        for transfer in 0..once[victim].transfers {
            let mut machine = machine(true);
            let faults = Faults { lost_at_transfer: Some(transfer), ..Faults::default() };
            machine.devices[victim].inject(faults);
            let error = run(&mut machine, 1.0).unwrap_err();
            assert_lost(&error, name, &format!("{name} at transfer {transfer}"));
        }
    }
}

#[test]
fn a_device_lost_while_its_queue_is_full_lets_everybody_go() {
    for victim in [0, 1] {
        let mut machine = machine(true);
        let abort = AbortSignal::new();
        let mut tickets = Vec::new();
        for round in 0..20u8 {
            if round == 10 {
                machine.devices[victim].lose("unplugged");
            }
            let x = [f32::from(round); 4];
            let inputs = [Input::f32("x", &x)];
            match machine.bench.submit(&machine.plan, &inputs, &abort) {
                Ok(ticket) => tickets.push(ticket),
                Err(_) => assert!(round >= 10),
            }
        }
        let outcomes: Vec<bool> = tickets.into_iter().map(|ticket| ticket.wait().is_ok()).collect();
        assert!(outcomes.len() >= 10);
        // Nothing is right after the first that is wrong.
        assert!(outcomes.windows(2).all(|pair| pair[0] || !pair[1]), "{outcomes:?}");
    }
}

#[test]
fn compute_memory_that_cannot_be_had_is_an_error_with_the_numbers() {
    let mut machine = machine(true);
    let allocations = machine.devices[0].counts().allocations;
    let faults = Faults { fail_allocation_at: Some(allocations), ..Faults::default() };
    machine.devices[0].inject(faults);
    let error = run(&mut machine, 1.0).unwrap_err();
    assert!(error.to_string().contains("A memory has no"), "{error}");
    // Nothing is lost by it.
    assert_eq!(run(&mut machine, 1.0).unwrap(), [15.0; 4]);
}

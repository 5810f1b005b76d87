//! Sessions whose devices fail at awkward moments: while state is made anew, between runs, with
//! runs in flight, after the caller wrote state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tensoryard_graph::{DType, Graph, GraphBuilder};
use tensoryard_runtime::plan::NamedPin;
use tensoryard_runtime::{
    Device, Input, PlanError, RunError, Selected, Session, SessionOptions, StateStatus, Submitted,
    Weights,
};
use tensoryard_sim::{Faults, Shares, SimDevice, SimOptions};

use crate::support::{cpu, driver, floats};

/// sum += 2x, told as y; the product on A, the sum on B, the last step on the processor.
fn adding() -> Arc<Graph> {
    let g = GraphBuilder::new("adding");
    let x = g.input("x", DType::F32, [4]);
    let sum = g.state("sum", DType::F32, [4]);
    let next = x.scale(2.0, 0.0).named("product").add(sum).named("next");
    next.copy_into(sum).named("written").scale(1.0, 0.0).named("y").output("y");
    Arc::new(g.finish().unwrap())
}

/// other := x.
fn storing() -> Arc<Graph> {
    let g = GraphBuilder::new("storing");
    let x = g.input("x", DType::F32, [4]);
    _ = x.scale(1.0, 0.0).named("stored").copy_into(g.state("other", DType::F32, [4]));
    Arc::new(g.finish().unwrap())
}

struct Machine {
    a: Arc<SimDevice>,
    b: Arc<SimDevice>,
    session: Session,
    adding: Arc<Graph>,
    storing: Arc<Graph>,
}

/// Two devices and the processor. The sum is on `home`.
fn machine(options: &SimOptions, home: &str) -> Machine {
    machine_overlapping(options, home, 1)
}

fn machine_overlapping(options: &SimOptions, home: &str, overlapping_runs: usize) -> Machine {
    let driver = driver();
    let make = |name: &str| {
        driver.device(SimOptions { name: name.to_owned(), ..options.clone() }).unwrap()
    };
    let (a, b) = (make("A"), make("B"));
    let devices: [Arc<dyn Device>; 3] = [a.clone(), b.clone(), cpu()];
    let selected = devices.map(Selected::new);
    let mut options = SessionOptions { overlapping_runs, ..SessionOptions::default() };
    options.plan.fusion = false;
    for (pattern, device) in [("product", "A"), ("stored", "A"), ("next", "B"), ("y", "2")] {
        options.plan.named_pins.add(NamedPin::new(pattern, device));
    }
    for state in ["sum", "written", "other"] {
        options.plan.named_pins.add(NamedPin::new(state, home));
    }
    let (adding, storing) = (adding(), storing());
    let graphs = [&adding, &storing];
    let weights = Arc::new(Weights::default());
    let session = Session::open(&selected, weights, &graphs, options).unwrap();
    Machine { a, b, session, adding, storing }
}

fn asynchronous(asynchronous: bool) -> SimOptions {
    SimOptions { asynchronous, ..SimOptions::default() }
}

impl Machine {
    fn add(&mut self, x: f32) -> Result<f32, RunError> {
        let x = [x; 4];
        let inputs = [Input::f32("x", &x)];
        let y = self.session.run(&self.adding, &inputs)?.f32("y")?;
        assert_eq!(y, [y[0]; 4]);
        Ok(y[0])
    }

    fn submit(&mut self, x: f32) -> Result<Submitted, RunError> {
        self.session.submit(&self.adding, &[Input::f32("x", &[x; 4])])
    }

    fn write(&mut self, name: &str, value: f32) -> Result<(), RunError> {
        let bytes: Vec<u8> = [value; 4].iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.session.state_mut().write(name, &bytes)
    }

    fn read(&self, name: &str) -> Vec<f32> {
        floats(&self.session.state().read(name).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let recoveries = self.session.recoveries().iter();
        recoveries.map(|recovery| recovery.device.clone()).collect()
    }
}

#[test]
fn queues_that_waited_for_a_lost_device_work_again() {
    for device in ["A", "B", "2"] {
        let mut machine = machine(&asynchronous(true), device);
        assert_eq!(machine.add(1.0).unwrap(), 2.0);
        let lost_at_step = Some(machine.a.counts().steps);
        machine.a.inject(Faults { lost_at_step, ..Faults::default() });
        assert_eq!(machine.add(2.0).unwrap(), 6.0, "the sum on {device}");
        assert_eq!(machine.names(), ["A"]);
        assert_eq!(machine.session.devices().len(), 2);
        assert_eq!(machine.add(3.0).unwrap(), 12.0);
    }
}

#[test]
fn a_second_device_may_fail_while_state_is_made_anew() {
    for is_asynchronous in [false, true] {
        for later in 0..12 {
            let what = format!("B fails {later} steps later, asynchronous {is_asynchronous}");
            let mut machine = machine(&asynchronous(is_asynchronous), "B");
            for x in [1.0, 2.0, 3.0] {
                machine.add(x).unwrap();
            }
            let lost_at_step = Some(machine.a.counts().steps);
            machine.a.inject(Faults { lost_at_step, ..Faults::default() });
            let lost_at_step = Some(machine.b.counts().steps + later);
            machine.b.inject(Faults { lost_at_step, ..Faults::default() });
            assert_eq!(machine.add(4.0).unwrap(), 20.0, "{what}");
            assert_eq!(machine.add(5.0).unwrap(), 30.0, "{what}");
            assert_eq!(machine.names()[0], "A", "{what}");
        }
    }
}

#[test]
fn what_the_caller_wrote_is_there_after_a_device_is_lost() {
    let mut machine = machine(&asynchronous(true), "B");
    machine.add(1.0).unwrap();
    machine.write("sum", 100.0).unwrap();
    machine.a.lose("unplugged");
    assert_eq!(machine.add(1.0).unwrap(), 102.0);
    assert_eq!(machine.names(), ["A"]);
    assert_eq!(machine.add(1.0).unwrap(), 104.0);
}

#[test]
fn what_the_caller_cleared_is_zero_although_its_memory_is_lost() {
    let mut machine = machine(&asynchronous(true), "A");
    machine.add(1.0).unwrap();
    machine.session.state_mut().clear().unwrap();
    machine.a.lose("unplugged");
    assert_eq!(machine.add(2.0).unwrap(), 4.0);
}

#[test]
fn what_the_caller_wrote_into_lost_memory_is_lost_until_it_is_written_again() {
    let mut machine = machine(&asynchronous(true), "A");
    machine.add(1.0).unwrap();
    machine.write("sum", 100.0).unwrap();
    machine.a.lose("unplugged");
    let error = machine.add(1.0).unwrap_err();
    assert_eq!(error.failed_device(), Some("A"), "{error}");
    assert_eq!(machine.names(), ["A"]);
    let error = machine.add(1.0).unwrap_err();
    let RunError::StateUnusable { name, status } = &error else { panic!("{error}") };
    assert_eq!((name.as_str(), *status), ("sum", StateStatus::Lost));
    // What was not lost goes on, what is written whole is there again.
    let inputs = [Input::f32("x", &[7.0; 4])];
    machine.session.run(&machine.storing, &inputs).unwrap();
    assert_eq!(machine.read("other"), [7.0; 4]);
    machine.write("sum", 50.0).unwrap();
    assert_eq!(machine.add(1.0).unwrap(), 52.0);
}

#[test]
fn making_state_anew_can_be_stopped_and_goes_on_in_the_next_run() {
    let mut machine = machine(&asynchronous(false), "B");
    for x in [1.0, 2.0] {
        machine.add(x).unwrap();
    }
    machine.a.lose("unplugged");
    machine.session.abort_signal().abort();
    for _ in 0..2 {
        let error = machine.add(3.0).unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    }
    assert_eq!(machine.names(), ["A"]);
    // What is written meanwhile comes after what is made anew.
    machine.write("other", 9.0).unwrap();
    machine.session.abort_signal().reset();
    assert_eq!(machine.add(3.0).unwrap(), 12.0);
    assert_eq!(machine.read("other"), [9.0; 4]);
    assert_eq!(machine.session.recoveries()[0].repeated_runs, 2);
}

#[test]
fn a_submitted_run_that_failed_did_not_happen() {
    for home in ["A", "B"] {
        let options = SimOptions { delay: Duration::from_millis(5), ..asynchronous(true) };
        let mut machine = machine(&options, home);
        machine.session.pin(NamedPin::new("y", "B"));
        assert_eq!(machine.add(1.0).unwrap(), 2.0);
        let Machine { session, adding, .. } = &mut machine;
        let good = session.submit(adding, &[Input::f32("x", &[10.0; 4])]).unwrap();
        good.wait().unwrap();
        let lost_at_step = Some(machine.a.counts().steps);
        machine.a.inject(Faults { lost_at_step, ..Faults::default() });
        let bad = [100.0f32, 1000.0].map(|x| machine.submit(x).unwrap());
        for run in &bad {
            let error = machine.session.results(run).map(drop).unwrap_err();
            assert_eq!(error.failed_device(), Some("A"), "{error}");
        }
        assert_eq!(machine.add(2.0).unwrap(), 26.0, "the sum on {home}");
        assert_eq!(machine.names(), ["A"]);
        assert_eq!(machine.session.recoveries()[0].repeated_runs, 2);
    }
}

#[test]
fn overlapping_runs_that_fail_are_submitted_again_and_nothing_counts_twice() {
    const VALUES: u8 = 12;
    for lost_at in 0..u64::from(VALUES) * 2 {
        for home in ["A", "B"] {
            let what = format!("lost {lost_at} steps later, the sum on {home}");
            let options = SimOptions { jitter: Duration::from_micros(300), ..asynchronous(true) };
            let mut machine = machine_overlapping(&options, home, 3);
            let lost_at_step = Some(machine.a.counts().steps + lost_at);
            machine.a.inject(Faults { lost_at_step, ..Faults::default() });
            let mut left: VecDeque<f32> = (1..=VALUES).map(f32::from).collect();
            let mut submitted = VecDeque::new();
            while !(left.is_empty() && submitted.is_empty()) {
                if submitted.len() < 3
                    && let Some(x) = left.pop_front()
                {
                    match machine.submit(x) {
                        Ok(run) => submitted.push_back((x, run)),
                        // What the failed runs left is torn as long as one of them is at work.
                        Err(RunError::StateUnusable { .. }) => left.push_back(x),
                        Err(error) => panic!("{what}: {error}"),
                    }
                    continue;
                }
                let Some((x, run)) = submitted.pop_front() else { continue };
                if run.wait().is_err() {
                    left.push_back(x);
                }
            }
            // 1 + 2 + … + 12, twice.
            assert_eq!(machine.read("sum"), [156.0; 4], "{what}");
        }
    }
}

#[test]
fn a_run_counts_although_its_reader_fails() {
    let mut machine = machine(&asynchronous(true), "A");
    let inputs = [Input::f32("x", &[1.0; 4])];
    let read = machine.session.run_reading(&machine.adding, &inputs, |o| o.f32("nothing"));
    assert!(matches!(read, Err(RunError::NotAnOutput(_))));
    machine.a.lose("unplugged");
    assert_eq!(machine.add(2.0).unwrap(), 6.0);
}

#[test]
fn torn_state_is_no_obstacle_to_runs_that_do_not_read_it() {
    let options = SimOptions { delay: Duration::from_millis(20), ..asynchronous(true) };
    let mut machine = machine(&options, "B");
    machine.session.pin(NamedPin::new("y", "B"));
    machine.add(1.0).unwrap();
    let run = machine.submit(2.0).unwrap();
    machine.session.abort_signal().abort();
    assert!(machine.session.results(&run).is_err_and(|error| error.is_cancelled()));
    machine.session.abort_signal().reset();
    let error = machine.add(1.0).unwrap_err();
    assert!(matches!(error, RunError::StateUnusable { status: StateStatus::Torn, .. }), "{error}");
    // The session looks at the state that was written, and not at what is torn.
    machine.write("other", 3.0).unwrap();
    machine.session.run(&machine.storing, &[Input::f32("x", &[4.0; 4])]).unwrap();
    assert_eq!(machine.read("other"), [4.0; 4]);
    machine.a.lose("unplugged");
    machine.session.run(&machine.storing, &[Input::f32("x", &[5.0; 4])]).unwrap();
    assert_eq!(machine.session.state().status("sum").unwrap(), StateStatus::Torn);
    machine.write("sum", 1.0).unwrap();
    assert_eq!(machine.add(1.0).unwrap(), 3.0);
}

#[test]
fn pins_hold_after_reset_and_after_a_device_is_lost() {
    let mut machine = machine(&asynchronous(true), "B");
    let device_of = |machine: &mut Machine, name: &str| {
        let plan = machine.session.plan(&machine.adding).unwrap();
        let id = plan.graph.ids().find(|&id| plan.graph.tensor(id).name == name).unwrap();
        let device = plan.placement.device(id).unwrap();
        plan.devices[device.0].device.info().name.clone()
    };
    let adding = Arc::clone(&machine.adding);
    machine.session.reserve(&adding).unwrap();
    assert_eq!(device_of(&mut machine, "next"), "B");
    machine.add(1.0).unwrap();
    let before = machine.session.counters();
    machine.session.reset();
    assert_eq!(machine.session.workspace_bytes(), 0);
    assert_eq!(machine.session.counters(), before);
    assert_eq!(device_of(&mut machine, "product"), "A");
    machine.a.lose("unplugged");
    assert_eq!(machine.add(1.0).unwrap(), 4.0);
    assert_eq!(device_of(&mut machine, "next"), "B");
    // The pin to what is lost is gone, one by number has moved up with its device.
    assert_ne!(device_of(&mut machine, "product"), "A");
    assert_eq!(device_of(&mut machine, "y"), cpu().info().name);
}

#[test]
fn a_reset_makes_queues_ready_that_were_stopped() {
    let options = SimOptions { delay: Duration::from_millis(20), ..asynchronous(true) };
    let mut machine = machine(&options, "B");
    machine.session.pin(NamedPin::new("y", "B"));
    let run = machine.submit(2.0).unwrap();
    machine.session.abort_signal().abort();
    assert!(machine.session.results(&run).is_err());
    machine.session.abort_signal().reset();
    machine.session.reset();
    machine.session.state_mut().clear().unwrap();
    assert_eq!(machine.add(1.0).unwrap(), 2.0);
}

#[test]
fn devices_that_share_the_memory_of_a_lost_one_are_given_up_with_it() {
    for is_asynchronous in [false, true] {
        let driver = driver();
        let a =
            driver.device(SimOptions { asynchronous: is_asynchronous, ..SimOptions::named("A") });
        let a = a.unwrap();
        let shares = Shares::Device("A".to_owned());
        let asynchronous = is_asynchronous;
        let b =
            driver.device(SimOptions { asynchronous, shares, ..SimOptions::named("B") }).unwrap();
        let devices: [Arc<dyn Device>; 3] = [a.clone(), b, cpu()];
        let mut options = SessionOptions::default();
        for (pattern, device) in [("product", "A"), ("next", "B"), ("sum", "A")] {
            options.plan.named_pins.add(NamedPin::new(pattern, device));
        }
        let graph = adding();
        let devices = devices.map(Selected::new);
        let mut session = Session::open(&devices, Arc::default(), &[&graph], options).unwrap();
        let add = |session: &mut Session, x: f32| {
            session.run(&graph, &[Input::f32("x", &[x; 4])]).unwrap().f32("y").unwrap()[0]
        };
        assert_eq!(add(&mut session, 1.0), 2.0);
        a.lose("unplugged");
        assert_eq!(add(&mut session, 2.0), 6.0);
        let left: Vec<&str> =
            session.devices().iter().map(|device| device.device.info().name.as_str()).collect();
        assert_eq!(left, ["CPU"]);
        assert_eq!(add(&mut session, 3.0), 12.0);
    }
}

#[test]
fn a_stream_may_begin_on_a_device_that_is_lost() {
    let mut machine = machine(&asynchronous(true), "A");
    assert_eq!(machine.add(1.0).unwrap(), 2.0);
    machine.a.lose("unplugged");
    machine.session.clear_state().unwrap();
    assert_eq!(machine.names(), ["A"]);
    assert_eq!(machine.add(2.0).unwrap(), 4.0);
}

#[test]
fn devices_of_one_name_are_refused() {
    let [first, second] = [driver(), driver()];
    let devices: [Arc<dyn Device>; 2] = [
        first.device(SimOptions::named("A")).unwrap(),
        second.device(SimOptions::named("a")).unwrap(),
    ];
    let graph = adding();
    let options = SessionOptions::default();
    let error = Session::open(&devices.map(Selected::new), Arc::default(), &[&graph], options);
    let error = error.unwrap_err();
    assert!(matches!(&error, RunError::Plan(PlanError::DuplicateDevice(name)) if name == "a"));
}

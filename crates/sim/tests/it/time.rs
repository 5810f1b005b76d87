//! Virtual time: what is simulated is what is predicted.

use std::sync::Arc;
use std::time::Duration;

use tensoryard_conformance::random_graph::random_graph;
use tensoryard_conformance::rng::Rng;
use tensoryard_runtime::plan::{Prediction, Strategy, predict};
use tensoryard_runtime::{Device, DeviceRates, Input, Plan, PlanOptions, Workspace};
use tensoryard_sim::{BusyTime, Shares, SimDevice, SimDriver, SimOptions};

use crate::support::{Bench, driver};

fn rates(rng: &mut Rng) -> DeviceRates {
    let mut figure = |low: f32, high: f32| f64::from(rng.uniform(low, high));
    DeviceRates::from_figures([
        figure(1e9, 1e10),
        figure(1e9, 1e10),
        figure(1e9, 1e10),
        figure(1e8, 1e9),
        figure(1e8, 1e10),
        figure(0.0, 500.0),
        figure(0.0, 900.0),
        figure(1e7, 1e9),
        figure(1e7, 1e9),
        figure(0.0, 700.0),
    ])
}

/// Two to four devices: most with memory of their own, some with that of the host or of another.
fn machine(driver: &SimDriver, rng: &mut Rng) -> Vec<Arc<SimDevice>> {
    let names = ["first", "second", "third", "fourth"];
    let count = 2 + rng.below(3);
    let mut devices = Vec::new();
    for index in 0..count {
        let shares = match rng.below(8) {
            0 | 1 if index + 1 == count => Shares::Host,
            2 if index > 0 => Shares::Device(names[rng.below(index)].to_owned()),
            _ => Shares::Own,
        };
        let mut options = SimOptions {
            shares,
            rates: rates(rng),
            jitter: Duration::from_micros(rng.pick(&[0, 100])),
            ..SimOptions::named(names[index])
        };
        if index + 1 < count {
            options.ops.retain(|_| rng.chance(70));
        }
        devices.push(driver.device(options).unwrap());
    }
    devices
}

fn predicted(plan: &Plan) -> Prediction {
    let rates: Vec<DeviceRates> =
        plan.devices.iter().map(|planned| planned.device.rates().unwrap()).collect();
    predict(plan, &rates)
}

fn simulated(devices: &[Arc<SimDevice>]) -> Vec<BusyTime> {
    devices.iter().map(|device| device.busy()).collect()
}

#[test]
fn a_run_takes_exactly_the_predicted_time() {
    let mut copies = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed ^ 0x71e);
        let driver = driver();
        let devices = machine(&driver, &mut rng);
        let graph_seed = rng.next_u64();
        let mut random = random_graph(graph_seed, 3 + rng.below(25));
        let graph = Arc::new(random.graph.clone());
        let shared: Vec<Arc<dyn Device>> =
            devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
        let last = devices.len() - 1;
        let (weights, state) = (rng.below(devices.len()), last);
        let mut bench = Bench::open(&graph, &shared, &random.weights, weights, state);
        let strategy = rng.pick(&[Strategy::Priority, Strategy::Priority, Strategy::Cost]);
        let options = PlanOptions {
            strategy,
            overlapping_runs: 1 + usize::from(rng.chance(30)),
            ..PlanOptions::default()
        };
        let plan = bench.plan(&graph, &options);
        let prediction = predicted(&plan);
        // More than one run: the clock is set back, and old events mean nothing.
        for run in 0..2 {
            // Nothing is kept from the run before.
            bench.workspace = Workspace::new();
            driver.clock().reset();
            let inputs: Vec<Input<'_>> =
                random.inputs.iter().map(|(name, bytes)| Input { name, bytes }).collect();
            bench.run(&plan, &inputs).unwrap();
            let shown = || format!("seed {seed} run {run}\n{}\n{prediction:#?}", plan.dump());
            assert_eq!(driver.clock().makespan_ns(), prediction.makespan_ns, "{}", shown());
            for (busy, predicted) in simulated(&devices).iter().zip(&prediction.devices) {
                assert_eq!(busy.compute_ns, predicted.compute_ns, "{}", shown());
                assert_eq!(busy.transfer_ns, predicted.copy_ns, "{}", shown());
            }
            random.change_inputs(seed);
        }
        copies += plan.arrivals.len();
    }
    assert!(copies > 300, "{copies}");
}

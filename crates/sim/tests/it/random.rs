//! Random graphs on two to four simulated devices that work at once, with random delays, in
//! memory of their own, sometimes shared.
//!
//! `TENSORYARD_SIM_GRAPHS` sets how many, `TENSORYARD_RANDOM_SEED` runs a single seed.

use std::sync::Arc;
use std::time::Duration;

use tensoryard_conformance::compare::{Accuracy, Tolerance};
use tensoryard_conformance::fuzz::{Scene, run_seeds};
use tensoryard_conformance::rng::Rng;
use tensoryard_runtime::{Device, DeviceKind};
use tensoryard_sim::{Shares, SimOptions};

use crate::support::{cpu, driver};

const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];

fn random_options(rng: &mut Rng, index: usize, is_last: bool, seed: u64) -> SimOptions {
    let mut options = SimOptions {
        fill: Some(0xff),
        asynchronous: rng.chance(85),
        slow_copies: rng.chance(30),
        reads_host: rng.chance(30),
        alignment: rng.pick(&[4, 32, 256]),
        padding: rng.pick(&[0, 0, 8]),
        max_buffer: rng.pick(&[usize::MAX, usize::MAX, 1 << 11]),
        jitter: Duration::from_micros(rng.pick(&[0, 50, 300])),
        seed,
        ..SimOptions::named(NAMES[index])
    };
    options.shares = match rng.below(10) {
        0 | 1 => Shares::Host,
        2 | 3 if index > 0 => Shares::Device(NAMES[rng.below(index)].to_owned()),
        _ => Shares::Own,
    };
    if options.shares == Shares::Host {
        options.kind = DeviceKind::Cpu;
    }
    if !is_last {
        let share = rng.pick(&[30, 60, 90]);
        options.ops.retain(|_| rng.chance(share));
    }
    options
}

fn random_scene(seed: u64) -> Scene {
    let mut rng = Rng::new(seed ^ 0x51_3d);
    let driver = driver();
    let count = 2 + rng.below(3);
    let ends_with_cpu = rng.chance(30);
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for index in 0..count {
        let is_last = index + 1 == count;
        if is_last && ends_with_cpu {
            devices.push(cpu());
        } else {
            let options = random_options(&mut rng, index, is_last, seed);
            devices.push(driver.device(options).unwrap());
        }
    }
    Scene {
        weights_on: rng.below(count),
        state_on: rng.below(count),
        devices,
        threads: 1,
        fusion: rng.chance(70),
        runs: rng.pick(&[1, 2, 3]),
        accuracy: Accuracy::Loose(
            Tolerance { nmse: f64::INFINITY, max_abs: 1e-2 },
            "chains of ops amplify rounding",
        ),
    }
}

#[test]
fn random_graphs_on_devices_that_work_at_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("TENSORYARD_RANDOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TENSORYARD_SIM_GRAPHS").unwrap_or(1000),
    };
    run_seeds(seeds, random_scene).assert_ok();
}

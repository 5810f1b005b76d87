//! Every op on every instruction-set level of this machine, with one and two threads.
//!
//! `TENSORYARD_CONFORMANCE_ALL=1` runs every case; otherwise about one in five.

use std::sync::Arc;

use tensoryard_conformance::compare::{Accuracy, Tolerance};
use tensoryard_conformance::fuzz::{Scene, run_seeds};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_conformance::{SuiteOptions, run_suite};
use tensoryard_cpu::{CpuDevice, Isa};
use tensoryard_runtime::Device;

fn one_in() -> usize {
    if std::env::var_os("TENSORYARD_CONFORMANCE_ALL").is_some() { 1 } else { 5 }
}

#[test]
fn every_level_computes_what_the_oracle_says() {
    for isa in Isa::available() {
        for threads in [1, 2] {
            // The cases are small; shared among threads all the same, they take every path.
            let device: Arc<dyn Device> = Arc::new(CpuDevice::new(isa).sharing_every_step());
            let options = SuiteOptions { threads, one_in: one_in(), ..SuiteOptions::default() };
            let report = run_suite(&device, &options);
            assert!(report.failed.is_empty(), "{isa}, {threads} threads: {report}");
            report.assert_ok();
            assert!(report.weight_memory.contains_key("CPU_Packed"), "{report}");
        }
    }
}

#[test]
fn random_graphs_run_alone_and_beside_another_device() {
    run_seeds(0..1000, |seed| {
        let cpu: Arc<dyn Device> = Arc::new(CpuDevice::new(Isa::detect()));
        let mut devices = vec![cpu];
        if seed % 2 == 0 {
            devices.insert(0, ReferenceOptions::new("ref").build());
        }
        let (n, at) = (devices.len(), seed as usize);
        Scene {
            weights_on: at % n,
            state_on: at / 2 % n,
            devices,
            threads: 1 + at % 2,
            fusion: seed % 4 != 0,
            runs: 2,
            accuracy: Accuracy::Loose(
                Tolerance { nmse: f64::INFINITY, max_abs: 1e-2 },
                "chains of ops amplify rounding",
            ),
        }
    })
    .assert_ok();
}

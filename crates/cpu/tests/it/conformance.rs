//! Every op on every instruction-set level of this machine, with one and two threads.
//!
//! `TENSORYARD_CONFORMANCE_ALL=1` runs every case; otherwise about one in five.

use std::sync::Arc;

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
            let device: Arc<dyn Device> = Arc::new(CpuDevice::new(isa));
            let options = SuiteOptions { threads, one_in: one_in(), ..SuiteOptions::default() };
            let report = run_suite(&device, &options);
            assert!(report.failed.is_empty(), "{isa}, {threads} threads: {report}");
            report.assert_ok();
            assert!(report.weight_memory.contains_key("CPU_Packed"), "{report}");
        }
    }
}

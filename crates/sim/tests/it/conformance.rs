//! The conformance suite on simulated devices: results must not depend on who moves the bytes.
//!
//! `TENSORYARD_CONFORMANCE_ALL=1` runs every case; otherwise a share of them.

use std::sync::Arc;
use std::time::Duration;

use tensoryard_conformance::{Report, SuiteOptions, run_suite};
use tensoryard_graph::OpKind;
use tensoryard_runtime::Device;
use tensoryard_sim::{Shares, SimOptions};

use crate::support::driver;

fn report(options: SimOptions, share: usize) -> Report {
    let all = std::env::var_os("TENSORYARD_CONFORMANCE_ALL").is_some();
    let suite = SuiteOptions {
        one_in: if all { 1 } else { share },
        ops: options.ops.clone(),
        ..SuiteOptions::default()
    };
    let device: Arc<dyn Device> = driver().device(options).unwrap();
    run_suite(&device, &suite)
}

#[test]
fn the_suite_passes_in_memory_of_its_own() {
    let report = report(SimOptions { fill: Some(0xff), ..SimOptions::named("own") }, 5);
    report.assert_ok();
    assert!(report.weight_memory["own memory"] > 100, "{report}");
    assert!(report.fused_steps.contains_key("mul_mat+epilogue"), "{report}");
}

#[test]
fn the_suite_passes_in_the_memory_of_the_host() {
    let report = report(SimOptions { shares: Shares::Host, ..SimOptions::named("shared") }, 11);
    report.assert_ok();
    assert!(report.weight_memory.contains_key("CPU_Packed"), "{report}");
}

#[test]
fn the_suite_passes_with_odd_memory_and_delays() {
    let options = SimOptions {
        alignment: 4,
        padding: 8,
        fill: Some(0xff),
        jitter: Duration::from_micros(300),
        ops: OpKind::ALL.iter().copied().filter(|op| *op != OpKind::Attention).collect(),
        ..SimOptions::named("odd")
    };
    report(options, 17).assert_ok();
}

#[test]
fn the_suite_passes_on_the_callers_thread() {
    report(SimOptions { asynchronous: false, ..SimOptions::named("inline") }, 17).assert_ok();
}

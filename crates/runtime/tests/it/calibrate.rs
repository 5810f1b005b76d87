//! Measuring of devices: figures that can be true, whatever the device lacks.

use std::time::Duration;

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::OpKind;
use tensoryard_runtime::calibrate::{CalibrateOptions, calibrate};

use crate::support::{full, only};

fn quick() -> CalibrateOptions {
    CalibrateOptions { budget: Duration::from_millis(1), ..CalibrateOptions::default() }
}

/// A device that is slow enough for a test without being given long rows.
fn small(options: ReferenceOptions) -> ReferenceOptions {
    ReferenceOptions { memory_bytes: 1 << 16, ..options }
}

#[test]
fn every_figure_of_a_device_that_runs_everything_is_measured() {
    let rates = calibrate(&small(full("A")).build(), &quick()).unwrap().rates;
    for (name, figure) in tensoryard_runtime::DeviceRates::NAMES.iter().zip(rates.figures()) {
        assert!(figure.is_finite() && figure >= 0.0, "{name} is {figure}");
    }
    assert!(rates.matrix_f32_flops_per_s > 0.0 && rates.memory_bytes_per_s > 0.0);
}

#[test]
fn what_a_device_does_not_run_costs_nothing() {
    let rates = calibrate(&small(only("A", &[OpKind::Unary])).build(), &quick()).unwrap().rates;
    assert!(rates.other_flops_per_s.is_finite());
    assert_eq!(rates.matrix_f32_flops_per_s, f64::INFINITY);
    assert_eq!(rates.memory_bytes_per_s, f64::INFINITY);
    assert_eq!((rates.op_overhead_ns, rates.split_overhead_ns), (0.0, 0.0));
    assert!(rates.to_device_bytes_per_s.is_finite());
}

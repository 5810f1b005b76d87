//! The suite passes on a device that computes by the oracle, and tells what is wrong elsewhere.

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_conformance::{Expectation, Fusion, SuiteOptions, run_suite};
use tensoryard_graph::OpKind;
use tensoryard_runtime::StepOp;

/// `TENSORYARD_CONFORMANCE_ALL=1` runs every case; otherwise about one in six.
#[test]
fn the_oracle_passes_its_own_suite() {
    let device = ReferenceOptions::new("ref").build();
    let all = std::env::var_os("TENSORYARD_CONFORMANCE_ALL").is_some();
    let one_in = if all { 1 } else { 6 };
    let report = run_suite(&device, &SuiteOptions { one_in, ..SuiteOptions::default() });
    report.assert_ok();
    for fused in ["norm+mul+add", "mul_mat+epilogue", "conv_1d+epilogue"] {
        assert!(report.fused_steps.contains_key(fused), "{report}");
    }
    assert!(report.weight_memory["ref memory"] > 100, "{report}");
}

#[test]
fn in_place_and_fused_chains_pass_in_full() {
    let device = ReferenceOptions::new("ref").build();
    for filter in ["place=", "fused/", "view/", "set_rows/"] {
        let filter = Some(filter.to_owned());
        run_suite(&device, &SuiteOptions { filter, ..SuiteOptions::default() }).assert_ok();
    }
}

fn lacking() -> ReferenceOptions {
    let mut options = ReferenceOptions::new("lacking");
    options.ops.retain(|&op| op != OpKind::Scale);
    options
}

#[test]
fn refused_ops_are_failures_unless_expected() {
    let device = lacking().build();
    let options = |expected: &[Expectation]| SuiteOptions {
        filter: Some("scale/".to_owned()),
        fusion: Fusion::Off,
        expected_failures: expected.to_vec(),
        ..SuiteOptions::default()
    };
    let report = run_suite(&device, &options(&[]));
    assert_eq!(report.passed, 0);
    assert!(report.failed.len() > 40, "{report}");
    assert!(report.failed[0].1.contains("refused: no device runs scale"), "{report}");
    let expected = Expectation { name_contains: "scale/", reason: "a test" };
    let report = run_suite(&device, &options(&[expected]));
    assert!(report.failed.is_empty() && report.expected.len() > 40, "{report}");
    // Devices that do not claim an op run the cases of the others.
    let ops = lacking().ops;
    let report = run_suite(&device, &SuiteOptions { ops, ..options(&[]) });
    assert_eq!((report.passed, report.failed.len()), (0, 0));
}

#[test]
fn an_expected_failure_that_passes_is_an_error() {
    let device = ReferenceOptions::new("ref").build();
    let expected = Expectation { name_contains: "factor=0.125", reason: "no longer true" };
    let report = run_suite(
        &device,
        &SuiteOptions {
            filter: Some("scale/".to_owned()),
            expected_failures: vec![expected],
            ..SuiteOptions::default()
        },
    );
    assert!(report.unexpected.len() > 10 && report.failed.is_empty(), "{report}");
    let panic = std::panic::catch_unwind(|| report.assert_ok()).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("passes, though: no longer true"), "{text}");
}

/// A share of wrong elements that a careless comparison would let pass.
fn last_element_off(_: &StepOp, values: &mut [f64]) {
    if let Some(last) = values.last_mut() {
        *last = *last * 1.001 + 1e-3;
    }
}

fn nan_becomes_zero(_: &StepOp, values: &mut [f64]) {
    values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = 0.0);
}

#[test]
fn small_faults_are_noticed() {
    let report = |fault: fn(&StepOp, &mut [f64]), filter: &str| {
        let options = ReferenceOptions { fault: Some(fault), ..ReferenceOptions::new("faulty") };
        let filter = Some(filter.to_owned());
        run_suite(&options.build(), &SuiteOptions { filter, one_in: 8, ..SuiteOptions::default() })
    };
    for op in OpKind::ALL {
        let report = report(last_element_off, &format!("{}/", op.name()));
        // What passes has no elements, ends in an infinity or an id, or fails for an id anyway.
        let may_pass = *op == OpKind::View || 2 * report.failed.len() > report.passed;
        assert!(
            may_pass,
            "{}: {} failed, {} passed",
            op.name(),
            report.failed.len(),
            report.passed
        );
    }
    let report = report(nan_becomes_zero, "unary/");
    let special = |name: &str| name.contains("values=special");
    assert!(report.failed.iter().any(|(name, _)| special(name)));
    assert!(report.failed.iter().all(|(name, _)| special(name)), "{report}");
}

//! The suite passes on a device that computes by the oracle, and tells what is wrong elsewhere.

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_conformance::{SuiteOptions, run_suite};

#[test]
fn the_oracle_passes_its_own_suite() {
    let device = ReferenceOptions::new("ref").build();
    let report = run_suite(&device, &SuiteOptions::default());
    report.assert_ok();
    for fused in ["norm+mul+add", "mul_mat+epilogue", "conv_1d+epilogue"] {
        assert!(report.fused_steps.contains_key(fused), "{report}");
    }
    assert!(report.weight_memory["ref memory"] > 100, "{report}");
}

//! What each memory must hold, as planning summed it up.

use tensoryard_runtime::plan::MemoryUse;

use super::report::MemoryReport;

pub(super) fn memory(uses: &[MemoryUse]) -> Vec<MemoryReport> {
    let rows = uses.iter().map(|memory| MemoryReport {
        name: memory.name.clone(),
        devices: memory.devices.iter().map(|device| device.0).collect(),
        weights_bytes: memory.weights,
        state_bytes: memory.state,
        compute_bytes: memory.compute,
        peak_bytes: memory.peak(),
        limit_bytes: memory.limit,
        over_bytes: memory.over_by(),
    });
    rows.collect()
}

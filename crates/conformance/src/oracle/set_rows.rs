//! Oracle of row writes.

use super::get_rows::row_of;
use super::{OracleError, Sources};

/// base `[n, rows, b2, b3]`, x `[n, count, b2, b3]`, ids `[count, c2, c3]`; all of base afterwards.
pub(super) fn set_rows(sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    let (base, x, ids) = (sources.get(0)?, sources.get(1)?, sources.get(2)?);
    let mut out = base.data.clone();
    let [n, rows, b2, _] = base.dims;
    // Every id is looked at, also those of tensors without elements.
    for &id in &ids.data {
        row_of(id, rows)?;
    }
    for [r, i2, i3] in x.rows() {
        let row = row_of(ids.wrapped([r, i2, i3, 0]), rows)?;
        let start = n * (row + rows * (i2 + b2 * i3));
        out[start..start + n].copy_from_slice(x.row([r, i2, i3]));
    }
    Ok(out)
}

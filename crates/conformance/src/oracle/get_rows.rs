//! Oracle of row look-up.

use super::{OracleError, Sources};

/// The row number of an id.
///
/// # Errors
/// An id outside `0..rows`.
pub(super) fn row_of(id: f64, rows: usize) -> Result<usize, OracleError> {
    let id = id as i64;
    usize::try_from(id).ok().filter(|&row| row < rows).ok_or(OracleError::IdOutside { id, rows })
}

/// table `[n, rows, b2, b3]`, ids `[count, b2, b3]`; result `[n, count, b2, b3]`.
pub(super) fn get_rows(
    sources: Sources<'_>,
    [_, count, b2, b3]: [usize; 4],
) -> Result<Vec<f64>, OracleError> {
    let (table, ids) = (sources.get(0)?, sources.get(1)?);
    let mut out = Vec::new();
    for i3 in 0..b3 {
        for i2 in 0..b2 {
            for r in 0..count {
                let row = row_of(ids.row([i2, i3, 0])[r], table.dims[1])?;
                out.extend_from_slice(table.row([row, i2, i3]));
            }
        }
    }
    Ok(out)
}

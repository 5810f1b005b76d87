//! Oracle of multiplication by, and addition of, constants.

use tensoryard_graph::ops::Scale;

use super::{OracleError, Sources};

pub(super) fn scale(op: &Scale, sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    let (factor, offset) = (f64::from(op.factor), f64::from(op.offset));
    Ok(sources.get(0)?.data.iter().map(|v| v * factor + offset).collect())
}

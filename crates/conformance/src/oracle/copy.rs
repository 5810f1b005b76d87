//! Oracle of copies: the same values, rounded by the storage of the result.

use super::{OracleError, Sources};

pub(super) fn copy(sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    Ok(sources.get(0)?.data.clone())
}

//! Oracle of element-wise arithmetic.

use tensoryard_graph::ops::{Binary, BinaryKind};

use super::{OracleError, Sources};

pub(super) fn binary(op: &Binary, sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    let (a, b) = (sources.get(0)?, sources.get(1)?);
    let mut out = Vec::with_capacity(a.data.len());
    for [i1, i2, i3] in a.rows() {
        for (i0, &left) in a.row([i1, i2, i3]).iter().enumerate() {
            let right = b.wrapped([i0, i1, i2, i3]);
            out.push(match op.kind {
                BinaryKind::Add => left + right,
                BinaryKind::Sub => left - right,
                BinaryKind::Mul => left * right,
                BinaryKind::Div => left / right,
            });
        }
    }
    Ok(out)
}

//! Oracle of the row normalisations.

use tensoryard_graph::ops::{LayerNorm, RmsNorm};

use super::{OracleError, Sources};

pub(super) fn layer_norm(op: &LayerNorm, sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    let x = sources.get(0)?;
    let mut out = Vec::with_capacity(x.data.len());
    for index in x.rows() {
        let row = x.row(index);
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / row.len() as f64;
        let factor = (variance + f64::from(op.epsilon)).sqrt().recip();
        out.extend(row.iter().map(|v| (v - mean) * factor));
    }
    Ok(out)
}

pub(super) fn rms_norm(op: &RmsNorm, sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    let x = sources.get(0)?;
    let mut out = Vec::with_capacity(x.data.len());
    for index in x.rows() {
        let row = x.row(index);
        let mean_square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
        let factor = (mean_square + f64::from(op.epsilon)).sqrt().recip();
        out.extend(row.iter().map(|v| v * factor));
    }
    Ok(out)
}

//! Oracle of the softmax of rows.

use tensoryard_graph::ops::SoftMax;

use super::{OracleError, Sources};

pub(super) fn soft_max(op: &SoftMax, sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    let x = sources.get(0)?;
    let mask = sources.optional(1);
    let scale = f64::from(op.scale);
    let mut out = Vec::with_capacity(x.data.len());
    for [i1, i2, i3] in x.rows() {
        let values: Vec<f64> = x
            .row([i1, i2, i3])
            .iter()
            .enumerate()
            .map(|(i0, v)| v * scale + mask.map_or(0.0, |mask| mask.wrapped([i0, i1, i2, i3])))
            .collect();
        if values.iter().all(|&v| v == f64::NEG_INFINITY) {
            out.extend(values.iter().map(|_| 0.0));
            continue;
        }
        let max = values.iter().fold(f64::NEG_INFINITY, |max, &v| max.max(v));
        let exps: Vec<f64> = values.iter().map(|v| (v - max).exp()).collect();
        let total: f64 = exps.iter().sum();
        out.extend(exps.iter().map(|e| e / total));
    }
    Ok(out)
}

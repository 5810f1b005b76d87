//! Oracle of the one-dimensional convolution.

use tensoryard_graph::ops::Conv1d;

use super::{OracleError, Sources};

/// weight `[channels, kernel, out]`, x `[channels, frames, batch]`, result `[out, frames', batch]`.
pub(super) fn conv_1d(
    op: &Conv1d,
    sources: Sources<'_>,
    [outs, frames, batches, _]: [usize; 4],
) -> Result<Vec<f64>, OracleError> {
    let (weight, x) = (sources.get(0)?, sources.get(1)?);
    let (kernel, available) = (weight.dims[1], x.dims[1]);
    let mut result = Vec::with_capacity(outs * frames * batches);
    for batch in 0..batches {
        for frame in 0..frames {
            for out in 0..outs {
                let mut sum = 0.0;
                for tap in 0..kernel {
                    let at = frame * op.stride as usize + tap;
                    let Some(at) = at.checked_sub(op.padding as usize) else { continue };
                    if at < available {
                        let (w, x) = (weight.row([tap, out, 0]), x.row([at, batch, 0]));
                        sum += w.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
                    }
                }
                result.push(sum);
            }
        }
    }
    Ok(result)
}

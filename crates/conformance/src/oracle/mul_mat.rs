//! Oracle of the matrix product.

use super::{OracleError, Sources};

/// weight `[k, m, b2, b3]`, x `[k, n, c2, c3]`; result `[m, n, c2, c3]`. Neighbouring outer
/// indices of x share one matrix where the weight has fewer.
pub(super) fn mul_mat(
    sources: Sources<'_>,
    [m, n, c2, c3]: [usize; 4],
) -> Result<Vec<f64>, OracleError> {
    let (weight, x) = (sources.get(0)?, sources.get(1)?);
    let [_, _, b2, b3] = weight.dims;
    let mut out = Vec::with_capacity(m * n * c2 * c3);
    for i3 in 0..c3 {
        for i2 in 0..c2 {
            for column in 0..n {
                let x = x.row([column, i2, i3]);
                for row in 0..m {
                    let weight = weight.row([row, i2 * b2 / c2, i3 * b3 / c3]);
                    out.push(weight.iter().zip(x).map(|(a, b)| a * b).sum());
                }
            }
        }
    }
    Ok(out)
}

//! Layer norm and RMS norm of one row.
//!
//! Layer norm: `(x - mean) / sqrt(variance + eps) * weight + bias` with the
//! biased variance (Ba et al., 2016). RMS norm: `x / sqrt(mean(x²) + eps) *
//! weight` (Zhang and Sennrich, 2019). Weight and bias may be missing. The
//! variance is taken in a second pass around the mean, not as a difference of
//! large numbers.

use crate::isa::Isa;
use crate::kernels::rows::{Source, load, store};
use crate::simd::{Kernel, Simd};

/// Layer norm of `src` into `dst`.
///
/// # Panics
/// When the lengths differ.
pub fn layer_norm_row(
    isa: Isa,
    src: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
    dst: &mut [f32],
) {
    norm(isa, Norm { src: Source::row(src), weight, bias, eps, centred: true, dst });
}

/// Layer norm of `row` in place.
///
/// # Panics
/// When the lengths differ.
pub fn layer_norm_row_in_place(
    isa: Isa,
    row: &mut [f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
) {
    norm(isa, Norm { src: Source::Dst, weight, bias, eps, centred: true, dst: row });
}

/// RMS norm of `src` into `dst`.
///
/// # Panics
/// When the lengths differ.
pub fn rms_norm_row(isa: Isa, src: &[f32], weight: Option<&[f32]>, eps: f32, dst: &mut [f32]) {
    norm(isa, Norm { src: Source::row(src), weight, bias: None, eps, centred: false, dst });
}

/// RMS norm of `row` in place.
///
/// # Panics
/// When the lengths differ.
pub fn rms_norm_row_in_place(isa: Isa, row: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    norm(isa, Norm { src: Source::Dst, weight, bias: None, eps, centred: false, dst: row });
}

fn norm(isa: Isa, norm: Norm<'_>) {
    norm.src.check(norm.dst.len());
    for factor in [norm.weight, norm.bias].into_iter().flatten() {
        assert_eq!(factor.len(), norm.dst.len(), "rows of different lengths");
    }
    if !norm.dst.is_empty() {
        isa.run(norm);
    }
}

struct Norm<'a> {
    src: Source<'a>,
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    eps: f32,
    /// Whether the mean is subtracted.
    centred: bool,
    dst: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    type Output = ();

    fn scalar(self) {
        let len = self.dst.len();
        let value = |i, dst: &[f32]| f64::from(self.src.value(i, dst));
        let mut mean = 0.0;
        if self.centred {
            mean = (0..len).map(|i| value(i, self.dst)).sum::<f64>() / len as f64;
        }
        let squares: f64 = (0..len).map(|i| (value(i, self.dst) - mean).powi(2)).sum();
        let factor = 1.0 / (squares / len as f64 + f64::from(self.eps)).sqrt();
        for i in 0..len {
            let normed = ((value(i, self.dst) - mean) * factor) as f32;
            let weight = self.weight.map_or(1.0, |weight| weight[i]);
            let bias = self.bias.map_or(0.0, |bias| bias[i]);
            self.dst[i] = normed * weight + bias;
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let len = self.dst.len();
        let mut mean = 0.0;
        if self.centred {
            let row = match self.src {
                Source::Operand(crate::kernels::rows::Operand::Row(row)) => row,
                _ => &*self.dst,
            };
            mean = s.reduce_add(sum(s, row)) / len as f32;
        }
        let means = s.splat(mean);
        let mut squares = [s.zero(); 2];
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let mut centred = s.sub(self.src.load(s, first, count, self.dst), means);
            if count < S::LANES {
                centred = mask_lanes(s, centred, count);
            }
            squares.swap(0, 1);
            squares[0] = s.mul_add(centred, centred, squares[0]);
        }
        let variance = s.reduce_add(s.add(squares[0], squares[1])) / len as f32;
        let factor = s.splat(1.0 / (variance + self.eps).sqrt());
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let centred = s.sub(self.src.load(s, first, count, self.dst), means);
            let mut value = s.mul(centred, factor);
            if let Some(weight) = self.weight {
                value = s.mul(value, load(s, weight, first, count));
            }
            if let Some(bias) = self.bias {
                value = s.add(value, load(s, bias, first, count));
            }
            store(s, value, self.dst, first, count);
        }
    }
}

/// Zeros in the lanes from `count` on.
#[inline(always)]
fn mask_lanes<S: Simd>(s: S, value: S::F, count: usize) -> S::F {
    let mut lanes = [0.0; crate::simd::MAX_LANES];
    s.store(value, &mut lanes);
    lanes[count..].fill(0.0);
    s.load(&lanes)
}

/// A vector whose lanes add up to the sum of the row.
#[inline(always)]
fn sum<S: Simd>(s: S, row: &[f32]) -> S::F {
    // Several sums in parallel: an addition takes longer than a load.
    let mut sums = [s.zero(); 4];
    let mut blocks = row.chunks_exact(4 * S::LANES);
    for block in blocks.by_ref() {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.add(*sum, s.load(&block[i * S::LANES..]));
        }
    }
    let rest = blocks.remainder();
    for first in (0..rest.len()).step_by(S::LANES) {
        let count = S::LANES.min(rest.len() - first);
        sums[0] = s.add(sums[0], load(s, rest, first, count));
    }
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{AWKWARD_LENGTHS, assert_close, isas, noise};

    fn reference(x: &[f32], w: &[f32], b: &[f32], eps: f32, centred: bool) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let n = x.len() as f64;
        let mean = if centred { x.iter().sum::<f64>() / n } else { 0.0 };
        let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
        let factor = (variance + f64::from(eps)).sqrt();
        let params = w.iter().zip(b).map(|(w, b)| (f64::from(*w), f64::from(*b)));
        x.iter().zip(params).map(|(x, (w, b))| (x - mean) / factor * w + b).collect()
    }

    #[test]
    fn norms_at_awkward_lengths_with_and_without_parameters() {
        for isa in isas() {
            for len in AWKWARD_LENGTHS {
                // A mean far from zero shows a variance computed by difference.
                let x: Vec<f32> = noise(4, len + 1).iter().map(|v| v + 30.0).collect();
                let (w, b) = (noise(5, len), noise(6, len));
                let (ones, zeros) = (vec![1.0; len], vec![0.0; len]);
                let x = &x[1..];
                let mut y = vec![0.0; len];
                let what = format!("{len} at {isa}");
                layer_norm_row(isa, x, Some(&w), Some(&b), 1e-5, &mut y);
                assert_close(&y, &reference(x, &w, &b, 1e-5, true), 2e-5, &what);
                layer_norm_row(isa, x, None, None, 1e-5, &mut y);
                assert_close(&y, &reference(x, &ones, &zeros, 1e-5, true), 2e-5, &what);
                y.copy_from_slice(x);
                layer_norm_row_in_place(isa, &mut y, Some(&w), None, 1e-5);
                assert_close(&y, &reference(x, &w, &zeros, 1e-5, true), 2e-5, &what);
                rms_norm_row(isa, x, Some(&w), 1e-6, &mut y);
                assert_close(&y, &reference(x, &w, &zeros, 1e-6, false), 1e-6, &what);
                y.copy_from_slice(x);
                rms_norm_row_in_place(isa, &mut y, None, 1e-6);
                assert_close(&y, &reference(x, &ones, &zeros, 1e-6, false), 1e-6, &what);
            }
        }
    }

    #[test]
    fn constant_rows_become_the_bias_and_nan_spreads() {
        for isa in isas() {
            let mut y = [0.0; 19];
            layer_norm_row(isa, &[5.0; 19], Some(&[2.0; 19]), Some(&[0.5; 19]), 1e-5, &mut y);
            assert_close(&y, &[0.5; 19], 0.0, "constant");
            let mut x = [1.0; 19];
            x[18] = f32::NAN;
            layer_norm_row(isa, &x, None, None, 1e-5, &mut y);
            assert!(y.iter().all(|v| v.is_nan()));
        }
    }
}

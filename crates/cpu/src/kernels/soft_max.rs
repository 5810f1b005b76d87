//! Softmax of one row.
//!
//! `dst[i] = exp(t[i]) / sum(exp(t))` with `t = src * scale + mask`. Where
//! the mask is -inf the element is hidden: it counts as -inf whatever its
//! value, NaN included. A row that is all -inf gives zeros; a NaN that is not
//! hidden makes the whole row NaN, as does +inf.

use crate::isa::Isa;
use crate::kernels::rows::{AnyRow, Source, load, store};
use crate::simd::{Kernel, Simd, math};

/// Softmax of `src` into `dst`.
///
/// # Panics
/// When the lengths differ.
pub fn soft_max_row(isa: Isa, src: &[f32], scale: f32, mask: Option<AnyRow<'_>>, dst: &mut [f32]) {
    soft_max(isa, SoftMax { src: Source::row(src), scale, mask, dst });
}

/// Softmax of `row` in place.
///
/// # Panics
/// When the lengths differ.
pub fn soft_max_row_in_place(isa: Isa, row: &mut [f32], scale: f32, mask: Option<AnyRow<'_>>) {
    soft_max(isa, SoftMax { src: Source::Dst, scale, mask, dst: row });
}

fn soft_max(isa: Isa, soft_max: SoftMax<'_>) {
    soft_max.src.check(soft_max.dst.len());
    if let Some(mask) = &soft_max.mask {
        assert_eq!(mask.len(), soft_max.dst.len(), "rows of different lengths");
    }
    isa.run(soft_max);
}

struct SoftMax<'a> {
    src: Source<'a>,
    scale: f32,
    mask: Option<AnyRow<'a>>,
    dst: &'a mut [f32],
}

impl Kernel for SoftMax<'_> {
    type Output = ();

    fn scalar(self) {
        let dst = self.dst;
        for i in 0..dst.len() {
            let mask = self.mask.map_or(0.0, |mask| mask.value(i));
            let hidden = mask == f32::NEG_INFINITY;
            let value = self.src.value(i, dst) * self.scale + mask;
            dst[i] = if hidden { f32::NEG_INFINITY } else { value };
        }
        // Subtract the row maximum first; exp overflows f32 above about 88.
        let max = dst.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if nothing_visible(max, dst) {
            dst.fill(0.0);
            return;
        }
        let sum: f64 = dst.iter().map(|t| f64::from(t - max).exp()).sum();
        for value in dst {
            *value = (f64::from(*value - max).exp() / sum) as f32;
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let len = self.dst.len();
        let scale = s.splat(self.scale);
        let hidden = s.splat(f32::NEG_INFINITY);
        let mut max = hidden;
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let mut value = s.mul(self.src.load(s, first, count, self.dst), scale);
            if let Some(mask) = &self.mask {
                let mask = mask.load(s, first, count);
                value = s.select_equal(mask, hidden, hidden, s.add(value, mask));
            }
            store(s, value, self.dst, first, count);
            if count == S::LANES {
                max = s.max(max, value);
            } else {
                let tail = s.load_partial(&self.dst[first..], f32::NEG_INFINITY);
                max = s.max(max, tail);
            }
        }
        let max = s.reduce_max(max);
        if nothing_visible(max, self.dst) {
            self.dst.fill(0.0);
            return;
        }
        let maxima = s.splat(max);
        let mut sum = s.zero();
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            if count == S::LANES {
                let value = math::exp(s, s.sub(s.load(&self.dst[first..]), maxima));
                s.store(value, &mut self.dst[first..]);
                sum = s.add(sum, value);
            } else {
                let tail = s.load_partial(&self.dst[first..], f32::NEG_INFINITY);
                let value = math::exp(s, s.sub(tail, maxima));
                s.store_partial(value, &mut self.dst[first..]);
                sum = s.add(sum, value);
            }
        }
        let factor = s.splat(1.0 / s.reduce_add(sum));
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let value = s.mul(load(s, self.dst, first, count), factor);
            store(s, value, self.dst, first, count);
        }
    }
}

/// Whether a row with this maximum holds nothing but -inf; a NaN may have
/// been lost on the way to the maximum.
pub(crate) fn nothing_visible(max: f32, row: &[f32]) -> bool {
    max == f32::NEG_INFINITY && !row.iter().any(|value| value.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{AWKWARD_LENGTHS, assert_close, isas, noise};
    use half::f16;

    fn reference(x: &[f32], scale: f32, mask: &[f32]) -> Vec<f64> {
        let t: Vec<f64> = x
            .iter()
            .zip(mask)
            .map(|(x, m)| f64::from(*x) * f64::from(scale) + f64::from(*m))
            .collect();
        let max = t.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = t.iter().map(|t| (t - max).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.iter().map(|e| e / sum).collect()
    }

    #[test]
    fn rows_of_awkward_lengths_with_scale_and_mask() {
        for isa in isas() {
            for len in AWKWARD_LENGTHS {
                let x: Vec<f32> = noise(7, len + 1).iter().map(|v| v * 200.0).collect();
                let x = &x[1..];
                let mut mask: Vec<f32> =
                    noise(8, len).iter().map(|v| f16::from_f32(*v).to_f32()).collect();
                for i in (1..len).step_by(3) {
                    mask[i] = f32::NEG_INFINITY;
                }
                let halves: Vec<f16> = mask.iter().map(|v| f16::from_f32(*v)).collect();
                let what = format!("{len} at {isa}");
                let mut y = vec![0.0; len];
                soft_max_row(isa, x, 0.125, None, &mut y);
                assert_close(&y, &reference(x, 0.125, &vec![0.0; len]), 2e-6, &what);
                soft_max_row(isa, x, 0.125, Some(AnyRow::F32(&mask)), &mut y);
                assert_close(&y, &reference(x, 0.125, &mask), 2e-6, &what);
                y.copy_from_slice(x);
                soft_max_row_in_place(isa, &mut y, 0.125, Some(AnyRow::F16(&halves)));
                assert_close(&y, &reference(x, 0.125, &mask), 2e-6, &what);
            }
        }
    }

    #[test]
    fn hidden_rows_are_zero_and_visible_nan_spreads() {
        let inf = f32::INFINITY;
        for isa in isas() {
            for len in [1, 5, 16, 33] {
                let mut y = vec![9.0; len];
                soft_max_row(isa, &vec![-inf; len], 1.0, None, &mut y);
                assert!(y.iter().all(|v| *v == 0.0), "all -inf, {len} at {isa}: {y:?}");
                let mask = vec![-inf; len];
                y.fill(f32::NAN);
                soft_max_row_in_place(isa, &mut y, 1.0, Some(AnyRow::F32(&mask)));
                assert!(y.iter().all(|v| *v == 0.0), "all hidden, {len} at {isa}: {y:?}");
                for at in [0, len - 1] {
                    for others in [0.5, -inf] {
                        let mut x = vec![others; len];
                        x[at] = f32::NAN;
                        soft_max_row(isa, &x, 1.0, None, &mut y);
                        assert!(y.iter().all(|v| v.is_nan()), "{x:?} at {isa}: {y:?}");
                    }
                }
            }
            // A hidden NaN does not reach the others.
            let mut y = [0.0; 2];
            let mask = [0.0, -inf];
            soft_max_row(isa, &[3.0, f32::NAN], 1.0, Some(AnyRow::F32(&mask)), &mut y);
            assert_eq!(y, [1.0, 0.0]);
            soft_max_row(isa, &[1e38, -1e38], 1.0, None, &mut y);
            assert_eq!(y, [1.0, 0.0]);
        }
    }
}

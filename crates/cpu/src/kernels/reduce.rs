//! Numbers from a row: sum and position of the largest value.

use crate::isa::Isa;
use crate::kernels::rows::load;
use crate::simd::{Kernel, Simd};

/// The sum of the row; 0 for an empty one.
pub fn sum_row(isa: Isa, row: &[f32]) -> f32 {
    isa.run(Sum { row })
}

/// Where the largest value stands, the first one of several; NaN is skipped.
/// `None` for a row without numbers.
pub fn arg_max_row(isa: Isa, row: &[f32]) -> Option<usize> {
    let largest = isa.run(Max { row });
    row.iter().position(|value| *value == largest)
}

struct Sum<'a> {
    row: &'a [f32],
}

impl Kernel for Sum<'_> {
    type Output = f32;

    fn scalar(self) -> f32 {
        self.row.iter().map(|value| f64::from(*value)).sum::<f64>() as f32
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) -> f32 {
        s.reduce_add(sum(s, self.row))
    }
}

/// A vector whose lanes add up to the sum of the row.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, row: &[f32]) -> S::F {
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

struct Max<'a> {
    row: &'a [f32],
}

impl Kernel for Max<'_> {
    type Output = f32;

    fn scalar(self) -> f32 {
        self.row.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) -> f32 {
        let mut largest = s.splat(f32::NEG_INFINITY);
        let mut chunks = self.row.chunks_exact(S::LANES);
        for chunk in chunks.by_ref() {
            let values = s.load(chunk);
            largest = s.select_less(largest, values, values, largest);
        }
        let values = s.load_partial(chunks.remainder(), f32::NEG_INFINITY);
        largest = s.select_less(largest, values, values, largest);
        s.reduce_max(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{AWKWARD_LENGTHS, isas, noise};

    #[test]
    fn sums_at_awkward_lengths() {
        for isa in isas() {
            for len in AWKWARD_LENGTHS {
                let row = &noise(3, len + 1)[1..];
                let expected: f64 = row.iter().map(|v| f64::from(*v)).sum();
                let sum = f64::from(sum_row(isa, row));
                assert!((sum - expected).abs() < 1e-5, "{sum} {expected} {len} {isa}");
            }
            assert!(sum_row(isa, &[1.0, f32::NAN, 2.0]).is_nan());
        }
    }

    #[test]
    fn the_first_of_the_largest_values_is_found_wherever_it_stands() {
        for isa in isas() {
            for len in AWKWARD_LENGTHS {
                for at in 0..len {
                    let mut row = vec![-2.0; len];
                    row[at..].fill(3.0);
                    row[0] = if at == 0 { 3.0 } else { f32::NAN };
                    assert_eq!(arg_max_row(isa, &row), Some(at), "{len} {isa}");
                }
            }
            assert_eq!(arg_max_row(isa, &[]), None);
            assert_eq!(arg_max_row(isa, &[f32::NAN; 20]), None);
            assert_eq!(arg_max_row(isa, &[f32::NAN, f32::NEG_INFINITY]), Some(1));
            assert_eq!(arg_max_row(isa, &[1.0, f32::INFINITY]), Some(1));
        }
    }
}

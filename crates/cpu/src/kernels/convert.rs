//! Rows between 32-bit and 16-bit floats.
//!
//! To 16 bits values are rounded to nearest, ties to even; those beyond its
//! range become infinite, and NaN stays NaN. Both directions keep signed
//! zeros and subnormal numbers.

use half::f16;

use crate::isa::Isa;
use crate::simd::{Kernel, Simd};

/// `dst[i] = src[i]`.
///
/// # Panics
/// When the lengths differ.
pub fn f16_to_f32_row(isa: Isa, src: &[f16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len(), "rows of different lengths");
    isa.run(Widen { src, dst });
}

/// `dst[i] = src[i]`, rounded.
///
/// # Panics
/// When the lengths differ.
pub fn f32_to_f16_row(isa: Isa, src: &[f32], dst: &mut [f16]) {
    assert_eq!(src.len(), dst.len(), "rows of different lengths");
    isa.run(Narrow { src, dst });
}

pub(crate) struct Widen<'a> {
    pub src: &'a [f16],
    pub dst: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Output = ();

    fn scalar(self) {
        for (out, value) in self.dst.iter_mut().zip(self.src) {
            *out = value.to_f32();
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let mut src = self.src.chunks_exact(S::LANES);
        let mut dst = self.dst.chunks_exact_mut(S::LANES);
        for (out, values) in dst.by_ref().zip(src.by_ref()) {
            s.store(s.load_f16(values), out);
        }
        s.store_partial(s.load_f16_partial(src.remainder(), f16::ZERO), dst.into_remainder());
    }
}

struct Narrow<'a> {
    src: &'a [f32],
    dst: &'a mut [f16],
}

impl Kernel for Narrow<'_> {
    type Output = ();

    fn scalar(self) {
        for (out, value) in self.dst.iter_mut().zip(self.src) {
            *out = f16::from_f32(*value);
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let mut src = self.src.chunks_exact(S::LANES);
        let mut dst = self.dst.chunks_exact_mut(S::LANES);
        for (out, values) in dst.by_ref().zip(src.by_ref()) {
            s.store_f16(s.load(values), out);
        }
        s.store_f16_partial(s.load_partial(src.remainder(), 0.0), dst.into_remainder());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{AWKWARD_LENGTHS, isas};

    #[test]
    fn every_half_float_survives_the_round_trip() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for isa in isas() {
            let mut wide = vec![0.0; halves.len()];
            f16_to_f32_row(isa, &halves, &mut wide);
            let mut back = vec![f16::ZERO; halves.len()];
            f32_to_f16_row(isa, &wide, &mut back);
            for ((half, wide), back) in halves.iter().zip(&wide).zip(&back) {
                if half.is_nan() {
                    assert!(wide.is_nan() && back.is_nan());
                } else {
                    assert_eq!(half.to_f64(), f64::from(*wide));
                    assert_eq!(half.to_bits(), back.to_bits());
                }
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_large_values_to_infinity() {
        // Neighbouring halves around 1 are 2^-10 apart, the smallest one is 2^-24.
        let cases = [
            (1.0 + 2.0_f32.powi(-11), 0x3c00),
            (1.0 + 3.0 * 2.0_f32.powi(-11), 0x3c02),
            (65519.0, 0x7bff),
            (65520.0, 0x7c00),
            (-1e30, 0xfc00),
            (2.0_f32.powi(-25), 0),
            (1.5 * 2.0_f32.powi(-25), 1),
            (-0.0, 0x8000),
        ];
        let values: Vec<f32> = cases.iter().map(|case| case.0).collect();
        for isa in isas() {
            let mut halves = vec![f16::ZERO; cases.len()];
            f32_to_f16_row(isa, &values, &mut halves);
            for (half, (value, bits)) in halves.iter().zip(cases) {
                assert_eq!(half.to_bits(), bits, "{value} at {isa}");
            }
        }
    }

    #[test]
    fn awkward_lengths_and_addresses() {
        for isa in isas() {
            for len in AWKWARD_LENGTHS {
                for offset in [0, 1, 3] {
                    let src: Vec<f16> =
                        (0..len + offset).map(|i| f16::from_f32(i as f32)).collect();
                    let mut dst = vec![-1.0; len + offset + 1];
                    f16_to_f32_row(isa, &src[offset..], &mut dst[offset..offset + len]);
                    let expected = (offset..offset + len).map(|i| i as f32);
                    assert!(dst[offset..offset + len].iter().copied().eq(expected));
                    assert!(dst[..offset].iter().all(|v| *v == -1.0));
                    assert_eq!(dst[offset + len], -1.0);
                }
            }
        }
    }
}

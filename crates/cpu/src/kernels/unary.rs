//! Functions of one value, element by element.
//!
//! NaN gives NaN everywhere. The scalar level computes in `f64` where the
//! formula loses digits in `f32`; the vector levels stay within the errors
//! that the tests state.

use crate::isa::Isa;
use crate::kernels::rows::{Source, store};
use crate::simd::{Kernel, Simd, math};

/// Which function [`unary_row`] applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// -x
    Neg,
    /// |x|
    Abs,
    /// x²
    Sqr,
    /// √x
    Sqrt,
    /// e^x
    Exp,
    /// Hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// max(x, 0)
    Relu,
    /// x / (1 + e^-x)
    Silu,
    /// x Φ(x), with the error function.
    GeluErf,
    /// The tanh approximation of GELU.
    GeluTanh,
}

impl UnaryOp {
    /// Every function.
    pub const ALL: &'static [UnaryOp] = &[
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Sqr,
        UnaryOp::Sqrt,
        UnaryOp::Exp,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Relu,
        UnaryOp::Silu,
        UnaryOp::GeluErf,
        UnaryOp::GeluTanh,
    ];
}

/// `dst[i] = op(src[i])`.
///
/// # Panics
/// When the lengths differ.
pub fn unary_row(isa: Isa, op: UnaryOp, src: &[f32], dst: &mut [f32]) {
    apply(isa, op, Source::row(src), dst);
}

/// `row[i] = op(row[i])`.
pub fn unary_row_in_place(isa: Isa, op: UnaryOp, row: &mut [f32]) {
    apply(isa, op, Source::Dst, row);
}

/// `dst[i] = src[i] * scale + bias`.
///
/// # Panics
/// When the lengths differ.
pub fn scale_row(isa: Isa, src: &[f32], scale: f32, bias: f32, dst: &mut [f32]) {
    map(isa, Affine { scale, bias }, Source::row(src), dst);
}

/// `row[i] = row[i] * scale + bias`.
pub fn scale_row_in_place(isa: Isa, row: &mut [f32], scale: f32, bias: f32) {
    map(isa, Affine { scale, bias }, Source::Dst, row);
}

fn apply(isa: Isa, op: UnaryOp, src: Source<'_>, dst: &mut [f32]) {
    match op {
        UnaryOp::Neg => map(isa, Neg, src, dst),
        UnaryOp::Abs => map(isa, Abs, src, dst),
        UnaryOp::Sqr => map(isa, Sqr, src, dst),
        UnaryOp::Sqrt => map(isa, Sqrt, src, dst),
        UnaryOp::Exp => map(isa, Exp, src, dst),
        UnaryOp::Tanh => map(isa, Tanh, src, dst),
        UnaryOp::Sigmoid => map(isa, Sigmoid, src, dst),
        UnaryOp::Relu => map(isa, Relu, src, dst),
        UnaryOp::Silu => map(isa, Silu, src, dst),
        UnaryOp::GeluErf => map(isa, GeluErf, src, dst),
        UnaryOp::GeluTanh => map(isa, GeluTanh, src, dst),
    }
}

fn map<M: Map>(isa: Isa, map: M, src: Source<'_>, dst: &mut [f32]) {
    src.check(dst.len());
    isa.run(MapRow { map, src, dst });
}

/// A function of one value, for one and for a vector of them.
pub(crate) trait Map: Copy {
    fn scalar(self, x: f32) -> f32;
    fn simd<S: Simd>(self, s: S, x: S::F) -> S::F;
}

struct MapRow<'a, M> {
    map: M,
    src: Source<'a>,
    dst: &'a mut [f32],
}

impl<M: Map> Kernel for MapRow<'_, M> {
    type Output = ();

    fn scalar(self) {
        for i in 0..self.dst.len() {
            self.dst[i] = self.map.scalar(self.src.value(i, self.dst));
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let len = self.dst.len();
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let x = self.src.load(s, first, count, self.dst);
            store(s, self.map.simd(s, x), self.dst, first, count);
        }
    }
}

#[derive(Clone, Copy)]
struct Affine {
    scale: f32,
    bias: f32,
}

impl Map for Affine {
    fn scalar(self, x: f32) -> f32 {
        x * self.scale + self.bias
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.mul_add(x, s.splat(self.scale), s.splat(self.bias))
    }
}

macro_rules! maps {
    ($($name:ident: |$x:ident| $scalar:expr, |$s:ident, $v:ident| $simd:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            pub(crate) struct $name;

            impl Map for $name {
                fn scalar(self, $x: f32) -> f32 {
                    $scalar
                }

                #[inline(always)]
                fn simd<S: Simd>(self, $s: S, $v: S::F) -> S::F {
                    $simd
                }
            }
        )*
    };
}

maps! {
    Neg: |x| -x, |s, x| s.neg(x);
    Abs: |x| x.abs(), |s, x| s.abs(x);
    Sqr: |x| x * x, |s, x| s.mul(x, x);
    Sqrt: |x| x.sqrt(), |s, x| s.sqrt(x);
    Exp: |x| x.exp(), |s, x| math::exp(s, x);
    Tanh: |x| x.tanh(), |s, x| math::tanh(s, x);
    Sigmoid: |x| sigmoid(x.into()) as f32, |s, x| math::sigmoid(s, x);
    Relu: |x| if x < 0.0 { 0.0 } else { x }, |s, x| s.max(s.zero(), x);
    Silu: |x| x_times(x, sigmoid(x.into())), |s, x| math::silu(s, x);
    GeluErf: |x| x_times(x, normal(x.into())), |s, x| math::gelu_erf(s, x);
    GeluTanh: |x| x_times(x, normal_by_tanh(x.into())), |s, x| math::gelu_tanh(s, x);
}

/// x times a share of it; nothing of infinity is nothing.
fn x_times(x: f32, share: f64) -> f32 {
    if share == 0.0 { -0.0 } else { (f64::from(x) * share) as f32 }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The cumulative normal distribution.
fn normal(x: f64) -> f64 {
    0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn normal_by_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * (1.0 + inner.tanh())
}

/// The error function by its series of positive terms (DLMF 7.6.2).
pub(crate) fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::testing::{AWKWARD_LENGTHS, assert_close, isas};

    /// erf at some points, 20 digits, from an arbitrary-precision calculation.
    #[allow(clippy::excessive_precision)]
    const ERF: [(f64, f64); 7] = [
        (0.0, 0.0),
        (0.01, 0.011_283_415_555_849_616_9),
        (0.5, 0.520_499_877_813_046_537_7),
        (1.0, 0.842_700_792_949_714_869_3),
        (2.0, 0.995_322_265_018_952_734_2),
        (3.0, 0.999_977_909_503_001_414_6),
        (5.5, 0.999_999_999_999_992_642_2),
    ];

    #[test]
    fn the_error_function_matches_known_values() {
        for (x, expected) in ERF {
            assert!((erf(x) - expected).abs() < 1e-15, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
    }

    fn reference(op: UnaryOp, x: f64) -> f64 {
        match op {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Sqr => x * x,
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Exp => x.exp(),
            UnaryOp::Tanh => x.tanh(),
            UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            UnaryOp::Relu => x.max(0.0),
            UnaryOp::Silu => x / (1.0 + (-x).exp()),
            UnaryOp::GeluErf => 0.5 * x * (1.0 + erf(x / 2.0_f64.sqrt())),
            UnaryOp::GeluTanh => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                0.5 * x * (1.0 + u.tanh())
            }
        }
    }

    #[test]
    fn errors_stay_within_what_is_promised() {
        // Absolute error, and that relative to the result, whichever is larger.
        for isa in isas() {
            for &op in UnaryOp::ALL {
                let xs: Vec<f32> = (-40_000..=40_000).map(|i| i as f32 / 4000.0).collect();
                let mut ys = vec![0.0; xs.len()];
                unary_row(isa, op, &xs, &mut ys);
                for (x, y) in xs.iter().zip(&ys) {
                    let expected = reference(op, f64::from(*x));
                    let error = (f64::from(*y) - expected).abs();
                    let (absolute, relative) = match op {
                        UnaryOp::Exp => (0.0, 2.5e-7),
                        UnaryOp::Tanh | UnaryOp::Sigmoid => (3e-7, 0.0),
                        UnaryOp::GeluErf | UnaryOp::GeluTanh | UnaryOp::Silu => (8e-7, 2e-7),
                        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu => (0.0, 0.0),
                        UnaryOp::Sqr | UnaryOp::Sqrt => (0.0, 6e-8),
                    };
                    assert!(
                        error <= f64::max(absolute, relative * expected.abs())
                            || (expected.is_nan() && y.is_nan()),
                        "{op:?}({x}) = {y} at {isa}, expected {expected}, error {error:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn special_values() {
        use UnaryOp::*;
        let inf = f32::INFINITY;
        let cases = [
            (Exp, inf, inf),
            (Exp, -inf, 0.0),
            (Exp, 89.0, inf),
            (Exp, -110.0, 0.0),
            (Exp, 0.0, 1.0),
            (Exp, -0.0, 1.0),
            (Tanh, inf, 1.0),
            (Tanh, -inf, -1.0),
            (Tanh, 1e-30, 1e-30),
            (Sigmoid, inf, 1.0),
            (Sigmoid, -inf, 0.0),
            (Silu, -inf, 0.0),
            (Silu, inf, inf),
            (Silu, -1e30, 0.0),
            (GeluErf, -inf, 0.0),
            (GeluErf, inf, inf),
            (GeluErf, 1e30, 1e30),
            (GeluErf, -1e30, 0.0),
            (GeluTanh, -inf, 0.0),
            (GeluTanh, inf, inf),
            (GeluTanh, 1e30, 1e30),
            (GeluTanh, -1e30, 0.0),
            (Relu, -inf, 0.0),
            (Relu, inf, inf),
            (Sqrt, inf, inf),
            (Sqrt, 0.0, 0.0),
            (Sqr, 1e30, inf),
            (Neg, inf, -inf),
            (Abs, -inf, inf),
            (Abs, -1e-42, 1e-42),
        ];
        for isa in isas() {
            for (op, x, expected) in cases {
                // In a full vector and in a partial one.
                for len in [1, 16] {
                    let mut row = vec![x; len];
                    unary_row_in_place(isa, op, &mut row);
                    for y in row {
                        let close = (y - expected).abs() <= expected.abs() * 2e-7;
                        assert!(y == expected || close, "{op:?}({x}) = {y} at {isa}");
                    }
                }
            }
            for &op in UnaryOp::ALL {
                let mut row = [f32::NAN; 17];
                unary_row_in_place(isa, op, &mut row);
                assert!(row.iter().all(|y| y.is_nan()), "{op:?}(NaN) at {isa}");
            }
            // Subnormal results keep their leading digits.
            let mut row = [-90.0_f32; 3];
            unary_row_in_place(isa, Exp, &mut row);
            assert_close(&row, &[(-90.0_f64).exp(); 3], 2e-45, "exp");
        }
    }

    #[test]
    fn awkward_lengths_and_addresses_in_place_and_not() {
        for isa in isas() {
            for len in AWKWARD_LENGTHS {
                for offset in [0, 1] {
                    let src: Vec<f32> = (0..len + offset).map(|i| i as f32).collect();
                    let mut dst = vec![7.0; len + offset + 1];
                    unary_row(isa, UnaryOp::Sqr, &src[offset..], &mut dst[offset..][..len]);
                    let squares: Vec<f64> =
                        (offset..len + offset).map(|i| (i * i) as f64).collect();
                    assert_close(&dst[offset..][..len], &squares, 0.0, "sqr");
                    assert_eq!(dst[offset + len], 7.0);
                    let mut row = src.clone();
                    scale_row_in_place(isa, &mut row[offset..], 2.0, 0.5);
                    scale_row(isa, &src[offset..], 2.0, 0.5, &mut dst[offset..][..len]);
                    let doubled: Vec<f64> =
                        (offset..len + offset).map(|i| i as f64 * 2.0 + 0.5).collect();
                    assert_close(&row[offset..], &doubled, 0.0, "scale in place");
                    assert_close(&dst[offset..][..len], &doubled, 0.0, "scale");
                }
            }
        }
    }
}

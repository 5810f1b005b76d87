//! Exponential, hyperbolic tangent and error function on vectors.
//!
//! Polynomials and rational functions fitted for these ranges (minimax within
//! rounding). Each function says its error against exact values; NaN gives
//! NaN everywhere, and overflow and underflow end at infinity and zero.

#![allow(
    clippy::approx_constant,
    clippy::excessive_precision,
    reason = "fitted coefficients, not constants that they happen to be near"
)]

use std::f32::consts::LOG2_E;

use super::Simd;

/// `c[0] + c[1] x + c[2] x² + …`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut sum = s.splat(coefficients[N - 1]);
    for &coefficient in coefficients[..N - 1].iter().rev() {
        sum = s.mul_add(sum, x, s.splat(coefficient));
    }
    sum
}

/// e^x; relative error below 2e-7, subnormal results included to their precision.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // ln 2 in two parts; the first has so few bits that n * LN2_HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = s.min(s.splat(90.0), s.max(s.splat(-106.0), x));
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    let r = s.neg_mul_add(n, s.splat(LN2_HIGH), x);
    let r = s.neg_mul_add(n, s.splat(LN2_LOW), r);
    let power = polynomial(
        s,
        r,
        [1.0, 1.0, 0.500_000_005, 0.166_664_16, 0.041_666_353, 0.008_375_126, 0.001_394_111],
    );
    s.scale_pow2(power, n)
}

/// 2^x; relative error below 2e-7, subnormal results included to their precision.
#[inline(always)]
pub(crate) fn exp2<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.min(s.splat(130.0), s.max(s.splat(-152.0), x));
    let n = s.round(x);
    let power = polynomial(
        s,
        s.sub(x, n),
        [
            1.0,
            0.693_147_2,
            0.240_226_5,
            0.055_503_272,
            0.009_618_057,
            0.001_340_043,
            0.000_154_614_45,
        ],
    );
    s.scale_pow2(power, n)
}

/// x P(x²) / Q(x²) below `end`, and the sign of x from there on.
#[inline(always)]
fn odd_rational<S: Simd, const N: usize>(
    s: S,
    x: S::F,
    end: f32,
    numerator: [f32; N],
    denominator: [f32; N],
) -> S::F {
    let clamped = s.min(s.splat(end), s.max(s.splat(-end), x));
    let t = s.mul(clamped, clamped);
    let p = s.mul(clamped, polynomial(s, t, numerator));
    let inner = s.div(p, polynomial(s, t, denominator));
    let inner = s.min(s.splat(1.0), s.max(s.splat(-1.0), inner));
    let inner = s.select_less(x, s.splat(-end), s.splat(-1.0), inner);
    s.select_less(s.splat(end), x, s.splat(1.0), inner)
}

/// Hyperbolic tangent; absolute error below 3e-7.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    odd_rational(
        s,
        x,
        9.0,
        [0.999_999_9, 0.133_732_12, 0.003_486_598_5, 2.047_207e-5, 1.318_449_7e-8],
        [1.0, 0.467_065_1, 0.025_842_045, 3.271_411e-4, 7.702_787e-7],
    )
}

/// Error function; absolute error below 3e-7.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    odd_rational(
        s,
        x,
        4.0,
        [1.128_379, 0.196_240_68, 0.053_466_28, 0.004_003_248_7, 2.880_254_7e-4, 1.974_811_2e-6],
        [1.0, 0.507_244_94, 0.116_472_9, 0.015_443_652, 0.001_216_249_3, 3.747_981_2e-5],
    )
}

/// 1 / (1 + e^-x); absolute error below 3e-7.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(s.splat(1.0), s.add(s.splat(1.0), exp(s, s.neg(x))))
}

/// x sigmoid(x).
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let value = s.div(x, s.add(s.splat(1.0), exp(s, s.neg(x))));
    // From here on the result is below every normal number, and -inf / inf is NaN.
    s.select_less(x, s.splat(-104.0), s.splat(-0.0), value)
}

/// x Φ(x) with the normal distribution Φ; absolute error below 1e-6 for |x| < 8.
#[inline(always)]
pub(crate) fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    let erf = erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2)));
    let value = s.mul(s.mul(x, s.splat(0.5)), s.add(s.splat(1.0), erf));
    // Φ(-5.7) is 6e-9, and -inf * 0 is NaN.
    s.select_less(x, s.splat(-5.7), s.splat(-0.0), value)
}

/// The tanh approximation of GELU (Hendrycks and Gimpel, 2016).
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let x2 = s.mul(x, x);
    let inner = s.mul_add(x2, s.splat(0.044_715 * GELU_TANH_SCALE), s.splat(GELU_TANH_SCALE));
    let tanh = tanh(s, s.mul(x, inner));
    let value = s.mul(s.mul(x, s.splat(0.5)), s.add(s.splat(1.0), tanh));
    // Beyond, the tanh is -1 in f32, and -inf * 0 is NaN.
    s.select_less(x, s.splat(-6.0), s.splat(-0.0), value)
}

/// sqrt(2 / π)
pub(crate) const GELU_TANH_SCALE: f32 = 0.797_884_6;

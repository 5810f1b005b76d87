//! Oracle of the element-wise functions, and the error function that one of them needs.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

use tensoryard_graph::ops::{Unary, UnaryKind};

use super::{OracleError, Sources};

pub(super) fn unary(op: &Unary, sources: Sources<'_>) -> Result<Vec<f64>, OracleError> {
    Ok(sources.get(0)?.data.iter().map(|&x| apply(op.kind, x)).collect())
}

/// The function of one value.
pub(super) fn apply(kind: UnaryKind, x: f64) -> f64 {
    match kind {
        // The limit, where the formula is a product of zero and infinity.
        UnaryKind::Gelu | UnaryKind::GeluErf | UnaryKind::Silu if x == f64::NEG_INFINITY => 0.0,
        UnaryKind::Abs => x.abs(),
        UnaryKind::Exp => x.exp(),
        UnaryKind::Gelu => {
            0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        UnaryKind::GeluErf => {
            // 1 + erf(−t) = erfc(t) keeps its digits where the sum would lose them.
            let t = x / std::f64::consts::SQRT_2;
            0.5 * x * if t < 0.0 { erfc(-t) } else { 1.0 + erf(t) }
        }
        UnaryKind::Neg => -x,
        UnaryKind::Relu => {
            if x > 0.0 || x.is_nan() {
                x
            } else {
                0.0
            }
        }
        UnaryKind::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryKind::Silu => x / (1.0 + (-x).exp()),
        UnaryKind::Sqr => x * x,
        UnaryKind::Sqrt => x.sqrt(),
        UnaryKind::Tanh => x.tanh(),
    }
}

/// Where the series gives way to the continued fraction.
const CHANGE: f64 = 2.5;

/// The error function, to about 15 digits (Abramowitz and Stegun 7.1.6 and 7.1.14).
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < 0.0 {
        return -erf(-x);
    }
    if x > CHANGE {
        return 1.0 - erfc_fraction(x);
    }
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term > sum * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `1 − erf(x)` for x ≥ 0.
fn erfc(x: f64) -> f64 {
    if x > CHANGE { erfc_fraction(x) } else { 1.0 - erf(x) }
}

fn erfc_fraction(x: f64) -> f64 {
    let mut tail = 0.0;
    for n in (1..=60).rev() {
        tail = 0.5 * f64::from(n) / (x + tail);
    }
    (-x * x).exp() / (PI.sqrt() * (x + tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_function_agrees_with_published_values() {
        // NIST Digital Library of Mathematical Functions, table 7.23 and its references.
        let table = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
        ];
        for (x, expected) in table {
            assert!((erf(x) - expected).abs() < 1e-14, "{x}");
            assert!((erf(-x) + expected).abs() < 1e-14, "{x}");
        }
        // erfc(4) = 1.541725790028002e-8.
        assert!((erfc(4.0) / 1.541_725_790_028_002e-8 - 1.0).abs() < 1e-12);
        assert!((erf(CHANGE - 1e-9) - erf(CHANGE + 1e-9)).abs() < 1e-11);
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(f64::INFINITY), 1.0);
    }

    #[test]
    fn known_values_of_the_activations() {
        assert!((apply(UnaryKind::GeluErf, 1.0) - 0.841_344_746_068_542_9).abs() < 1e-14);
        assert!((apply(UnaryKind::Gelu, 1.0) - 0.841_191_990_608_276_5).abs() < 1e-12);
        assert_eq!(apply(UnaryKind::Silu, 0.0), 0.0);
        assert_eq!(apply(UnaryKind::Sigmoid, 0.0), 0.5);
        assert!(apply(UnaryKind::Relu, f64::NAN).is_nan());
    }
}

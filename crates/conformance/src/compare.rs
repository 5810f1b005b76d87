//! Comparison of a device's values with the oracle's, and the one table of tolerances.

use std::fmt;

use tensoryard_graph::DType;

/// How far values may be from the oracle's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Accuracy {
    /// Equal, the sign of zero included; any NaN equals any NaN.
    Exact,
    /// Within the tolerance of the stored type: see [`tolerance`].
    Rounded,
    /// Within tolerances of the case's own, with the reason.
    Loose(Tolerance, &'static str),
}

/// Limits of the two measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Of Σ(a−b)²/Σa², a being the oracle's.
    pub nmse: f64,
    /// Of |a−b|, in units of the largest |a|, or of 1 when that is smaller.
    pub max_abs: f64,
}

/// The tolerances by the type that a result is stored in.
pub fn tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::F16 => Tolerance { nmse: 1e-6, max_abs: 1e-3 },
        DType::BF16 => Tolerance { nmse: 1e-4, max_abs: 1e-2 },
        _ => Tolerance { nmse: 1e-10, max_abs: 2e-5 },
    }
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Σ(a−b)²/Σa² over finite pairs; 0/0 is 0.
    pub nmse: f64,
    /// Largest |a−b| over finite pairs.
    pub max_abs: f64,
    /// Where that is, with both values.
    pub worst: Option<(usize, f64, f64)>,
    /// Largest finite |a|.
    pub scale: f64,
    /// First place where one is NaN and the other is not, or infinities differ.
    pub first_special: Option<(usize, f64, f64)>,
    /// First place where the values are not equal, signs of zero included.
    pub first_unequal: Option<(usize, f64, f64)>,
}

/// Measures how far `actual` is from `expected`, the oracle's values.
///
/// # Panics
/// When the lengths differ.
pub fn compare(expected: &[f64], actual: &[f64]) -> Difference {
    assert_eq!(expected.len(), actual.len());
    let mut found = Difference {
        nmse: 0.0,
        max_abs: 0.0,
        worst: None,
        scale: 0.0,
        first_special: None,
        first_unequal: None,
    };
    let (mut error, mut power) = (0.0, 0.0);
    for (index, (&a, &b)) in expected.iter().zip(actual).enumerate() {
        if a.is_nan() && b.is_nan() {
            continue;
        }
        if a != b || a.is_sign_negative() != b.is_sign_negative() {
            found.first_unequal.get_or_insert((index, a, b));
        }
        if !a.is_finite() || !b.is_finite() {
            if a != b {
                found.first_special.get_or_insert((index, a, b));
            }
            continue;
        }
        let distance = (a - b).abs();
        error += distance * distance;
        power += a * a;
        found.scale = found.scale.max(a.abs());
        if distance > found.max_abs {
            found.max_abs = distance;
            found.worst = Some((index, a, b));
        }
    }
    found.nmse = if error == 0.0 { 0.0 } else { error / power };
    found
}

impl Difference {
    /// The complaint, if the difference is more than is allowed of values stored as `dtype`.
    pub fn judge(&self, accuracy: Accuracy, dtype: DType) -> Option<String> {
        let limits = match accuracy {
            Accuracy::Exact => {
                return self
                    .first_unequal
                    .map(|(at, a, b)| format!("element {at} is {b:e}, wanted exactly {a:e}"));
            }
            Accuracy::Rounded => tolerance(dtype),
            Accuracy::Loose(limits, _) => limits,
        };
        if let Some((at, a, b)) = self.first_special {
            return Some(format!("element {at} is {b:e}, wanted {a:e}"));
        }
        let max_abs = limits.max_abs * self.scale.max(1.0);
        (self.nmse > limits.nmse || self.max_abs > max_abs)
            .then(|| format!("{self}, limits {:e} and {max_abs:e}", limits.nmse))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nmse {:.2e}, max abs {:.2e}", self.nmse, self.max_abs)?;
        if let Some((at, a, b)) = self.worst {
            write!(f, " at {at}: {b:e} for {a:e}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_by_hand() {
        let found = compare(&[3.0, 4.0, f64::NAN], &[3.0, 4.5, f64::NAN]);
        assert_eq!((found.nmse, found.max_abs), (0.25 / 25.0, 0.5));
        assert_eq!(found.worst, Some((1, 4.0, 4.5)));
        assert_eq!(found.first_special, None);
        assert!(found.judge(Accuracy::Rounded, DType::F32).is_some());
        let loose = Tolerance { nmse: 0.1, max_abs: 0.2 };
        assert_eq!(found.judge(Accuracy::Loose(loose, "a test"), DType::F32), None);
    }

    #[test]
    fn nan_infinity_and_the_sign_of_zero() {
        let special = |a: f64, b: f64| compare(&[a], &[b]).judge(Accuracy::Rounded, DType::F32);
        assert!(special(f64::NAN, 1.0).is_some());
        assert!(special(1.0, f64::NAN).is_some());
        assert!(special(f64::INFINITY, f64::NEG_INFINITY).is_some());
        assert!(special(f64::INFINITY, f64::INFINITY).is_none());
        assert!(special(0.0, -0.0).is_none());
        assert!(compare(&[0.0], &[-0.0]).judge(Accuracy::Exact, DType::F32).is_some());
        assert!(compare(&[0.0], &[1e-30]).judge(Accuracy::Rounded, DType::F32).is_some());
    }
}

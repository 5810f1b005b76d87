//! What the tests of the kernels share.

use crate::isa::Isa;

/// Around every vector and tile width.
pub(crate) const AWKWARD_LENGTHS: [usize; 17] =
    [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100, 257];

pub(crate) fn isas() -> Vec<Isa> {
    Isa::available()
}

/// Reproducible values in -1..1.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Compares with a tolerance; NaN equals NaN, and infinities must be equal.
#[track_caller]
pub(crate) fn assert_close(actual: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        let a = f64::from(*a);
        let same = a == *e || (a.is_nan() && e.is_nan());
        assert!(
            same || (a - e).abs() <= tolerance,
            "{what}: element {i} is {a:e}, expected {e:e}, tolerance {tolerance:e}"
        );
    }
}

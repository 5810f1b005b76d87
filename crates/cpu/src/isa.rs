//! Instruction-set levels and the proof that this machine has them.
//!
//! An [`Isa`] is a token: the only way to get one above `scalar` is run-time
//! detection, so holding it proves that the processor executes the
//! instructions of its level. Kernels take an `Isa`, match on it once a call
//! and run generic code compiled for that level; nothing is detected or
//! dispatched per element. The scalar level is always there and is the
//! specification that the others are tested against.

use std::fmt;

use crate::simd::Kernel;
#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};

/// Names of the instruction-set levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust, on every processor.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, on top of [`Level::Avx2`].
    Avx512,
    /// aarch64 with Advanced SIMD.
    Neon,
}

impl Level {
    /// Lower-case name, as in `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy)]
enum Token {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

/// A level that this processor was found to have.
#[derive(Clone, Copy)]
pub struct Isa(Token);

impl Isa {
    /// The level that needs nothing.
    pub fn scalar() -> Self {
        Self(Token::Scalar)
    }

    /// The highest level of this processor.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::scalar())
    }

    /// All levels of this processor, lowest first; the scalar one is always among them.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::scalar()];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(Avx2::detect().map(|token| Self(Token::Avx2(token))));
            levels.extend(Avx512::detect().map(|token| Self(Token::Avx512(token))));
        }
        #[cfg(target_arch = "aarch64")]
        levels.extend(Neon::detect().map(|token| Self(Token::Neon(token))));
        levels
    }

    /// The token of `level`, if this processor has it.
    pub fn of_level(level: Level) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.level() == level)
    }

    /// Which level this is.
    pub fn level(self) -> Level {
        match self.0 {
            Token::Scalar => Level::Scalar,
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(_) => Level::Avx2,
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => Level::Avx512,
            #[cfg(target_arch = "aarch64")]
            Token::Neon(_) => Level::Neon,
        }
    }

    /// Runs a kernel compiled for this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Token::Scalar => kernel.scalar(),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(token) => crate::simd::Simd::enter(token, kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(token) => crate::simd::Simd::enter(token, kernel),
            #[cfg(target_arch = "aarch64")]
            Token::Neon(token) => crate::simd::Simd::enter(token, kernel),
        }
    }
}

impl PartialEq for Isa {
    fn eq(&self, other: &Self) -> bool {
        self.level() == other.level()
    }
}

impl Eq for Isa {}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isa({})", self.level())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level().name())
    }
}

/// Names of the processor's features that kernels here use or will use, for
/// display; empty on architectures without any.
pub fn feature_names() -> Vec<&'static str> {
    macro_rules! detected {
        ($detect:ident: $($name:tt)*) => {
            [$(($name, std::arch::$detect!($name))),*]
                .into_iter()
                .filter_map(|(name, has)| has.then_some(name))
                .collect()
        };
    }
    #[cfg(target_arch = "x86_64")]
    {
        detected!(is_x86_feature_detected: "avx" "avx2" "fma" "f16c" "avxvnni" "avx512f"
            "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16" "avx512fp16")
    }
    #[cfg(target_arch = "aarch64")]
    {
        detected!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "i8mm" "bf16" "sve")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scalar_level_is_always_there_and_the_best_is_last() {
        let levels = Isa::available();
        assert_eq!(levels[0].level(), Level::Scalar);
        assert!(levels.is_sorted_by_key(|isa| isa.level()));
        assert_eq!(levels.last(), Some(&Isa::detect()));
        for isa in levels {
            assert_eq!(Isa::of_level(isa.level()), Some(isa));
        }
    }

    #[test]
    fn a_level_of_another_architecture_is_not_given_out() {
        let foreign = if cfg!(target_arch = "x86_64") { Level::Neon } else { Level::Avx2 };
        assert_eq!(Isa::of_level(foreign), None);
    }

    #[test]
    fn levels_and_displayed_features_agree() {
        let names = feature_names();
        if Isa::of_level(Level::Avx512).is_some() {
            assert!(names.contains(&"avx512f") && names.contains(&"f16c"));
        }
    }
}

//! Vectors of `f32` behind one trait, and how code is compiled for a level.
//!
//! A kernel is written once, generic over [`Simd`], as the `simd` method of a
//! [`Kernel`]. [`Simd::enter`] calls it from a function that has the level's
//! target features; everything below is `#[inline(always)]`, so the
//! intrinsics end up inside that function. A `Simd` value can only come from
//! detection, which is what makes the safe methods safe. No method allocates
//! or looks at the processor again.

use half::f16;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;

use crate::kernels::mat_mul::MatMulTiles;

/// The widest vector of any level, in `f32` lanes.
pub(crate) const MAX_LANES: usize = 16;

/// One computation with its arguments.
pub(crate) trait Kernel {
    type Output;

    /// The specification: plain Rust.
    fn scalar(self) -> Self::Output;

    /// The same for a vector level. Implementations are `#[inline(always)]`.
    fn simd<S: Simd>(self, s: S) -> Self::Output;
}

/// A vector level; the value proves that the processor has it.
pub(crate) trait Simd: Copy + MatMulTiles {
    /// A vector of [`Simd::LANES`] `f32` values.
    type F: Copy;
    const LANES: usize;

    /// Calls `kernel.simd(self)` in a function of its own with the level's features.
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;

    fn splat(self, value: f32) -> Self::F;

    /// Reads `LANES` values.
    ///
    /// # Safety
    /// `src` is valid for reading `LANES` values; no alignment is needed.
    unsafe fn load_ptr(self, src: *const f32) -> Self::F;

    /// Writes `LANES` values.
    ///
    /// # Safety
    /// `dst` is valid for writing `LANES` values; no alignment is needed.
    unsafe fn store_ptr(self, value: Self::F, dst: *mut f32);

    /// Reads `LANES` half floats.
    ///
    /// # Safety
    /// `src` is valid for reading `LANES` values; no alignment is needed.
    unsafe fn load_f16_ptr(self, src: *const f16) -> Self::F;

    /// Writes `LANES` half floats, rounded to nearest, ties to even.
    ///
    /// # Safety
    /// `dst` is valid for writing `LANES` values; no alignment is needed.
    unsafe fn store_f16_ptr(self, value: Self::F, dst: *mut f16);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with one rounding.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b` with one rounding.
    fn neg_mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger one; NaN when `b` is NaN, unspecified when only `a` is.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The smaller one; NaN when `b` is NaN, unspecified when only `a` is.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    fn neg(self, a: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `a < b ? yes : no` per lane; a comparison with NaN is false.
    fn select_less(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// `a == b ? yes : no` per lane; a comparison with NaN is false.
    fn select_equal(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// `value * 2^exponent` for integral exponents from -300 to 300.
    fn scale_pow2(self, value: Self::F, exponent: Self::F) -> Self::F;
    fn reduce_add(self, a: Self::F) -> f32;
    /// The largest lane; with NaN among them unspecified.
    fn reduce_max(self, a: Self::F) -> f32;
    /// Asks for the cache line at `address`, which need not be valid.
    fn prefetch(self, address: *const f32);

    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }

    /// The first `LANES` values of `src`.
    #[inline(always)]
    fn load(self, src: &[f32]) -> Self::F {
        assert!(src.len() >= Self::LANES);
        // SAFETY: the slice holds at least LANES values.
        unsafe { self.load_ptr(src.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: Self::F, dst: &mut [f32]) {
        assert!(dst.len() >= Self::LANES);
        // SAFETY: the slice holds at least LANES values.
        unsafe { self.store_ptr(value, dst.as_mut_ptr()) }
    }

    #[inline(always)]
    fn load_f16(self, src: &[f16]) -> Self::F {
        assert!(src.len() >= Self::LANES);
        // SAFETY: the slice holds at least LANES values.
        unsafe { self.load_f16_ptr(src.as_ptr()) }
    }

    #[inline(always)]
    fn store_f16(self, value: Self::F, dst: &mut [f16]) {
        assert!(dst.len() >= Self::LANES);
        // SAFETY: the slice holds at least LANES values.
        unsafe { self.store_f16_ptr(value, dst.as_mut_ptr()) }
    }

    /// All of `src`, at most `LANES` values; `fill` in the lanes behind.
    #[inline(always)]
    fn load_partial(self, src: &[f32], fill: f32) -> Self::F {
        let mut lanes = [fill; MAX_LANES];
        lanes[..src.len()].copy_from_slice(src);
        self.load(&lanes)
    }

    /// As many lanes as `dst` holds, at most `LANES`.
    #[inline(always)]
    fn store_partial(self, value: Self::F, dst: &mut [f32]) {
        let mut lanes = [0.0; MAX_LANES];
        self.store(value, &mut lanes);
        dst.copy_from_slice(&lanes[..dst.len()]);
    }

    /// All of `src`, at most `LANES` values; `fill` in the lanes behind.
    #[inline(always)]
    fn load_f16_partial(self, src: &[f16], fill: f16) -> Self::F {
        let mut lanes = [fill; MAX_LANES];
        lanes[..src.len()].copy_from_slice(src);
        self.load_f16(&lanes)
    }

    /// As many lanes as `dst` holds, at most `LANES`.
    #[inline(always)]
    fn store_f16_partial(self, value: Self::F, dst: &mut [f16]) {
        let mut lanes = [f16::ZERO; MAX_LANES];
        self.store_f16(value, &mut lanes);
        dst.copy_from_slice(&lanes[..dst.len()]);
    }
}

//! The AVX2 level: vectors of 8, with FMA and F16C.
//!
//! Every `unsafe` block here calls intrinsics. They need AVX2, FMA and F16C,
//! which [`Avx2::detect`] checked before it made the token that each method
//! takes.

use std::arch::x86_64::{
    __m128i, __m256, _CMP_EQ_OQ, _CMP_LT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT,
    _MM_HINT_T0, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_max_ps, _mm_max_ss,
    _mm_movehdup_ps, _mm_movehl_ps, _mm_prefetch, _mm_storeu_si128, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_ps, _mm256_blendv_ps, _mm256_castps256_ps128, _mm256_castsi256_ps,
    _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_cvtps_epi32, _mm256_cvtps_ph, _mm256_div_ps,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_max_ps,
    _mm256_min_ps, _mm256_mul_ps, _mm256_round_ps, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_slli_epi32, _mm256_sqrt_ps, _mm256_srai_epi32, _mm256_storeu_ps, _mm256_sub_epi32,
    _mm256_sub_ps, _mm256_xor_ps,
};

use half::f16;

use super::{Kernel, Simd};

/// Proof that the processor has the AVX2 level.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn enter<K: Kernel>(token: Avx2, kernel: K) -> K::Output {
    kernel.simd(token)
}

macro_rules! ops {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: __m256),*) -> __m256 {
                // SAFETY: the token proves the features that the intrinsic needs.
                unsafe { $intrinsic($($arg),*) }
            }
        )*
    };
}

impl Simd for Avx2 {
    type F = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token proves the features of `enter`.
        unsafe { enter(self, kernel) }
    }

    ops! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        mul_add(a, b, c) = _mm256_fmadd_ps;
        neg_mul_add(a, b, c) = _mm256_fnmadd_ps;
        max(a, b) = _mm256_max_ps;
        min(a, b) = _mm256_min_ps;
        sqrt(a) = _mm256_sqrt_ps;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load_ptr(self, src: *const f32) -> __m256 {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm256_loadu_ps(src) }
    }

    #[inline(always)]
    unsafe fn store_ptr(self, value: __m256, dst: *mut f32) {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm256_storeu_ps(dst, value) }
    }

    #[inline(always)]
    unsafe fn load_f16_ptr(self, src: *const f16) -> __m256 {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(src.cast::<__m128i>())) }
    }

    #[inline(always)]
    unsafe fn store_f16_ptr(self, value: __m256, dst: *mut f16) {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            _mm_storeu_si128(dst.cast::<__m128i>(), halves);
        }
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX))) }
    }

    #[inline(always)]
    fn neg(self, a: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_round_ps::<NEAREST>(a) }
    }

    #[inline(always)]
    fn select_less(self, a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
    }

    #[inline(always)]
    fn select_equal(self, a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b)) }
    }

    #[inline(always)]
    fn scale_pow2(self, value: __m256, exponent: __m256) -> __m256 {
        // Three factors, since one power of two cannot reach the subnormals
        // from a normal value, nor two from the ends of the range.
        // SAFETY: the token proves AVX2.
        unsafe {
            let n = _mm256_cvtps_epi32(exponent);
            let third = _mm256_srai_epi32::<2>(n);
            let half = _mm256_srai_epi32::<1>(_mm256_sub_epi32(n, third));
            let rest = _mm256_sub_epi32(_mm256_sub_epi32(n, third), half);
            let bias = _mm256_set1_epi32(127);
            let pow2 = |e| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(e, bias)));
            let scaled = _mm256_mul_ps(_mm256_mul_ps(value, pow2(rest)), pow2(half));
            _mm256_mul_ps(scaled, pow2(third))
        }
    }

    #[inline(always)]
    fn reduce_add(self, a: __m256) -> f32 {
        // SAFETY: the token proves AVX2.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn reduce_max(self, a: __m256) -> f32 {
        // SAFETY: the token proves AVX2.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
}

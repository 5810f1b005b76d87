//! The AVX-512 level: vectors of 16.
//!
//! Every `unsafe` block here calls intrinsics. They need AVX-512 F, BW, DQ
//! and VL with AVX2, FMA and F16C, which [`Avx512::detect`] checked before it
//! made the token that each method takes.

use std::arch::x86_64::{
    __m256i, __m512, _CMP_EQ_OQ, _CMP_LT_OQ, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT,
    _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_abs_ps,
    _mm512_add_ps, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtph_ps,
    _mm512_cvtps_ph, _mm512_div_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps,
    _mm512_mask_blend_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_reduce_add_ps,
    _mm512_reduce_max_ps, _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_sqrt_ps, _mm512_storeu_ps, _mm512_sub_ps, _mm512_xor_si512,
};

use half::f16;

use super::{Kernel, Simd};

/// Proof that the processor has the AVX-512 level.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        (super::Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Self(()))
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn enter<K: Kernel>(token: Avx512, kernel: K) -> K::Output {
    kernel.simd(token)
}

macro_rules! ops {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: __m512),*) -> __m512 {
                // SAFETY: the token proves the features that the intrinsic needs.
                unsafe { $intrinsic($($arg),*) }
            }
        )*
    };
}

impl Simd for Avx512 {
    type F = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token proves the features of `enter`.
        unsafe { enter(self, kernel) }
    }

    ops! {
        add(a, b) = _mm512_add_ps;
        sub(a, b) = _mm512_sub_ps;
        mul(a, b) = _mm512_mul_ps;
        div(a, b) = _mm512_div_ps;
        mul_add(a, b, c) = _mm512_fmadd_ps;
        neg_mul_add(a, b, c) = _mm512_fnmadd_ps;
        max(a, b) = _mm512_max_ps;
        min(a, b) = _mm512_min_ps;
        sqrt(a) = _mm512_sqrt_ps;
        abs(a) = _mm512_abs_ps;
        scale_pow2(value, exponent) = _mm512_scalef_ps;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load_ptr(self, src: *const f32) -> __m512 {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm512_loadu_ps(src) }
    }

    #[inline(always)]
    unsafe fn store_ptr(self, value: __m512, dst: *mut f32) {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm512_storeu_ps(dst, value) }
    }

    #[inline(always)]
    unsafe fn load_f16_ptr(self, src: *const f16) -> __m512 {
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(src.cast::<__m256i>())) }
    }

    #[inline(always)]
    unsafe fn store_f16_ptr(self, value: __m512, dst: *mut f16) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: the caller vouches for the memory, the token for the features.
        unsafe { _mm256_storeu_si256(dst.cast::<__m256i>(), _mm512_cvtps_ph::<NEAREST>(value)) }
    }

    #[inline(always)]
    fn neg(self, a: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe {
            let sign = _mm512_set1_epi32(i32::MIN);
            _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), sign))
        }
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_roundscale_ps::<NEAREST>(a) }
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes) }
    }

    #[inline(always)]
    fn select_equal(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), no, yes) }
    }

    #[inline(always)]
    fn reduce_add(self, a: __m512) -> f32 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_reduce_add_ps(a) }
    }

    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        // SAFETY: the token proves AVX-512.
        unsafe { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const f32) {
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) }
    }
}

//! The NEON level of aarch64: vectors of 4.
//!
//! Every `unsafe` block here calls intrinsics or converts half floats with
//! one instruction of the base architecture. They need Advanced SIMD, which
//! [`Neon::detect`] checked before it made the token that each method takes.

use std::arch::aarch64::{
    float32x4_t, uint16x4_t, vabsq_f32, vaddq_f32, vaddq_s32, vaddvq_f32, vbslq_f32, vceqq_f32,
    vcltq_f32, vcvtnq_s32_f32, vdivq_f32, vdupq_n_f32, vdupq_n_s32, vfmaq_f32, vfmsq_f32, vld1_u16,
    vld1q_f32, vmaxq_f32, vmaxvq_f32, vminq_f32, vmulq_f32, vnegq_f32, vreinterpretq_f32_s32,
    vrndnq_f32, vshlq_n_s32, vshrq_n_s32, vsqrtq_f32, vst1_u16, vst1q_f32, vsubq_f32, vsubq_s32,
};
use std::arch::asm;

use half::f16;

use super::{Kernel, Simd};

/// Proof that the processor has the NEON level.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

#[inline(never)]
#[target_feature(enable = "neon")]
fn enter<K: Kernel>(token: Neon, kernel: K) -> K::Output {
    kernel.simd(token)
}

macro_rules! ops {
    ($($name:ident($($arg:ident),*) = $intrinsic:ident;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: float32x4_t),*) -> float32x4_t {
                // SAFETY: the token proves NEON.
                unsafe { $intrinsic($($arg),*) }
            }
        )*
    };
}

impl Simd for Neon {
    type F = float32x4_t;
    const LANES: usize = 4;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token proves the features of `enter`.
        unsafe { enter(self, kernel) }
    }

    ops! {
        add(a, b) = vaddq_f32;
        sub(a, b) = vsubq_f32;
        mul(a, b) = vmulq_f32;
        div(a, b) = vdivq_f32;
        max(a, b) = vmaxq_f32;
        min(a, b) = vminq_f32;
        sqrt(a) = vsqrtq_f32;
        abs(a) = vabsq_f32;
        neg(a) = vnegq_f32;
        round(a) = vrndnq_f32;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> float32x4_t {
        // SAFETY: the token proves NEON.
        unsafe { vdupq_n_f32(value) }
    }

    #[inline(always)]
    unsafe fn load_ptr(self, src: *const f32) -> float32x4_t {
        // SAFETY: the caller vouches for the memory, the token for NEON.
        unsafe { vld1q_f32(src) }
    }

    #[inline(always)]
    unsafe fn store_ptr(self, value: float32x4_t, dst: *mut f32) {
        // SAFETY: the caller vouches for the memory, the token for NEON.
        unsafe { vst1q_f32(dst, value) }
    }

    #[inline(always)]
    unsafe fn load_f16_ptr(self, src: *const f16) -> float32x4_t {
        let value: float32x4_t;
        // SAFETY: the caller vouches for the memory, the token for NEON; the
        // instruction belongs to the base architecture and touches registers only.
        unsafe {
            let halves = vld1_u16(src.cast::<u16>());
            asm!(
                "fcvtl {value:v}.4s, {halves:v}.4h",
                value = out(vreg) value,
                halves = in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        value
    }

    #[inline(always)]
    unsafe fn store_f16_ptr(self, value: float32x4_t, dst: *mut f16) {
        let halves: uint16x4_t;
        // SAFETY: as for `load_f16_ptr`.
        unsafe {
            asm!(
                "fcvtn {halves:v}.4h, {value:v}.4s",
                value = in(vreg) value,
                halves = out(vreg) halves,
                options(pure, nomem, nostack, preserves_flags)
            );
            vst1_u16(dst.cast::<u16>(), halves);
        }
    }

    #[inline(always)]
    fn mul_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: the token proves NEON.
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    fn neg_mul_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: the token proves NEON.
        unsafe { vfmsq_f32(c, a, b) }
    }

    #[inline(always)]
    fn select_less(
        self,
        a: float32x4_t,
        b: float32x4_t,
        yes: float32x4_t,
        no: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: the token proves NEON.
        unsafe { vbslq_f32(vcltq_f32(a, b), yes, no) }
    }

    #[inline(always)]
    fn select_equal(
        self,
        a: float32x4_t,
        b: float32x4_t,
        yes: float32x4_t,
        no: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: the token proves NEON.
        unsafe { vbslq_f32(vceqq_f32(a, b), yes, no) }
    }

    #[inline(always)]
    fn scale_pow2(self, value: float32x4_t, exponent: float32x4_t) -> float32x4_t {
        // Three factors, since one power of two cannot reach the subnormals
        // from a normal value, nor two from the ends of the range.
        // SAFETY: the token proves NEON.
        unsafe {
            let n = vcvtnq_s32_f32(exponent);
            let third = vshrq_n_s32::<2>(n);
            let half = vshrq_n_s32::<1>(vsubq_s32(n, third));
            let rest = vsubq_s32(vsubq_s32(n, third), half);
            let bias = vdupq_n_s32(127);
            let pow2 = |e| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(e, bias)));
            let scaled = vmulq_f32(vmulq_f32(value, pow2(rest)), pow2(half));
            vmulq_f32(scaled, pow2(third))
        }
    }

    #[inline(always)]
    fn reduce_add(self, a: float32x4_t) -> f32 {
        // SAFETY: the token proves NEON.
        unsafe { vaddvq_f32(a) }
    }

    #[inline(always)]
    fn reduce_max(self, a: float32x4_t) -> f32 {
        // SAFETY: the token proves NEON.
        unsafe { vmaxvq_f32(a) }
    }

    #[inline(always)]
    fn prefetch(self, _address: *const f32) {}
}

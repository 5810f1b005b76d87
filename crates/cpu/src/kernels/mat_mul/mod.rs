//! Matrix products with weights in panels.
//!
//! `dst[n][m] = sum over k of weight[m][k] * rows[n][k]`, then the
//! [`Epilogue`]. Weights are packed panels ([`crate::pack`]) or plain rows
//! that are packed on the fly; activations are `f32` rows, which may overlap.
//! A register tile computes 32 weight rows for several activation rows at
//! once; few activation rows take tiles that stream the panels and convert
//! half floats in registers. A call computes all of its rows for a range of
//! panels, so callers split work along either side ([`MatMulSplit`]).

mod epilogue;
mod run;
mod split;
#[allow(unsafe_code)]
pub(crate) mod tile;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon;

use std::ops::Range;

use crate::isa::Isa;
use crate::kernels::rows::{AnyRows, Rows};
use crate::pack::{PANEL_ROWS, PanelType, Panels};
use crate::span::DstRows;

pub use epilogue::{Activation, Epilogue, Residual};
pub(crate) use run::pack_f32_panel;
use run::{MatMul, Weights};
pub use split::MatMulSplit;
pub(crate) use tile::MatMulTiles;

/// `f32` elements of scratch that [`mat_mul`] needs for weights of this type.
pub fn mat_mul_scratch_len(panel_type: PanelType, k: usize) -> usize {
    match panel_type {
        PanelType::F32 => 0,
        PanelType::F16 => unpacked_scratch_len(k),
    }
}

/// `f32` elements of scratch that [`mat_mul_unpacked`] needs.
pub fn unpacked_scratch_len(k: usize) -> usize {
    // One panel, and room to align it.
    k * PANEL_ROWS + 16
}

/// Multiplies all of `rows` with the weights of `panels`.
///
/// `dst` is a window of `rows.n()` rows whose columns hold at least those of
/// the panels; bias and residual are indexed like whole rows of the result.
///
/// # Panics
/// When sizes do not match or `scratch` is too short.
pub fn mat_mul(
    isa: Isa,
    weights: &Panels<'_>,
    panels: Range<usize>,
    rows: &Rows<'_>,
    epilogue: &Epilogue<'_>,
    dst: &mut DstRows<'_>,
    scratch: &mut [f32],
) {
    let weights = Weights::Packed(*weights);
    MatMul { isa, weights, panels, rows: *rows, epilogue, dst, scratch }.run();
}

/// As [`mat_mul`], with weights that are plain rows: `weights.n()` rows of
/// the same `k`. Panels are packed one by one into `scratch`.
///
/// # Panics
/// When sizes do not match or `scratch` is too short.
pub fn mat_mul_unpacked(
    isa: Isa,
    weights: &AnyRows<'_>,
    panels: Range<usize>,
    rows: &Rows<'_>,
    epilogue: &Epilogue<'_>,
    dst: &mut DstRows<'_>,
    scratch: &mut [f32],
) {
    let weights = Weights::Rows(*weights);
    MatMul { isa, weights, panels, rows: *rows, epilogue, dst, scratch }.run();
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;

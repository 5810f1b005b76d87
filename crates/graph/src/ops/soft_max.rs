//! Softmax of each row, optionally scaled and masked.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Tensor};

/// `dst = exp(v − max v) / Σ exp(v − max v)` with `v = scale · x + mask`, row by row.
/// A row whose every `v` is −∞ gives zeros.
///
/// x: f32 `[n, rows, …]`, rows without gaps. mask (optional): f32 or f16, rows of n without gaps,
/// its outer dimensions repeat into those of x. dst: f32, the shape of x, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_soft_max_ext")]
pub struct SoftMax {
    /// What each element is multiplied by first.
    pub scale: f32,
}

impl Declare for SoftMax {
    const NAME: &'static str = "soft_max";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("x"), OperandSpec::optional("mask")];
    const MAY_REUSE: &'static [usize] = &[0];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let x = operands.typed(0, &[DType::F32], "f32")?;
        operands.contiguous_rows(0)?;
        if let Some(mask) = operands.optional(1) {
            operands.typed(1, &[DType::F32, DType::F16], "f32 or f16")?;
            operands.contiguous_rows(1)?;
            operands.equal("row lengths", (0, x.shape()[0]), (1, mask.shape()[0]))?;
            operands.repeats(1, &x)?;
        }
        Ok(Layout::contiguous(DType::F32, x.shape())?)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        10.0 * dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("scale", self.scale.into());
    }
}

impl<'g> Tensor<'g> {
    /// Softmax of each row of `scale · self + mask`: see [`SoftMax`].
    ///
    /// self: f32 `[n, rows, …]`; mask: f32 or f16 `[n, …]`. Result: f32, the shape of `self`.
    /// Errors: other types; rows with gaps; a mask that does not repeat into `self`.
    #[track_caller]
    #[must_use]
    pub fn soft_max(self, scale: f32, mask: Option<Tensor<'g>>) -> Self {
        self.builder.apply(Op::from(SoftMax { scale }), &[Some(self), mask], Location::caller())
    }
}

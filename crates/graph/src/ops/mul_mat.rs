//! Matrix product.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands};
use crate::{DType, Layout, Op, OpError, Shape, Tensor};

/// `dst[m, n] = Σ_k weight[k, m] · x[k, n]` for each outer index.
///
/// weight: f32 or f16 `[k, m, b2, b3]`, rows without gaps. x: f32 `[k, n, c2, c3]`, rows without
/// gaps; c2 and c3 are multiples of b2 and b3, and neighbouring matrices of x share one of weight:
/// that of index i2 · b2 / c2. dst: f32 `[m, n, c2, c3]`, contiguous.
/// Sums are taken in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_mul_mat")]
pub struct MulMat;

impl Declare for MulMat {
    const NAME: &'static str = "mul_mat";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("weight"), OperandSpec::required("x")];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let weight = operands.typed(0, &[DType::F32, DType::F16], "f32 or f16")?;
        let x = operands.typed(1, &[DType::F32], "f32")?;
        operands.contiguous_rows(0)?;
        operands.contiguous_rows(1)?;
        let (w, x) = (weight.shape().dims(), x.shape().dims());
        operands.equal("inner sizes", (0, w[0]), (1, x[0]))?;
        let outer = Shape::new(&w[2..])?;
        if !outer.repeats_into(&Shape::new(&x[2..])?) {
            return Err(OpError::Repeat {
                operand: operands.name(0),
                small: weight.shape(),
                large: Shape::new(&x)?,
            });
        }
        Ok(Layout::contiguous(DType::F32, Shape::new(&[w[1], x[1], x[2], x[3]])?)?)
    }

    fn flops(&self, operands: Operands<'_>, dst: &Layout) -> f64 {
        let inner = operands.optional(0).map_or(0, |weight| weight.shape()[0]);
        2.0 * inner as f64 * dst.shape().elements() as f64
    }
}

impl<'g> Tensor<'g> {
    /// Product of this weight with `x`: see [`MulMat`].
    ///
    /// self: f32 or f16 `[k, m, …]`; x: f32 `[k, n, …]`. Result: f32 `[m, n, …]`.
    /// Errors: other types; rows with gaps; inner sizes that differ; outer dimensions that do not repeat.
    #[track_caller]
    #[must_use]
    pub fn mul_mat(self, x: Tensor<'g>) -> Self {
        self.builder.apply(Op::from(MulMat), &[Some(self), Some(x)], Location::caller())
    }
}

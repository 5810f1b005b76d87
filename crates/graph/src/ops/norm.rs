//! Normalisation of each row.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Tensor};

/// `dst = (x − mean) / √(variance + epsilon)`, row by row, the variance being that of the
/// row's population ([Ba, Kiros and Hinton 2016](https://arxiv.org/abs/1607.06450), without gain and bias).
///
/// x: f32, rows without gaps. dst: f32, the shape of x, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_norm")]
pub struct LayerNorm {
    /// Added to the variance.
    pub epsilon: f32,
}

/// `dst = x / √(mean of x² + epsilon)`, row by row
/// ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467), without gain).
///
/// x: f32, rows without gaps. dst: f32, the shape of x, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_rms_norm")]
pub struct RmsNorm {
    /// Added to the mean square.
    pub epsilon: f32,
}

const X: &[OperandSpec] = &[OperandSpec::required("x")];

fn infer_rows(operands: Operands<'_>, epsilon: f32) -> Result<Layout, OpError> {
    let x = operands.typed(0, &[DType::F32], "f32")?;
    operands.contiguous_rows(0)?;
    if !(epsilon >= 0.0 && epsilon.is_finite()) {
        return Err(OpError::Parameter {
            name: "epsilon",
            value: epsilon.to_string(),
            wanted: "a finite number, 0 or more",
        });
    }
    Ok(Layout::contiguous(DType::F32, x.shape())?)
}

impl Declare for LayerNorm {
    const NAME: &'static str = "norm";
    const OPERANDS: &'static [OperandSpec] = X;
    const MAY_REUSE: &'static [usize] = &[0];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        infer_rows(operands, self.epsilon)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        6.0 * dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("epsilon", self.epsilon.into());
    }
}

impl Declare for RmsNorm {
    const NAME: &'static str = "rms_norm";
    const OPERANDS: &'static [OperandSpec] = X;
    const MAY_REUSE: &'static [usize] = &[0];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        infer_rows(operands, self.epsilon)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        3.0 * dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("epsilon", self.epsilon.into());
    }
}

impl Tensor<'_> {
    /// Layer normalisation of each row without gain and bias: see [`LayerNorm`].
    ///
    /// self: f32, rows without gaps. Result: f32, the same shape.
    /// Errors: another type; rows with gaps; an epsilon below 0 or not finite.
    #[track_caller]
    #[must_use]
    pub fn norm(self, epsilon: f32) -> Self {
        self.builder.apply(Op::from(LayerNorm { epsilon }), &[Some(self)], Location::caller())
    }

    /// Root-mean-square normalisation of each row without gain: see [`RmsNorm`].
    ///
    /// self: f32, rows without gaps. Result: f32, the same shape.
    /// Errors: another type; rows with gaps; an epsilon below 0 or not finite.
    #[track_caller]
    #[must_use]
    pub fn rms_norm(self, epsilon: f32) -> Self {
        self.builder.apply(Op::from(RmsNorm { epsilon }), &[Some(self)], Location::caller())
    }
}

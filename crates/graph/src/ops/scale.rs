//! Multiplication by, and addition of, constants.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Tensor};

/// `dst[i] = x[i] · factor + offset`.
///
/// x: f32, any layout. dst: f32, the shape of x, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_scale")]
pub struct Scale {
    /// What each element is multiplied by.
    pub factor: f32,
    /// What is added afterwards.
    pub offset: f32,
}

impl Declare for Scale {
    const NAME: &'static str = "scale";
    const OPERANDS: &'static [OperandSpec] = &[OperandSpec::required("x")];
    const MAY_REUSE: &'static [usize] = &[0];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let x = operands.typed(0, &[DType::F32], "f32")?;
        Ok(Layout::contiguous(DType::F32, x.shape())?)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        2.0 * dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("factor", self.factor.into());
        visit("offset", self.offset.into());
    }
}

impl Tensor<'_> {
    /// `self · factor + offset`, element by element.
    ///
    /// self: f32, any layout. Result: f32, the same shape. Errors: another type.
    #[track_caller]
    #[must_use]
    pub fn scale(self, factor: f32, offset: f32) -> Self {
        let op = Op::from(Scale { factor, offset });
        self.builder.apply(op, &[Some(self)], Location::caller())
    }
}

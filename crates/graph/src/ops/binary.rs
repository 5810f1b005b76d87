//! Element-wise arithmetic of two tensors, the second repeated to the first's shape.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Tensor};

/// Which arithmetic [`Binary`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryKind {
    /// `a + b`
    Add,
    /// `a − b`
    Sub,
    /// `a · b`
    Mul,
    /// `a / b`
    Div,
}

impl BinaryKind {
    /// Every kind.
    pub const ALL: &'static [BinaryKind] =
        &[BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul, BinaryKind::Div];

    /// The field's name of the arithmetic.
    pub fn name(self) -> &'static str {
        match self {
            BinaryKind::Add => "add",
            BinaryKind::Sub => "sub",
            BinaryKind::Mul => "mul",
            BinaryKind::Div => "div",
        }
    }
}

/// `dst[i] = a[i] ∘ b[i mod shape of b]`, dimension by dimension.
///
/// a, b: f32, any layout; each dimension of a is a multiple of b's.
/// dst: f32, the shape of a, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Binary {
    /// The arithmetic.
    pub kind: BinaryKind,
}

impl Declare for Binary {
    const NAME: &'static str = "binary";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("a"), OperandSpec::required("b")];
    const MAY_REUSE: &'static [usize] = &[0, 1];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let a = operands.typed(0, &[DType::F32], "f32")?;
        operands.typed(1, &[DType::F32], "f32")?;
        operands.repeats(1, &a)?;
        Ok(Layout::contiguous(DType::F32, a.shape())?)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("kind", ParameterValue::Word(self.kind.name()));
    }
}

impl<'g> Tensor<'g> {
    /// Element-wise arithmetic with `other` repeated to the shape of `self`.
    ///
    /// self, other: f32, any layout. Result: f32, the shape of `self`.
    /// Errors: other types; a dimension of `self` that is no multiple of `other`'s.
    #[track_caller]
    #[must_use]
    pub fn binary(self, kind: BinaryKind, other: Tensor<'g>) -> Self {
        let op = Op::from(Binary { kind });
        self.builder.apply(op, &[Some(self), Some(other)], Location::caller())
    }

    /// `self + other`: see [`Tensor::binary`].
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_add")]
    #[allow(clippy::should_implement_trait, reason = "operators cannot carry the caller's line")]
    pub fn add(self, other: Tensor<'g>) -> Self {
        self.binary(BinaryKind::Add, other)
    }

    /// `self · other`, element by element: see [`Tensor::binary`].
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_mul")]
    #[allow(clippy::should_implement_trait, reason = "operators cannot carry the caller's line")]
    pub fn mul(self, other: Tensor<'g>) -> Self {
        self.binary(BinaryKind::Mul, other)
    }
}

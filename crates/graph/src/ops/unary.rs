//! Element-wise functions of one tensor.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Tensor};

/// Which function [`Unary`] applies. NaN gives NaN; at −∞, [`UnaryKind::Gelu`],
/// [`UnaryKind::GeluErf`] and [`UnaryKind::Silu`] give 0, their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_unary_op")]
pub enum UnaryKind {
    /// `|x|`
    Abs,
    /// `exp(x)`
    Exp,
    /// `0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, [Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415).
    Gelu,
    /// `0.5·x·(1 + erf(x/√2))`, the exact form that Whisper was trained with.
    GeluErf,
    /// `−x`
    Neg,
    /// `max(x, 0)`
    Relu,
    /// `1/(1 + exp(−x))`
    Sigmoid,
    /// `x/(1 + exp(−x))`
    Silu,
    /// `x²`
    Sqr,
    /// `√x`
    Sqrt,
    /// `tanh(x)`
    Tanh,
}

impl UnaryKind {
    /// Every function.
    pub const ALL: &'static [UnaryKind] = &[
        UnaryKind::Abs,
        UnaryKind::Exp,
        UnaryKind::Gelu,
        UnaryKind::GeluErf,
        UnaryKind::Neg,
        UnaryKind::Relu,
        UnaryKind::Sigmoid,
        UnaryKind::Silu,
        UnaryKind::Sqr,
        UnaryKind::Sqrt,
        UnaryKind::Tanh,
    ];

    /// The field's name of the function.
    pub fn name(self) -> &'static str {
        match self {
            UnaryKind::Abs => "abs",
            UnaryKind::Exp => "exp",
            UnaryKind::Gelu => "gelu",
            UnaryKind::GeluErf => "gelu_erf",
            UnaryKind::Neg => "neg",
            UnaryKind::Relu => "relu",
            UnaryKind::Sigmoid => "sigmoid",
            UnaryKind::Silu => "silu",
            UnaryKind::Sqr => "sqr",
            UnaryKind::Sqrt => "sqrt",
            UnaryKind::Tanh => "tanh",
        }
    }
}

/// `dst[i] = f(x[i])`.
///
/// x: f32, any layout. dst: f32, the shape of x, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_unary")]
pub struct Unary {
    /// The function.
    pub kind: UnaryKind,
}

impl Declare for Unary {
    const NAME: &'static str = "unary";
    const OPERANDS: &'static [OperandSpec] = &[OperandSpec::required("x")];
    const MAY_REUSE: &'static [usize] = &[0];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let x = operands.typed(0, &[DType::F32], "f32")?;
        Ok(Layout::contiguous(DType::F32, x.shape())?)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        let per_element = match self.kind {
            UnaryKind::Abs | UnaryKind::Neg | UnaryKind::Relu | UnaryKind::Sqr => 1.0,
            UnaryKind::Sqrt => 4.0,
            UnaryKind::Exp
            | UnaryKind::Gelu
            | UnaryKind::GeluErf
            | UnaryKind::Sigmoid
            | UnaryKind::Silu
            | UnaryKind::Tanh => 12.0,
        };
        per_element * dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("kind", ParameterValue::Word(self.kind.name()));
    }
}

impl<'g> Tensor<'g> {
    /// Applies an element-wise function: see [`UnaryKind`].
    ///
    /// self: f32, any layout. Result: f32, the same shape.
    /// Errors: another type.
    #[track_caller]
    #[must_use]
    pub fn unary(self, kind: UnaryKind) -> Self {
        self.builder.apply(Op::from(Unary { kind }), &[Some(self)], Location::caller())
    }

    /// [`UnaryKind::GeluErf`] of each element.
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_gelu_erf")]
    pub fn gelu_erf(self) -> Self {
        self.unary(UnaryKind::GeluErf)
    }
}

//! Copies: into a new tensor, or into memory that exists.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Tensor};

const COPYABLE: &[DType] = &[DType::F32, DType::F16];

/// The elements of x in a new contiguous tensor, converted to another type if asked,
/// rounding to nearest, ties to even.
///
/// x: f32 or f16, any layout; i32 only to i32. dst: `dtype`, the shape of x, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_cont")]
pub struct Copy {
    /// Type of the result.
    pub dtype: DType,
}

/// Writes the elements of x over those of base, converting the type as [`struct@Copy`] does.
/// The result is the new version of base.
///
/// x: f32 or f16, any layout. base: f32 or f16, a view of state or of an op's result, with
/// as many elements along each dimension as x.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_cpy")]
pub struct CopyInto;

impl Declare for Copy {
    const NAME: &'static str = "cont";
    const OPERANDS: &'static [OperandSpec] = &[OperandSpec::required("x")];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let x = operands.typed(0, &[DType::F32, DType::F16, DType::I32], "f32, f16 or i32")?;
        let fits = if x.dtype() == DType::I32 {
            self.dtype == DType::I32
        } else {
            COPYABLE.contains(&self.dtype)
        };
        if !fits {
            return Err(OpError::Type {
                operand: "result",
                found: self.dtype,
                wanted: "f32 or f16, or i32 for i32",
            });
        }
        Ok(Layout::contiguous(self.dtype, x.shape())?)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("dtype", ParameterValue::Type(self.dtype));
    }
}

impl Declare for CopyInto {
    const NAME: &'static str = "cpy";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("x"), OperandSpec::required("base")];
    const WRITES: Option<usize> = Some(1);

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let x = operands.typed(0, COPYABLE, "f32 or f16")?;
        let base = operands.typed(1, COPYABLE, "f32 or f16")?;
        let dims = x.shape().dims().into_iter().zip(base.shape().dims());
        for (what, (from, to)) in
            ["rows", "second", "third", "fourth dimensions"].into_iter().zip(dims)
        {
            operands.equal(what, (0, from), (1, to))?;
        }
        Ok(base)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        dst.shape().elements() as f64
    }
}

impl<'g> Tensor<'g> {
    /// The elements in a new contiguous tensor of the same type: see [`struct@Copy`].
    /// Errors: a type other than f32, f16 or i32.
    #[track_caller]
    #[must_use]
    pub fn cont(self) -> Self {
        let dtype = self.layout().dtype();
        self.builder.apply(Op::from(Copy { dtype }), &[Some(self)], Location::caller())
    }

    /// The elements in a new contiguous tensor of type `dtype`: see [`struct@Copy`].
    /// Errors: types between which there is no conversion.
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_cast")]
    pub fn cast(self, dtype: DType) -> Self {
        self.builder.apply(Op::from(Copy { dtype }), &[Some(self)], Location::caller())
    }

    /// Writes the elements over those of `base` and returns its new version: see [`CopyInto`].
    /// Errors: other types or dimensions; a base that is a weight or graph input.
    #[track_caller]
    pub fn copy_into(self, base: Tensor<'g>) -> Self {
        self.builder.apply(Op::from(CopyInto), &[Some(self), Some(base)], Location::caller())
    }
}

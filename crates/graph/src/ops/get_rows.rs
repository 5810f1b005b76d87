//! Row look-up.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands};
use crate::{DType, Layout, Op, OpError, Shape, Tensor};

/// `dst[:, r, b2, b3] = table[:, ids[r, b2, b3], b2, b3]`, converted to f32.
///
/// table: f32 or f16 `[n, rows, b2, b3]`, rows without gaps. ids: i32 `[count, b2, b3]`.
/// dst: f32 `[n, count, b2, b3]`, contiguous. An id outside 0..rows fails the run before
/// anything is written.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_get_rows")]
pub struct GetRows;

impl Declare for GetRows {
    const NAME: &'static str = "get_rows";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("table"), OperandSpec::required("ids")];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let table = operands.typed(0, &[DType::F32, DType::F16], "f32 or f16")?;
        operands.contiguous_rows(0)?;
        let ids = operands.typed(1, &[DType::I32], "i32")?;
        let ([n, _, b2, b3], ids) = (table.shape().dims(), ids.shape().dims());
        operands.equal("batches", (0, b2), (1, ids[1]))?;
        operands.equal("outer batches", (0, b3), (1, ids[2]))?;
        operands.equal("fourth dimensions", (0, 1), (1, ids[3]))?;
        Ok(Layout::contiguous(DType::F32, Shape::new(&[n, ids[0], b2, b3])?)?)
    }

    fn flops(&self, _: Operands<'_>, dst: &Layout) -> f64 {
        dst.shape().elements() as f64
    }
}

impl<'g> Tensor<'g> {
    /// The rows of this table named by `ids`: see [`GetRows`].
    ///
    /// self: f32 or f16 `[n, rows, b2, b3]`; ids: i32 `[count, b2, b3]`. Result: f32 `[n, count, b2, b3]`.
    /// Errors: other types; rows with gaps; batches that differ. At run time: an id outside the table.
    #[track_caller]
    #[must_use]
    pub fn get_rows(self, ids: Tensor<'g>) -> Self {
        self.builder.apply(Op::from(GetRows), &[Some(self), Some(ids)], Location::caller())
    }
}

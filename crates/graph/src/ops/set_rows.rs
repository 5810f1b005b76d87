//! Row writes, the way key-value caches grow.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands};
use crate::{DType, Layout, Op, OpError, Tensor};

/// `base[:, ids[r, b2, b3], b2, b3] = x[:, r, b2, b3]`, converted to the type of base.
/// The result is the new version of base. Where two ids are equal, the later row wins.
///
/// base: f32 or f16 `[n, rows, b2, b3]`, rows without gaps, state or an op's result.
/// x: f32 `[n, count, b2, b3]`, rows without gaps. ids: i32 `[count, c2, c3]`, repeated to the
/// batches. An id outside 0..rows fails the run before anything is written.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_set_rows")]
pub struct SetRows;

impl Declare for SetRows {
    const NAME: &'static str = "set_rows";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("base"), OperandSpec::required("x"), OperandSpec::required("ids")];
    const WRITES: Option<usize> = Some(0);

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let base = operands.typed(0, &[DType::F32, DType::F16], "f32 or f16")?;
        let x = operands.typed(1, &[DType::F32], "f32")?;
        let ids = operands.typed(2, &[DType::I32], "i32")?;
        operands.contiguous_rows(0)?;
        operands.contiguous_rows(1)?;
        let (b, s, i) = (base.shape().dims(), x.shape().dims(), ids.shape().dims());
        operands.equal("row lengths", (0, b[0]), (1, s[0]))?;
        operands.equal("batches", (0, b[2]), (1, s[2]))?;
        operands.equal("outer batches", (0, b[3]), (1, s[3]))?;
        operands.equal("counts of rows", (1, s[1]), (2, i[0]))?;
        let fits = |ids: usize, batches: usize| ids != 0 && batches.is_multiple_of(ids);
        if !fits(i[1], s[2]) || !fits(i[2], s[3]) || i[3] != 1 {
            return Err(OpError::Repeat { operand: "ids", small: ids.shape(), large: x.shape() });
        }
        Ok(base)
    }

    fn flops(&self, operands: Operands<'_>, _: &Layout) -> f64 {
        operands.optional(1).map_or(0.0, |x| x.shape().elements() as f64)
    }
}

impl<'g> Tensor<'g> {
    /// Writes the rows of `x` over the rows `ids` of this tensor and returns its new version:
    /// see [`SetRows`].
    ///
    /// self: f32 or f16 `[n, rows, b2, b3]`; x: f32 `[n, count, b2, b3]`; ids: i32 `[count, c2, c3]`.
    /// Errors: other types; rows with gaps; sizes that differ; a weight or graph input.
    /// At run time: an id outside the rows.
    #[track_caller]
    pub fn set_rows(self, x: Tensor<'g>, ids: Tensor<'g>) -> Self {
        let sources = [Some(self), Some(x), Some(ids)];
        self.builder.apply(Op::from(SetRows), &sources, Location::caller())
    }
}

//! What every op means, in `f64`, one element after the other.
//!
//! Written from the declarations in `tensoryard-graph` and sharing nothing
//! with any kernel. An oracle takes dense values and gives the elements of
//! the result in order; [`Dense`] reads and writes them through layouts. The
//! only rounding is that of the result's storage, and in fused steps the one
//! between the fused ops, so that a fused step gives the very bits that its
//! ops give one by one.

mod attention;
mod binary;
mod conv_1d;
mod copy;
mod dense;
mod get_rows;
mod mul_mat;
mod norm;
mod scale;
mod set_rows;
mod soft_max;
mod step;
mod unary;

use tensoryard_graph::{Layout, Op};

pub use dense::Dense;
pub use step::compute_step;
pub use unary::erf;

/// Why an op has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OracleError {
    /// An id outside the rows of its table.
    IdOutside {
        /// The id.
        id: i64,
        /// Rows of the table.
        rows: usize,
    },
    /// Operands that the op was never declared for.
    Operands(&'static str),
}

impl std::fmt::Display for OracleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OracleError::IdOutside { id, rows } => write!(f, "id {id} is outside 0..{rows}"),
            OracleError::Operands(what) => write!(f, "operands do not fit: {what}"),
        }
    }
}

impl std::error::Error for OracleError {}

/// The operands of an op by number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources<'a>(&'a [Option<Dense>]);

impl<'a> Sources<'a> {
    pub(crate) fn get(self, index: usize) -> Result<&'a Dense, OracleError> {
        self.optional(index).ok_or(OracleError::Operands("a required operand is absent"))
    }

    pub(crate) fn optional(self, index: usize) -> Option<&'a Dense> {
        self.0.get(index).and_then(Option::as_ref)
    }
}

/// The elements of the result of `op`, in order, before they are stored as `dst`. For an op that
/// writes into an operand these are all elements of that operand afterwards.
///
/// # Errors
/// An id outside its table; operands that the op was never declared for.
pub fn compute(op: &Op, sources: &[Option<Dense>], dst: &Layout) -> Result<Vec<f64>, OracleError> {
    let sources = Sources(sources);
    let dims = dst.shape().dims();
    let values = match op {
        Op::View => return Err(OracleError::Operands("a view computes nothing")),
        Op::Attention(op) => attention::attention(op, sources, dims)?,
        Op::Binary(op) => binary::binary(op, sources)?,
        Op::Conv1d(op) => conv_1d::conv_1d(op, sources, dims)?,
        Op::Copy(_) => copy::copy(sources)?,
        Op::CopyInto(_) => copy::copy(sources)?,
        Op::GetRows(_) => get_rows::get_rows(sources, dims)?,
        Op::LayerNorm(op) => norm::layer_norm(op, sources)?,
        Op::MulMat(_) => mul_mat::mul_mat(sources, dims)?,
        Op::RmsNorm(op) => norm::rms_norm(op, sources)?,
        Op::Scale(op) => scale::scale(op, sources)?,
        Op::SetRows(_) => set_rows::set_rows(sources)?,
        Op::SoftMax(op) => soft_max::soft_max(op, sources)?,
        Op::Unary(op) => unary::unary(op, sources)?,
    };
    if values.len() == dst.shape().elements() {
        Ok(values)
    } else {
        Err(OracleError::Operands("the result has another number of elements"))
    }
}

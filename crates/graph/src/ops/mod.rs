//! The ops, each declared once in its own file.
//!
//! A declaration holds the parameters, the operand names, the shape rule, what
//! the op may reuse, what it writes, its cost, its builder method and its
//! documentation. The list at [`ops!`](self) below is the one other place that
//! names an op here; backends match on [`Op`] exhaustively.

mod attention;
mod binary;
mod conv_1d;
mod copy;
mod get_rows;
mod mul_mat;
mod norm;
mod operands;
mod parameter;
mod scale;
mod set_rows;
mod soft_max;
mod unary;

use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

pub use attention::Attention;
pub use binary::{Binary, BinaryKind};
pub use conv_1d::Conv1d;
pub use copy::{Copy, CopyInto};
pub use get_rows::GetRows;
pub use mul_mat::MulMat;
pub use norm::{LayerNorm, RmsNorm};
pub use operands::Operands;
pub use parameter::ParameterValue;
pub use scale::Scale;
pub use set_rows::SetRows;
pub use soft_max::SoftMax;
pub use unary::{Unary, UnaryKind};

use crate::{Layout, OpError};

/// What an op says of one of its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperandSpec {
    /// Name in errors and dumps.
    pub name: &'static str,
    /// Whether it may be absent.
    pub optional: bool,
    /// Whether a weight here draws the op to the weight's device.
    pub attracts: bool,
}

impl OperandSpec {
    /// A required operand that draws the op to a weight's device.
    pub const fn required(name: &'static str) -> Self {
        Self { name, optional: false, attracts: true }
    }

    /// An optional operand that does not influence placement.
    pub const fn optional(name: &'static str) -> Self {
        Self { name, optional: true, attracts: false }
    }
}

/// Estimated work of one op.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Floating-point operations; a multiply and an add count as two.
    pub flops: f64,
    /// Bytes read and written, each operand once.
    pub bytes: f64,
}

/// The declaration of one op: implemented by the struct of its parameters.
pub trait Declare: fmt::Debug {
    /// The field's name of the op.
    const NAME: &'static str;
    /// The operands in order.
    const OPERANDS: &'static [OperandSpec];
    /// Operands whose memory the result may take over when layouts are equal.
    const MAY_REUSE: &'static [usize] = &[];
    /// The operand that the op writes into, if the result is no new tensor.
    const WRITES: Option<usize> = None;

    /// Layout of the result.
    ///
    /// # Errors
    /// Operands that do not fit the op or each other.
    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError>;

    /// Floating-point operations for operands that [`Declare::infer`] accepted.
    fn flops(&self, operands: Operands<'_>, dst: &Layout) -> f64;

    /// Names each parameter with its value, in order; the default has none.
    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        _ = visit;
    }
}

macro_rules! ops {
    ($($variant:ident),* $(,)?) => {
        /// An op with its parameters.
        #[derive(Debug, Clone, std::marker::Copy, PartialEq)]
        #[doc(alias = "ggml_op")]
        #[allow(missing_docs, reason = "each variant is documented at its parameter struct")]
        pub enum Op {
            /// Looks at the memory of another tensor; computes nothing.
            View,
            $($variant($variant),)*
        }

        /// The kind of an [`Op`], without parameters.
        #[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each variant is documented at its parameter struct")]
        pub enum OpKind {
            View,
            $($variant,)*
        }

        impl OpKind {
            /// Every kind.
            pub const ALL: &'static [OpKind] = &[OpKind::View, $(OpKind::$variant,)*];

            /// The field's name of the op.
            pub fn name(self) -> &'static str {
                match self {
                    OpKind::View => "view",
                    $(OpKind::$variant => <$variant as Declare>::NAME,)*
                }
            }

            /// The operands in order.
            pub fn operands(self) -> &'static [OperandSpec] {
                match self {
                    OpKind::View => VIEW_OPERANDS,
                    $(OpKind::$variant => <$variant as Declare>::OPERANDS,)*
                }
            }

            /// Operands whose memory the result may take over when layouts are equal.
            pub fn may_reuse(self) -> &'static [usize] {
                match self {
                    OpKind::View => &[],
                    $(OpKind::$variant => <$variant as Declare>::MAY_REUSE,)*
                }
            }

            /// The operand that the op writes into, if the result is no new tensor.
            pub fn writes(self) -> Option<usize> {
                match self {
                    OpKind::View => None,
                    $(OpKind::$variant => <$variant as Declare>::WRITES,)*
                }
            }
        }

        impl Op {
            /// The kind of the op.
            pub fn kind(&self) -> OpKind {
                match self {
                    Op::View => OpKind::View,
                    $(Op::$variant(_) => OpKind::$variant,)*
                }
            }

            /// Layout of the result. Views take theirs from the builder.
            ///
            /// # Errors
            /// Operands that do not fit the op or each other.
            pub fn infer(&self, layouts: &[Option<Layout>]) -> Result<Layout, OpError> {
                let operands = Operands::new(self.operands(), layouts);
                match self {
                    Op::View => operands.required(0),
                    $(Op::$variant(op) => op.infer(operands),)*
                }
            }

            /// Estimated work for operands that [`Op::infer`] accepted.
            pub fn cost(&self, layouts: &[Option<Layout>], dst: &Layout) -> Cost {
                let operands = Operands::new(self.operands(), layouts);
                let flops = match self {
                    Op::View => return Cost::default(),
                    $(Op::$variant(op) => op.flops(operands, dst),)*
                };
                let read: usize = layouts.iter().flatten().map(Layout::data_bytes).sum();
                Cost { flops, bytes: (read + dst.data_bytes()) as f64 }
            }

            /// Names each parameter with its value, in order.
            pub fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
                match self {
                    Op::View => {}
                    $(Op::$variant(op) => op.describe(visit),)*
                }
            }
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Self {
                Op::$variant(op)
            }
        })*
    };
}

ops! {
    Attention,
    Binary,
    Conv1d,
    Copy,
    CopyInto,
    GetRows,
    LayerNorm,
    MulMat,
    RmsNorm,
    Scale,
    SetRows,
    SoftMax,
    Unary,
}

const VIEW_OPERANDS: &[OperandSpec] = &[OperandSpec::required("base")];

impl Op {
    /// The field's name of the op.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// The operands in order.
    pub fn operands(&self) -> &'static [OperandSpec] {
        self.kind().operands()
    }

    /// Operands whose memory the result may take over when layouts are equal.
    pub fn may_reuse(&self) -> &'static [usize] {
        self.kind().may_reuse()
    }

    /// The operand that the op writes into, if the result is no new tensor.
    pub fn writes(&self) -> Option<usize> {
        self.kind().writes()
    }

    /// Parameters for dumps, as `name=value`; empty when there are none.
    pub fn parameters(&self) -> String {
        parameter::in_words(|visit| self.describe(visit))
    }

    /// Whether the op only looks at memory.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::View)
    }

    pub(crate) fn hash_into(&self, hasher: &mut impl Hasher) {
        // The debug form holds each parameter exactly: floats print shortest round-trip digits.
        struct Feed<'a, H>(&'a mut H);
        impl<H: Hasher> Write for Feed<'_, H> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                text.hash(self.0);
                Ok(())
            }
        }
        _ = write!(Feed(hasher), "{self:?}");
    }
}

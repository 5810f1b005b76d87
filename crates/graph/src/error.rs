//! What a wrong graph is refused with.

use std::panic::Location;

use tensoryard_tensor::{DType, Layout, Shape, TensorError};

/// Why an op cannot be built from its operands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Two sizes that must be equal are not.
    #[error("{what} differ, {left_name} {left}, {right_name} {right}")]
    Sizes {
        /// What the sizes are, in the plural.
        what: &'static str,
        /// Operand of the first size.
        left_name: &'static str,
        /// First size.
        left: usize,
        /// Operand of the second size.
        right_name: &'static str,
        /// Second size.
        right: usize,
    },
    /// A shape that cannot be repeated into another.
    #[error("{operand} {small} does not repeat into {large}")]
    Repeat {
        /// The operand to repeat.
        operand: &'static str,
        /// Its shape.
        small: Shape,
        /// The shape to fill.
        large: Shape,
    },
    /// An operand of a type that the op does not take.
    #[error("{operand} is {found}, wanted {wanted}")]
    Type {
        /// The operand.
        operand: &'static str,
        /// Its type.
        found: DType,
        /// The types that would do.
        wanted: &'static str,
    },
    /// An operand whose layout the op does not take.
    #[error("{operand} is {found}, wanted {wanted}")]
    Layout {
        /// The operand.
        operand: &'static str,
        /// Its layout.
        found: Layout,
        /// What would do.
        wanted: &'static str,
    },
    /// A parameter outside its range.
    #[error("{name} is {value}, wanted {wanted}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its value, printed.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// A view that reaches outside its base.
    #[error("bytes {start}..{end} lie outside the base of {base_bytes} bytes")]
    OutsideBase {
        /// First byte of the view.
        start: usize,
        /// Byte behind the last one.
        end: usize,
        /// Size of the base.
        base_bytes: usize,
    },
    /// A write into memory that the graph may not change.
    #[error("a {0} cannot be written")]
    ReadOnly(&'static str),
    /// A read of memory that a later op has overwritten.
    #[error("version {read} of {root:?} is read after version {current} was written")]
    OldVersion {
        /// Name of the tensor that owns the memory.
        root: String,
        /// The version asked for.
        read: u32,
        /// The version that the memory holds.
        current: u32,
    },
    /// A handle of another builder.
    #[error("{0} belongs to another graph")]
    OtherGraph(&'static str),
    /// Two leaves or outputs of one name.
    #[error("the name is taken")]
    NameTaken,
    /// A shape or layout that cannot exist.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// A graph that cannot be built, with the line of the caller that asked for it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("graph {graph:?}, {location}: {op} {tensor:?}: {error}")]
pub struct GraphError {
    /// Name of the graph.
    pub graph: String,
    /// Name of the op or kind of leaf.
    pub op: &'static str,
    /// Name of the tensor that was to be made, or of its first operand.
    pub tensor: String,
    /// Where the builder was called.
    pub location: &'static Location<'static>,
    /// What is wrong.
    #[source]
    pub error: Box<OpError>,
}

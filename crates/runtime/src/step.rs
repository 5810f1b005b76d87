//! What devices receive: resolved steps.
//!
//! A [`Step`] is an op, or several fused into one, with a destination and
//! sources as places in memory. It knows nothing of graphs, placement or
//! reuse; buffers are bound when the step's program is submitted.

use std::sync::Arc;

use tensoryard_graph::ops::{Conv1d, Declare, MulMat, ParameterValue, UnaryKind};
use tensoryard_graph::{Layout, Op};

use crate::BufferType;

/// A piece of memory that is bound when a program is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// The n-th weight of the plan.
    Weight(u32),
    /// The n-th state tensor of the plan.
    State(u32),
    /// The n-th chunk of the workspace.
    Chunk(u32),
}

/// How a source lies to the destination of its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aliasing {
    /// No byte in common.
    Disjoint,
    /// Same start, same layout, and the op may take the memory over.
    SameAsDst,
}

/// A tensor in memory.
#[derive(Debug, Clone)]
pub struct Operand {
    /// The memory.
    pub region: Region,
    /// Distance in bytes from the start of the region to the first element.
    pub offset_bytes: usize,
    /// Type, shape and strides.
    pub layout: Layout,
    /// The kind of memory; tells, for example, whether a weight is packed.
    pub buffer_type: Arc<dyn BufferType>,
    /// How it lies to the destination.
    pub aliasing: Aliasing,
}

/// The op under an epilogue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MatrixOp {
    /// Matrix product.
    MulMat(MulMat),
    /// Convolution.
    Conv1d(Conv1d),
}

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepOp {
    /// A single op; sources as the op declares them.
    Op(Op),
    /// `norm(x) · weight + bias`. Sources: x, weight `[n]`, bias `[n]`.
    NormAffine {
        /// Added to the variance.
        epsilon: f32,
    },
    /// `residual + activation(matrix(weight, x) + bias)`.
    /// Sources: weight, x, bias `[m]` (optional), residual like dst (optional).
    Matrix {
        /// The product or convolution.
        base: MatrixOp,
        /// Function applied after the bias.
        activation: Option<UnaryKind>,
    },
}

impl StepOp {
    /// Name for reports; fused ops joined by `+`.
    pub fn name(&self) -> &'static str {
        match self {
            StepOp::Op(op) => op.name(),
            StepOp::NormAffine { .. } => "norm+mul+add",
            StepOp::Matrix { base: MatrixOp::MulMat(_), .. } => "mul_mat+epilogue",
            StepOp::Matrix { base: MatrixOp::Conv1d(_), .. } => "conv_1d+epilogue",
        }
    }

    /// Names each parameter with its value, in order.
    pub fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        match self {
            StepOp::Op(op) => op.describe(visit),
            StepOp::NormAffine { epsilon } => visit("epsilon", (*epsilon).into()),
            StepOp::Matrix { base, activation } => {
                match base {
                    MatrixOp::MulMat(op) => op.describe(visit),
                    MatrixOp::Conv1d(op) => op.describe(visit),
                }
                if let Some(kind) = activation {
                    visit("activation", ParameterValue::Word(kind.name()));
                }
            }
        }
    }

    /// Sources whose memory the destination may take over when layouts are equal.
    pub fn may_reuse(&self) -> &'static [usize] {
        match self {
            StepOp::Op(op) => op.may_reuse(),
            StepOp::NormAffine { .. } => &[0],
            StepOp::Matrix { .. } => &[3],
        }
    }
}

/// One resolved step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Name of the tensor that it computes, for reports and errors.
    pub name: String,
    /// What to compute.
    pub op: StepOp,
    /// Where the result goes.
    pub dst: Operand,
    /// The sources; absent optional ones are `None`.
    pub sources: Vec<Option<Operand>>,
}

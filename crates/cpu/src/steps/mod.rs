//! Steps as the CPU runs them: one function for each op, over checked views.
//!
//! Here work is cut into chunks and rows are found; the kernels compute. Every
//! unsafe call makes a view and says why its rows are this member's alone: a
//! chunk is handed out once, chunks of one step never share rows, and the
//! planner marked how sources lie to the destination.

mod attention;
mod chunk;
mod copy;
mod elementwise;
mod index;
mod matrix;
mod rows;

use std::ops::Range;

use tensoryard_graph::ops::{Op, UnaryKind};
use tensoryard_runtime::{MatrixOp, Step, StepOp};

use crate::kernels::rows::Rows;
use crate::kernels::unary::UnaryOp;
use crate::program::Context;
use crate::view::Place;

pub(crate) use matrix::activation_of;

/// Below this many bytes or operations waking the team costs more than it saves.
const SHARED_BYTES: usize = 64 * 1024;
const SHARED_FLOPS: f64 = 100_000.0;

/// Why a step did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The abort signal was given.
    Aborted,
    /// Another member failed, and reports it.
    Elsewhere,
    /// An operand holds a value that the op does not take.
    Value(String),
}

/// A step with its places in memory.
#[derive(Debug)]
pub(crate) struct CpuStep {
    name: String,
    op: StepOp,
    dst: Place,
    sources: Vec<Option<Place>>,
    is_shared: bool,
    scratch_len: usize,
    /// Parts for the team: the number of its members, or 1.
    chunks: usize,
    /// Parts of an element-wise step that are small enough to be done soon.
    small_chunks: usize,
}

impl CpuStep {
    /// Prepares a checked step for a team of `members`. With `share_all` even the smallest step
    /// is shared.
    pub fn new(
        step: &Step,
        dst: Place,
        sources: Vec<Option<Place>>,
        members: usize,
        share_all: bool,
    ) -> Self {
        let mut compiled = Self {
            name: step.name.clone(),
            op: step.op,
            dst,
            sources,
            is_shared: false,
            scratch_len: 0,
            chunks: 1,
            small_chunks: 1,
        };
        let (bytes, flops) = compiled.work();
        let is_large = bytes >= SHARED_BYTES || flops >= SHARED_FLOPS;
        compiled.is_shared = members > 1 && (share_all || is_large);
        compiled.scratch_len = compiled.needed_scratch();
        compiled.chunks = if compiled.is_shared { members } else { 1 };
        compiled.small_chunks =
            compiled.dst.layout.shape().elements().div_ceil(chunk::CHUNK_ELEMENTS);
        compiled
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub fn scratch_len(&self) -> usize {
        self.scratch_len
    }

    /// A source that the op's declaration requires.
    fn source(&self, index: usize) -> &Place {
        match self.optional(index) {
            Some(place) => place,
            None => unreachable!("{:?} was checked to have operand {index}", self.name),
        }
    }

    fn optional(&self, index: usize) -> Option<&Place> {
        self.sources.get(index).and_then(Option::as_ref)
    }

    /// Bytes touched and operations done, roughly.
    fn work(&self) -> (usize, f64) {
        let layouts: Vec<_> =
            self.sources.iter().map(|place| place.as_ref().map(|place| place.layout)).collect();
        let written = self.dst.layout.data_bytes();
        let op = match &self.op {
            StepOp::Op(op) => *op,
            StepOp::NormAffine { .. } => return (2 * written, 0.0),
            StepOp::Matrix { base: MatrixOp::MulMat(op), .. } => Op::MulMat(*op),
            StepOp::Matrix { base: MatrixOp::Conv1d(op), .. } => Op::Conv1d(*op),
        };
        let flops = op.cost(&layouts, &self.dst.layout).flops;
        match op {
            // What counts is the rows that are moved, not the table or the cache.
            Op::GetRows(_) => (2 * written, 0.0),
            Op::SetRows(_) => (self.source(1).layout.data_bytes(), 0.0),
            Op::MulMat(_) | Op::Conv1d(_) | Op::Attention(_) => (0, flops),
            Op::View
            | Op::Binary(_)
            | Op::Copy(_)
            | Op::CopyInto(_)
            | Op::LayerNorm(_)
            | Op::RmsNorm(_)
            | Op::Scale(_)
            | Op::SoftMax(_)
            | Op::Unary(_) => (2 * written, 0.0),
        }
    }

    fn needed_scratch(&self) -> usize {
        let longest_row =
            self.sources.iter().flatten().map(|place| place.layout.shape()[0]).max().unwrap_or(0);
        match &self.op {
            StepOp::NormAffine { .. } => 0,
            StepOp::Matrix { base, .. } => self.matrix_scratch(*base),
            StepOp::Op(op) => match op {
                Op::MulMat(op) => self.matrix_scratch(MatrixOp::MulMat(*op)),
                Op::Conv1d(op) => self.matrix_scratch(MatrixOp::Conv1d(*op)),
                Op::Attention(_) => self.attention_scratch(),
                Op::Binary(_)
                | Op::Unary(_)
                | Op::Scale(_)
                | Op::Copy(_)
                | Op::CopyInto(_)
                | Op::SetRows(_) => 2 * longest_row + self.dst.layout.shape()[0],
                Op::View | Op::GetRows(_) | Op::LayerNorm(_) | Op::RmsNorm(_) | Op::SoftMax(_) => 0,
            },
        }
    }

    /// Runs this member's share of the step.
    pub fn run(&self, context: &mut Context<'_>) -> Result<(), Failure> {
        match &self.op {
            StepOp::NormAffine { epsilon } => self.norm(context, *epsilon, rows::Norm::Affine),
            StepOp::Matrix { base, activation } => self.matrix(context, *base, *activation),
            StepOp::Op(op) => match op {
                Op::View => Ok(()),
                Op::Attention(op) => self.attention(context, op.scale),
                Op::Binary(op) => self.binary(context, op.kind),
                Op::Conv1d(op) => self.matrix(context, MatrixOp::Conv1d(*op), None),
                Op::Copy(_) => self.copy(context, 0),
                Op::CopyInto(_) => self.copy(context, 0),
                Op::GetRows(_) => self.get_rows(context),
                Op::LayerNorm(op) => self.norm(context, op.epsilon, rows::Norm::Layer),
                Op::MulMat(op) => self.matrix(context, MatrixOp::MulMat(*op), None),
                Op::RmsNorm(op) => self.norm(context, op.epsilon, rows::Norm::Rms),
                Op::Scale(op) => self.scale(context, op.factor, op.offset),
                Op::SetRows(_) => self.set_rows(context),
                Op::SoftMax(op) => self.soft_max(context, op.scale),
                Op::Unary(op) => self.unary(context, unary_of(op.kind)),
            },
        }
    }

    /// Calls `work` with ranges that together are `0..total`, each handed out once.
    fn for_ranges(
        &self,
        context: &mut Context<'_>,
        total: usize,
        mut work: impl FnMut(Range<usize>, &mut [f32]),
    ) -> Result<(), Failure> {
        // A few chunks for each member even out what the system takes away from one.
        let for_team = if self.is_shared { 4 * self.chunks } else { 1 };
        let chunks = for_team.max(self.small_chunks).min(total).max(1);
        context.for_chunks(chunks, |chunk, scratch| {
            let range = crate::team::split_even(total, 1, chunks, chunk);
            if !range.is_empty() {
                work(range, scratch);
            }
        })
    }
}

fn unary_of(kind: UnaryKind) -> UnaryOp {
    match kind {
        UnaryKind::Abs => UnaryOp::Abs,
        UnaryKind::Exp => UnaryOp::Exp,
        UnaryKind::Gelu => UnaryOp::GeluTanh,
        UnaryKind::GeluErf => UnaryOp::GeluErf,
        UnaryKind::Neg => UnaryOp::Neg,
        UnaryKind::Relu => UnaryOp::Relu,
        UnaryKind::Sigmoid => UnaryOp::Sigmoid,
        UnaryKind::Silu => UnaryOp::Silu,
        UnaryKind::Sqr => UnaryOp::Sqr,
        UnaryKind::Sqrt => UnaryOp::Sqrt,
        UnaryKind::Tanh => UnaryOp::Tanh,
    }
}

/// Rows of a checked operand as the kernels take them.
fn rows_of<T>(data: &[T], stride: usize, n: usize, k: usize) -> Rows<'_, T> {
    match Rows::new(data, stride, n, k) {
        Some(rows) => rows,
        None => unreachable!("{n} rows of {k} at {stride} in {}, as the layout says", data.len()),
    }
}

//! Matrix products and convolutions, with what is fused behind them.
//!
//! A convolution over channel-fastest frames is a product with overlapping
//! rows: the window of each output frame is one run of memory. Only windows
//! that reach beyond the ends are put together in scratch memory.
#![allow(unsafe_code)]

use std::ops::Range;

use half::f16;
use tensoryard_graph::Op;
use tensoryard_graph::ops::{Conv1d, UnaryKind};
use tensoryard_runtime::{MatrixOp, StepOp};

use super::{CpuStep, Failure, chunk, rows_of};
use crate::Isa;
use crate::kernels::mat_mul::{
    Activation, Epilogue, MatMulSplit, Residual, mat_mul, mat_mul_scratch_len, mat_mul_unpacked,
    unpacked_scratch_len,
};
use crate::kernels::rows::{AnyRows, Rows};
use crate::pack::{PANEL_ROWS, Panels};
use crate::program::Context;
use crate::span::DstRows;
use crate::view::{Place, SrcView, Stored, panels};

/// Operands of a fused matrix step.
const WEIGHT: usize = 0;
const X: usize = 1;
const BIAS: usize = 2;
const RESIDUAL: usize = 3;

/// The activation that the matrix kernels can apply themselves.
pub(crate) fn activation_of(kind: UnaryKind) -> Option<Activation> {
    match kind {
        UnaryKind::Gelu => Some(Activation::GeluTanh),
        UnaryKind::GeluErf => Some(Activation::GeluErf),
        UnaryKind::Relu => Some(Activation::Relu),
        UnaryKind::Silu => Some(Activation::Silu),
        UnaryKind::Abs
        | UnaryKind::Exp
        | UnaryKind::Neg
        | UnaryKind::Sigmoid
        | UnaryKind::Sqr
        | UnaryKind::Sqrt
        | UnaryKind::Tanh => None,
    }
}

/// Weight rows in either form.
#[derive(Clone, Copy)]
enum Weight<'a> {
    Packed(Panels<'a>),
    Plain(AnyRows<'a>),
}

/// One product: the rows of one outer index.
struct Product<'a> {
    weight: Weight<'a>,
    /// Sizes of the result: weight rows and activation rows.
    m: usize,
    n: usize,
    epilogue: Epilogue<'a>,
    /// First element of the result, rows of `m` elements one after the other.
    dst: *mut f32,
}

impl CpuStep {
    pub(super) fn matrix_scratch(&self, base: MatrixOp) -> usize {
        let (weight, _) = (self.source(WEIGHT), self.source(X));
        let k = match base {
            MatrixOp::MulMat(_) => weight.layout.shape()[0],
            MatrixOp::Conv1d(_) => weight.layout.shape()[0] * weight.layout.shape()[1],
        };
        let product = match weight.packed {
            Some(matrix) => mat_mul_scratch_len(matrix.panel_type, k),
            None => unpacked_scratch_len(k),
        };
        // A convolution puts the windows at the ends together behind that.
        product + k
    }

    pub(super) fn matrix(
        &self,
        context: &mut Context<'_>,
        base: MatrixOp,
        activation: Option<UnaryKind>,
    ) -> Result<(), Failure> {
        let [_, n, d2, d3] = self.dst.layout.shape().dims();
        let x = self.source(X);
        // SAFETY: the region was checked for this place; only the residual may be the destination.
        let x_view = unsafe { SrcView::new(context.bases[x.region], x) };
        let activation = activation.and_then(activation_of);
        match base {
            MatrixOp::Conv1d(conv) => {
                for batch in 0..d2 {
                    let product = self.product(context, [batch, 0], n, activation);
                    self.convolution(context, conv, &product, x_view.matrix([batch, 0]))?;
                    self.next_product(context)?;
                }
                Ok(())
            }
            MatrixOp::MulMat(_) => {
                let k = x.layout.shape()[0];
                // Rows at one distance throughout are one product when there is one weight.
                let one_weight = self.source(WEIGHT).layout.shape().dims()[2..] == [1, 1];
                let [_, s1, s2, s3] = x.layout.strides();
                let even = (d2 == 1 || s2 == n * s1) && (d3 == 1 || s3 == d2 * s2);
                if one_weight && even && n > 0 {
                    let flat = x_view.flattened::<f32>();
                    let stride = x_view.row_stride::<f32>();
                    let rows = rows_of(flat, stride, n * d2 * d3, k);
                    let product = self.product(context, [0, 0], n * d2 * d3, activation);
                    return self.multiply(context, &product, &rows);
                }
                for outer in 0..d2 * d3 {
                    let at = [outer % d2, outer / d2];
                    let rows = rows_of(x_view.matrix(at), x_view.row_stride::<f32>(), n, k);
                    let product = self.product(context, at, n, activation);
                    self.multiply(context, &product, &rows)?;
                    self.next_product(context)?;
                }
                Ok(())
            }
        }
    }

    /// Between two products of one step the chunks are counted anew: everybody must have seen
    /// the end of the first, and the reset.
    pub(super) fn next_product(&self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Some(counter) = context.counter else { return Ok(()) };
        // A barrier fails when another member did, which that member reports.
        context.member.barrier().map_err(|_| Failure::Elsewhere)?;
        if context.member.index() == 0 {
            counter.reset();
        }
        context.member.barrier().map_err(|_| Failure::Elsewhere)
    }

    fn product<'a>(
        &'a self,
        context: &Context<'_>,
        outer: [usize; 2],
        n: usize,
        activation: Option<Activation>,
    ) -> Product<'a> {
        let m = self.dst.layout.shape()[0];
        let view = |place: &'a Place| {
            // SAFETY: the region was checked for this place; bias and a residual that is read
            // through a view are disjoint from the destination.
            unsafe { SrcView::new(context.bases[place.region], place) }
        };
        let residual = match self.optional(RESIDUAL) {
            None => Residual::None,
            Some(place) if place.is_dst() => Residual::InPlace,
            Some(place) => {
                let [_, rows, d2, _] = place.layout.shape().dims();
                let first = (outer[0] + outer[1] * d2) * rows * m;
                let all = view(place).all::<f32>();
                Residual::Rows(rows_of(&all[first..], m, n, m))
            }
        };
        let bias = self.optional(BIAS).map(|place| view(place).all::<f32>());
        let offset = self.dst.offset_bytes + self.dst.layout.row_offset([0, outer[0], outer[1]]);
        Product {
            weight: self.weight(context, outer, m),
            m,
            n,
            epilogue: Epilogue { scale: 1.0, bias, activation, residual },
            dst: context.bases[self.dst.region].0.wrapping_add(offset).cast(),
        }
    }

    /// The weight of an outer index of the result, repeated as the op says.
    fn weight<'a>(&'a self, context: &Context<'_>, outer: [usize; 2], m: usize) -> Weight<'a> {
        let place = self.source(WEIGHT);
        let base = context.bases[place.region];
        // SAFETY: the region was checked for this place; weights are disjoint from the destination.
        if let Some(panels) = unsafe { panels(base, place) } {
            return Weight::Packed(panels);
        }
        // SAFETY: as above.
        let view = unsafe { SrcView::new(base, place) };
        let [d0, d1, d2, d3] = place.layout.shape().dims();
        let (k, stride, outer) = if self.is_conv() {
            (d0 * d1, d0 * d1, None)
        } else {
            let [_, _, c2, c3] = self.dst.layout.shape().dims();
            let at = [outer[0] / (c2 / d2).max(1), outer[1] / (c3 / d3).max(1)];
            (d0, place.layout.strides()[1] / place.layout.dtype().block_bytes(), Some(at))
        };
        let rows = match place.stored {
            Stored::F16 => {
                let data = outer.map_or_else(|| view.all::<f16>(), |at| view.matrix(at));
                AnyRows::F16(rows_of(data, stride, m, k))
            }
            Stored::F32 => {
                let data = outer.map_or_else(|| view.all::<f32>(), |at| view.matrix(at));
                AnyRows::F32(rows_of(data, stride, m, k))
            }
            Stored::I32 => unreachable!("the shape rule takes float weights only"),
        };
        Weight::Plain(rows)
    }

    fn is_conv(&self) -> bool {
        matches!(
            self.op,
            StepOp::Op(Op::Conv1d(_)) | StepOp::Matrix { base: MatrixOp::Conv1d(_), .. }
        )
    }

    fn split(&self, isa: Isa, product: &Product<'_>, k: usize) -> MatMulSplit {
        let element_bytes = match product.weight {
            Weight::Packed(panels) => panels.panel_type().element_bytes(),
            Weight::Plain(AnyRows::F16(_)) => size_of::<f16>(),
            Weight::Plain(AnyRows::F32(_)) => size_of::<f32>(),
        };
        let small = chunk::mat_mul_chunks(isa, [product.m, product.n, k], element_bytes);
        // A multiple, so that all members have done as much at the end.
        let parts = small.next_multiple_of(self.chunks);
        MatMulSplit::new(product.n, product.m.div_ceil(PANEL_ROWS), self.chunks)
            .finer(chunk::block_rows(k), parts)
    }

    fn multiply(
        &self,
        context: &mut Context<'_>,
        product: &Product<'_>,
        rows: &Rows<'_>,
    ) -> Result<(), Failure> {
        let isa = context.isa;
        let split = self.split(isa, product, rows.k());
        context.for_chunks(split.chunks(), |index, scratch| {
            let (n, panel_range) = split.chunk(index);
            product.part(isa, n.clone(), panel_range, &rows.slice(n), scratch);
        })
    }

    fn convolution(
        &self,
        context: &mut Context<'_>,
        conv: Conv1d,
        product: &Product<'_>,
        x: &[f32],
    ) -> Result<(), Failure> {
        let [channels, kernel, ..] = self.source(WEIGHT).layout.shape().dims();
        let frames = self.source(X).layout.shape()[1];
        let (stride, padding) = (conv.stride as usize, conv.padding as usize);
        let k = channels * kernel;
        // Windows from `inner.start` to `inner.end` lie wholly inside the frames.
        let start = padding.div_ceil(stride).min(product.n);
        let end = if frames + padding >= kernel {
            ((frames + padding - kernel) / stride + 1).clamp(start, product.n)
        } else {
            start
        };
        let inner = start..end;
        let isa = context.isa;
        let split = self.split(isa, product, k);
        context.for_chunks(split.chunks(), |index, scratch| {
            let (n, panel_range) = split.chunk(index);
            let (window, scratch) = scratch.split_at_mut(k);
            for frame in n.clone().filter(|frame| !inner.contains(frame)) {
                window.fill(0.0);
                let first = frame * stride;
                for tap in 0..kernel {
                    let Some(source) = (first + tap).checked_sub(padding) else { continue };
                    if source < frames {
                        window[tap * channels..][..channels]
                            .copy_from_slice(&x[source * channels..][..channels]);
                    }
                }
                let rows = rows_of(window, k, 1, k);
                product.part(isa, frame..frame + 1, panel_range.clone(), &rows, scratch);
            }
            let whole = n.start.max(inner.start)..n.end.min(inner.end);
            if !whole.is_empty() {
                let first = (whole.start * stride - padding) * channels;
                let rows = rows_of(&x[first..], stride * channels, whole.len(), k);
                product.part(isa, whole, panel_range, &rows, scratch);
            }
        })
    }
}

impl Product<'_> {
    /// Computes the columns of `panels` of the result rows `n`.
    fn part(
        &self,
        isa: Isa,
        n: Range<usize>,
        panel_range: Range<usize>,
        rows: &Rows<'_>,
        scratch: &mut [f32],
    ) {
        let columns = panel_range.start * PANEL_ROWS..self.m.min(panel_range.end * PANEL_ROWS);
        if n.is_empty() || columns.is_empty() {
            return;
        }
        let first = self.dst.wrapping_add(n.start * self.m);
        // SAFETY: `first` is row n.start of the result, inside the checked destination. Chunks
        // are handed out once and share no rectangle of rows and columns; the residual is either
        // this very rectangle, read by its only writer, or disjoint.
        let mut dst = unsafe { DstRows::from_raw(first, self.m, n.len(), columns) };
        let residual = match self.epilogue.residual {
            Residual::Rows(rows) => Residual::Rows(rows.slice(n)),
            other => other,
        };
        let epilogue = Epilogue { residual, ..self.epilogue };
        match &self.weight {
            Weight::Packed(panels) => {
                mat_mul(isa, panels, panel_range, rows, &epilogue, &mut dst, scratch);
            }
            Weight::Plain(weight) => {
                mat_mul_unpacked(isa, weight, panel_range, rows, &epilogue, &mut dst, scratch);
            }
        }
    }
}

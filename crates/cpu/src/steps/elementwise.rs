//! Element-wise steps: arithmetic with broadcasting, functions, scaling.
#![allow(unsafe_code)]

use tensoryard_graph::ops::BinaryKind;

use super::{CpuStep, Failure};
use crate::kernels::elementwise::{
    BinaryOp, binary_row, binary_row_in_place, binary_row_in_place_right, binary_row_with_itself,
};
use crate::kernels::rows::Operand;
use crate::kernels::unary::{
    UnaryOp, scale_row, scale_row_in_place, unary_row, unary_row_in_place,
};
use crate::program::Context;
use crate::view::{DstView, Place, SrcView};

/// Row of a repeated operand that belongs to row `row` of the result.
fn repeated_row(dst: &Place, src: &Place, row: usize) -> usize {
    let [_, d1, d2, _] = dst.layout.shape().dims();
    let [_, s1, s2, s3] = src.layout.shape().dims();
    let (i1, i2, i3) = (row % d1, row / d1 % d2, row / d1 / d2);
    i1 % s1 + s1 * (i2 % s2 + s2 * (i3 % s3))
}

impl CpuStep {
    /// Views of source `index`; `None` where it is the destination itself.
    fn source_view<'a>(&'a self, context: &Context<'_>, index: usize) -> Option<SrcView<'a>> {
        let place = self.source(index);
        if place.is_dst() {
            return None;
        }
        // SAFETY: the region was checked for this place; the planner found the source disjoint
        // from the destination, which is all that this step writes.
        Some(unsafe { SrcView::new(context.bases[place.region], place) })
    }

    pub(super) fn binary(
        &self,
        context: &mut Context<'_>,
        kind: BinaryKind,
    ) -> Result<(), Failure> {
        let op = match kind {
            BinaryKind::Add => BinaryOp::Add,
            BinaryKind::Sub => BinaryOp::Sub,
            BinaryKind::Mul => BinaryOp::Mul,
            BinaryKind::Div => BinaryOp::Div,
        };
        let (a, b) = (self.source_view(context, 0), self.source_view(context, 1));
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        let n = self.dst.layout.shape()[0];
        let n_b = self.source(1).layout.shape()[0];
        self.for_ranges(context, self.dst.rows(), |rows, scratch| {
            // SAFETY: the range is handed out once, and sources are disjoint or read in place.
            let mut dst = unsafe { DstView::new(base, &self.dst, rows) };
            let (scratch_a, scratch_b) = scratch.split_at_mut(n);
            for row in dst.rows() {
                let out = dst.row_mut::<f32>(row);
                let a_row = a.map(|a| a.row_f32(isa, row, scratch_a));
                let b_row = b.map(|b| {
                    b.row_f32(isa, repeated_row(&self.dst, self.source(1), row), scratch_b)
                });
                match (a_row, b_row) {
                    (None, None) => binary_row_with_itself(isa, op, out),
                    (Some(a), None) => binary_row_in_place_right(isa, op, Operand::Row(a), out),
                    (None, Some(b)) => for_repeats(n, n_b, b, |range, b| {
                        binary_row_in_place(isa, op, &mut out[range], b);
                    }),
                    (Some(a), Some(b)) => for_repeats(n, n_b, b, |range, b| {
                        let a = Operand::Row(&a[range.clone()]);
                        binary_row(isa, op, a, b, &mut out[range]);
                    }),
                }
            }
        })
    }

    pub(super) fn unary(&self, context: &mut Context<'_>, op: UnaryOp) -> Result<(), Failure> {
        let isa = context.isa;
        self.map_rows(
            context,
            |src, dst| unary_row(isa, op, src, dst),
            |row| unary_row_in_place(isa, op, row),
        )
    }

    pub(super) fn scale(
        &self,
        context: &mut Context<'_>,
        factor: f32,
        offset: f32,
    ) -> Result<(), Failure> {
        let isa = context.isa;
        self.map_rows(
            context,
            |src, dst| scale_row(isa, src, factor, offset, dst),
            |row| scale_row_in_place(isa, row, factor, offset),
        )
    }

    /// Applies a function of one row to every row of the only source.
    fn map_rows(
        &self,
        context: &mut Context<'_>,
        apart: impl Fn(&[f32], &mut [f32]),
        in_place: impl Fn(&mut [f32]),
    ) -> Result<(), Failure> {
        let src = self.source_view(context, 0);
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        self.for_ranges(context, self.dst.rows(), |rows, scratch| {
            // SAFETY: the range is handed out once, and the source is disjoint or read in place.
            let mut dst = unsafe { DstView::new(base, &self.dst, rows) };
            for row in dst.rows() {
                match src {
                    Some(src) => apart(src.row_f32(isa, row, scratch), dst.row_mut(row)),
                    None => in_place(dst.row_mut(row)),
                }
            }
        })
    }
}

/// Calls `apply` for each repetition of a row of `n_b` elements in one of `n`.
fn for_repeats<'b>(
    n: usize,
    n_b: usize,
    b: &'b [f32],
    mut apply: impl FnMut(std::ops::Range<usize>, Operand<'b>),
) {
    if n_b == 1 && n > 0 {
        return apply(0..n, Operand::Scalar(b[0]));
    }
    for start in (0..n).step_by(n_b.max(1)) {
        apply(start..start + n_b, Operand::Row(b));
    }
}

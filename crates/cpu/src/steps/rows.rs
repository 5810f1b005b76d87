//! Steps that need a whole row at once: normalisation and softmax.
#![allow(unsafe_code)]

use half::f16;

use super::{CpuStep, Failure};
use crate::kernels::norm::{
    layer_norm_row, layer_norm_row_in_place, rms_norm_row, rms_norm_row_in_place,
};
use crate::kernels::rows::AnyRow;
use crate::kernels::soft_max::{soft_max_row, soft_max_row_in_place};
use crate::program::Context;
use crate::view::{DstView, SrcView, Stored};

/// Which normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    /// Mean and variance.
    Layer,
    /// Mean and variance, then gain and bias from operands 1 and 2.
    Affine,
    /// Root mean square.
    Rms,
}

impl CpuStep {
    pub(super) fn norm(
        &self,
        context: &mut Context<'_>,
        epsilon: f32,
        norm: Norm,
    ) -> Result<(), Failure> {
        let view = |index: usize| {
            let place = self.source(index);
            // SAFETY: the region was checked for this place; gain and bias are disjoint from the
            // destination, and x is only viewed when it is.
            unsafe { SrcView::new(context.bases[place.region], place) }
        };
        let affine = (norm == Norm::Affine).then(|| (view(1).all::<f32>(), view(2).all::<f32>()));
        let (gain, bias) = (affine.map(|(gain, _)| gain), affine.map(|(_, bias)| bias));
        let src = (!self.source(0).is_dst()).then(|| view(0));
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        self.for_ranges(context, self.dst.rows(), |rows, _| {
            // SAFETY: the range is handed out once, and x is disjoint or read in place.
            let mut dst = unsafe { DstView::new(base, &self.dst, rows) };
            for row in dst.rows() {
                let out = dst.row_mut::<f32>(row);
                match (norm, src) {
                    (Norm::Rms, Some(src)) => rms_norm_row(isa, src.row(row), None, epsilon, out),
                    (Norm::Rms, None) => rms_norm_row_in_place(isa, out, None, epsilon),
                    (Norm::Layer | Norm::Affine, Some(src)) => {
                        layer_norm_row(isa, src.row(row), gain, bias, epsilon, out);
                    }
                    (Norm::Layer | Norm::Affine, None) => {
                        layer_norm_row_in_place(isa, out, gain, bias, epsilon);
                    }
                }
            }
        })
    }

    pub(super) fn soft_max(&self, context: &mut Context<'_>, scale: f32) -> Result<(), Failure> {
        let view = |index: usize| {
            // SAFETY: the region was checked for this place; the mask is disjoint from the
            // destination, and x is only viewed when it is.
            self.optional(index)
                .map(|place| unsafe { SrcView::new(context.bases[place.region], place) })
        };
        let mask = view(1);
        let src = if self.source(0).is_dst() { None } else { view(0) };
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        let [_, d1, d2, _] = self.dst.layout.shape().dims();
        self.for_ranges(context, self.dst.rows(), |rows, _| {
            // SAFETY: the range is handed out once, and x is disjoint or read in place.
            let mut dst = unsafe { DstView::new(base, &self.dst, rows) };
            for row in dst.rows() {
                let mask = mask.map(|mask| {
                    let [_, m1, m2, m3] = mask.layout().shape().dims();
                    let (i1, i2, i3) = (row % d1, row / d1 % d2, row / d1 / d2);
                    let row = i1 % m1 + m1 * (i2 % m2 + m2 * (i3 % m3));
                    match mask.stored() {
                        Stored::F16 => AnyRow::F16(mask.row::<f16>(row)),
                        Stored::F32 => AnyRow::F32(mask.row::<f32>(row)),
                        Stored::I32 => unreachable!("the shape rule takes float masks only"),
                    }
                });
                let out = dst.row_mut::<f32>(row);
                match src {
                    Some(src) => soft_max_row(isa, src.row(row), scale, mask, out),
                    None => soft_max_row_in_place(isa, out, scale, mask),
                }
            }
        })
    }
}

//! Copies with conversion, from and to any layout.
#![allow(unsafe_code)]

use half::f16;

use super::{CpuStep, Failure};
use crate::Isa;
use crate::kernels::convert::f32_to_f16_row;
use crate::program::Context;
use crate::view::{DstView, SrcView, Stored};

impl CpuStep {
    /// Copies source `from` over the destination, row by row.
    pub(super) fn copy(&self, context: &mut Context<'_>, from: usize) -> Result<(), Failure> {
        let place = self.source(from);
        if place.is_dst() {
            return Ok(());
        }
        // SAFETY: the region was checked for this place, which is disjoint from the destination.
        let src = unsafe { SrcView::new(context.bases[place.region], place) };
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        self.for_ranges(context, self.dst.rows(), |rows, scratch| {
            // SAFETY: the range is handed out once, rows of a destination do not overlap.
            let mut dst = unsafe { DstView::new(base, &self.dst, rows) };
            for row in dst.rows() {
                copy_row(isa, src, row, &mut dst, row, scratch);
            }
        })
    }
}

/// Copies one row, converting where the types differ.
pub(super) fn copy_row(
    isa: Isa,
    src: SrcView<'_>,
    src_row: usize,
    dst: &mut DstView<'_>,
    dst_row: usize,
    scratch: &mut [f32],
) {
    let n = src.layout().shape()[0];
    let from_rows = src.has_contiguous_rows();
    let to_rows = dst.has_contiguous_rows();
    match (src.stored(), dst.stored()) {
        (Stored::I32, _) | (_, Stored::I32) => move_row::<i32>(src, src_row, dst, dst_row),
        // A half float is moved as it is: a signalling NaN would not survive the way through f32.
        (Stored::F16, Stored::F16) => move_row::<f16>(src, src_row, dst, dst_row),
        (Stored::F32, Stored::F32) => move_row::<f32>(src, src_row, dst, dst_row),
        (Stored::F32, Stored::F16) => {
            if from_rows && to_rows {
                f32_to_f16_row(isa, src.row(src_row), dst.row_mut::<f16>(dst_row));
            } else {
                let values = src.row_f32(isa, src_row, scratch);
                for (index, value) in values.iter().enumerate() {
                    dst.set(dst_row, index, f16::from_f32(*value));
                }
            }
        }
        (Stored::F16, Stored::F32) => {
            let values = src.row_f32(isa, src_row, scratch);
            if to_rows {
                dst.row_mut::<f32>(dst_row).copy_from_slice(&values[..n]);
            } else {
                for (index, value) in values.iter().enumerate() {
                    dst.set(dst_row, index, *value);
                }
            }
        }
    }
}

fn move_row<T: bytemuck::Pod>(
    src: SrcView<'_>,
    src_row: usize,
    dst: &mut DstView<'_>,
    dst_row: usize,
) {
    if src.has_contiguous_rows() && dst.has_contiguous_rows() {
        dst.row_mut::<T>(dst_row).copy_from_slice(src.row(src_row));
        return;
    }
    for index in 0..src.layout().shape()[0] {
        dst.set(dst_row, index, src.element::<T>(src_row, index));
    }
}

//! Row look-up and row writes by index.
//!
//! All indices are checked before the first row is moved; every member checks
//! all of them, so that none writes when any is wrong.
#![allow(unsafe_code)]

use half::f16;

use super::chunk::CHUNK_ELEMENTS;
use super::copy::copy_row;
use super::{CpuStep, Failure};
use crate::kernels::convert::f16_to_f32_row;
use crate::program::Context;
use crate::view::{DstView, Place, SrcView, Stored, panels};

/// Indices, checked against a number of rows.
struct Ids<'a> {
    view: SrcView<'a>,
}

impl<'a> Ids<'a> {
    fn new(context: &Context<'_>, place: &'a Place, rows: usize) -> Result<Self, Failure> {
        // SAFETY: the region was checked for this place; ids are disjoint from the destination.
        let view = unsafe { SrcView::new(context.bases[place.region], place) };
        for row in 0..place.layout.shape().rows() {
            for index in 0..place.layout.shape()[0] {
                let id = view.element::<i32>(row, index);
                if usize::try_from(id).is_ok_and(|id| id < rows) {
                    continue;
                }
                return Err(Failure::Value(format!("row index {id} is not in 0..{rows}")));
            }
        }
        Ok(Self { view })
    }

    fn get(&self, index: usize, batch: usize) -> usize {
        // Checked above to be neither negative nor too large.
        self.view.element::<i32>(batch, index) as usize
    }
}

impl CpuStep {
    pub(super) fn get_rows(&self, context: &mut Context<'_>) -> Result<(), Failure> {
        let table = self.source(0);
        let [_, rows, d2, _] = table.layout.shape().dims();
        let ids = Ids::new(context, self.source(1), rows)?;
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        let table_base = context.bases[table.region];
        // SAFETY: the region was checked for this place, which is disjoint from the destination.
        let packed = unsafe { panels(table_base, table) };
        // SAFETY: as above; a packed table is not read through this view.
        let plain = unsafe { SrcView::new(table_base, table) };
        let count = self.dst.layout.shape()[1];
        self.for_ranges(context, self.dst.rows(), |range, _| {
            // SAFETY: the range is handed out once.
            let mut dst = unsafe { DstView::new(base, &self.dst, range) };
            for row in dst.rows() {
                let batch = row / count;
                let id = ids.get(row % count, batch);
                let out = dst.row_mut::<f32>(row);
                if let Some(packed) = &packed {
                    packed.gather_row(id, out);
                    continue;
                }
                let source = id + rows * (batch % d2 + d2 * (batch / d2));
                match table.stored {
                    Stored::F16 => f16_to_f32_row(isa, plain.row::<f16>(source), out),
                    Stored::F32 => out.copy_from_slice(plain.row::<f32>(source)),
                    Stored::I32 => unreachable!("the shape rule takes float tables only"),
                }
            }
        })
    }

    pub(super) fn set_rows(&self, context: &mut Context<'_>) -> Result<(), Failure> {
        let (x, id_place) = (self.source(1), self.source(2));
        let [_, rows, b2, b3] = self.dst.layout.shape().dims();
        let ids = Ids::new(context, id_place, rows)?;
        // SAFETY: the region was checked for this place; the planner copies an x that shares
        // memory with the base out first.
        let src = unsafe { SrcView::new(context.bases[x.region], x) };
        let (isa, base) = (context.isa, context.bases[self.dst.region]);
        let [_, c2, c3, _] = id_place.layout.shape().dims();
        let count = x.layout.shape()[1];
        let n = self.dst.layout.shape()[0];
        let abort = context.abort;
        let mut was_aborted = false;
        let rows_between_looks = CHUNK_ELEMENTS.div_ceil(n.max(1));
        // Two ids may name one row, where the later wins: one member writes all of a batch, in order.
        self.for_ranges(context, b2 * b3, |batches, scratch| {
            for batch in batches {
                let own = batch * rows..(batch + 1) * rows;
                // SAFETY: the batch is handed out once and its rows belong to no other.
                let mut dst = unsafe { DstView::new(base, &self.dst, own) };
                let id_row = (batch % b2) % c2 + c2 * ((batch / b2) % c3);
                for index in 0..count {
                    was_aborted |= index % rows_between_looks == 0 && abort.is_aborted();
                    if was_aborted {
                        return;
                    }
                    let to = batch * rows + ids.get(index, id_row);
                    copy_row(isa, src, batch * count + index, &mut dst, to, &mut scratch[..n]);
                }
            }
        })?;
        if was_aborted { Err(Failure::Aborted) } else { Ok(()) }
    }
}

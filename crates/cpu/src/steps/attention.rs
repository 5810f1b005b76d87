//! Attention: heads and blocks of queries as chunks of work.
#![allow(unsafe_code)]

use half::f16;

use super::{CpuStep, Failure, chunk, rows_of};
use crate::kernels::attention::{AnyHeads, Attention, Heads, attention_scratch_len};
use crate::kernels::rows::AnyRows;
use crate::program::Context;
use crate::span::DstRows;
use crate::view::{Place, SrcView, Stored};

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const MASK: usize = 3;

impl CpuStep {
    pub(super) fn attention_scratch(&self) -> usize {
        let [head_dim, n_q, ..] = self.source(Q).layout.shape().dims();
        let n_kv = self.source(K).layout.shape()[1];
        attention_scratch_len(n_q, n_kv, head_dim, self.dst.layout.shape()[0])
    }

    pub(super) fn attention(&self, context: &mut Context<'_>, scale: f32) -> Result<(), Failure> {
        let [v_dim, n_heads, _, batches] = self.dst.layout.shape().dims();
        for batch in 0..batches {
            let attention = self.operands(context, batch, scale);
            let offset = self.dst.offset_bytes + self.dst.layout.row_offset([0, 0, batch]);
            let base = context.bases[self.dst.region].0.wrapping_add(offset).cast::<f32>();
            let isa = context.isa;
            let dims = self.source(Q).layout.shape()[0] + v_dim;
            let queries = chunk::attention_queries(isa, attention.n_kv(), dims);
            let split = attention.split(self.chunks).finer(queries);
            context.for_chunks(split.chunks(), |index, scratch| {
                let (head, queries) = split.chunk(index);
                if queries.is_empty() {
                    return;
                }
                let stride = n_heads * v_dim;
                let first = base.wrapping_add(queries.start * stride + head * v_dim);
                let n = queries.len();
                // SAFETY: `first` is the row of this head and query in the checked destination;
                // chunks are handed out once and share no head and query; sources are disjoint.
                let mut dst = unsafe { DstRows::from_raw(first, stride, n, 0..v_dim) };
                attention.run(isa, head, queries, &mut dst, scratch);
            })?;
            if batch + 1 < batches {
                self.next_product(context)?;
            }
        }
        Ok(())
    }

    fn operands<'a>(&'a self, context: &Context<'_>, batch: usize, scale: f32) -> Attention<'a> {
        let view = |place: &'a Place| {
            // SAFETY: the region was checked for this place; no operand of attention may be the
            // destination.
            unsafe { SrcView::new(context.bases[place.region], place) }
        };
        let heads = |index: usize| {
            let view = view(self.source(index));
            match view.stored() {
                Stored::F16 => AnyHeads::F16(heads_of(view.heads::<f16>(batch), view)),
                Stored::F32 => AnyHeads::F32(heads_of(view.heads::<f32>(batch), view)),
                Stored::I32 => unreachable!("the shape rule takes float heads only"),
            }
        };
        let q = view(self.source(Q));
        let mask = self.optional(MASK).map(|place| {
            let view = view(place);
            let [n_kv, n_q, ..] = view.layout().shape().dims();
            match view.stored() {
                Stored::F16 => {
                    let (data, stride) = (view.matrix::<f16>([0, 0]), view.row_stride::<f16>());
                    AnyRows::F16(rows_of(data, stride, n_q, n_kv))
                }
                Stored::F32 => {
                    let (data, stride) = (view.matrix::<f32>([0, 0]), view.row_stride::<f32>());
                    AnyRows::F32(rows_of(data, stride, n_q, n_kv))
                }
                Stored::I32 => unreachable!("the shape rule takes float masks only"),
            }
        });
        let q = heads_of(q.heads::<f32>(batch), q);
        match Attention::new(q, heads(K), heads(V), mask, scale) {
            Some(attention) => attention,
            None => unreachable!("the shape rule of attention was checked: {:?}", self.name()),
        }
    }
}

fn heads_of<'a, T>(data: &'a [T], view: SrcView<'a>) -> Heads<'a, T> {
    let [head_dim, n, n_heads, _] = view.layout().shape().dims();
    let (head, row) = (view.head_stride::<T>(), view.row_stride::<T>());
    match Heads::new(data, head, row, n_heads, n, head_dim) {
        Some(heads) => heads,
        None => unreachable!("{n_heads} heads in {} elements, as the layout says", data.len()),
    }
}

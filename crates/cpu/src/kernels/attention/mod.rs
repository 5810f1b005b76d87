//! Attention: `softmax(scale * Q Kᵀ + mask) V` for each head.
//!
//! The matrix of scores never exists as a whole: many queries are taken in
//! strips of a tile's rows that stay in the second cache, few queries one by
//! one while K and V stream past once. Where the mask is -inf a slot is
//! hidden: nothing in K or V there has any influence, NaN included. A query
//! that sees nothing gives zeros. Several query heads may share one K/V head.

mod direct;
mod matrix;

use std::ops::Range;

use half::f16;

use crate::isa::Isa;
use crate::kernels::rows::{AnyRows, Rows};
use crate::simd::{Kernel, MAX_LANES, Simd};
use crate::span::{DstRows, fits};
use crate::team::split_even;

/// Rows of several heads: head `h` begins `h * head_stride` elements in.
#[derive(Debug, Clone, Copy)]
pub struct Heads<'a, T = f32> {
    data: &'a [T],
    head_stride: usize,
    row_stride: usize,
    n_heads: usize,
    n: usize,
    head_dim: usize,
}

impl<'a, T> Heads<'a, T> {
    /// `n_heads` heads of `n` rows of `head_dim` elements; `None` when `data` ends before.
    pub fn new(
        data: &'a [T],
        head_stride: usize,
        row_stride: usize,
        n_heads: usize,
        n: usize,
        head_dim: usize,
    ) -> Option<Self> {
        if n > 0 && head_dim > 0 {
            let head = (n - 1).checked_mul(row_stride)?.checked_add(head_dim)?;
            fits(data.len(), head_stride, n_heads, head)?;
        }
        Some(Self { data, head_stride, row_stride, n_heads, n, head_dim })
    }

    /// The rows of one head.
    pub fn head(&self, index: usize) -> Rows<'a, T> {
        assert!(index < self.n_heads);
        let first = (index * self.head_stride).min(self.data.len());
        // `new` found that all heads fit.
        Rows::new(&self.data[first..], self.row_stride, self.n, self.head_dim)
            .expect("the rows of a head fit")
    }
}

/// Heads of either float type.
#[derive(Debug, Clone, Copy)]
pub enum AnyHeads<'a> {
    /// 32-bit floats.
    F32(Heads<'a, f32>),
    /// 16-bit floats.
    F16(Heads<'a, f16>),
}

impl<'a> AnyHeads<'a> {
    /// Heads, rows of a head, elements of a row.
    fn sizes(&self) -> [usize; 3] {
        match self {
            AnyHeads::F32(heads) => [heads.n_heads, heads.n, heads.head_dim],
            AnyHeads::F16(heads) => [heads.n_heads, heads.n, heads.head_dim],
        }
    }

    /// The rows of one head.
    pub fn head(&self, index: usize) -> AnyRows<'a> {
        match self {
            AnyHeads::F32(heads) => AnyRows::F32(heads.head(index)),
            AnyHeads::F16(heads) => AnyRows::F16(heads.head(index)),
        }
    }
}

/// The operands of an attention, of fitting sizes.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    q: Heads<'a>,
    k: AnyHeads<'a>,
    v: AnyHeads<'a>,
    mask: Option<AnyRows<'a>>,
    scale: f32,
}

impl<'a> Attention<'a> {
    /// Puts operands together; `None` when their sizes do not fit.
    ///
    /// The heads of `q` are a multiple of those of `k` and `v`; query head `h`
    /// uses K/V head `h / (n_heads / n_kv_heads)`. Rows of `v` may have another
    /// length than those of `k`. The mask has a row of `n_kv` values for each
    /// query, for all heads the same.
    pub fn new(
        q: Heads<'a>,
        k: AnyHeads<'a>,
        v: AnyHeads<'a>,
        mask: Option<AnyRows<'a>>,
        scale: f32,
    ) -> Option<Self> {
        let [kv_heads, n_kv, k_dim] = k.sizes();
        let [v_heads, v_n, _] = v.sizes();
        let grouped = kv_heads > 0 && q.n_heads.is_multiple_of(kv_heads);
        let masked = mask.is_none_or(|mask| mask.n() == q.n && mask.k() == n_kv);
        let fits = k_dim == q.head_dim && v_heads == kv_heads && v_n == n_kv;
        (masked && fits && (grouped || q.n_heads == 0)).then_some(Self { q, k, v, mask, scale })
    }

    /// Number of query heads.
    pub fn n_heads(&self) -> usize {
        self.q.n_heads
    }

    /// Number of queries of a head.
    pub fn n_q(&self) -> usize {
        self.q.n
    }

    /// Number of keys of a head.
    pub fn n_kv(&self) -> usize {
        self.k.sizes()[1]
    }

    /// Elements of a row of the result: those of a row of V.
    pub fn v_dim(&self) -> usize {
        self.v.sizes()[2]
    }

    /// `f32` elements of scratch that [`Attention::run`] needs for a chunk of `n_q` queries.
    pub fn scratch_len(&self, n_q: usize) -> usize {
        attention_scratch_len(n_q, self.n_kv(), self.q.head_dim, self.v_dim())
    }

    /// Computes the queries `queries` of head `head` into the rows of `dst`,
    /// which are `v_dim` elements each, beginning at column 0.
    ///
    /// # Panics
    /// When there is no such head or query, `dst` has another size or
    /// `scratch` is too short.
    pub fn run(
        &self,
        isa: Isa,
        head: usize,
        queries: Range<usize>,
        dst: &mut DstRows<'_>,
        scratch: &mut [f32],
    ) {
        assert!(head < self.n_heads(), "no head {head}");
        assert_eq!((dst.n(), dst.columns()), (queries.len(), 0..self.v_dim()), "result size");
        let kv_head = head / (self.q.n_heads / self.k.sizes()[0]);
        isa.run(HeadQueries {
            q: self.q.head(head).slice(queries.clone()),
            k: self.k.head(kv_head),
            v: self.v.head(kv_head),
            mask: self.mask.map(|mask| mask.slice(queries)),
            scale: self.scale,
            dst,
            scratch,
        });
    }

    /// Cuts the work for a team; see [`AttentionSplit`].
    pub fn split(&self, parts: usize) -> AttentionSplit {
        AttentionSplit::new(self.n_heads(), self.n_q(), parts)
    }
}

/// `f32` elements of scratch for a chunk of `n_q` queries over `n_kv` slots, with
/// `head_dim` elements of a key and `v_dim` of a value.
pub fn attention_scratch_len(n_q: usize, n_kv: usize, head_dim: usize, v_dim: usize) -> usize {
    let dims = [head_dim, v_dim];
    let many = if n_q <= direct::MAX_QUERIES { 0 } else { matrix::scratch_len(n_kv, dims) };
    // Room to align, for either way.
    64 + direct::scratch_len(n_kv, dims).max(many)
}

/// Heads × query blocks as chunks for a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSplit {
    n_heads: usize,
    n_q: usize,
    query_parts: usize,
}

impl AttentionSplit {
    /// Whole heads when they divide evenly among `parts`, otherwise parts of
    /// heads, as long as each has many queries.
    pub fn new(n_heads: usize, n_q: usize, parts: usize) -> Self {
        let even = parts == 0 || n_heads.is_multiple_of(parts);
        let wanted = if even { 1 } else { (4 * parts).div_ceil(n_heads.max(1)) };
        // Every part packs K and V anew.
        Self { n_heads, n_q, query_parts: wanted.min(n_q / 96).max(1) }
    }

    /// The same cut further, so that no chunk has more than `queries` queries, or a tile's.
    #[must_use]
    pub fn finer(self, queries: usize) -> Self {
        let wanted = self.n_q.div_ceil(queries.max(1));
        Self { query_parts: wanted.min(self.n_q.div_ceil(12)).max(self.query_parts), ..self }
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.n_heads * self.query_parts
    }

    /// Head and queries of one chunk.
    pub fn chunk(&self, index: usize) -> (usize, Range<usize>) {
        let part = index % self.query_parts;
        (index / self.query_parts, split_even(self.n_q, 12, self.query_parts, part))
    }
}

/// Some queries of one head.
struct HeadQueries<'a, 'w> {
    q: Rows<'a>,
    k: AnyRows<'a>,
    v: AnyRows<'a>,
    mask: Option<AnyRows<'a>>,
    scale: f32,
    dst: &'a mut DstRows<'w>,
    scratch: &'a mut [f32],
}

impl HeadQueries<'_, '_> {
    /// Whether the mask hides slot `j` from query `i`.
    fn hides(&self, i: usize, j: usize) -> bool {
        self.mask.is_some_and(|mask| mask.value(i, j) == f32::NEG_INFINITY)
    }
}

impl Kernel for HeadQueries<'_, '_> {
    type Output = ();

    fn scalar(self) {
        let (n_kv, v_dim) = (self.k.n(), self.v.k());
        let scores = &mut self.scratch[..n_kv];
        for i in 0..self.q.n() {
            let query = self.q.row(i);
            let mask = |j| self.mask.map_or(0.0, |mask| mask.value(i, j));
            let visible = |j: &usize| mask(*j) != f32::NEG_INFINITY;
            let mut max = f32::NEG_INFINITY;
            for j in (0..n_kv).filter(visible) {
                let products = query.iter().enumerate().map(|(d, q)| q * self.k.value(j, d));
                scores[j] = products.sum::<f32>() * self.scale + mask(j);
                max = max.max(scores[j]);
            }
            let out = self.dst.row_mut(i, 0..v_dim);
            out.fill(0.0);
            let mut sum = 0.0;
            for j in (0..n_kv).filter(visible) {
                let weight = (scores[j] - max).exp();
                sum += weight;
                for (d, out) in out.iter_mut().enumerate() {
                    *out += weight * self.v.value(j, d);
                }
            }
            let nothing = !(0..n_kv).any(|j| visible(&j));
            out.iter_mut().for_each(|out| *out = if nothing { 0.0 } else { *out / sum });
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        if self.q.n() <= direct::MAX_QUERIES {
            direct::run(s, self);
        } else {
            matrix::run(s, self);
        }
    }
}

/// Writes `row * factor` to `out`.
#[inline(always)]
fn scaled<S: Simd>(s: S, row: &[f32], factor: f32, out: &mut [f32]) {
    let factor = s.splat(factor);
    for first in (0..row.len()).step_by(S::LANES) {
        let count = S::LANES.min(row.len() - first);
        let value = s.mul(crate::kernels::rows::load(s, row, first, count), factor);
        crate::kernels::rows::store(s, value, out, first, count);
    }
}

/// Turns scores in units of log2 into weights whose sum is returned; the mask
/// is added first. All weights are zero when everything is hidden.
#[inline(always)]
fn weights<S: Simd>(
    s: S,
    scores: &mut [f32],
    mask: Option<crate::kernels::rows::AnyRow<'_>>,
) -> f32 {
    use crate::kernels::rows::{load, store};
    use crate::simd::math::exp2;
    use std::f32::consts::LOG2_E;

    let len = scores.len();
    let hidden = s.splat(f32::NEG_INFINITY);
    let mut max = hidden;
    if let Some(mask) = mask {
        for first in (0..len).step_by(S::LANES) {
            let count = S::LANES.min(len - first);
            let mask = mask.load(s, first, count);
            let score = load(s, scores, first, count);
            let score = s.mul_add(mask, s.splat(LOG2_E), score);
            let score = s.select_equal(mask, hidden, hidden, score);
            store(s, score, scores, first, count);
        }
    }
    let mut chunks = scores.chunks_exact(S::LANES);
    for chunk in chunks.by_ref() {
        max = s.max(max, s.load(chunk));
    }
    max = s.max(max, s.load_partial(chunks.remainder(), f32::NEG_INFINITY));
    let max = s.reduce_max(max);
    if crate::kernels::soft_max::nothing_visible(max, scores) {
        scores.fill(0.0);
        return 0.0;
    }
    let maxima = s.splat(max);
    let mut sum = s.zero();
    let mut chunks = scores.chunks_exact_mut(S::LANES);
    for chunk in chunks.by_ref() {
        let weight = exp2(s, s.sub(s.load(chunk), maxima));
        sum = s.add(sum, weight);
        s.store(weight, chunk);
    }
    let rest = chunks.into_remainder();
    let weight = exp2(s, s.sub(s.load_partial(rest, f32::NEG_INFINITY), maxima));
    s.store_partial(weight, rest);
    s.reduce_add(s.add(sum, weight))
}

/// 1 / sum, and 0 for the sum of nothing.
fn inverse(sum: f32) -> f32 {
    if sum == 0.0 { 0.0 } else { 1.0 / sum }
}

/// Elements up to the next whole vector of any level.
const fn padded(len: usize) -> usize {
    len.next_multiple_of(MAX_LANES)
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;

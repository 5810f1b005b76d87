//! Few queries: K and V are read once, row by row, as they lie.
//!
//! This is the decoder's case, where reading K and V is all the cost.
//! Slots with weight zero are left out of the sum over V, which both saves
//! the reading and keeps what is hidden from mattering.

use std::f32::consts::LOG2_E;

use half::f16;

use super::{HeadQueries, inverse, padded, scaled, weights};
use crate::kernels::rows::{AnyRows, Rows};
use crate::simd::Simd;

/// More queries than this are worth packing K and V.
pub(super) const MAX_QUERIES: usize = 6;

/// Rows of K whose products with a query are summed side by side.
const SIDE_BY_SIDE: usize = 4;

/// Vectors of a row of V whose sums stay in registers.
const VECTORS: usize = 4;

pub(super) fn scratch_len(n_kv: usize, [k_dim, v_dim]: [usize; 2]) -> usize {
    padded(n_kv) + padded(k_dim) + padded(v_dim)
}

#[inline(always)]
pub(super) fn run<S: Simd>(s: S, mut task: HeadQueries<'_, '_>) {
    let (n_kv, k_dim, v_dim) = (task.k.n(), task.k.k(), task.v.k());
    let scratch = std::mem::take(&mut task.scratch);
    let (scores, scratch) = scratch.split_at_mut(padded(n_kv));
    let (query, scratch) = scratch.split_at_mut(padded(k_dim));
    let (scores, query) = (&mut scores[..n_kv], &mut query[..k_dim]);
    let sums = &mut scratch[..v_dim];
    for i in 0..task.q.n() {
        scaled(s, task.q.row(i), task.scale * LOG2_E, query);
        match &task.k {
            AnyRows::F32(k) => products(s, query, k, scores),
            AnyRows::F16(k) => products(s, query, k, scores),
        }
        let factor = inverse(weights(s, scores, task.mask.map(|mask| mask.row(i))));
        match &task.v {
            AnyRows::F32(v) => weighted_sum(s, scores, v, sums),
            AnyRows::F16(v) => weighted_sum(s, scores, v, sums),
        }
        scaled(s, sums, factor, task.dst.row_mut(i, 0..v_dim));
    }
}

/// Loads vectors from rows of either type.
trait Element: Sized {
    fn load<S: Simd>(s: S, row: &[Self]) -> S::F;
    fn load_partial<S: Simd>(s: S, row: &[Self]) -> S::F;
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[f32]) -> S::F {
        s.load(row)
    }

    #[inline(always)]
    fn load_partial<S: Simd>(s: S, row: &[f32]) -> S::F {
        s.load_partial(row, 0.0)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, row: &[f16]) -> S::F {
        s.load_f16(row)
    }

    #[inline(always)]
    fn load_partial<S: Simd>(s: S, row: &[f16]) -> S::F {
        s.load_f16_partial(row, f16::ZERO)
    }
}

/// `scores[j] = query · k[j]`.
#[inline(always)]
fn products<S: Simd, E: Element>(s: S, query: &[f32], k: &Rows<'_, E>, scores: &mut [f32]) {
    let whole = query.len() / S::LANES * S::LANES;
    let mut j = 0;
    while j + SIDE_BY_SIDE <= scores.len() {
        let mut sums = [s.zero(); SIDE_BY_SIDE];
        for first in (0..whole).step_by(S::LANES) {
            let q = s.load(&query[first..]);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = s.mul_add(q, E::load(s, &k.row(j + r)[first..]), *sum);
            }
        }
        if whole < query.len() {
            let q = s.load_partial(&query[whole..], 0.0);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = s.mul_add(q, E::load_partial(s, &k.row(j + r)[whole..]), *sum);
            }
        }
        for (r, sum) in sums.into_iter().enumerate() {
            scores[j + r] = s.reduce_add(sum);
        }
        j += SIDE_BY_SIDE;
    }
    for (j, score) in scores.iter_mut().enumerate().skip(j) {
        let row = k.row(j);
        let mut sum = s.zero();
        for first in (0..whole).step_by(S::LANES) {
            sum = s.mul_add(s.load(&query[first..]), E::load(s, &row[first..]), sum);
        }
        let rest = s.load_partial(&query[whole..], 0.0);
        *score = s.reduce_add(s.mul_add(rest, E::load_partial(s, &row[whole..]), sum));
    }
}

/// `sums[d] = sum over j of weights[j] * v[j][d]`, without slots of weight zero.
#[inline(always)]
fn weighted_sum<S: Simd, E: Element>(s: S, weights: &[f32], v: &Rows<'_, E>, sums: &mut [f32]) {
    let mut first = 0;
    while first + VECTORS * S::LANES <= sums.len() {
        let mut vectors = [s.zero(); VECTORS];
        for (j, weight) in weights.iter().enumerate() {
            if *weight == 0.0 {
                continue;
            }
            let row = &v.row(j)[first..first + VECTORS * S::LANES];
            let weight = s.splat(*weight);
            for (i, sum) in vectors.iter_mut().enumerate() {
                *sum = s.mul_add(weight, E::load(s, &row[i * S::LANES..]), *sum);
            }
        }
        for (i, sum) in vectors.into_iter().enumerate() {
            s.store(sum, &mut sums[first + i * S::LANES..]);
        }
        first += VECTORS * S::LANES;
    }
    while first < sums.len() {
        let count = S::LANES.min(sums.len() - first);
        let mut sum = s.zero();
        for (j, weight) in weights.iter().enumerate() {
            if *weight == 0.0 {
                continue;
            }
            let row = &v.row(j)[first..first + count];
            let value = if count == S::LANES { E::load(s, row) } else { E::load_partial(s, row) };
            sum = s.mul_add(s.splat(*weight), value, sum);
        }
        crate::kernels::rows::store(s, sum, sums, first, count);
        first += count;
    }
}

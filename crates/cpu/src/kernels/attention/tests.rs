//! Attention against an `f64` reference at every level, whole and split
//! between two threads, through both ways of computing it.

use super::*;
use crate::kernels::testing::{assert_close, isas, noise};
use crate::span::SharedSlice;
use crate::team::{ChunkCounter, Team};

/// Data of one attention: rows of all heads lie side by side, as a linear
/// layer leaves them.
struct Case {
    n_heads: usize,
    kv_heads: usize,
    n_q: usize,
    n_kv: usize,
    dim: usize,
    v_dim: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    k16: Vec<f16>,
    v16: Vec<f16>,
    mask: Option<Vec<f32>>,
    mask16: Vec<f16>,
}

const INF: f32 = f32::INFINITY;

impl Case {
    fn new([n_heads, kv_heads, n_q, n_kv, dim, v_dim]: [usize; 6], masked: bool) -> Self {
        let halves =
            |values: &[f32]| -> Vec<f16> { values.iter().map(|v| f16::from_f32(*v)).collect() };
        let wide = |values: &[f16]| -> Vec<f32> { values.iter().map(|v| v.to_f32()).collect() };
        // Scores with a spread of several units.
        let q = noise(21, n_q * n_heads * dim).iter().map(|v| v * 4.0).collect();
        let k16 = halves(&noise(22, n_kv * kv_heads * dim));
        let v16 = halves(&noise(23, n_kv * kv_heads * v_dim));
        let mut mask = noise(24, n_q * n_kv);
        for (i, value) in mask.iter_mut().enumerate() {
            if (i % n_kv.max(1)) > i / n_kv.max(1) + n_kv / 2 {
                *value = -INF;
            }
        }
        let mask16 = halves(&mask);
        let (k, v) = (wide(&k16), wide(&v16));
        let mask = masked.then(|| wide(&mask16));
        Self { n_heads, kv_heads, n_q, n_kv, dim, v_dim, q, k, v, k16, v16, mask, mask16 }
    }

    fn attention(&self, half: bool) -> Attention<'_> {
        let (h, n, d) = (self.kv_heads, self.n_kv, self.dim);
        let q = Heads::new(&self.q, d, self.n_heads * d, self.n_heads, self.n_q, d);
        let e = self.v_dim;
        let (k, v, mask) = if half {
            (
                AnyHeads::F16(Heads::new(&self.k16, d, h * d, h, n, d).unwrap()),
                AnyHeads::F16(Heads::new(&self.v16, e, h * e, h, n, e).unwrap()),
                AnyRows::F16(Rows::new(&self.mask16, n, self.n_q, n).unwrap()),
            )
        } else {
            let mask = self.mask.as_deref().unwrap_or(&[]);
            let rows = if self.mask.is_some() { self.n_q } else { 0 };
            (
                AnyHeads::F32(Heads::new(&self.k, d, h * d, h, n, d).unwrap()),
                AnyHeads::F32(Heads::new(&self.v, e, h * e, h, n, e).unwrap()),
                AnyRows::F32(Rows::new(mask, n, rows, n).unwrap()),
            )
        };
        let mask = self.mask.as_ref().map(|_| mask);
        Attention::new(q.unwrap(), k, v, mask, self.scale()).unwrap()
    }

    fn scale(&self) -> f32 {
        1.0 / (self.dim.max(1) as f32).sqrt()
    }

    fn reference(&self) -> Vec<f64> {
        let mut out = Vec::new();
        for i in 0..self.n_q {
            for head in 0..self.n_heads {
                let kv_head = head / (self.n_heads / self.kv_heads);
                let query = &self.q[(i * self.n_heads + head) * self.dim..][..self.dim];
                let mask = |j: usize| self.mask.as_ref().map_or(0.0, |m| m[i * self.n_kv + j]);
                let visible: Vec<usize> = (0..self.n_kv).filter(|j| mask(*j) != -INF).collect();
                let scores: Vec<f64> = visible
                    .iter()
                    .map(|j| {
                        let key = &self.k[(j * self.kv_heads + kv_head) * self.dim..];
                        let products =
                            query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k));
                        products.sum::<f64>() * f64::from(self.scale()) + f64::from(mask(*j))
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..self.v_dim {
                    let at = |j: usize| (j * self.kv_heads + kv_head) * self.v_dim + d;
                    let products =
                        visible.iter().zip(&weights).map(|(j, w)| w * f64::from(self.v[at(*j)]));
                    let total: f64 = products.sum();
                    out.push(if visible.is_empty() { 0.0 } else { total / sum });
                }
            }
        }
        out
    }

    /// The result in the order of the reference: `[v_dim, n_heads, n_q]`.
    fn run(&self, isa: Isa, attention: &Attention<'_>, team: &mut Team) -> Vec<f32> {
        let row = self.n_heads * self.v_dim;
        let mut out = vec![9.0; row * self.n_q];
        let shared = SharedSlice::new(&mut out);
        let split = attention.split(team.size());
        let counter = ChunkCounter::new();
        team.run(|_| {
            let mut scratch = vec![f32::NAN; attention.scratch_len(self.n_q)];
            while let Some(chunk) = counter.next(split.chunks()) {
                let (head, queries) = split.chunk(chunk);
                let first =
                    shared.as_mut_ptr().wrapping_add(queries.start * row + head * self.v_dim);
                // SAFETY: chunks are disjoint rectangles of the result.
                let mut dst =
                    unsafe { DstRows::from_raw(first, row, queries.len(), 0..self.v_dim) };
                attention.run(isa, head, queries, &mut dst, &mut scratch);
            }
            Ok(())
        })
        .unwrap();
        out
    }
}

#[test]
fn awkward_sizes_with_and_without_mask_in_both_types() {
    let sizes = [
        [1, 1, 1, 1, 1, 1],
        [2, 1, 1, 33, 64, 64],
        [2, 2, 3, 7, 5, 5],
        [4, 2, 4, 31, 64, 64],
        [6, 6, 2, 100, 80, 80],
        [1, 1, 5, 65, 17, 33],
        [2, 1, 8, 65, 17, 33],
        [3, 1, 13, 32, 128, 128],
        [2, 2, 30, 70, 64, 64],
        [1, 1, 25, 1, 3, 40],
        [1, 1, 12, 40, 576, 512],
        [1, 1, 1, 40, 576, 512],
        [1, 1, 4, 0, 8, 8],
        [1, 1, 0, 4, 8, 8],
    ];
    let mut team = Team::new(1).unwrap();
    for isa in isas() {
        for size in sizes {
            for masked in [false, true] {
                let case = Case::new(size, masked);
                let expected = case.reference();
                for half in [false, true] {
                    let out = case.run(isa, &case.attention(half), &mut team);
                    let what = format!("{size:?} masked {masked} half {half} {isa}");
                    assert_close(&out, &expected, 3e-6, &what);
                }
            }
        }
    }
}

#[test]
fn two_threads_compute_the_bits_of_one() {
    let (mut one, mut two) = (Team::new(1).unwrap(), Team::new(2).unwrap());
    for isa in isas() {
        for size in [[3, 1, 200, 50, 64, 64], [2, 2, 1, 100, 64, 64], [4, 4, 20, 20, 16, 16]] {
            let case = Case::new(size, true);
            let attention = case.attention(true);
            assert_eq!(
                case.run(isa, &attention, &mut one),
                case.run(isa, &attention, &mut two),
                "{size:?} {isa}"
            );
        }
    }
}

#[test]
fn hidden_slots_do_not_matter_whatever_they_hold() {
    let mut team = Team::new(1).unwrap();
    for isa in isas() {
        for n_q in [1, 3, 4, 14] {
            for rows_that_see in [0, 1] {
                // Slot 5 is hidden from all queries, or from all but the last one.
                let mut case = Case::new([1, 1, n_q, 40, 24, 24], true);
                let mask = case.mask.as_mut().unwrap();
                for i in 0..n_q {
                    let hidden = i + rows_that_see < n_q;
                    mask[i * 40 + 5] = if hidden { -INF } else { 0.0 };
                    case.mask16[i * 40 + 5] = f16::from_f32(mask[i * 40 + 5]);
                }
                let expected = case.reference();
                for poison in [f32::NAN, INF, -INF] {
                    for values in [&mut case.k, &mut case.v] {
                        values[5 * 24..6 * 24].fill(poison);
                    }
                    for values in [&mut case.k16, &mut case.v16] {
                        values[5 * 24..6 * 24].fill(f16::from_f32(poison));
                    }
                    for half in [false, true] {
                        let out = case.run(isa, &case.attention(half), &mut team);
                        let clean = (n_q - rows_that_see) * 24;
                        let what = format!("{n_q} {rows_that_see} {poison} {half} {isa}");
                        assert_close(&out[..clean], &expected[..clean], 3e-6, &what);
                        if poison.is_nan() {
                            assert!(out[clean..].iter().all(|v| v.is_nan()), "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gives_zeros() {
    let mut team = Team::new(1).unwrap();
    for isa in isas() {
        for n_q in [1, 13] {
            let mut case = Case::new([1, 1, n_q, 20, 8, 8], true);
            let last = (n_q - 1) * 20;
            case.mask.as_mut().unwrap()[last..].fill(-INF);
            case.mask16[last..].fill(f16::NEG_INFINITY);
            for half in [false, true] {
                let out = case.run(isa, &case.attention(half), &mut team);
                assert_close(&out, &case.reference(), 3e-6, "zeros");
                assert_eq!(out[(n_q - 1) * 8..], [0.0; 8]);
            }
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let mut team = Team::new(1).unwrap();
    for isa in isas() {
        for n_q in [1, 13] {
            let mut case = Case::new([1, 1, n_q, 20, 8, 8], false);
            case.q.iter_mut().for_each(|q| *q *= 1e4);
            let out = case.run(isa, &case.attention(false), &mut team);
            assert_close(&out, &case.reference(), 2e-2, "large");
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let (data, halves) = (vec![0.0; 64], vec![f16::ZERO; 64]);
    let q = Heads::new(&data, 8, 16, 2, 4, 8).unwrap();
    assert!(Heads::new(&data, 8, 16, 2, 5, 8).is_none());
    let k = AnyHeads::F32(Heads::new(&data, 8, 16, 2, 4, 8).unwrap());
    let v = AnyHeads::F16(Heads::new(&halves, 8, 16, 2, 4, 8).unwrap());
    assert!(Attention::new(q, k, v, None, 1.0).is_some());
    let short = AnyHeads::F16(Heads::new(&halves, 8, 16, 2, 3, 8).unwrap());
    assert!(Attention::new(q, k, short, None, 1.0).is_none());
    let three = AnyHeads::F32(Heads::new(&data, 8, 16, 3, 3, 8).unwrap());
    assert!(Attention::new(q, three, three, None, 1.0).is_none());
    let mask = AnyRows::F32(Rows::new(&data, 4, 3, 4).unwrap());
    assert!(Attention::new(q, k, v, Some(mask), 1.0).is_none());
}

#[test]
fn chunks_cover_all_queries_of_all_heads_once() {
    for (n_heads, n_q) in [(6, 1500), (6, 1), (1, 1000), (0, 5)] {
        for parts in [1, 2, 4, 5] {
            let split = AttentionSplit::new(n_heads, n_q, parts);
            let mut hits = vec![0; n_heads * n_q];
            for index in 0..split.chunks() {
                let (head, queries) = split.chunk(index);
                queries.for_each(|query| hits[head * n_q + query] += 1);
            }
            assert!(hits.iter().all(|hits| *hits == 1));
        }
    }
    assert_eq!(AttentionSplit::new(6, 1500, 2).chunks(), 6);
}

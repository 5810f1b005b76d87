//! Oracle of scaled dot-product attention.

use tensoryard_graph::ops::Attention;

use super::{OracleError, Sources};

/// q `[d, n_q, heads, batch]`, k `[d, n_kv, kv_heads, batch]`, v `[e, n_kv, kv_heads, batch]`,
/// mask `[n_kv, n_q]`; result `[e, heads, n_q, batch]`.
pub(super) fn attention(
    op: &Attention,
    sources: Sources<'_>,
    [value_dim, heads, queries, batches]: [usize; 4],
) -> Result<Vec<f64>, OracleError> {
    let (q, k, v) = (sources.get(0)?, sources.get(1)?, sources.get(2)?);
    let mask = sources.optional(3);
    let [_, slots, kv_heads, _] = k.dims;
    let scale = f64::from(op.scale);
    let mut out = Vec::with_capacity(value_dim * heads * queries * batches);
    for batch in 0..batches {
        for query in 0..queries {
            for head in 0..heads {
                let kv_head = head * kv_heads / heads;
                let row = q.row([query, head, batch]);
                // A hidden slot takes part in nothing, whatever it holds.
                let mut seen: Vec<(usize, f64)> = Vec::new();
                for slot in 0..slots {
                    let bias = mask.map_or(0.0, |mask| mask.row([query, 0, 0])[slot]);
                    if bias == f64::NEG_INFINITY {
                        continue;
                    }
                    let key = k.row([slot, kv_head, batch]);
                    let dot: f64 = row.iter().zip(key).map(|(a, b)| a * b).sum();
                    seen.push((slot, scale * dot + bias));
                }
                let max = seen.iter().fold(f64::NEG_INFINITY, |m, &(_, s)| m.max(s));
                let weights: Vec<f64> = seen.iter().map(|&(_, s)| (s - max).exp()).collect();
                let total: f64 = weights.iter().sum();
                for i in 0..value_dim {
                    let sum: f64 = seen
                        .iter()
                        .zip(&weights)
                        .map(|(&(slot, _), weight)| weight * v.row([slot, kv_head, batch])[i])
                        .sum();
                    out.push(if seen.is_empty() { 0.0 } else { sum / total });
                }
            }
        }
    }
    Ok(out)
}

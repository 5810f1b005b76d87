//! Scaled dot-product attention as one op.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Shape, Tensor};

/// `dst[:, h, i, b] = Σ_j p[j] · v[:, j, h′, b]` with
/// `p = softmax_j(scale · (q[:, i, h, b] · k[:, j, h′, b]) + mask[j, i])`
/// ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)) and h′ = h · n_kv_heads / n_heads.
///
/// q: f32 `[head_dim, n_q, n_heads, batch]`; k: f32 or f16 `[head_dim, n_kv, n_kv_heads, batch]`;
/// v: f32 or f16 `[value_dim, n_kv, n_kv_heads, batch]`, all with rows without gaps; n_kv_heads divides
/// n_heads. mask (optional): f32 or f16 `[n_kv, n_q]`; −∞ hides a slot, whatever k and v hold there.
/// A query that sees nothing gives zeros.
/// dst: f32 `[value_dim, n_heads, n_q, batch]`, contiguous, so that a reshape joins the heads.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_flash_attn_ext")]
pub struct Attention {
    /// What the products of queries and keys are multiplied by, commonly 1/√head_dim.
    pub scale: f32,
}

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const MASK: usize = 3;

impl Declare for Attention {
    const NAME: &'static str = "flash_attn_ext";
    const OPERANDS: &'static [OperandSpec] = &[
        OperandSpec::required("q"),
        OperandSpec::required("k"),
        OperandSpec::required("v"),
        OperandSpec::optional("mask"),
    ];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let stored = [DType::F32, DType::F16];
        let q = operands.typed(Q, &[DType::F32], "f32")?.shape().dims();
        let k = operands.typed(K, &stored, "f32 or f16")?.shape().dims();
        let v = operands.typed(V, &stored, "f32 or f16")?.shape().dims();
        for operand in [Q, K, V, MASK] {
            operands.contiguous_rows(operand)?;
        }
        operands.equal("head sizes", (Q, q[0]), (K, k[0]))?;
        operands.equal("numbers of slots", (K, k[1]), (V, v[1]))?;
        operands.equal("numbers of heads", (K, k[2]), (V, v[2]))?;
        operands.equal("batches", (Q, q[3]), (K, k[3]))?;
        operands.equal("batches", (Q, q[3]), (V, v[3]))?;
        if k[2] == 0 || !q[2].is_multiple_of(k[2]) {
            return Err(OpError::Sizes {
                what: "numbers of heads",
                left_name: operands.name(Q),
                left: q[2],
                right_name: operands.name(K),
                right: k[2],
            });
        }
        if operands.optional(MASK).is_some() {
            let mask = operands.typed(MASK, &stored, "f32 or f16")?.shape().dims();
            operands.equal("numbers of slots", (K, k[1]), (MASK, mask[0]))?;
            operands.equal("numbers of queries", (Q, q[1]), (MASK, mask[1]))?;
            operands.equal("outer dimensions", (Q, 1), (MASK, mask[2] * mask[3]))?;
        }
        Ok(Layout::contiguous(DType::F32, Shape::new(&[v[0], q[2], q[1], q[3]])?)?)
    }

    fn flops(&self, operands: Operands<'_>, dst: &Layout) -> f64 {
        let [head_dim, slots, ..] = operands.optional(K).map_or([0; 4], |k| k.shape().dims());
        let [value_dim, heads, queries, batch] = dst.shape().dims();
        let scores = (heads * queries * batch) as f64 * slots as f64;
        scores * (2.0 * (head_dim + value_dim) as f64 + 10.0)
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("scale", self.scale.into());
    }
}

impl<'g> Tensor<'g> {
    /// Attention of these queries over `k` and `v`: see [`Attention`].
    ///
    /// self: f32 `[head_dim, n_q, n_heads, batch]`; k, v: f32 or f16 `[…, n_kv, n_kv_heads, batch]`;
    /// mask: f32 or f16 `[n_kv, n_q]`. Result: f32 `[value_dim, n_heads, n_q, batch]`.
    /// Errors: other types; rows with gaps; sizes that do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn attention(
        self,
        k: Tensor<'g>,
        v: Tensor<'g>,
        mask: Option<Tensor<'g>>,
        scale: f32,
    ) -> Self {
        let sources = [Some(self), Some(k), Some(v), mask];
        self.builder.apply(Op::from(Attention { scale }), &sources, Location::caller())
    }
}

//! The compositions that encoder and decoder share, in the notation of the
//! paper: linear layer, layer norm, attention heads, feed-forward block.

use tensoryard_graph::{DType, GraphBuilder, Tensor};

/// Added to the variance in every layer norm.
const EPSILON: f32 = 1e-5;

/// Names and types of the model's weights, as a graph asks for them.
#[derive(Clone, Copy)]
pub(super) struct Layers<'g> {
    pub(super) graph: &'g GraphBuilder,
    /// Type of the matrices and convolutions.
    pub(super) matrix: DType,
    /// Width of the model.
    pub(super) n_state: usize,
    /// Number of attention heads.
    pub(super) n_head: usize,
}

impl<'g> Layers<'g> {
    fn vector(self, name: String, n: usize) -> Tensor<'g> {
        self.graph.weight(name, DType::F32, [n])
    }

    /// `W·x + b`, [n_in, n] → [n_out, n].
    #[track_caller]
    pub(super) fn linear(self, name: &str, x: Tensor<'g>, n_out: usize) -> Tensor<'g> {
        self.linear_without_bias(name, x, n_out).add(self.vector(format!("{name}.bias"), n_out))
    }

    /// `W·x`, [n_in, n] → [n_out, n].
    #[track_caller]
    pub(super) fn linear_without_bias(self, name: &str, x: Tensor<'g>, n_out: usize) -> Tensor<'g> {
        let dims = [x.dim(0), n_out];
        self.graph.weight(format!("{name}.weight"), self.matrix, dims).mul_mat(x)
    }

    /// Layer norm with gain and bias, [n_state, n] → [n_state, n].
    #[track_caller]
    pub(super) fn norm(self, name: &str, x: Tensor<'g>) -> Tensor<'g> {
        let gain = self.vector(format!("{name}.weight"), self.n_state);
        let bias = self.vector(format!("{name}.bias"), self.n_state);
        x.norm(EPSILON).mul(gain).add(bias)
    }

    /// GELU(conv(x)), [n_in, frames] → [n_state, frames / stride].
    #[track_caller]
    pub(super) fn conv(self, name: &str, x: Tensor<'g>, stride: u32) -> Tensor<'g> {
        let dims = [x.dim(0), 3, self.n_state];
        self.graph
            .weight(format!("{name}.weight"), self.matrix, dims)
            .conv_1d(x, stride, 1)
            .add(self.vector(format!("{name}.bias"), self.n_state))
            .gelu_erf()
    }

    /// Heads apart, [n_state, n] → [head_dim, n, n_head].
    #[track_caller]
    pub(super) fn heads(self, x: Tensor<'g>) -> Tensor<'g> {
        let head_dim = self.n_state / self.n_head;
        x.reshape([head_dim, self.n_head, x.dim(1)]).permute([0, 2, 1, 3])
    }

    /// Softmax attention with the output projection.
    ///
    /// q: [n_state, n_q]; k, v: [head_dim, n_kv, n_head]; mask: [n_kv, n_q]. Result: [n_state, n_q].
    #[track_caller]
    pub(super) fn attention(
        self,
        name: &str,
        q: Tensor<'g>,
        k: Tensor<'g>,
        v: Tensor<'g>,
        mask: Option<Tensor<'g>>,
    ) -> Tensor<'g> {
        let scale = ((self.n_state / self.n_head) as f32).sqrt().recip();
        let mixed = self.heads(q).attention(k, v, mask, scale); // [head_dim, n_head, n_q]
        let joined = mixed.reshape([self.n_state, q.dim(1)]);
        self.linear(&format!("{name}.out"), joined, self.n_state)
    }

    /// `x + W₂·GELU(W₁·norm(x))`, [n_state, n] → [n_state, n].
    #[track_caller]
    pub(super) fn feed_forward(self, block: &str, x: Tensor<'g>) -> Tensor<'g> {
        let h = self.norm(&format!("{block}.mlp_ln"), x);
        let h = self.linear(&format!("{block}.mlp.0"), h, 4 * self.n_state).gelu_erf();
        x.add(self.linear(&format!("{block}.mlp.2"), h, self.n_state))
    }
}

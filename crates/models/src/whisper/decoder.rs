//! The text decoder as a graph (Radford et al. 2022, section 2.2).
//!
//! One graph runs some tokens at given positions over a cache of keys and
//! values. Positions, mask and the rows whose logits are wanted are inputs, so
//! that the token loop uses one graph for many steps; only the number of tokens
//! and the visible part of the cache, rounded up, are part of its shape.

use tensoryard_graph::{DType, Graph, GraphBuilder, GraphError, Tensor};

use super::config::GraphConfig;
use super::encoder::cross_names;
use super::layers::Layers;

/// Name of the input of token ids: i32 `[n_tokens]`.
pub const TOKENS: &str = "tokens";
/// Name of the input of their positions: i32 `[n_tokens]`.
pub const POSITIONS: &str = "positions";
/// Name of the input that says which tokens' logits are wanted: i32 `[n_rows]`.
pub const ROWS: &str = "rows";
/// Name of the input that hides cache slots: f32 `[n_slots, n_tokens]`, 0 or −∞.
pub const MASK: &str = "mask";
/// Name of the output: f32 `[n_vocab, n_rows]`.
pub const LOGITS: &str = "logits";

/// Cache slots are seen in steps of this many, so that few graphs serve all positions.
const SLOT_BUCKET: usize = 64;

/// The shape of one decoder graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecoderShape {
    /// Tokens run at once.
    pub n_tokens: usize,
    /// Cache slots that they can see, from position 0 on.
    pub n_slots: usize,
    /// Tokens whose logits are wanted.
    pub n_rows: usize,
}

impl DecoderShape {
    /// The shape for tokens at `position` and after.
    pub fn new(config: &GraphConfig, position: usize, n_tokens: usize, n_rows: usize) -> Self {
        let end = position.saturating_add(n_tokens);
        let n_slots = end.next_multiple_of(SLOT_BUCKET).min(config.sizes.n_text_ctx);
        Self { n_tokens, n_slots, n_rows }
    }
}

/// Writes new keys or values into the cache; the visible part, heads apart:
/// [head_dim, n_slots, n_head].
#[track_caller]
fn extend_cache<'g>(
    cache: Tensor<'g>,
    rows: Tensor<'g>,
    positions: Tensor<'g>,
    layers: Layers<'g>,
    n_slots: usize,
) -> Tensor<'g> {
    let cache = cache.set_rows(rows, positions); // [n_state, n_text_ctx]
    let element = cache.layout().strides()[0];
    let head_dim = layers.n_state / layers.n_head;
    let row = layers.n_state * element;
    let strides = [element, row, head_dim * element, row * n_slots];
    cache.view([head_dim, n_slots, layers.n_head], strides, 0)
}

/// The graph from tokens to logits.
///
/// # Errors
/// Sizes that do not fit each other.
pub fn decoder_graph(config: &GraphConfig, shape: DecoderShape) -> Result<Graph, GraphError> {
    let sizes = &config.sizes;
    let n_state = sizes.n_text_state;
    let DecoderShape { n_tokens, n_slots, n_rows } = shape;
    let g = GraphBuilder::new("whisper.decoder");
    let layers = Layers { graph: &g, matrix: config.matrix, n_state, n_head: sizes.n_text_head };
    let tokens = g.input(TOKENS, DType::I32, [n_tokens]);
    let positions = g.input(POSITIONS, DType::I32, [n_tokens]);
    let mask = g.input(MASK, DType::F32, [n_slots, n_tokens]);

    let name = "decoder.token_embedding.weight";
    let embedding = g.weight(name, config.matrix, [n_state, sizes.n_vocab]);
    let name = "decoder.positional_embedding";
    let positional = g.weight(name, DType::F32, [n_state, sizes.n_text_ctx]);
    let mut x = embedding.get_rows(tokens).add(positional.get_rows(positions));
    for layer in 0..sizes.n_text_layer {
        let block = format!("decoder.blocks.{layer}");

        let attn = format!("{block}.attn");
        let h = layers.norm(&format!("{block}.attn_ln"), x);
        let q = layers.linear(&format!("{attn}.query"), h, n_state);
        let k = layers.linear_without_bias(&format!("{attn}.key"), h, n_state);
        let v = layers.linear(&format!("{attn}.value"), h, n_state);
        let cache = |name: String| g.state(name, config.cache, [n_state, sizes.n_text_ctx]);
        let k = extend_cache(cache(format!("self.k.{layer}")), k, positions, layers, n_slots);
        let v = extend_cache(cache(format!("self.v.{layer}")), v, positions, layers, n_slots);
        x = x.add(layers.attention(&attn, q, k, v, Some(mask)));

        let attn = format!("{block}.cross_attn");
        let (k_name, v_name) = cross_names(layer);
        let dims = [config.head_dim(), sizes.n_audio_ctx, sizes.n_text_head];
        let h = layers.norm(&format!("{block}.cross_attn_ln"), x);
        let q = layers.linear(&format!("{attn}.query"), h, n_state);
        let k = g.state(k_name, config.cache, dims);
        let v = g.state(v_name, config.cache, dims);
        x = x.add(layers.attention(&attn, q, k, v, None));

        x = layers.feed_forward(&block, x).named(format!("block{layer}"));
    }
    // Only the rows that are asked for go through the large output matrix.
    let x = x.get_rows(g.input(ROWS, DType::I32, [n_rows]));
    embedding.mul_mat(layers.norm("decoder.ln", x)).output(LOGITS);
    g.finish()
}

//! The audio encoder as a graph, up to the keys and values that the decoder
//! attends to (Radford et al. 2022, section 2.2).

use tensoryard_graph::{DType, Graph, GraphBuilder, GraphError};

use super::config::GraphConfig;
use super::layers::Layers;

/// Name of the graph input: f32 `[n_mels, 3000]`, the mel band fastest.
pub const MEL: &str = "mel";
/// Name of the output of [`AudioOutput::Features`]: f32 `[n_audio_state, 1500]`.
pub const FEATURES: &str = "audio_features";

/// Names of the state that holds the cross-attention keys and values of a layer,
/// `[head_dim, 1500, n_text_head]`.
pub(super) fn cross_names(layer: usize) -> (String, String) {
    (format!("cross.k.{layer}"), format!("cross.v.{layer}"))
}

/// What the encoder graph leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudioOutput {
    /// Only the keys and values of each decoder layer, as state.
    State,
    /// The encoded audio as an output, too.
    Features,
}

/// The graph from a window of mel frames to the decoder's cross-attention state.
///
/// # Errors
/// Sizes that do not fit each other.
pub fn encoder_graph(config: &GraphConfig, output: AudioOutput) -> Result<Graph, GraphError> {
    let sizes = &config.sizes;
    let g = GraphBuilder::new("whisper.encoder");
    let layers = Layers {
        graph: &g,
        matrix: config.matrix,
        n_state: sizes.n_audio_state,
        n_head: sizes.n_audio_head,
    };
    let mel = g.input(MEL, DType::F32, [sizes.n_mels, config.n_frames()]);
    let x = layers.conv("encoder.conv1", mel, 1).named("conv1"); // [n_state, 3000]
    let x = layers.conv("encoder.conv2", x, 2).named("conv2"); // [n_state, 1500]
    let dims = [sizes.n_audio_state, sizes.n_audio_ctx];
    let positions = g.weight("encoder.positional_embedding", DType::F32, dims);
    let mut x = x.add(positions);
    for layer in 0..sizes.n_audio_layer {
        let block = format!("encoder.blocks.{layer}");
        let attn = format!("{block}.attn");
        let h = layers.norm(&format!("{block}.attn_ln"), x);
        let q = layers.linear(&format!("{attn}.query"), h, sizes.n_audio_state);
        let k = layers.linear_without_bias(&format!("{attn}.key"), h, sizes.n_audio_state);
        let v = layers.linear(&format!("{attn}.value"), h, sizes.n_audio_state);
        x = x.add(layers.attention(&attn, q, layers.heads(k), layers.heads(v), None));
        x = layers.feed_forward(&block, x).named(format!("block{layer}"));
    }
    let x = layers.norm("encoder.ln_post", x); // [n_state, 1500]

    let decoder = Layers { n_state: sizes.n_text_state, n_head: sizes.n_text_head, ..layers };
    for layer in 0..sizes.n_text_layer {
        let attn = format!("decoder.blocks.{layer}.cross_attn");
        let (k_name, v_name) = cross_names(layer);
        let k = decoder.linear_without_bias(&format!("{attn}.key"), x, sizes.n_text_state);
        let v = decoder.linear(&format!("{attn}.value"), x, sizes.n_text_state);
        for (name, values) in [(k_name, k), (v_name, v)] {
            let dims = [config.head_dim(), sizes.n_audio_ctx, sizes.n_text_head];
            decoder.heads(values).copy_into(g.state(name, config.cache, dims));
        }
    }
    if output == AudioOutput::Features {
        x.output(FEATURES);
    }
    g.finish()
}

//! The graphs of a model without its weights, for looking at a plan before
//! anything is loaded.
//!
//! They are those that a session runs, at the sizes where they need the most:
//! the longest prompt, and the last token of a full context.

use std::sync::Arc;

use tensoryard_formats::whisper::WhisperCheckpoint;
use tensoryard_graph::{DType, Graph, GraphError};

use super::config::GraphConfig;
use super::decoder::{DecoderShape, decoder_graph};
use super::encoder::{AudioOutput, encoder_graph};
use super::model::{LoadOptions, matrix_type};
use crate::Error;

/// One of the graphs that a model runs.
#[derive(Debug, Clone)]
pub struct ModelGraph {
    /// A short name, unique among the graphs of the model.
    pub name: &'static str,
    /// What it computes and for which sizes, in words.
    pub purpose: String,
    /// The graph.
    pub graph: Arc<Graph>,
}

/// The sizes and types of a model's graphs, read from its header alone.
///
/// # Errors
/// Types that cannot be computed with.
pub fn graph_config(
    checkpoint: &WhisperCheckpoint,
    options: &LoadOptions,
) -> Result<GraphConfig, Error> {
    if !matches!(options.cache, DType::F16 | DType::F32) {
        let reason = format!("is {}, wanted f16 or f32", options.cache);
        return Err(Error::InvalidOption { name: "cache", reason });
    }
    Ok(GraphConfig {
        sizes: checkpoint.config,
        matrix: matrix_type(checkpoint, options)?,
        cache: options.cache,
    })
}

/// The encoder, the decoder with the longest prompt, and the decoder with the last token.
///
/// # Errors
/// Sizes that do not fit each other.
pub fn graphs(config: &GraphConfig) -> Result<Vec<ModelGraph>, GraphError> {
    let sizes = &config.sizes;
    let n_text_ctx = sizes.n_text_ctx;
    // Half the context of earlier text, then the start token, language, task and time tokens.
    let n_prompt = (n_text_ctx / 2 + 4).min(n_text_ctx);
    let prompt = DecoderShape::new(config, 0, n_prompt, 1);
    let token = DecoderShape::new(config, n_text_ctx.saturating_sub(1), 1, 1);
    Ok(vec![
        ModelGraph {
            name: "encoder",
            purpose: format!("a window of {} mel frames", config.n_frames()),
            graph: Arc::new(encoder_graph(config, AudioOutput::State)?),
        },
        ModelGraph {
            name: "prompt",
            purpose: format!("decoder, the longest prompt: {n_prompt} tokens"),
            graph: Arc::new(decoder_graph(config, prompt)?),
        },
        ModelGraph {
            name: "token",
            purpose: format!("decoder, one token at position {}", n_text_ctx.saturating_sub(1)),
            graph: Arc::new(decoder_graph(config, token)?),
        },
    ])
}

#[cfg(test)]
mod tests {
    use tensoryard_formats::whisper::WhisperConfig;

    use super::*;

    #[test]
    fn the_graphs_have_the_sizes_that_need_the_most() {
        let sizes = WhisperConfig {
            n_vocab: 51_864,
            n_audio_ctx: 1500,
            n_audio_state: 384,
            n_audio_head: 6,
            n_audio_layer: 4,
            n_text_ctx: 448,
            n_text_state: 384,
            n_text_head: 6,
            n_text_layer: 4,
            n_mels: 80,
        };
        let config = GraphConfig { sizes, matrix: DType::F16, cache: DType::F16 };
        let graphs = graphs(&config).unwrap();
        let names: Vec<_> = graphs.iter().map(|graph| graph.name).collect();
        assert_eq!(names, ["encoder", "prompt", "token"]);
        let dims = |at: usize, name: &str| {
            let graph: &Graph = &graphs[at].graph;
            graph.layout(graph.leaf(name).unwrap()).shape().dims()
        };
        assert_eq!(dims(0, "mel"), [80, 3000, 1, 1]);
        assert_eq!(dims(1, "tokens"), [228, 1, 1, 1]);
        assert_eq!(dims(1, "mask"), [256, 228, 1, 1]);
        assert_eq!(dims(2, "tokens"), [1, 1, 1, 1]);
        assert_eq!(dims(2, "mask"), [448, 1, 1, 1]);
    }
}

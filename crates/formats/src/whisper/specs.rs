//! Which tensors a Whisper model has, by name and shape.
//!
//! The one list that readers check against and writers go through. The key
//! projections have no bias, in the original as here.

use tensoryard_tensor::Shape;

use super::WhisperConfig;
use crate::error::{FormatError, Result};

/// What a tensor is for, which decides the types that it may be stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// A matrix `[n_in, n_out]`; may be f16 or quantised.
    Linear,
    /// The token embedding `[n_state, n_vocab]`, also the output projection.
    Embedding,
    /// Convolution weights `[in_channels, kernel, out_channels]`.
    Conv,
    /// A bias or a norm's scale, always f32 here.
    Vector,
    /// Positions `[n_state, n_ctx]`, always f32 here.
    Positional,
}

/// A tensor that a model of some hyperparameters has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name of the original release.
    pub name: String,
    /// What it is for.
    pub role: TensorRole,
    /// Elements along each dimension, fastest first.
    pub shape: Shape,
}

/// Width of both convolutions.
pub(crate) const KERNEL: usize = 3;

struct List(Vec<TensorSpec>);

impl List {
    fn add(&mut self, name: String, role: TensorRole, dims: &[usize]) -> Result<()> {
        let shape = Shape::new(dims).map_err(FormatError::tensor(&name))?;
        self.0.push(TensorSpec { name, role, shape });
        Ok(())
    }

    fn norm(&mut self, name: &str, n_state: usize) -> Result<()> {
        self.add(format!("{name}.weight"), TensorRole::Vector, &[n_state])?;
        self.add(format!("{name}.bias"), TensorRole::Vector, &[n_state])
    }

    fn linear(&mut self, name: &str, n_in: usize, n_out: usize) -> Result<()> {
        self.add(format!("{name}.weight"), TensorRole::Linear, &[n_in, n_out])?;
        self.add(format!("{name}.bias"), TensorRole::Vector, &[n_out])
    }

    fn conv(&mut self, name: &str, n_in: usize, n_out: usize) -> Result<()> {
        self.add(format!("{name}.weight"), TensorRole::Conv, &[n_in, KERNEL, n_out])?;
        self.add(format!("{name}.bias"), TensorRole::Vector, &[n_out])
    }

    fn attention(&mut self, name: &str, n: usize) -> Result<()> {
        self.linear(&format!("{name}.query"), n, n)?;
        self.add(format!("{name}.key.weight"), TensorRole::Linear, &[n, n])?;
        self.linear(&format!("{name}.value"), n, n)?;
        self.linear(&format!("{name}.out"), n, n)
    }

    fn mlp(&mut self, block: &str, n: usize) -> Result<()> {
        self.norm(&format!("{block}.mlp_ln"), n)?;
        self.linear(&format!("{block}.mlp.0"), n, 4 * n)?;
        self.linear(&format!("{block}.mlp.2"), 4 * n, n)
    }
}

/// Every tensor of a model with these hyperparameters, in a fixed order.
///
/// # Errors
/// Hyperparameters that no Whisper model has.
pub fn tensor_specs(config: &WhisperConfig) -> Result<Vec<TensorSpec>> {
    config.check()?;
    let mut list = List(Vec::new());
    let n = config.n_audio_state;
    list.add(
        "encoder.positional_embedding".into(),
        TensorRole::Positional,
        &[n, config.n_audio_ctx],
    )?;
    list.conv("encoder.conv1", config.n_mels, n)?;
    list.conv("encoder.conv2", n, n)?;
    for layer in 0..config.n_audio_layer {
        let block = format!("encoder.blocks.{layer}");
        list.norm(&format!("{block}.attn_ln"), n)?;
        list.attention(&format!("{block}.attn"), n)?;
        list.mlp(&block, n)?;
    }
    list.norm("encoder.ln_post", n)?;

    let n = config.n_text_state;
    list.add(
        "decoder.positional_embedding".into(),
        TensorRole::Positional,
        &[n, config.n_text_ctx],
    )?;
    list.add("decoder.token_embedding.weight".into(), TensorRole::Embedding, &[n, config.n_vocab])?;
    for layer in 0..config.n_text_layer {
        let block = format!("decoder.blocks.{layer}");
        list.norm(&format!("{block}.attn_ln"), n)?;
        list.attention(&format!("{block}.attn"), n)?;
        list.norm(&format!("{block}.cross_attn_ln"), n)?;
        list.attention(&format!("{block}.cross_attn"), n)?;
        list.mlp(&block, n)?;
    }
    list.norm("decoder.ln", n)?;
    Ok(list.0)
}

//! A checkpoint from a CTranslate2 model of kind `WhisperSpec`.
//!
//! CTranslate2 stacks the projections of an attention into one matrix: query,
//! key and value for self-attention, key and value for cross-attention. Here
//! each is a range of rows of it. The stacked bias has zeros for the key,
//! which has none in Whisper. Integer weights come with one scale a row.

use std::ops::Range;
use std::sync::Arc;

use tensoryard_tensor::{DType, Shape};

use super::tensor::{RowScales, TensorSource};
use super::{
    CheckpointExtras, ConvOrder, TensorRole, TensorSpec, WhisperCheckpoint, WhisperConfig,
    WhisperTensor, conv_shape_in, tensor_specs,
};
use crate::ctranslate2::CTranslate2File;
use crate::error::{FormatError, Result};
use crate::file::{ByteOrder, ModelFile, TensorInfo};

impl WhisperCheckpoint {
    /// The model of a CTranslate2 file, with what the caller found beside it;
    /// its tensors stay in the file.
    ///
    /// # Errors
    /// A model of another kind or with options that Whisper does not have; a
    /// missing or misshapen variable; extras that do not fit the model.
    pub fn from_ctranslate2(file: &CTranslate2File, extras: &CheckpointExtras) -> Result<Self> {
        if file.spec() != "WhisperSpec" {
            let found = file.spec().to_owned();
            return Err(FormatError::WrongModel { wanted: "WhisperSpec", found });
        }
        // Activation 3 is the exact GELU.
        for (name, wanted) in [
            ("decoder/activation", 3),
            ("decoder/pre_norm", 1),
            ("decoder/scale_embeddings", 0),
            ("decoder/start_from_zero_embedding", 0),
        ] {
            if let Some(value) = file.integer(name)?.filter(|&value| value != wanted) {
                let problem = format!("is {value}, Whisper has {wanted}");
                return Err(FormatError::invalid(name, problem));
            }
        }
        let projection = file.tensor("decoder/projection/weight").map(|info| &info.name);
        if projection.is_some_and(|name| name != "decoder/embeddings/weight") {
            let problem = "is not the token embedding, as it is in Whisper";
            return Err(FormatError::invalid("decoder/projection/weight", problem));
        }
        let config = config(file)?;
        let tensors = tensor_specs(&config)?
            .into_iter()
            .map(|spec| tensor(file, spec))
            .collect::<Result<_>>()?;
        check_key_biases(file, &config)?;
        Self::assemble(config, extras.clone(), tensors)
    }
}

fn variable<'f>(file: &'f CTranslate2File, name: &str) -> Result<&'f TensorInfo> {
    file.tensor(name).ok_or_else(|| FormatError::MissingTensor(name.to_owned()))
}

fn config(file: &CTranslate2File) -> Result<WhisperConfig> {
    let dims = |name: &str| variable(file, name).map(|info| info.shape.dims());
    let heads = |name: &str| -> Result<usize> {
        let count =
            file.integer(name)?.ok_or_else(|| FormatError::MissingTensor(name.to_owned()))?;
        usize::try_from(count).map_err(|_| FormatError::invalid(name, format!("is {count}")))
    };
    let layers = |side: &str| {
        (0..)
            .take_while(|layer| {
                file.tensor(&format!("{side}/layer_{layer}/ffn/linear_0/weight")).is_some()
            })
            .count()
    };
    let [n_text_state, n_vocab, ..] = dims("decoder/embeddings/weight")?;
    let [_, n_text_ctx, ..] = dims("decoder/position_encodings/encodings")?;
    let [n_audio_state, n_audio_ctx, ..] = dims("encoder/position_encodings/encodings")?;
    let [_, n_mels, ..] = dims("encoder/conv1/weight")?;
    Ok(WhisperConfig {
        n_vocab,
        n_audio_ctx,
        n_audio_state,
        n_audio_head: heads("encoder/num_heads")?,
        n_audio_layer: layers("encoder"),
        n_text_ctx,
        n_text_state,
        n_text_head: heads("decoder/num_heads")?,
        n_text_layer: layers("decoder"),
        n_mels,
    })
}

/// A variable, or one of several equal parts of its rows.
struct Part {
    variable: String,
    index: usize,
    count: usize,
}

fn part(name: &str) -> Option<Part> {
    let whole = |variable: String| Some(Part { variable, index: 0, count: 1 });
    let (side, rest) = name.split_once('.')?;
    match rest {
        "positional_embedding" => return whole(format!("{side}/position_encodings/encodings")),
        "token_embedding.weight" => return whole(format!("{side}/embeddings/weight")),
        _ => {}
    }
    let (module, kind) = rest.rsplit_once('.')?;
    let norm = match kind {
        "weight" => "gamma",
        _ => "beta",
    };
    let Some(block) = module.strip_prefix("blocks.") else {
        return match module {
            "ln_post" | "ln" => whole(format!("{side}/layer_norm/{norm}")),
            conv => whole(format!("{side}/{conv}/{kind}")),
        };
    };
    let (layer, module) = block.split_once('.')?;
    let layer = format!("{side}/layer_{layer}");
    let piece = |linear: &str, index, count| {
        Some(Part { variable: format!("{layer}/{linear}/{kind}"), index, count })
    };
    match module {
        "attn_ln" => whole(format!("{layer}/self_attention/layer_norm/{norm}")),
        "cross_attn_ln" => whole(format!("{layer}/attention/layer_norm/{norm}")),
        "mlp_ln" => whole(format!("{layer}/ffn/layer_norm/{norm}")),
        "attn.query" => piece("self_attention/linear_0", 0, 3),
        "attn.key" => piece("self_attention/linear_0", 1, 3),
        "attn.value" => piece("self_attention/linear_0", 2, 3),
        "attn.out" => piece("self_attention/linear_1", 0, 1),
        "cross_attn.query" => piece("attention/linear_0", 0, 1),
        "cross_attn.key" => piece("attention/linear_1", 0, 2),
        "cross_attn.value" => piece("attention/linear_1", 1, 2),
        "cross_attn.out" => piece("attention/linear_2", 0, 1),
        "mlp.0" => piece("ffn/linear_0", 0, 1),
        "mlp.2" => piece("ffn/linear_1", 0, 1),
        _ => None,
    }
}

/// Part `index` of `count` equal parts of a range.
fn cut(range: &Range<u64>, index: usize, count: usize) -> Range<u64> {
    let size = (range.end - range.start) / count as u64;
    let start = range.start + size * index as u64;
    start..start + size
}

fn tensor(file: &CTranslate2File, spec: TensorSpec) -> Result<WhisperTensor> {
    let Some(part) = part(&spec.name) else {
        return Err(FormatError::MissingTensor(spec.name));
    };
    let info = variable(file, &part.variable)?;
    let mut dims = conv_shape_in(ConvOrder::KernelFastest, spec.shape).dims();
    if spec.role != TensorRole::Conv {
        dims = spec.shape.dims();
    }
    // The stacked dimension is the slowest: rows of a matrix, elements of a bias.
    let slowest = if spec.role == TensorRole::Vector { 0 } else { spec.shape.rank() - 1 };
    if let Some(dim) = dims.get_mut(slowest) {
        *dim *= part.count;
    }
    let wanted = Shape::new(&dims).map_err(FormatError::tensor(&spec.name))?;
    if info.shape != wanted {
        let tensor = part.variable;
        return Err(FormatError::TensorShape { tensor, wanted, found: info.shape });
    }
    let scales = match info.dtype {
        DType::I8 => Some(scales(file, &part, dims.get(slowest).copied().unwrap_or_default())?),
        _ => None,
    };
    let source = TensorSource {
        data: Arc::clone(file.data()),
        range: cut(&info.range, part.index, part.count),
        dtype: info.dtype,
        order: ByteOrder::Little,
        conv_order: ConvOrder::KernelFastest,
        scales,
    };
    WhisperTensor::new(spec, source)
}

fn scales(file: &CTranslate2File, part: &Part, rows: usize) -> Result<RowScales> {
    let name = format!("{}_scale", part.variable);
    let info = variable(file, &name)?;
    if info.dtype != DType::F32 || info.shape.elements() != rows {
        let problem = format!("{} of shape {}, {rows} f32 are needed", info.dtype, info.shape);
        return Err(FormatError::placement(&name, problem));
    }
    Ok(RowScales { range: cut(&info.range, part.index, part.count) })
}

/// A key bias would be lost silently; Whisper has none.
fn check_key_biases(file: &CTranslate2File, config: &WhisperConfig) -> Result<()> {
    let encoder = (0..config.n_audio_layer)
        .map(|layer| (format!("encoder/layer_{layer}/self_attention/linear_0/bias"), 1, 3));
    let decoder = (0..config.n_text_layer).flat_map(|layer| {
        [
            (format!("decoder/layer_{layer}/self_attention/linear_0/bias"), 1, 3),
            (format!("decoder/layer_{layer}/attention/linear_1/bias"), 0, 2),
        ]
    });
    for (name, index, count) in encoder.chain(decoder) {
        let info = variable(file, &name)?;
        let range = cut(&info.range, index, count);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.data().read_at(range.start, &mut bytes)?;
        // Zero of either sign in any of the float types: only sign bits may be set.
        let width = info.dtype.block_bytes();
        let is_zero = bytes.chunks_exact(width).all(|element| match element.split_last() {
            Some((last, rest)) => last & 0x7f == 0 && rest.iter().all(|&byte| byte == 0),
            None => true,
        });
        if !is_zero {
            return Err(FormatError::invalid(name, "has a key bias, Whisper has none"));
        }
    }
    Ok(())
}

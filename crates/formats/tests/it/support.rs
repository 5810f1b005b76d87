//! Files built by hand, and a tiny Whisper model with known values.

use std::io::Write;
use std::path::PathBuf;

use tensoryard_formats::whisper::{
    CheckpointExtras, MelFilters, WhisperCheckpoint, WhisperConfig, WhisperVocabulary, tensor_specs,
};
use tensoryard_tensor::f16;

/// Bytes in the order of the file.
#[derive(Clone, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
    pub fn u8(self, value: u8) -> Self {
        self.raw(&[value])
    }
    pub fn u16(self, value: u16) -> Self {
        self.raw(&value.to_le_bytes())
    }
    pub fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }
    pub fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }
    /// A GGUF string.
    pub fn string(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).raw(text)
    }
    pub fn pad(mut self, alignment: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }
}

/// The start of a GGUF file.
pub fn gguf(version: u32, n_tensors: u64, n_keys: u64) -> Bytes {
    Bytes::default().raw(b"GGUF").u32(version).u64(n_tensors).u64(n_keys)
}

pub fn f16_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|value| f16::from_f32(value).to_le_bytes()).collect()
}

pub fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The smallest model that has every kind of tensor.
pub const TINY: WhisperConfig = WhisperConfig {
    n_vocab: 6,
    n_audio_ctx: 3,
    n_audio_state: 4,
    n_audio_head: 2,
    n_audio_layer: 1,
    n_text_ctx: 5,
    n_text_state: 4,
    n_text_head: 1,
    n_text_layer: 2,
    n_mels: 2,
};

/// Element `index` of a tensor in the original's order; exact in f16.
pub fn value(name: &str, index: usize) -> f32 {
    let seed = name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    ((seed as usize % 97 + index * 13) % 64) as f32 / 32.0 - 1.0
}

pub fn original(name: &str, count: usize) -> Vec<f32> {
    (0..count).map(|index| value(name, index)).collect()
}

/// What a checkpoint has to give for a tensor: the original, with convolutions turned.
pub fn expected(name: &str, dims: [usize; 4]) -> Vec<f32> {
    let count = dims.iter().product();
    if !name.contains("conv") || !name.ends_with("weight") {
        return original(name, count);
    }
    let [channels, width, n_out, _] = dims;
    let mut values = Vec::new();
    for out in 0..n_out {
        for tap in 0..width {
            for channel in 0..channels {
                values.push(value(name, tap + width * (channel + channels * out)));
            }
        }
    }
    values
}

pub fn check_values(checkpoint: &WhisperCheckpoint) {
    assert_eq!(checkpoint.config, TINY);
    assert_eq!(checkpoint.tensors().len(), tensor_specs(&TINY).unwrap().len());
    for tensor in checkpoint.tensors() {
        let want = expected(tensor.name(), tensor.shape().dims());
        assert_eq!(tensor.to_f32().unwrap(), want, "{}", tensor.name());
    }
}

pub fn extras() -> CheckpointExtras {
    let tokens: [&[u8]; 6] = [b"a", b" b", b"\xff\x00", b"", b"<|endoftext|>", b"x\ny"];
    CheckpointExtras {
        name: Some("tiny test".into()),
        vocabulary: WhisperVocabulary {
            tokens: tokens.map(<[u8]>::to_vec).to_vec(),
            merges: vec![(b" ".to_vec(), b"b".to_vec()), (b"\xff".to_vec(), b"\x00".to_vec())],
        },
        mel_filters: MelFilters::new(2, 3, vec![0.0, 0.5, 1.0, 0.25, 0.125, 0.1]).unwrap(),
        alignment_heads: Some(vec![(0, 0), (1, 0)]),
        suppress_ids: Some(vec![1, 2]),
        suppress_ids_begin: Some(vec![0, 4]),
        language_ids: Some(vec![]),
    }
}

/// One CTranslate2 variable.
pub struct Variable {
    pub name: String,
    pub dims: Vec<u32>,
    pub number: u8,
    pub data: Vec<u8>,
}

pub fn ctranslate2(variables: &[Variable], aliases: &[(&str, &str)]) -> Vec<u8> {
    let string =
        |bytes: Bytes, text: &str| bytes.u16(text.len() as u16 + 1).raw(text.as_bytes()).u8(0);
    let mut bytes = string(Bytes::default().u32(6), "WhisperSpec").u32(3);
    bytes = bytes.u32(variables.len() as u32);
    for variable in variables {
        bytes = string(bytes, &variable.name).u8(variable.dims.len() as u8);
        for &dim in &variable.dims {
            bytes = bytes.u32(dim);
        }
        bytes = bytes.u8(variable.number).u32(variable.data.len() as u32).raw(&variable.data);
    }
    bytes = bytes.u32(aliases.len() as u32);
    for (alias, target) in aliases {
        bytes = string(string(bytes, alias), target);
    }
    bytes.0
}

/// The tiny model as CTranslate2 stores it, in f16, slowest dimension first.
pub fn tiny_variables() -> Vec<Variable> {
    let mut list = Vec::new();
    let mut float = |name: String, dims: &[u32], values: Vec<f32>| {
        list.push(Variable { name, dims: dims.to_vec(), number: 4, data: f16_bytes(values) });
    };
    let n = 4u32;
    let take = |name: &str, count: u32| original(name, count as usize);
    let zeros = vec![0.0; n as usize];
    for (side, context, n_layers) in [("encoder", 3, 1), ("decoder", 5, 2)] {
        let norm = format!("{side}.{}", if side == "encoder" { "ln_post" } else { "ln" });
        float(format!("{side}/layer_norm/gamma"), &[n], take(&format!("{norm}.weight"), n));
        float(format!("{side}/layer_norm/beta"), &[n], take(&format!("{norm}.bias"), n));
        float(
            format!("{side}/position_encodings/encodings"),
            &[context, n],
            take(&format!("{side}.positional_embedding"), context * n),
        );
        for layer in 0..n_layers {
            let to = format!("{side}/layer_{layer}");
            let from = format!("{side}.blocks.{layer}");
            let mut norms = vec![("self_attention", "attn_ln"), ("ffn", "mlp_ln")];
            let mut linears = vec![
                ("self_attention/linear_1", "attn.out", n, n),
                ("ffn/linear_0", "mlp.0", n, 4 * n),
                ("ffn/linear_1", "mlp.2", 4 * n, n),
            ];
            let mut stacks =
                vec![("self_attention/linear_0", "attn", vec!["query", "key", "value"])];
            if side == "decoder" {
                norms.push(("attention", "cross_attn_ln"));
                linears.push(("attention/linear_0", "cross_attn.query", n, n));
                linears.push(("attention/linear_2", "cross_attn.out", n, n));
                stacks.push(("attention/linear_1", "cross_attn", vec!["key", "value"]));
            }
            for (target, source) in norms {
                for (end, kind) in [("gamma", "weight"), ("beta", "bias")] {
                    let values = take(&format!("{from}.{source}.{kind}"), n);
                    float(format!("{to}/{target}/layer_norm/{end}"), &[n], values);
                }
            }
            for (target, source, n_in, n_out) in linears {
                let weight = take(&format!("{from}.{source}.weight"), n_in * n_out);
                float(format!("{to}/{target}/weight"), &[n_out, n_in], weight);
                let bias = take(&format!("{from}.{source}.bias"), n_out);
                float(format!("{to}/{target}/bias"), &[n_out], bias);
            }
            for (target, source, parts) in stacks {
                let rows = n * parts.len() as u32;
                let weight = parts
                    .iter()
                    .flat_map(|part| take(&format!("{from}.{source}.{part}.weight"), n * n));
                float(format!("{to}/{target}/weight"), &[rows, n], weight.collect());
                let bias = parts.iter().flat_map(|part| match *part {
                    "key" => zeros.clone(),
                    part => take(&format!("{from}.{source}.{part}.bias"), n),
                });
                float(format!("{to}/{target}/bias"), &[rows], bias.collect());
            }
        }
    }
    for (conv, n_in) in [("conv1", 2), ("conv2", n)] {
        let weight = take(&format!("encoder.{conv}.weight"), n * n_in * 3);
        float(format!("encoder/{conv}/weight"), &[n, n_in, 3], weight);
        float(format!("encoder/{conv}/bias"), &[n], take(&format!("encoder.{conv}.bias"), n));
    }
    let embedding = take("decoder.token_embedding.weight", 6 * n);
    float("decoder/embeddings/weight".into(), &[6, n], embedding);
    for (name, number, data) in [
        ("decoder/activation", 1, vec![3]),
        ("decoder/pre_norm", 1, vec![1]),
        ("encoder/num_heads", 2, vec![2, 0]),
        ("decoder/num_heads", 2, vec![1, 0]),
    ] {
        list.push(Variable { name: name.into(), dims: vec![], number, data });
    }
    list
}

pub fn tiny_ctranslate2() -> Vec<u8> {
    let aliases = [("decoder/projection/weight", "decoder/embeddings/weight")];
    ctranslate2(&tiny_variables(), &aliases)
}

/// The tiny model as a ggml Whisper file, in f16.
pub fn tiny_ggml() -> Vec<u8> {
    ggml_with(|bytes| bytes)
}

/// The header of the tiny ggml file, up to where tensors begin.
pub fn ggml_header(ftype: u32) -> Bytes {
    let mut bytes = Bytes::default().u32(0x6767_6d6c);
    for (_, value) in TINY.fields() {
        bytes = bytes.u32(value as u32);
    }
    bytes = bytes.u32(ftype).u32(2).u32(3).raw(&f32_bytes(extras().mel_filters.values));
    let tokens = extras().vocabulary.tokens;
    bytes = bytes.u32(tokens.len() as u32);
    for token in tokens {
        bytes = bytes.u32(token.len() as u32).raw(&token);
    }
    bytes
}

/// The tiny ggml file with something added at its end.
pub fn ggml_with(end: impl FnOnce(Bytes) -> Bytes) -> Vec<u8> {
    let mut bytes = ggml_header(1);
    for spec in tensor_specs(&TINY).unwrap() {
        let name = &spec.name;
        let count = spec.shape.elements();
        let is_matrix = name.ends_with("weight") && spec.shape.rank() > 1;
        let mut dims: Vec<usize> = spec.shape.dims()[..spec.shape.rank()].to_vec();
        if name.contains("conv") {
            match *dims.as_slice() {
                [channels, width, n_out] => dims = vec![width, channels, n_out],
                [n_out] => dims = vec![1, n_out],
                _ => unreachable!(),
            }
        }
        bytes = bytes.u32(dims.len() as u32).u32(name.len() as u32).u32(is_matrix.into());
        for dim in dims {
            bytes = bytes.u32(dim as u32);
        }
        let values = original(name, count);
        let data = if is_matrix { f16_bytes(values) } else { f32_bytes(values) };
        bytes = bytes.raw(name.as_bytes()).raw(&data);
    }
    end(bytes).0
}

/// The directory of a real model, or `None` after saying that the test is skipped.
pub fn real_model(test: &str, name: &str) -> Option<PathBuf> {
    let models = std::env::var_os("TENSORYARD_MODELS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
        PathBuf::from,
    );
    let path = models.join(name);
    if path.exists() {
        return Some(path);
    }
    let missing = format!("SKIPPED {test}: {} is missing", path.display());
    if std::env::var_os("TENSORYARD_REQUIRE_ASSETS").is_some_and(|value| value == "1") {
        panic!("{missing}");
    }
    // Written past the harness, which hides what passing tests print.
    _ = writeln!(std::io::stderr(), "{missing}");
    None
}

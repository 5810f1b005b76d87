//! CTranslate2 models, and files of it that break the rules.

use tensoryard_formats::ctranslate2::{CTranslate2File, parse_vocabulary};
use tensoryard_formats::whisper::WhisperCheckpoint;
use tensoryard_formats::{FormatError, ModelFile};
use tensoryard_tensor::{DType, Shape};

use crate::alloc::peak_bytes;
use crate::support::{
    Bytes, Variable, check_values, ctranslate2, expected, extras, f16_bytes, f32_bytes,
    tiny_ctranslate2, tiny_variables,
};

fn refused(bytes: &[u8]) -> FormatError {
    let copy = bytes.to_vec();
    let (result, peak) = peak_bytes(|| CTranslate2File::from_bytes(copy));
    assert!(peak < 16 * bytes.len() + 100_000, "{peak} bytes for a file of {}", bytes.len());
    result.map(|file| file.tensors().len()).unwrap_err()
}

fn scalar(name: &str, number: u8, data: &[u8]) -> Variable {
    Variable { name: name.into(), dims: vec![], number, data: data.to_vec() }
}

fn checkpoint(variables: &[Variable]) -> Result<WhisperCheckpoint, FormatError> {
    let aliases = [("decoder/projection/weight", "decoder/embeddings/weight")];
    let file = CTranslate2File::from_bytes(ctranslate2(variables, &aliases))?;
    WhisperCheckpoint::from_ctranslate2(&file, &extras())
}

#[test]
fn variables_and_aliases_are_listed() {
    let file = CTranslate2File::from_bytes(tiny_ctranslate2()).unwrap();
    assert_eq!((file.spec(), file.revision()), ("WhisperSpec", 3));
    let fused = file.tensor("encoder/layer_0/self_attention/linear_0/weight").unwrap();
    assert_eq!(fused.shape, Shape::new(&[4, 12]).unwrap());
    assert_eq!(fused.dtype, DType::F16);
    let alias = file.tensor("decoder/projection/weight").unwrap();
    assert_eq!(alias.name, "decoder/embeddings/weight");
    assert_eq!(file.integer("encoder/num_heads").unwrap(), Some(2));
    assert!(file.integer("encoder/conv1/bias").is_err());
    assert_eq!(file.integer("no/such").unwrap(), None);
}

#[test]
fn stacked_projections_are_taken_apart() {
    check_values(&checkpoint(&tiny_variables()).unwrap());
}

#[test]
fn a_file_cut_at_any_byte() {
    let whole = tiny_ctranslate2();
    for len in 0..whole.len() {
        refused(&whole[..len]);
    }
    let mut longer = whole;
    longer.push(0);
    assert!(refused(&longer).to_string().contains("1 bytes follow"));
}

#[test]
fn counts_sizes_and_types() {
    let head = || Bytes::default().u32(6).u16(3).raw(b"ab\0").u32(3);
    for bytes in [
        head().u32(u32::MAX).raw(&[0; 64]),
        head().u32(1).u16(0xffff).raw(&[b'a'; 64]),
        head().u32(1).u16(2).raw(b"v\0").u8(5).raw(&[1; 64]),
        head().u32(1).u16(2).raw(b"v\0").u8(255).raw(&[1; 64]),
        head().u32(1).u16(2).raw(b"v\0").u8(4).raw(&[0xff; 64]),
        head().u32(1).u16(2).raw(b"v\0").u8(1).u32(4).u8(6).u32(4).raw(&[0; 64]),
        head().u32(1).u16(2).raw(b"v\0").u8(1).u32(4).u8(0).u32(15).raw(&[0; 64]),
        head().u32(1).u16(1).raw(b"\0").u8(0).u8(1).u32(1).raw(&[0; 64]),
        head().u32(1).u16(4).raw(b"a\0b\0").u8(0).u8(1).u32(1).raw(&[0; 64]),
    ] {
        refused(&bytes.0);
    }
    assert!(matches!(
        refused(&Bytes::default().u32(5).raw(&[0; 64]).0),
        FormatError::Version { .. }
    ));
    assert!(refused(b"<html><body></body></html>").to_string().contains("looks like"));
}

#[test]
fn names_and_aliases_that_clash() {
    let pair = [scalar("a", 1, &[0]), scalar("a", 1, &[0])];
    assert!(matches!(refused(&ctranslate2(&pair, &[])), FormatError::Duplicate { .. }));
    let one = [scalar("a", 1, &[0])];
    for aliases in [&[("b", "c")][..], &[("a", "a")], &[("b", "a"), ("b", "a")]] {
        refused(&ctranslate2(&one, aliases));
    }
}

#[test]
fn other_models_and_options_are_named() {
    let mut bytes = tiny_ctranslate2();
    bytes[6..9].copy_from_slice(b"Abc");
    let file = CTranslate2File::from_bytes(bytes).unwrap();
    let error = WhisperCheckpoint::from_ctranslate2(&file, &extras()).unwrap_err().to_string();
    assert!(error.contains("AbcsperSpec"), "{error}");

    let with = |name: &str, change: &dyn Fn(&mut Variable)| {
        let mut variables = tiny_variables();
        change(variables.iter_mut().find(|variable| variable.name == name).unwrap());
        checkpoint(&variables).unwrap_err().to_string()
    };
    let error = with("decoder/activation", &|variable| variable.data = vec![0]);
    assert!(error.contains("decoder/activation"), "{error}");
    let bias = "decoder/layer_1/attention/linear_1/bias";
    let error = with(bias, &|variable| variable.data[0] = 1);
    assert!(error.contains(bias) && error.contains("key bias"), "{error}");
    let fused = "encoder/layer_0/self_attention/linear_0/weight";
    let error = with(fused, &|variable| variable.dims = vec![4, 12]);
    assert!(error.contains(fused) && error.contains("[12, 4]"), "{error}");
    let error = with("encoder/num_heads", &|variable| variable.data = vec![3, 0]);
    assert!(error.contains("n_audio_state"), "{error}");
    let error = with(fused, &|variable| variable.name = "elsewhere".into());
    assert!(error.contains(fused) && error.contains("missing"), "{error}");
}

#[test]
fn a_negative_zero_is_no_key_bias() {
    let mut variables = tiny_variables();
    let bias = variables
        .iter_mut()
        .find(|variable| variable.name == "decoder/layer_0/attention/linear_1/bias")
        .unwrap();
    bias.data[..8].copy_from_slice(&f16_bytes([-0.0; 4]));
    check_values(&checkpoint(&variables).unwrap());
}

#[test]
fn integer_weights_are_divided_by_their_scales() {
    let mut variables = tiny_variables();
    let name = "encoder/layer_0/self_attention/linear_0/weight";
    let fused = variables.iter_mut().find(|variable| variable.name == name).unwrap();
    fused.number = 1;
    fused.data = (0..48).map(|index| index as u8).collect();
    let scales: Vec<f32> = (0..12).map(|row| 2.0f32.powi(row % 3)).collect();
    variables.push(Variable {
        name: format!("{name}_scale"),
        dims: vec![12],
        number: 0,
        data: f32_bytes(scales.clone()),
    });
    let model = checkpoint(&variables).unwrap();
    let value = model.tensor("encoder.blocks.0.attn.value.weight").unwrap();
    assert_eq!(value.dtype(), DType::F16);
    // Rows 8 to 11 of the stack.
    let want: Vec<f32> = (32..48).map(|index| index as f32 / scales[index / 4]).collect();
    assert_eq!(value.to_f32().unwrap(), want);
    let bias = model.tensor("encoder.blocks.0.attn.value.bias").unwrap();
    assert_eq!(bias.to_f32().unwrap(), expected(bias.name(), [4, 1, 1, 1]));

    variables.pop();
    let error = checkpoint(&variables).unwrap_err().to_string();
    assert!(error.contains("weight_scale"), "{error}");
}

#[test]
fn extras_must_fit_the_model() {
    let file = CTranslate2File::from_bytes(tiny_ctranslate2()).unwrap();
    let refused = |change: &dyn Fn(&mut tensoryard_formats::whisper::CheckpointExtras)| {
        let mut extras = extras();
        change(&mut extras);
        WhisperCheckpoint::from_ctranslate2(&file, &extras).unwrap_err().to_string()
    };
    assert!(refused(&|extras| extras.vocabulary.tokens.push(vec![])).contains("vocabulary"));
    assert!(refused(&|extras| extras.mel_filters.n_mels = 3).contains("mel filters"));
    assert!(refused(&|extras| extras.suppress_ids = Some(vec![6])).contains("token 6"));
    assert!(refused(&|extras| extras.alignment_heads = Some(vec![(2, 0)])).contains("layer 2"));
}

#[test]
fn vocabulary_lines() {
    assert_eq!(parse_vocabulary("Ġa\n\nĊ\r\n"), [b" a".to_vec(), vec![], b"\n".to_vec()]);
    assert!(parse_vocabulary("").is_empty());
}

#[test]
fn announced_variables_take_no_memory_before_they_are_there() {
    let spare = vec![0u8; 4 << 20];
    let head = Bytes::default().u32(6).u16(2).raw(b"x\0").u32(1);
    let bytes = head.u32(400_000).raw(&spare).0;
    let (result, peak) = peak_bytes(|| CTranslate2File::from_bytes(bytes));
    assert!(result.is_err());
    assert!(peak < 500_000, "{peak} bytes");
}

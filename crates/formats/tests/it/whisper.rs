//! The checkpoint form: from any format to any other with the same values.

use std::fs;
use std::path::Path;

use tensoryard_formats::ggml_whisper::GgmlWhisperFile;
use tensoryard_formats::gguf::{GgufBuilder, GgufFile};
use tensoryard_formats::whisper::{TensorRole, WeightType, WhisperCheckpoint, tensor_specs};
use tensoryard_formats::{ConvertOptions, FormatError, ModelFile, OpenOptions, convert};
use tensoryard_tensor::{DType, Shape};

use crate::support::{TINY, check_values, extras, tiny_ctranslate2, tiny_ggml};

fn with_extras() -> ConvertOptions {
    let mut options = ConvertOptions::default();
    options.extras = Some(extras());
    options
}

fn open(path: &Path) -> WhisperCheckpoint {
    WhisperCheckpoint::open(path, OpenOptions::new(), None).unwrap()
}

#[test]
fn every_conversion_keeps_every_value() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("model.bin"), tiny_ctranslate2()).unwrap();
    let mut seen = Vec::new();
    convert(dir.path(), at("a.gguf"), &with_extras(), &mut |progress| {
        assert_eq!(progress.total, tensor_specs(&TINY).unwrap().len());
        seen.push((progress.done, progress.tensor.to_owned()));
        true
    })
    .unwrap();
    assert_eq!(seen.len(), tensor_specs(&TINY).unwrap().len());
    assert_eq!(seen[0], (1, "encoder.positional_embedding".to_owned()));
    let none = ConvertOptions::default();
    convert(at("a.gguf"), at("b.bin"), &none, &mut |_| true).unwrap();
    convert(at("b.bin"), at("c.gguf"), &none, &mut |_| true).unwrap();
    for name in ["a.gguf", "b.bin", "c.gguf"] {
        check_values(&open(&at(name)));
    }
    // The ggml file is the one built by hand, byte for byte.
    assert_eq!(fs::read(at("b.bin")).unwrap(), tiny_ggml());

    let model = open(&at("a.gguf"));
    let want = extras();
    assert_eq!(model.name, want.name);
    assert_eq!(model.vocabulary, want.vocabulary);
    assert_eq!(model.mel_filters, want.mel_filters);
    assert_eq!(model.alignment_heads, want.alignment_heads);
    assert_eq!(model.suppress_ids, want.suppress_ids);
    assert_eq!(model.suppress_ids_begin, want.suppress_ids_begin);
    assert_eq!(model.language_ids, want.language_ids);
    let model = open(&at("c.gguf"));
    assert_eq!(model.vocabulary.tokens, want.vocabulary.tokens);
    assert_eq!(model.suppress_ids, None);
}

#[test]
fn a_gguf_has_the_types_and_layouts_that_the_runtime_wants() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("model.bin"), tiny_ctranslate2()).unwrap();
    let path = dir.path().join("a.gguf");
    convert(dir.path(), &path, &with_extras(), &mut |_| true).unwrap();
    let file = GgufFile::open(&path, OpenOptions::new()).unwrap();
    let conv = file.tensor("encoder.conv1.weight").unwrap();
    assert_eq!((conv.dtype, conv.shape), (DType::F16, Shape::new(&[2, 3, 4]).unwrap()));
    assert_eq!(file.keys().get_str("general.architecture").unwrap(), "whisper");
    assert_eq!(file.keys().get_u32("whisper.encoder.mels_count").unwrap(), 2);
    let tokens = file.keys().get_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens[1].as_str(), Some("Ġb"));
    assert_eq!(file.keys().get_u32("tokenizer.ggml.eos_token_id").unwrap(), 4);
    let model = open(&path);
    for tensor in model.tensors() {
        let want = match tensor.role() {
            TensorRole::Linear | TensorRole::Embedding | TensorRole::Conv => DType::F16,
            TensorRole::Vector | TensorRole::Positional => DType::F32,
        };
        assert_eq!(tensor.dtype(), want, "{}", tensor.name());
        // Everything can be used where it is mapped.
        assert_eq!(tensor.bytes().unwrap(), tensor.to_bytes(want).unwrap());
    }
}

#[test]
fn weights_can_be_written_as_f32_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("in.bin"), tiny_ggml()).unwrap();
    let mut options = ConvertOptions::default();
    options.weights = WeightType::F32;
    convert(at("in.bin"), at("wide.gguf"), &options, &mut |_| true).unwrap();
    convert(at("in.bin"), at("wide.bin"), &options, &mut |_| true).unwrap();
    for name in ["wide.gguf", "wide.bin"] {
        let model = open(&at(name));
        check_values(&model);
        assert!(model.tensors().iter().all(|tensor| tensor.stored_dtype() == DType::F32));
    }
    options.weights = WeightType::F16;
    options.open = OpenOptions::new().mmap(false);
    convert(at("wide.gguf"), at("narrow.bin"), &options, &mut |_| true).unwrap();
    assert_eq!(fs::read(at("narrow.bin")).unwrap(), tiny_ggml());
}

#[test]
fn writing_twice_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.bin");
    fs::write(&path, tiny_ggml()).unwrap();
    let outputs = ["a.gguf", "b.gguf"].map(|name| {
        let out = dir.path().join(name);
        convert(&path, &out, &ConvertOptions::default(), &mut |_| true).unwrap();
        fs::read(out).unwrap()
    });
    assert_eq!(outputs[0], outputs[1]);
}

#[test]
fn a_file_can_be_converted_onto_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.bin");
    fs::write(&path, tiny_ggml()).unwrap();
    convert(&path, &path, &ConvertOptions::default(), &mut |_| true).unwrap();
    assert_eq!(fs::read(&path).unwrap(), tiny_ggml());
}

#[test]
fn conversions_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("in.bin"), tiny_ggml()).unwrap();
    fs::write(at("model.bin"), tiny_ctranslate2()).unwrap();
    let fails = |from: &str, to: &str| {
        let options = ConvertOptions::default();
        convert(at(from), at(to), &options, &mut |_| true).unwrap_err().to_string()
    };
    assert!(fails("in.bin", "out.safetensors").contains("output format"));
    assert!(fails("missing.bin", "out.gguf").contains("missing.bin"));
    assert!(fails("in.bin", "no/such/dir/out.gguf").contains("out.gguf"));
    assert!(fails("model.bin", "out.gguf").contains("vocabulary"));
}

#[test]
fn another_architecture_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("llama.gguf");
    let mut builder = GgufBuilder::new();
    builder.key("general.architecture", "llama").unwrap();
    builder.write_file(&path, &mut |_, _| Ok(())).unwrap();
    let error = WhisperCheckpoint::open(&path, OpenOptions::new(), None).unwrap_err();
    assert!(matches!(error.root(), FormatError::WrongModel { found, .. } if found == "llama"));
    assert!(error.to_string().contains("llama.gguf"), "{error}");
}

#[test]
fn tensor_names_are_those_of_the_original() {
    let specs = tensor_specs(&TINY).unwrap();
    // 15 tensors an encoder block, 24 a decoder block, and 11 outside of blocks.
    assert_eq!(specs.len(), 15 + 2 * 24 + 11);
    assert_eq!(TINY.n_tensors(), specs.len());
    let find = |name: &str| specs.iter().find(|spec| spec.name == name).map(|spec| spec.shape);
    assert_eq!(find("decoder.blocks.1.mlp.0.weight"), Some(Shape::new(&[4, 16]).unwrap()));
    assert_eq!(find("encoder.blocks.0.attn.key.bias"), None);
}

#[test]
fn misshapen_tensors_are_named() {
    let mut bytes = tiny_ggml();
    let name = b"encoder.blocks.0.attn.query.bias";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    // One dimension of 4 becomes 3, and the tensor behind is moved up.
    bytes[at - 4] = 3;
    bytes.drain(at + name.len()..at + name.len() + 4);
    let file = GgmlWhisperFile::from_bytes(bytes).unwrap();
    let error = WhisperCheckpoint::from_ggml(&file).unwrap_err().to_string();
    assert!(error.contains("attn.query.bias") && error.contains("[3]"), "{error}");
}

#[test]
fn a_conversion_that_is_stopped_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("in.bin"), tiny_ggml()).unwrap();
    for name in ["out.gguf", "out.bin"] {
        fs::write(at(name), "old").unwrap();
        let mut calls = 0;
        let error = convert(at("in.bin"), at(name), &ConvertOptions::default(), &mut |progress| {
            calls += 1;
            progress.done < 3
        })
        .unwrap_err();
        assert!(matches!(error.root(), FormatError::Stopped), "{error}");
        assert_eq!(calls, 3);
        assert_eq!(fs::read(at(name)).unwrap(), b"old");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

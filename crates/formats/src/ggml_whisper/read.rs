//! The reader of the ggml Whisper format.
//!
//! A file that opens has every tensor that its hyperparameters demand, each
//! once and whole; shapes are checked when a checkpoint is made of it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use tensoryard_tensor::{DType, MAX_DIMS, Shape};

use super::{MAGIC, QUANTIZATION_FACTOR, QUANTIZATION_VERSION, dtype_of_ftype};
use crate::detect::{Format, detect_bytes};
use crate::error::{FormatError, Result};
use crate::file::{FileData, ModelFile, OpenOptions, ReadSeek, TensorInfo, tensor_size_bytes};
use crate::gguf::tensor_type;
use crate::reader::{self, Reader, capacity};
use crate::value::Value;
use crate::whisper::{MelFilters, WhisperConfig, tensor_specs};

/// A ggml Whisper file whose header was read and checked.
#[derive(Debug)]
pub struct GgmlWhisperFile {
    header: Header,
    index: HashMap<String, usize>,
    data: Arc<FileData>,
}

impl GgmlWhisperFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The path cannot be opened, or the file is no whole ggml Whisper model;
    /// the message names the path and the field or tensor.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        FileData::open(path, options).and_then(Self::from_data).map_err(|error| error.in_file(path))
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// The bytes are no whole ggml Whisper model.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::from_data(FileData::from_bytes(bytes))
    }

    fn from_data(data: FileData) -> Result<Self> {
        let header = data.parse(parse)?;
        let index =
            header.tensors.iter().enumerate().map(|(at, info)| (info.name.clone(), at)).collect();
        Ok(Self { header, index, data: Arc::new(data) })
    }

    /// The hyperparameters.
    pub fn config(&self) -> &WhisperConfig {
        &self.header.config
    }

    /// The type of the large matrices.
    pub fn matrix_type(&self) -> DType {
        self.header.matrix_type
    }

    /// The mel filters.
    pub fn mel_filters(&self) -> &MelFilters {
        &self.header.mel_filters
    }

    /// The text tokens as raw bytes, by id. Special tokens are usually not
    /// among them; readers know them by their number.
    pub fn tokens(&self) -> &[Vec<u8>] {
        &self.header.tokens
    }
}

impl ModelFile for GgmlWhisperFile {
    fn format(&self) -> Format {
        Format::GgmlWhisper
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensors.get(*self.index.get(name)?)
    }

    fn metadata(&self) -> Cow<'_, [(String, Value)]> {
        let header = &self.header;
        let mut entries: Vec<(String, Value)> = header
            .config
            .fields()
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::U64(*value as u64)))
            .collect();
        entries.push(("matrix_type".into(), header.matrix_type.name().into()));
        entries.push(("mel_filter_bins".into(), Value::U64(header.mel_filters.n_bins as u64)));
        entries.push(("stored_tokens".into(), Value::U64(header.tokens.len() as u64)));
        Cow::Owned(entries)
    }

    fn data(&self) -> &Arc<FileData> {
        &self.data
    }
}

#[derive(Debug)]
struct Header {
    config: WhisperConfig,
    matrix_type: DType,
    mel_filters: MelFilters,
    tokens: Vec<Vec<u8>>,
    tensors: Vec<TensorInfo>,
}

fn parse(stream: &mut dyn ReadSeek, len: u64) -> Result<Header> {
    let mut reader = Reader::new(stream, len);
    let head = reader.bytes(&"the magic number", len.min(4))?;
    if head != MAGIC.to_le_bytes() {
        return Err(match detect_bytes(&head, len) {
            Ok(found) => {
                FormatError::WrongFormat { wanted: "ggml Whisper", found: found.name().into() }
            }
            Err(error) => error,
        });
    }
    let mut config = WhisperConfig::default();
    for (name, field) in config.fields_mut() {
        *field = read_size(&mut reader, name)?;
    }
    config.check()?;
    let matrix_type = matrix_type(reader.i32(&"ftype")?)?;
    let mel_filters = read_mel_filters(&mut reader, &config)?;
    let tokens = read_tokens(&mut reader, &config)?;
    let tensors = read_tensors(&mut reader, &config)?;
    Ok(Header { config, matrix_type, mel_filters, tokens, tensors })
}

/// A 32-bit count that must not be negative.
fn read_size(reader: &mut Reader<'_>, what: &str) -> Result<usize> {
    let value = reader.i32(&what)?;
    usize::try_from(value).map_err(|_| FormatError::invalid(what, format!("is {value}")))
}

fn matrix_type(ftype: i32) -> Result<DType> {
    let bad = |problem: String| Err(FormatError::invalid("ftype", problem));
    let Ok(number) = u32::try_from(ftype) else { return bad(format!("is {ftype}")) };
    let version = number / QUANTIZATION_FACTOR;
    let Some(dtype) = dtype_of_ftype(number % QUANTIZATION_FACTOR) else {
        return bad(format!("{number} names no tensor type"));
    };
    if dtype.is_quantized() && version != QUANTIZATION_VERSION {
        return bad(format!(
            "{number} has quantisation version {version}, version {QUANTIZATION_VERSION} is read"
        ));
    }
    Ok(dtype)
}

fn read_mel_filters(reader: &mut Reader<'_>, config: &WhisperConfig) -> Result<MelFilters> {
    let n_mels = read_size(reader, "the number of mel filters")?;
    let n_bins = read_size(reader, "the number of bins of a mel filter")?;
    if n_mels != config.n_mels || n_bins == 0 {
        let problem = format!("{n_mels} of {n_bins} bins, the model has {} mels", config.n_mels);
        return Err(FormatError::invalid("mel filters", problem));
    }
    // Both factors have 31 bits at most, so that the product of bytes fits 64.
    let bytes = n_mels as u64 * n_bins as u64 * 4;
    let values = reader
        .bytes(&"the mel filters", bytes)?
        .as_chunks::<4>()
        .0
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect();
    Ok(MelFilters { n_mels, n_bins, values })
}

fn read_tokens(reader: &mut Reader<'_>, config: &WhisperConfig) -> Result<Vec<Vec<u8>>> {
    let count = read_size(reader, "the number of tokens")?;
    if count > config.n_vocab {
        return Err(FormatError::Count {
            what: "the number of tokens".into(),
            count: count as u64,
            limit: config.n_vocab as u64,
        });
    }
    let count = reader.count(&"the number of tokens", count as u64, 4)?;
    let mut tokens = Vec::with_capacity(capacity(count));
    for id in 0..count {
        let what = format_args!("token {id}");
        let len = reader.u32(&what)?;
        tokens.push(reader.bytes(&what, len.into())?);
    }
    Ok(tokens)
}

fn read_tensors(reader: &mut Reader<'_>, config: &WhisperConfig) -> Result<Vec<TensorInfo>> {
    // A tensor takes at least three numbers, a dimension, a name of 15 bytes and an element.
    let demanded = config.n_tensors() as u64;
    reader.count(&"the number of tensors that the hyperparameters demand", demanded, 3 * 4 + 20)?;
    let wanted = tensor_specs(config)?;
    let known: HashSet<&str> = wanted.iter().map(|spec| spec.name.as_str()).collect();
    let mut tensors = Vec::new();
    let mut seen = HashSet::new();
    while reader.remaining() > 0 {
        let info = read_tensor(reader, tensors.len())?;
        if !known.contains(info.name.as_str()) {
            let what = format!("tensor {:?}", info.name);
            return Err(FormatError::invalid(what, "is not part of this Whisper model"));
        }
        if !seen.insert(info.name.clone()) {
            return Err(FormatError::Duplicate { kind: "tensor", name: info.name });
        }
        tensors.push(info);
    }
    match wanted.into_iter().find(|spec| !seen.contains(&spec.name)) {
        Some(missing) => Err(FormatError::MissingTensor(missing.name)),
        None => Ok(tensors),
    }
}

fn read_tensor(reader: &mut Reader<'_>, index: usize) -> Result<TensorInfo> {
    let what = format_args!("tensor {index}");
    let rank = read_size(reader, &format!("the dimension count of {what}"))?;
    if !(1..=MAX_DIMS).contains(&rank) {
        return Err(FormatError::Count {
            what: format!("the dimension count of {what}"),
            count: rank as u64,
            limit: MAX_DIMS as u64,
        });
    }
    let name_len = read_size(reader, &format!("the name length of {what}"))?;
    let number = reader.u32(&format_args!("the type of {what}"))?;
    let mut dims = [0; MAX_DIMS];
    for dim in dims.iter_mut().take(rank) {
        *dim = read_size(reader, &format!("a dimension of {what}"))?;
    }
    let bytes = reader.bytes(&format_args!("the name of {what}"), name_len as u64)?;
    let name = reader::name(&what, bytes)?;
    let dtype = tensor_type(&name, number)?;
    let shape =
        Shape::new(dims.get(..rank).unwrap_or_default()).map_err(FormatError::tensor(&name))?;
    let size = tensor_size_bytes(dtype, shape).map_err(FormatError::tensor(&name))?;
    let start = reader.offset();
    reader.skip(&format_args!("the data of tensor {name:?}"), size)?;
    Ok(TensorInfo { name, dtype, shape, rank, range: start..start + size })
}

//! The GGUF reader.
//!
//! Counts are held against the bytes that are left before anything is
//! allocated for them, so that memory stays within a small multiple of the
//! file's size whatever the file says.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tensoryard_tensor::{DType, MAX_DIMS, Shape};

use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_NAME_BYTES,
    Metadata,
};
use crate::detect::{Format, detect_bytes};
use crate::error::{FormatError, Result};
use crate::file::{
    ByteOrder, FileData, ModelFile, OpenOptions, ReadSeek, TensorInfo, tensor_size_bytes,
};
use crate::reader::{self, Reader, capacity};
use crate::value::{Array, Text, Value, ValueType};

/// A GGUF file whose header was read and checked.
#[derive(Debug)]
#[doc(alias = "gguf_context")]
pub struct GgufFile {
    version: u32,
    order: ByteOrder,
    alignment: u32,
    data_start: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    data: Arc<FileData>,
}

impl GgufFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The path cannot be opened, or the file breaks a rule of the format; the
    /// message names the path and the key or tensor.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        FileData::open(path, options).and_then(Self::from_data).map_err(|error| error.in_file(path))
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// The bytes break a rule of the format.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::from_data(FileData::from_bytes(bytes))
    }

    fn from_data(data: FileData) -> Result<Self> {
        let header = data.parse(parse)?;
        let index =
            header.tensors.iter().enumerate().map(|(at, info)| (info.name.clone(), at)).collect();
        Ok(Self {
            version: header.version,
            order: header.order,
            alignment: header.alignment,
            data_start: header.data_start,
            metadata: header.metadata,
            tensors: header.tensors,
            index,
            data: Arc::new(data),
        })
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Where tensor data begins in the file, in bytes.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Keys and values with typed getters.
    pub fn keys(&self) -> &Metadata {
        &self.metadata
    }
}

impl ModelFile for GgufFile {
    fn format(&self) -> Format {
        Format::Gguf
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.index.get(name)?)
    }

    fn metadata(&self) -> Cow<'_, [(String, Value)]> {
        Cow::Borrowed(self.metadata.entries())
    }

    fn data(&self) -> &Arc<FileData> {
        &self.data
    }

    fn byte_order(&self) -> ByteOrder {
        self.order
    }
}

struct Header {
    version: u32,
    order: ByteOrder,
    alignment: u32,
    data_start: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

fn parse(stream: &mut dyn ReadSeek, len: u64) -> Result<Header> {
    let mut reader = Reader::new(stream, len);
    let head = reader.bytes(&"the magic number", len.min(4))?;
    if head != MAGIC {
        return Err(match detect_bytes(&head, len) {
            Ok(found) => FormatError::WrongFormat { wanted: "GGUF", found: found.name().into() },
            Err(error) => error,
        });
    }
    let version = read_version(&mut reader)?;
    let n_tensors = reader.u64(&"the tensor count")?;
    let n_keys = reader.u64(&"the key count")?;
    // A key takes at least a length, a type and one byte; a tensor a length, a dimension count,
    // a type and an offset.
    let n_keys = reader.count(&"the number of keys", n_keys, 8 + 4 + 1)?;
    let n_tensors = reader.count(&"the number of tensors", n_tensors, 8 + 4 + 4 + 8)?;

    let mut metadata = Metadata::default();
    for index in 0..n_keys {
        let key = read_name(&mut reader, &format_args!("key {index}"))?;
        let what = format_args!("key {key:?}");
        let number = reader.u32(&format_args!("the type of {what}"))?;
        let value_type = value_type(&what, number)?;
        let value = read_value(&mut reader, &what, value_type)?;
        metadata.insert(key, value)?;
    }
    let alignment = alignment(&metadata)?;

    let mut described = Vec::with_capacity(capacity(n_tensors));
    let mut names = HashMap::with_capacity(capacity(n_tensors));
    for index in 0..n_tensors {
        let (info, offset) = read_tensor(&mut reader, index)?;
        if names.insert(info.name.clone(), index).is_some() {
            return Err(FormatError::Duplicate { kind: "tensor", name: info.name });
        }
        described.push((info, offset));
    }
    let data_start = reader.offset().next_multiple_of(alignment.into());
    let tensors = place(described, data_start, len, alignment)?;
    Ok(Header { version, order: reader.order, alignment, data_start, metadata, tensors })
}

fn read_version(reader: &mut Reader<'_>) -> Result<u32> {
    let version = reader.u32(&"the version")?;
    // A file of the other byte order shows its small version in the high half.
    let version = if version != 0 && version & 0xffff == 0 {
        reader.order = ByteOrder::Big;
        version.swap_bytes()
    } else {
        version
    };
    match version {
        2 | 3 => Ok(version),
        _ => Err(FormatError::Version { format: "GGUF", version, supported: "2 or 3" }),
    }
}

fn read_name(reader: &mut Reader<'_>, what: &dyn Display) -> Result<String> {
    let len = reader.u64(&format_args!("the name length of {what}"))?;
    if len > MAX_NAME_BYTES as u64 {
        let what = format!("the name length of {what}");
        return Err(FormatError::Count { what, count: len, limit: MAX_NAME_BYTES as u64 });
    }
    let bytes = reader.bytes(&format_args!("the name of {what}"), len)?;
    reader::name(what, bytes)
}

fn value_type(what: &dyn Display, number: u32) -> Result<ValueType> {
    ValueType::from_number(number)
        .ok_or_else(|| FormatError::UnknownType { what: what.to_string(), number })
}

fn read_text(reader: &mut Reader<'_>, what: &dyn Display) -> Result<Text> {
    let len = reader.u64(what)?;
    Ok(Text::from(reader.bytes(what, len)?))
}

fn read_bool(reader: &mut Reader<'_>, what: &dyn Display) -> Result<bool> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(FormatError::invalid(what.to_string(), format!("{other} is no boolean"))),
    }
}

fn read_value(reader: &mut Reader<'_>, what: &dyn Display, value_type: ValueType) -> Result<Value> {
    Ok(match value_type {
        ValueType::U8 => Value::U8(reader.u8(what)?),
        ValueType::I8 => Value::I8(reader.u8(what)? as i8),
        ValueType::U16 => Value::U16(reader.u16(what)?),
        ValueType::I16 => Value::I16(reader.u16(what)? as i16),
        ValueType::U32 => Value::U32(reader.u32(what)?),
        ValueType::I32 => Value::I32(reader.i32(what)?),
        ValueType::F32 => Value::F32(f32::from_bits(reader.u32(what)?)),
        ValueType::Bool => Value::Bool(read_bool(reader, what)?),
        ValueType::String => Value::String(read_text(reader, what)?),
        ValueType::Array => Value::Array(read_array(reader, what, 0)?),
        ValueType::U64 => Value::U64(reader.u64(what)?),
        ValueType::I64 => Value::I64(reader.u64(what)? as i64),
        ValueType::F64 => Value::F64(f64::from_bits(reader.u64(what)?)),
    })
}

fn read_array(reader: &mut Reader<'_>, what: &dyn Display, depth: usize) -> Result<Array> {
    if depth >= MAX_ARRAY_DEPTH {
        return Err(FormatError::Count {
            what: format!("the array depth of {what}"),
            count: depth as u64 + 1,
            limit: MAX_ARRAY_DEPTH as u64,
        });
    }
    let number = reader.u32(&format_args!("the element type of {what}"))?;
    let element = value_type(&format_args!("the elements of {what}"), number)?;
    let count = reader.u64(&format_args!("the array length of {what}"))?;
    let count =
        reader.count(&format_args!("the array length of {what}"), count, element.least_bytes())?;
    macro_rules! items {
        ($read:expr) => {{
            let mut items = Vec::with_capacity(capacity(count));
            for _ in 0..count {
                #[allow(clippy::redundant_closure_call, reason = "the macro takes closures")]
                items.push($read(reader)?);
            }
            items
        }};
    }
    type R<'a, 'b> = &'a mut Reader<'b>;
    Ok(match element {
        ValueType::U8 => Array::U8(reader.bytes(what, count as u64)?),
        ValueType::I8 => Array::I8(items!(|r: R<'_, '_>| r.u8(what).map(|v| v as i8))),
        ValueType::U16 => Array::U16(items!(|r: R<'_, '_>| r.u16(what))),
        ValueType::I16 => Array::I16(items!(|r: R<'_, '_>| r.u16(what).map(|v| v as i16))),
        ValueType::U32 => Array::U32(items!(|r: R<'_, '_>| r.u32(what))),
        ValueType::I32 => Array::I32(items!(|r: R<'_, '_>| r.i32(what))),
        ValueType::F32 => Array::F32(items!(|r: R<'_, '_>| r.u32(what).map(f32::from_bits))),
        ValueType::Bool => Array::Bool(items!(|r: R<'_, '_>| read_bool(r, what))),
        ValueType::String => Array::String(items!(|r: R<'_, '_>| read_text(r, what))),
        ValueType::Array => Array::Array(items!(|r: R<'_, '_>| read_array(r, what, depth + 1))),
        ValueType::U64 => Array::U64(items!(|r: R<'_, '_>| r.u64(what))),
        ValueType::I64 => Array::I64(items!(|r: R<'_, '_>| r.u64(what).map(|v| v as i64))),
        ValueType::F64 => Array::F64(items!(|r: R<'_, '_>| r.u64(what).map(f64::from_bits))),
    })
}

fn alignment(metadata: &Metadata) -> Result<u32> {
    let Some(alignment) = metadata.find_u32(ALIGNMENT_KEY)? else { return Ok(DEFAULT_ALIGNMENT) };
    if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT {
        return Ok(alignment);
    }
    let problem = format!("{alignment} is no power of two up to {MAX_ALIGNMENT}");
    Err(FormatError::invalid(format!("key {ALIGNMENT_KEY:?}"), problem))
}

/// The name of a type that files could have once and must not have any more.
fn removed_type(number: u32) -> Option<&'static str> {
    Some(match number {
        4 => "q4_2",
        5 => "q4_3",
        31 => "q4_0_4_4",
        32 => "q4_0_4_8",
        33 => "q4_0_8_8",
        36 => "iq4_nl_4_4",
        37 => "iq4_nl_4_8",
        38 => "iq4_nl_8_8",
        _ => return None,
    })
}

/// The tensor type of a number, or an error that says what the number was.
pub(crate) fn tensor_type(tensor: &str, number: u32) -> Result<DType> {
    DType::from_gguf_number(number).ok_or_else(|| match removed_type(number) {
        Some(name) => FormatError::RemovedType { tensor: tensor.to_owned(), number, name },
        None => FormatError::UnknownType { what: format!("tensor {tensor:?}"), number },
    })
}

/// Reads one description; the range still counts from 0.
fn read_tensor(reader: &mut Reader<'_>, index: usize) -> Result<(TensorInfo, u64)> {
    let name = read_name(reader, &format_args!("tensor {index}"))?;
    let what = format_args!("tensor {name:?}");
    let rank = reader.u32(&what)?;
    let rank = usize::try_from(rank).ok().filter(|&rank| rank <= MAX_DIMS).ok_or_else(|| {
        FormatError::Count {
            what: format!("the dimension count of {what}"),
            count: rank.into(),
            limit: MAX_DIMS as u64,
        }
    })?;
    let mut dims = [0; MAX_DIMS];
    for dim in dims.iter_mut().take(rank) {
        let value = reader.u64(&what)?;
        *dim = usize::try_from(value).map_err(|_| FormatError::Count {
            what: format!("a dimension of {what}"),
            count: value,
            limit: usize::MAX as u64,
        })?;
    }
    let dtype = tensor_type(&name, reader.u32(&what)?)?;
    let offset = reader.u64(&what)?;
    let shape =
        Shape::new(dims.get(..rank).unwrap_or_default()).map_err(FormatError::tensor(&name))?;
    let size = tensor_size_bytes(dtype, shape).map_err(FormatError::tensor(&name))?;
    Ok((TensorInfo { name, dtype, shape, rank, range: 0..size }, offset))
}

/// Gives each tensor its range in the file, inside the file and beside the others.
fn place(
    described: Vec<(TensorInfo, u64)>,
    data_start: u64,
    len: u64,
    alignment: u32,
) -> Result<Vec<TensorInfo>> {
    let mut tensors = Vec::with_capacity(described.len());
    for (mut info, offset) in described {
        if !offset.is_multiple_of(alignment.into()) {
            let problem = format!("offset {offset} is not a multiple of the alignment {alignment}");
            return Err(FormatError::placement(&info.name, problem));
        }
        let start = data_start.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(info.range.end));
        // An empty tensor may stand where the data of others ends, padding included.
        let limit = if info.range.is_empty() { len.max(data_start) } else { len };
        info.range = match (start, end) {
            (Some(start), Some(end)) if end <= limit => start..end,
            _ => {
                let problem = format!(
                    "{} bytes at data offset {offset} go past the end of the file, \
                     which has {} bytes of data",
                    info.range.end,
                    len.saturating_sub(data_start)
                );
                return Err(FormatError::placement(&info.name, problem));
            }
        };
        tensors.push(info);
    }
    check_overlaps(&tensors)?;
    Ok(tensors)
}

fn check_overlaps(tensors: &[TensorInfo]) -> Result<()> {
    let mut filled: Vec<(&Range<u64>, &str)> = tensors
        .iter()
        .filter(|info| !info.range.is_empty())
        .map(|info| (&info.range, info.name.as_str()))
        .collect();
    filled.sort_by_key(|(range, _)| range.start);
    for pair in filled.windows(2) {
        if let [(first, first_name), (second, second_name)] = pair
            && second.start < first.end
        {
            let problem = format!("its data overlaps that of tensor {first_name:?}");
            return Err(FormatError::placement(second_name, problem));
        }
    }
    Ok(())
}

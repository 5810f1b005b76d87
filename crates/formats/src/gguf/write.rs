//! The GGUF writer: version 3, little-endian.
//!
//! Deterministic: the same keys and tensors give the same bytes. Tensor data
//! is pulled through a callback one tensor at a time, so that memory does not
//! grow with the model.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use tensoryard_tensor::{DType, MAX_DIMS, Shape};

use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, Metadata};
use crate::atomic::AtomicFile;
use crate::error::{FormatError, Result};
use crate::file::{TensorInfo, tensor_size_bytes};
use crate::reader;
use crate::value::{Array, Value};

/// The keys and tensors of a GGUF file to be written.
#[derive(Debug, Clone, Default)]
#[doc(alias = "gguf_init_empty")]
pub struct GgufBuilder {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    names: HashSet<String>,
}

impl GgufBuilder {
    /// A file without keys and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key at the end. `general.alignment` sets the alignment of the
    /// tensors, 32 bytes when it is not given.
    ///
    /// # Errors
    /// An empty or duplicate key, or one with a zero byte; arrays that nest too
    /// deep or mix their element types.
    pub fn key(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Result<&mut Self> {
        let key = reader::name(&"a key", key.into().into_bytes())?;
        let value = value.into();
        if let Value::Array(array) = &value {
            check_array(&key, array, 1)?;
        }
        if key == ALIGNMENT_KEY {
            match value {
                Value::U32(alignment)
                    if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => {}
                _ => return Err(FormatError::invalid(key, format!("{value} is no alignment"))),
            }
        }
        self.metadata.insert(key, value)?;
        Ok(self)
    }

    /// Adds a tensor at the end; its data comes when the file is written.
    ///
    /// # Errors
    /// An empty or duplicate name, or one with a zero byte; rows that are not
    /// whole blocks of the type.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        shape: Shape,
    ) -> Result<&mut Self> {
        self.tensor_of_rank(name, dtype, shape, shape.rank())
    }

    /// As [`GgufBuilder::tensor`], with the number of dimensions that the file
    /// gives; trailing ones beyond the shape's rank are written as 1.
    ///
    /// # Errors
    /// As [`GgufBuilder::tensor`], and a rank that would lose a dimension or is above 4.
    pub fn tensor_of_rank(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        shape: Shape,
        rank: usize,
    ) -> Result<&mut Self> {
        let name = reader::name(&"a tensor", name.into().into_bytes())?;
        let lost = shape.dims().iter().skip(rank).any(|&dim| dim != 1);
        if lost || rank > MAX_DIMS {
            return Err(FormatError::placement(&name, format!("{shape} has not rank {rank}")));
        }
        let size = tensor_size_bytes(dtype, shape).map_err(FormatError::tensor(&name))?;
        if !self.names.insert(name.clone()) {
            return Err(FormatError::Duplicate { kind: "tensor", name });
        }
        self.tensors.push(TensorInfo { name, dtype, shape, rank, range: 0..size });
        Ok(self)
    }

    /// The tensors added so far; their ranges count from 0.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The keys added so far.
    pub fn keys(&self) -> &Metadata {
        &self.metadata
    }

    /// Writes the file at `path`, which appears only when it is complete.
    ///
    /// # Errors
    /// As [`GgufBuilder::write`]; nothing is left behind then.
    pub fn write_file(
        &self,
        path: impl AsRef<Path>,
        data: &mut dyn FnMut(&TensorInfo, &mut TensorSink<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut file = AtomicFile::create(path.as_ref())?;
        self.write(&mut file, data).map_err(|error| error.in_file(path.as_ref()))?;
        file.commit()
    }

    /// Writes the file to `out`. `data` is called for each tensor in order and
    /// must write exactly the tensor's bytes, little-endian.
    ///
    /// # Errors
    /// What `out` or `data` report, and a callback that writes too much or too little.
    pub fn write(
        &self,
        out: &mut dyn Write,
        data: &mut dyn FnMut(&TensorInfo, &mut TensorSink<'_>) -> Result<()>,
    ) -> Result<()> {
        let alignment =
            u64::from(self.metadata.find_u32(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT));
        let header = self.header(alignment)?;
        let mut write_all = |bytes: &[u8]| out.write_all(bytes).map_err(FormatError::io("write"));
        write_all(&header)?;
        write_all(&padding(header.len() as u64, alignment))?;
        for info in &self.tensors {
            let mut sink = TensorSink { out, info, written: 0 };
            data(info, &mut sink)?;
            sink.check_complete()?;
            out.write_all(&padding(info.range.end, alignment)).map_err(FormatError::io("write"))?;
        }
        Ok(())
    }

    fn header(&self, alignment: u64) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(3u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.entries().len() as u64).to_le_bytes());
        for (key, value) in self.metadata.entries() {
            put_bytes(&mut header, key.as_bytes());
            header.extend(value.value_type().number().to_le_bytes());
            put_value(&mut header, value);
        }
        let mut offset = 0u64;
        for info in &self.tensors {
            put_bytes(&mut header, info.name.as_bytes());
            header.extend((info.rank as u32).to_le_bytes());
            for dim in info.shape.dims().iter().take(info.rank) {
                header.extend((*dim as u64).to_le_bytes());
            }
            header.extend(info.dtype.gguf_number().to_le_bytes());
            header.extend(offset.to_le_bytes());
            let end = offset.checked_add(info.range.end);
            offset =
                end.and_then(|end| end.checked_next_multiple_of(alignment)).ok_or_else(|| {
                    FormatError::placement(&info.name, "its data ends beyond 2^64 bytes")
                })?;
        }
        Ok(header)
    }
}

/// Takes the bytes of one tensor and counts them.
pub struct TensorSink<'a> {
    out: &'a mut dyn Write,
    info: &'a TensorInfo,
    written: u64,
}

impl<'a> TensorSink<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, info: &'a TensorInfo) -> Self {
        Self { out, info, written: 0 }
    }

    /// Writes the next bytes of the tensor.
    ///
    /// # Errors
    /// More bytes than the tensor has; what the output reports.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        if self.written > self.info.range.end {
            return self.wrong_count();
        }
        self.out.write_all(bytes).map_err(FormatError::io("write"))
    }

    pub(crate) fn check_complete(&self) -> Result<()> {
        if self.written == self.info.range.end { Ok(()) } else { self.wrong_count() }
    }

    fn wrong_count(&self) -> Result<()> {
        let problem =
            format!("{} bytes of data given, it has {}", self.written, self.info.range.end);
        Err(FormatError::placement(&self.info.name, problem))
    }
}

impl Write for TensorSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn padding(len: u64, alignment: u64) -> Vec<u8> {
    vec![0; (len.next_multiple_of(alignment) - len) as usize]
}

fn check_array(key: &str, array: &Array, depth: usize) -> Result<()> {
    if depth > MAX_ARRAY_DEPTH {
        return Err(FormatError::Count {
            what: format!("the array depth of key {key:?}"),
            count: depth as u64,
            limit: MAX_ARRAY_DEPTH as u64,
        });
    }
    match array {
        Array::Array(items) => items.iter().try_for_each(|item| check_array(key, item, depth + 1)),
        _ => Ok(()),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(value) => out.push(*value),
        Value::I8(value) => out.extend(value.to_le_bytes()),
        Value::U16(value) => out.extend(value.to_le_bytes()),
        Value::I16(value) => out.extend(value.to_le_bytes()),
        Value::U32(value) => out.extend(value.to_le_bytes()),
        Value::I32(value) => out.extend(value.to_le_bytes()),
        Value::F32(value) => out.extend(value.to_le_bytes()),
        Value::Bool(value) => out.push((*value).into()),
        Value::String(text) => put_bytes(out, text.as_bytes()),
        Value::Array(array) => put_array(out, array),
        Value::U64(value) => out.extend(value.to_le_bytes()),
        Value::I64(value) => out.extend(value.to_le_bytes()),
        Value::F64(value) => out.extend(value.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.element_type().number().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(items) => out.extend(items),
        Array::I8(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::U16(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I16(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::U32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::F32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::Bool(items) => out.extend(items.iter().map(|&item| u8::from(item))),
        Array::String(items) => items.iter().for_each(|item| put_bytes(out, item.as_bytes())),
        Array::Array(items) => items.iter().for_each(|item| put_array(out, item)),
        Array::U64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::F64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
    }
}

//! What all model files have in common: named tensors that lie somewhere in a
//! file, and the ways to get at their bytes.
//!
//! Tensor data is borrowed from a memory map, or read on demand into the
//! caller's buffer; nothing here ever holds the data of all tensors. Offsets are checked when a file is
//! opened, so that reading a tensor later can fail only by the system.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tensoryard_tensor::{DType, Shape, TensorError};

use crate::detect::Format;
use crate::error::{FormatError, Result};
use crate::map::Map;
use crate::value::Value;

/// How to open a model file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Map the file into memory (the default) instead of reading tensors on demand.
    ///
    /// A mapped file must not be truncated by another process while it is
    /// open: the system then ends the program with a signal. Turning mapping
    /// off avoids that.
    pub mmap: bool,
}

impl OpenOptions {
    /// The defaults: mapped.
    pub fn new() -> Self {
        Self { mmap: true }
    }

    /// The same with memory mapping on or off.
    pub fn mmap(self, mmap: bool) -> Self {
        Self { mmap }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The order of the bytes inside an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first; what every current platform uses.
    Little,
    /// Most significant byte first.
    Big,
}

/// The bytes of a file: mapped, read on demand, or already in memory.
#[derive(Debug)]
pub struct FileData {
    len: u64,
    source: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Map),
    File(Mutex<File>),
    Memory(Vec<u8>),
}

impl FileData {
    pub(crate) fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        let file = File::open(path).map_err(FormatError::io("open the file"))?;
        let metadata = file.metadata().map_err(FormatError::io("read the file's size"))?;
        if metadata.is_dir() {
            return Err(FormatError::LooksLike("a directory".into()));
        }
        let source = if options.mmap && metadata.len() > 0 {
            Bytes::Mapped(Map::new(&file)?)
        } else {
            Bytes::File(Mutex::new(file))
        };
        let len = match &source {
            Bytes::Mapped(map) => map.bytes().len() as u64,
            _ => metadata.len(),
        };
        Ok(Self { len, source })
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { len: bytes.len() as u64, source: Bytes::Memory(bytes) }
    }

    /// Number of bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether [`FileData::borrow`] gives bytes without reading.
    pub fn is_borrowable(&self) -> bool {
        !matches!(self.source, Bytes::File(_))
    }

    /// The bytes of `range` without a copy; `None` when the file is not
    /// mapped, or the range does not lie inside it.
    pub fn borrow(&self, range: &Range<u64>) -> Option<&[u8]> {
        let all = match &self.source {
            Bytes::Mapped(map) => map.bytes(),
            Bytes::Memory(bytes) => bytes,
            Bytes::File(_) => return None,
        };
        all.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    /// Fills `dst` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The range does not lie inside the file, or the system cannot read it.
    pub fn read_at(&self, offset: u64, dst: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(dst.len() as u64).filter(|&end| end <= self.len);
        let Some(end) = end else {
            return Err(FormatError::Truncated {
                what: "tensor data".into(),
                offset,
                needed: dst.len() as u64,
                available: self.len.saturating_sub(offset),
            });
        };
        if let Some(bytes) = self.borrow(&(offset..end)) {
            dst.copy_from_slice(bytes);
            return Ok(());
        }
        let Bytes::File(file) = &self.source else { return Ok(()) };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset)).map_err(FormatError::io("seek in the file"))?;
        file.read_exact(dst).map_err(FormatError::io("read tensor data"))
    }

    /// Tells the system that the pages of `range` are not needed for now, so
    /// that they do not count as this process's memory. A later read brings
    /// them back. Does nothing when the file is not mapped.
    #[doc(alias = "advise_dont_need")]
    pub fn release(&self, range: &Range<u64>) {
        if let (Bytes::Mapped(map), Ok(start), Ok(end)) =
            (&self.source, usize::try_from(range.start), usize::try_from(range.end))
        {
            map.release(start..end);
        }
    }

    /// Runs `parse` on a stream of the file's bytes.
    pub(crate) fn parse<T>(
        &self,
        parse: impl FnOnce(&mut dyn ReadSeek, u64) -> Result<T>,
    ) -> Result<T> {
        match &self.source {
            Bytes::Mapped(map) => parse(&mut Cursor::new(map.bytes()), self.len),
            Bytes::Memory(bytes) => parse(&mut Cursor::new(bytes.as_slice()), self.len),
            Bytes::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.seek(SeekFrom::Start(0)).map_err(FormatError::io("seek in the file"))?;
                parse(&mut *file, self.len)
            }
        }
    }
}

/// A stream that can be moved in.
pub(crate) trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

/// A tensor in a file: what it is and where its bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, never empty, unique in its file.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
    /// Elements along each dimension, fastest first.
    pub shape: Shape,
    /// Number of dimensions that the file gives; trailing ones may be 1.
    pub rank: usize,
    /// Bytes of the file that hold the elements, without gaps.
    pub range: Range<u64>,
}

impl TensorInfo {
    /// Number of bytes of the tensor's data.
    pub fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A model file of any format that was opened and whose header was checked.
pub trait ModelFile: Send + Sync {
    /// The format of the file.
    fn format(&self) -> Format;

    /// Every tensor, in the order of the file.
    fn tensors(&self) -> &[TensorInfo];

    /// The tensor of this name.
    fn tensor(&self, name: &str) -> Option<&TensorInfo>;

    /// Keys and values that describe the model, in the order of the file.
    fn metadata(&self) -> Cow<'_, [(String, Value)]>;

    /// The bytes of the file; clone the `Arc` to keep the mapping alive.
    fn data(&self) -> &Arc<FileData>;

    /// The order of the bytes inside the elements of tensors.
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Little
    }

    /// The little-endian bytes of a tensor of this file: borrowed from the
    /// mapping where that is possible, otherwise read.
    ///
    /// A borrowed slice is aligned only as the file happens to be; check before
    /// casting.
    ///
    /// # Errors
    /// The system cannot read the file, or the tensor is stored big-endian in a
    /// type whose blocks cannot be swapped.
    fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>> {
        let as_stored = self.byte_order() == ByteOrder::Little || tensor.dtype.block_bytes() == 1;
        if as_stored && let Some(bytes) = self.data().borrow(&tensor.range) {
            return Ok(Cow::Borrowed(bytes));
        }
        let len = usize::try_from(tensor.size_bytes()).map_err(|_| FormatError::Tensor {
            tensor: tensor.name.clone(),
            error: TensorError::Overflow(vec![tensor.size_bytes()]),
        })?;
        let mut bytes = vec![0; len];
        self.read_tensor(tensor, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Fills `dst` with the little-endian bytes of a tensor of this file.
    ///
    /// # Errors
    /// As [`ModelFile::tensor_bytes`], and a buffer of another size than the tensor.
    fn read_tensor(&self, tensor: &TensorInfo, dst: &mut [u8]) -> Result<()> {
        if dst.len() as u64 != tensor.size_bytes() {
            return Err(FormatError::placement(
                &tensor.name,
                format!("{} bytes of buffer for {} bytes", dst.len(), tensor.size_bytes()),
            ));
        }
        self.data().read_at(tensor.range.start, dst)?;
        to_little_endian(&tensor.name, tensor.dtype, self.byte_order(), dst)
    }

    /// Lets the system drop the pages of a tensor; see [`FileData::release`].
    fn release(&self, tensor: &TensorInfo) {
        self.data().release(&tensor.range);
    }
}

/// Brings elements as stored into little-endian order, in place.
pub(crate) fn to_little_endian(
    name: &str,
    dtype: DType,
    order: ByteOrder,
    bytes: &mut [u8],
) -> Result<()> {
    if order == ByteOrder::Little || dtype.block_bytes() == 1 {
        return Ok(());
    }
    if dtype.is_quantized() {
        let problem = format!("blocks of {dtype} in big-endian order cannot be read");
        return Err(FormatError::placement(name, problem));
    }
    for element in bytes.chunks_exact_mut(dtype.block_bytes()) {
        element.reverse();
    }
    Ok(())
}

/// Bytes that a tensor of this type and shape takes in a file, where rows are
/// whole blocks and follow each other without gaps.
///
/// # Errors
/// Rows that are not whole blocks; a size beyond 64 bits.
pub fn tensor_size_bytes(dtype: DType, shape: Shape) -> Result<u64, TensorError> {
    let block = dtype.block_len();
    if !shape[0].is_multiple_of(block) {
        return Err(TensorError::PartialBlock { dtype, row: shape[0], block });
    }
    let blocks = (shape.elements() / block) as u64;
    blocks
        .checked_mul(dtype.block_bytes() as u64)
        .filter(|&bytes| bytes <= i64::MAX as u64)
        .ok_or_else(|| TensorError::Overflow(shape.dims().iter().map(|&dim| dim as u64).collect()))
}

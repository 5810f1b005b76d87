//! Reading numbers and strings from a header, with every announced size held
//! against what the file still has before memory is taken for it.

use std::fmt::Display;
use std::io::{BufReader, Read};

use crate::error::{FormatError, Result};
use crate::file::{ByteOrder, ReadSeek};

/// Elements for which memory is taken before the first of them is read. An
/// element may be many times as large in memory as in the file, so a count
/// that only the rest of the file bounds is not yet worth more.
const MAX_RESERVED: usize = 1024;

/// The capacity with which to begin a list that is announced to have `count` elements.
pub(crate) fn capacity(count: usize) -> usize {
    count.min(MAX_RESERVED)
}

/// A position in a file of known length.
pub(crate) struct Reader<'a> {
    inner: BufReader<&'a mut dyn ReadSeek>,
    offset: u64,
    len: u64,
    pub(crate) order: ByteOrder,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(inner: &'a mut dyn ReadSeek, len: u64) -> Self {
        let inner = BufReader::with_capacity(64 * 1024, inner);
        Self { inner, offset: 0, len, order: ByteOrder::Little }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.len - self.offset
    }

    /// Checks that `needed` more bytes exist.
    pub(crate) fn need(&self, what: &dyn Display, needed: u64) -> Result<()> {
        if needed <= self.remaining() {
            return Ok(());
        }
        Err(FormatError::Truncated {
            what: what.to_string(),
            offset: self.offset,
            needed,
            available: self.remaining(),
        })
    }

    /// Checks that `count` things of at least `least_bytes` each can follow.
    pub(crate) fn count(&self, what: &dyn Display, count: u64, least_bytes: u64) -> Result<usize> {
        let limit = self.remaining() / least_bytes.max(1);
        match usize::try_from(count) {
            Ok(small) if count <= limit => Ok(small),
            _ => Err(FormatError::BeyondFile { what: what.to_string(), count, limit }),
        }
    }

    fn array<const N: usize>(&mut self, what: &dyn Display) -> Result<[u8; N]> {
        self.need(what, N as u64)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, dst: &mut [u8]) -> Result<()> {
        self.inner.read_exact(dst).map_err(FormatError::io("read the header"))?;
        self.offset += dst.len() as u64;
        Ok(())
    }

    pub(crate) fn u8(&mut self, what: &dyn Display) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u16(&mut self, what: &dyn Display) -> Result<u16> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(crate) fn u32(&mut self, what: &dyn Display) -> Result<u32> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    pub(crate) fn u64(&mut self, what: &dyn Display) -> Result<u64> {
        let bytes = self.array(what)?;
        Ok(match self.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        })
    }

    pub(crate) fn i32(&mut self, what: &dyn Display) -> Result<i32> {
        Ok(self.u32(what)? as i32)
    }

    /// `len` bytes, whose existence is checked before they are allocated.
    pub(crate) fn bytes(&mut self, what: &dyn Display, len: u64) -> Result<Vec<u8>> {
        self.need(what, len)?;
        let len = self.count(what, len, 1)?;
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Moves over `len` bytes without reading them.
    pub(crate) fn skip(&mut self, what: &dyn Display, len: u64) -> Result<()> {
        self.need(what, len)?;
        let distance = i64::try_from(len)
            .map_err(|_| FormatError::invalid(what.to_string(), format!("{len} bytes")))?;
        self.inner.seek_relative(distance).map_err(FormatError::io("seek in the file"))?;
        self.offset += len;
        Ok(())
    }
}

/// The bytes of a name as text: UTF-8, not empty, without zero bytes.
pub(crate) fn name(what: &dyn Display, bytes: Vec<u8>) -> Result<String> {
    let problem = match std::str::from_utf8(&bytes) {
        _ if bytes.is_empty() => "is empty",
        _ if bytes.contains(&0) => "holds a zero byte",
        Err(_) => "is not UTF-8",
        Ok(text) => return Ok(text.to_owned()),
    };
    let shown = bytes.get(..bytes.len().min(80)).unwrap_or_default();
    let name = String::from_utf8_lossy(shown).into_owned();
    Err(FormatError::Name { what: what.to_string(), problem, name })
}

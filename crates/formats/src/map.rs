//! Mapping a file into memory and telling the system which pages are done with.
//!
//! The only module of this crate with `unsafe` code. A map is read-only and is
//! never handed out for writing. Sizes and offsets are checked by the callers
//! of [`Map::bytes`], which is an ordinary slice.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;

use memmap2::Mmap;

use crate::error::{FormatError, Result};

/// A file mapped for reading.
#[derive(Debug)]
pub(crate) struct Map(Mmap);

impl Map {
    /// Maps the whole of `file`; an empty file maps to no bytes.
    ///
    /// # Errors
    /// The system refuses the mapping.
    pub(crate) fn new(file: &File) -> Result<Self> {
        // SAFETY: The map is read-only and private to this process. The one way to invalidate it
        // is another process that truncates or rewrites the file in place; that is documented at
        // `OpenOptions::mmap`, and files that this crate writes are replaced by rename only.
        let map = unsafe { Mmap::map(file) }.map_err(FormatError::io("map the file"))?;
        Ok(Self(map))
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Lets the system drop the pages of `range` from this process; a later
    /// read brings them back from the file. A hint: failures do not matter.
    pub(crate) fn release(&self, range: Range<usize>) {
        if range.start >= range.end || range.end > self.0.len() {
            return;
        }
        // SAFETY: The map is file-backed and never written, so dropped pages come back with the
        // same contents (checked: `Map::new` is the only constructor and maps read-only). The
        // range lies inside the map, checked above.
        #[cfg(unix)]
        let _ = unsafe {
            self.0.unchecked_advise_range(
                memmap2::UncheckedAdvice::DontNeed,
                range.start,
                range.end - range.start,
            )
        };
    }
}

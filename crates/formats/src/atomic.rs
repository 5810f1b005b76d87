//! Replacing a file as a whole: the new contents are written beside it and
//! take its name only when they are complete.
//!
//! A reader never sees a half-written model, and a process that has the old
//! file mapped keeps the old contents.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{FormatError, Result};

/// A file that appears under its name when it is committed, or not at all.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    writer: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Creates a temporary file in the directory of `target`.
    ///
    /// # Errors
    /// The directory does not exist or cannot be written.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        let target = target.as_ref();
        Self::create_at(target).map_err(|error| error.in_file(target))
    }

    fn create_at(target: &Path) -> Result<Self> {
        if target.is_dir() {
            return Err(FormatError::invalid("output", "is a directory"));
        }
        let name = target
            .file_name()
            .ok_or_else(|| FormatError::invalid("output", "the path names no file"))?;
        let mut serial = 0u64;
        loop {
            let mut temporary_name = name.to_owned();
            temporary_name.push(format!(".partial-{}-{serial}", std::process::id()));
            let temporary = target.with_file_name(temporary_name);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    let writer = Some(BufWriter::with_capacity(256 * 1024, file));
                    return Ok(Self { target: target.to_owned(), temporary, writer });
                }
                // Another writer of this process, or one that was killed, has this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => serial += 1,
                Err(error) => return Err(FormatError::io("create the file")(error)),
            }
        }
    }

    /// Flushes everything to the disk and gives the file its name.
    ///
    /// # Errors
    /// The disk is full, or the target cannot be replaced; nothing is left behind.
    pub fn commit(mut self) -> Result<()> {
        self.finish()
            .map_err(|error| FormatError::io("write the file")(error).in_file(&self.target))
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.flush()?;
            writer.get_ref().sync_all()?;
        }
        std::fs::rename(&self.temporary, &self.target)?;
        self.temporary = PathBuf::new();
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Some(writer) => writer.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        self.writer = None;
        if !self.temporary.as_os_str().is_empty() {
            // Best effort: the error that ended the writing is the one to report.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

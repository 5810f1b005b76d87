//! Where bytes come from: a file, memory, or a stream that cannot seek.
//!
//! [`ByteStream`] gives the three one face. A stream's first bytes can be
//! looked at and put back, so that the format is chosen by content. Errors of
//! the reader below are remembered, because a demuxer reports them in the same
//! way as a file that ends early, and the two must not be confused.

use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use symphonia::core::io::MediaSource;

use crate::AudioError;

/// Largest stream that is held in memory when a container must seek.
pub(super) const MAX_BUFFERED_BYTES: u64 = 1 << 30;

/// Encoded audio: a file, bytes in memory, or a stream.
pub enum AudioSource {
    /// A file. A pipe or a device node is read as a stream.
    Path(PathBuf),
    /// The bytes of a file.
    Bytes(Vec<u8>),
    /// A reader that cannot seek, such as standard input.
    Stream {
        /// Name used in messages.
        name: String,
        /// The bytes.
        reader: Box<dyn Read + Send>,
    },
}

impl AudioSource {
    /// A source that reads `reader` to its end; `name` is used in messages.
    pub fn stream(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self::Stream { name: name.into(), reader: Box::new(reader) }
    }
}

impl From<&Path> for AudioSource {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<PathBuf> for AudioSource {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<Vec<u8>> for AudioSource {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// The first error of the reader below, kept until someone asks.
#[derive(Clone, Default)]
pub(super) struct FaultSlot(Arc<Mutex<Option<io::Error>>>);

impl FaultSlot {
    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    fn put(&self, error: &io::Error) {
        let mut slot = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.get_or_insert_with(|| io::Error::new(error.kind(), error.to_string()));
    }
}

enum Kind {
    File(File),
    Memory(Cursor<Vec<u8>>),
    // The mutex only makes the reader `Sync`; it is never locked.
    Stream { head: Cursor<Vec<u8>>, rest: Mutex<Box<dyn Read + Send>> },
}

/// One readable face for the three kinds of source.
pub(super) struct ByteStream {
    kind: Kind,
    fault: FaultSlot,
}

impl ByteStream {
    /// Opens a source; returns it with its name for messages.
    pub(super) fn open(source: AudioSource) -> Result<(Self, String), AudioError> {
        let (kind, name) = match source {
            AudioSource::Path(path) => {
                let name = path.display().to_string();
                let fail = |source| AudioError::Open { name: name.clone(), source };
                let file = File::open(&path).map_err(fail)?;
                let metadata = file.metadata().map_err(fail)?;
                if metadata.is_dir() {
                    return Err(AudioError::NotAudio { name, what: "a directory" });
                }
                let kind = if metadata.is_file() {
                    Kind::File(file)
                } else {
                    Kind::Stream { head: Cursor::default(), rest: Mutex::new(Box::new(file)) }
                };
                (kind, name)
            }
            AudioSource::Bytes(bytes) => (Kind::Memory(Cursor::new(bytes)), "memory".to_owned()),
            AudioSource::Stream { name, reader } => {
                (Kind::Stream { head: Cursor::default(), rest: Mutex::new(reader) }, name)
            }
        };
        Ok((Self { kind, fault: FaultSlot::default() }, name))
    }

    /// Wraps a reader that is already positioned, as a stream without seeking.
    pub(super) fn from_reader(reader: impl Read + Send + 'static) -> Self {
        let kind = Kind::Stream { head: Cursor::default(), rest: Mutex::new(Box::new(reader)) };
        Self { kind, fault: FaultSlot::default() }
    }

    pub(super) fn fault(&self) -> FaultSlot {
        self.fault.clone()
    }

    pub(super) fn can_seek(&self) -> bool {
        !matches!(self.kind, Kind::Stream { .. })
    }

    /// Total length in bytes where it is known.
    pub(super) fn len(&self) -> Option<u64> {
        match &self.kind {
            Kind::File(file) => file.metadata().ok().map(|m| m.len()),
            Kind::Memory(bytes) => Some(bytes.get_ref().len() as u64),
            Kind::Stream { .. } => None,
        }
    }

    /// The next `len` bytes (fewer at the end), left in place.
    pub(super) fn peek(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let filled = read_full(self, &mut bytes)?;
        bytes.truncate(filled);
        self.unread(&bytes)?;
        Ok(bytes)
    }

    /// Puts back bytes that were just read.
    pub(super) fn unread(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Kind::File(_) | Kind::Memory(_) => {
                self.seek(SeekFrom::Current(-(bytes.len() as i64))).map(|_| ())
            }
            Kind::Stream { head, .. } => {
                let mut merged = bytes.to_vec();
                merged.extend_from_slice(
                    head.get_ref().get(head.position() as usize..).unwrap_or(&[]),
                );
                *head = Cursor::new(merged);
                Ok(())
            }
        }
    }

    fn read_once(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::File(file) => file.read(buf),
            Kind::Memory(bytes) => bytes.read(buf),
            Kind::Stream { head, rest } => match head.read(buf) {
                Ok(0) if !buf.is_empty() => {
                    rest.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).read(buf)
                }
                from_head => from_head,
            },
        }
    }

    /// Turns a stream into memory, for containers whose index may come last.
    pub(super) fn into_seekable(mut self, name: &str) -> Result<Self, AudioError> {
        if self.can_seek() {
            return Ok(self);
        }
        let mut bytes = Vec::new();
        (&mut self)
            .take(MAX_BUFFERED_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| AudioError::Read { name: name.to_owned(), source })?;
        if bytes.len() as u64 > MAX_BUFFERED_BYTES {
            let what = "the number of bytes of an MP4 stream that must be held in memory";
            return Err(AudioError::TooLarge {
                name: name.to_owned(),
                what,
                limit: MAX_BUFFERED_BYTES,
            });
        }
        Ok(Self { kind: Kind::Memory(Cursor::new(bytes)), fault: self.fault })
    }
}

impl Read for ByteStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read_once(buf) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fault.put(&error);
                    return Err(error);
                }
                filled => return filled,
            }
        }
    }
}

impl Seek for ByteStream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.kind {
            Kind::File(file) => file.seek(to),
            Kind::Memory(bytes) => bytes.seek(to),
            Kind::Stream { .. } => Err(ErrorKind::Unsupported.into()),
        }
    }
}

impl MediaSource for ByteStream {
    fn is_seekable(&self) -> bool {
        self.can_seek()
    }

    fn byte_len(&self) -> Option<u64> {
        self.len()
    }
}

/// Fills `buf` as far as the reader goes; returns the number of bytes.
pub(super) fn read_full(reader: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match reader.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

//! Decoding of audio files and streams to interleaved `f32`.
//!
//! [`AudioReader`] opens a source, finds out what it is from its contents (a
//! file name plays no part) and hands out blocks of samples. Nothing here
//! holds more than one block, except that an MP4 file that comes from a pipe
//! is read into memory, because its index may be at the end.

mod demux;
mod mp4_edits;
mod opus;
mod sniff;
mod source;
mod wav;
mod wav_header;

use std::io::Read;
use std::path::Path;
use std::time::Duration;

pub use source::AudioSource;

use crate::AudioError;
use demux::DemuxReader;
use sniff::SNIFF_LEN;
use source::ByteStream;
use wav::WavReader;
use wav_header::{HeaderError, Payload, Recorder};

/// Sample rate and number of channels of decoded audio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AudioSpec {
    /// Frames per second, in Hz.
    pub sample_rate: u32,
    /// Interleaved channels in a frame, at least 1.
    pub channels: usize,
}

/// What happened while a source was decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DecodeStats {
    /// Packets (of a WAV file: blocks) that were decoded.
    pub decoded_packets: u64,
    /// Packets that were skipped because they are damaged.
    pub damaged_packets: u64,
    /// The source ends before it should.
    pub truncated: bool,
}

enum Backend {
    Wav(WavReader),
    Demux(Box<DemuxReader>),
}

/// Reads audio as blocks of interleaved `f32`, nominally in `-1.0..=1.0`.
///
/// Supported are WAV, FLAC, MP3, Ogg (Vorbis, Opus, FLAC), Matroska and WebM,
/// MP4/M4A and ADTS (AAC-LC), and AIFF, at any sample rate and with any number
/// of channels. Encoder delay and padding are removed where the file states
/// them.
///
/// ```
/// # let wav = tensoryard_audio::wav_bytes_mono_s16(&[0.0, 0.5, -0.5], 16_000);
/// let mut reader = tensoryard_audio::AudioReader::from_bytes(wav)?;
/// assert_eq!(reader.spec().sample_rate, 16_000);
/// let mut frames = 0;
/// while let Some(block) = reader.next_block()? {
///     frames += block.len();
/// }
/// assert_eq!(frames, 3);
/// # Ok::<(), tensoryard_audio::AudioError>(())
/// ```
pub struct AudioReader {
    backend: Backend,
    name: String,
    /// The first block, decoded while opening.
    pending: bool,
    block: Vec<f32>,
    /// Rate and channels of `block`.
    spec: AudioSpec,
}

impl AudioReader {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be read, is not audio, or holds nothing that can be
    /// decoded; see [`AudioError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, AudioError> {
        Self::from_source(path.as_ref().into())
    }

    /// Reads a whole file that is in memory.
    ///
    /// # Errors
    /// As [`AudioReader::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, AudioError> {
        Self::from_source(bytes.into())
    }

    /// Reads a stream that cannot seek, such as standard input; `name` is used
    /// in messages.
    ///
    /// # Errors
    /// As [`AudioReader::open`].
    pub fn from_reader(
        reader: impl Read + Send + 'static,
        name: impl Into<String>,
    ) -> Result<Self, AudioError> {
        Self::from_source(AudioSource::stream(name, reader))
    }

    /// Opens any source.
    ///
    /// # Errors
    /// As [`AudioReader::open`].
    pub fn from_source(source: AudioSource) -> Result<Self, AudioError> {
        let (mut stream, name) = ByteStream::open(source)?;
        let head = stream
            .peek(SNIFF_LEN)
            .map_err(|source| AudioError::Read { name: name.clone(), source })?;
        if head.is_empty() {
            return Err(AudioError::Empty { name });
        }
        if let Some(what) = sniff::not_audio(&head) {
            return Err(AudioError::NotAudio { name, what });
        }
        let backend = match sniff::container(&head) {
            Some("WAV") => open_wav(name.clone(), stream)?,
            promised => {
                Backend::Demux(Box::new(DemuxReader::open(name.clone(), stream, promised)?))
            }
        };
        let spec = AudioSpec { sample_rate: 0, channels: 1 };
        let mut reader = Self { backend, name, pending: false, block: Vec::new(), spec };
        // Some containers state the format only in their packets, so one is decoded now.
        reader.pending = reader.fill_block()?;
        Ok(reader)
    }

    /// Rate and channels of the block that was returned last, before the
    /// first call those of the first block. A chained stream may change them.
    pub fn spec(&self) -> AudioSpec {
        self.spec
    }

    /// Length as the header states it, if it does: a hint for progress bars.
    pub fn duration(&self) -> Option<Duration> {
        match &self.backend {
            Backend::Wav(wav) => wav.duration(),
            Backend::Demux(demux) => demux.duration(),
        }
    }

    /// Name of the container, such as `"WAV"` or `"Ogg"`.
    pub fn container(&self) -> &'static str {
        match &self.backend {
            Backend::Wav(_) => "WAV",
            Backend::Demux(demux) => demux.container(),
        }
    }

    /// Name of the codec, such as `"pcm_s16le"` or `"opus"`.
    pub fn codec(&self) -> &str {
        match &self.backend {
            Backend::Wav(wav) => wav.codec(),
            Backend::Demux(demux) => demux.codec(),
        }
    }

    /// Name of the source, as used in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What happened so far.
    pub fn stats(&self) -> DecodeStats {
        match &self.backend {
            Backend::Wav(wav) => wav.stats(),
            Backend::Demux(demux) => demux.stats(),
        }
    }

    /// The next block of interleaved samples, a whole number of frames and
    /// never empty; `None` at the end. Samples that are not finite become 0.
    ///
    /// # Errors
    /// Reading fails, or the track ends without one packet that can be decoded.
    pub fn next_block(&mut self) -> Result<Option<&[f32]>, AudioError> {
        if !std::mem::take(&mut self.pending) && !self.fill_block()? {
            return Ok(None);
        }
        Ok(Some(&self.block))
    }

    fn fill_block(&mut self) -> Result<bool, AudioError> {
        let more = match &mut self.backend {
            Backend::Wav(wav) => wav.next_block(&mut self.block)?,
            Backend::Demux(demux) => demux.next_block(&mut self.block)?,
        };
        self.spec = match &self.backend {
            Backend::Wav(wav) => wav.spec(),
            Backend::Demux(demux) => demux.spec(),
        };
        for sample in &mut self.block {
            if !sample.is_finite() {
                *sample = 0.0;
            }
        }
        Ok(more)
    }
}

fn open_wav(name: String, mut stream: ByteStream) -> Result<Backend, AudioError> {
    let mut recorder = Recorder::new(&mut stream);
    let header = match wav_header::read_header(&mut recorder) {
        Ok(header) => header,
        Err(HeaderError::Io(source)) => return Err(AudioError::Read { name, source }),
        Err(HeaderError::Malformed(what)) => {
            return Err(AudioError::Malformed { name, container: "WAV", what });
        }
        Err(HeaderError::Unsupported(codec)) => {
            return Err(AudioError::UnsupportedCodec { name, container: "WAV", codec });
        }
    };
    let data_start = recorder.read_bytes;
    match header.payload {
        Payload::Samples(encoding) => {
            Ok(Backend::Wav(WavReader::new(name, stream, &header, encoding, data_start)))
        }
        Payload::Adpcm => {
            let Some(record) = recorder.into_record() else {
                let what = format!("the ADPCM header is {data_start} bytes long");
                return Err(AudioError::Malformed { name, container: "WAV", what });
            };
            stream
                .unread(&record)
                .map_err(|source| AudioError::Read { name: name.clone(), source })?;
            Ok(Backend::Demux(Box::new(DemuxReader::open(name, stream, Some("WAV"))?)))
        }
        Payload::Mp3 => {
            let stream = match header.data_bytes {
                Some(bytes) => ByteStream::from_reader(stream.take(bytes)),
                None => stream,
            };
            Ok(Backend::Demux(Box::new(DemuxReader::open(name, stream, Some("MP3"))?)))
        }
    }
}

//! The header of a WAV file, read as a stream.
//!
//! Chunks come in any order before `data`; unknown ones are skipped with their
//! pad byte. Programs that write to a pipe cannot know the sizes and leave 0 or
//! all ones, so a data size is trusted only when the rest of the header agrees.
//!
//! Sources: "Multimedia Programming Interface and Data Specifications 1.0"
//! (RIFF, WAVE), Microsoft's `WAVEFORMATEXTENSIBLE`, EBU Tech 3306 (RF64).

use std::io::{self, Read};

use super::source::{ByteStream, read_full};

/// How a sample is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Encoding {
    U8,
    S16,
    S24,
    S32,
    F32,
    F64,
    ALaw,
    MuLaw,
}

impl Encoding {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::ALaw | Self::MuLaw => 1,
            Self::S16 => 2,
            Self::S24 => 3,
            Self::S32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::U8 => "pcm_u8",
            Self::S16 => "pcm_s16le",
            Self::S24 => "pcm_s24le",
            Self::S32 => "pcm_s32le",
            Self::F32 => "pcm_f32le",
            Self::F64 => "pcm_f64le",
            Self::ALaw => "pcm_alaw",
            Self::MuLaw => "pcm_mulaw",
        }
    }
}

/// What the data chunk holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Payload {
    /// Samples that this crate decodes itself.
    Samples(Encoding),
    /// ADPCM (format tags 2 and 0x11).
    Adpcm,
    /// An MP3 stream (format tags 0x50 and 0x55).
    Mp3,
}

/// The header up to the first byte of audio data.
#[derive(Clone, Debug)]
pub(super) struct WavHeader {
    pub(super) payload: Payload,
    pub(super) channels: u16,
    pub(super) sample_rate: u32,
    /// Bytes of audio; `None` means up to the end of the file.
    pub(super) data_bytes: Option<u64>,
    /// The size may be a placeholder, so an early end is no loss.
    pub(super) open_ended: bool,
}

/// Why a header is refused.
pub(super) enum HeaderError {
    Io(io::Error),
    Malformed(String),
    Unsupported(String),
}

impl From<io::Error> for HeaderError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Sizes that writers to a pipe use for "unknown": near the largest 31- or
/// 32-bit number, often rounded to their block.
const PLACEHOLDERS: std::ops::RangeInclusive<u64> = 0x7fff_0000..=0xffff_ffff;

/// Reads bytes and keeps those it has read, up to a limit, for putting back.
pub(super) struct Recorder<'a> {
    inner: &'a mut ByteStream,
    pub(super) read_bytes: u64,
    record: Vec<u8>,
}

impl<'a> Recorder<'a> {
    const LIMIT: usize = 1 << 20;

    pub(super) fn new(inner: &'a mut ByteStream) -> Self {
        Self { inner, read_bytes: 0, record: Vec::new() }
    }

    /// Everything read so far, if it was not too much to keep.
    pub(super) fn into_record(self) -> Option<Vec<u8>> {
        (self.record.len() as u64 == self.read_bytes).then_some(self.record)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], HeaderError> {
        let mut bytes = [0; N];
        if read_full(self, &mut bytes)? < N {
            let at = self.read_bytes;
            return Err(HeaderError::Malformed(format!(
                "the file ends in {what}, after {at} bytes"
            )));
        }
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        io::copy(&mut self.take(bytes), &mut io::sink())
    }
}

impl Read for Recorder<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.read_bytes += n as u64;
        let room = Self::LIMIT.saturating_sub(self.record.len());
        self.record.extend_from_slice(&buf[..n.min(room)]);
        Ok(n)
    }
}

/// Reads up to the first byte of audio.
pub(super) fn read_header(reader: &mut Recorder<'_>) -> Result<WavHeader, HeaderError> {
    let riff: [u8; 12] = reader.array("the RIFF header")?;
    let riff_bytes = u32_at(&riff, 4);
    let mut format = None;
    let mut wide_data_bytes = None;
    loop {
        let header: [u8; 8] = match reader.array("a chunk header") {
            Ok(header) => header,
            Err(HeaderError::Malformed(_)) => {
                let what =
                    if format.is_some() { "no data chunk" } else { "no fmt and no data chunk" };
                return Err(HeaderError::Malformed(what.to_owned()));
            }
            Err(error) => return Err(error),
        };
        let size = u32_at(&header, 4);
        match &header[..4] {
            b"data" => {
                let Some((payload, channels, sample_rate)) = format else {
                    return Err(HeaderError::Malformed("no fmt chunk before the data".to_owned()));
                };
                let declared = match wide_data_bytes {
                    Some(bytes) if size == u32::MAX => bytes,
                    _ => u64::from(size),
                };
                let data_bytes = trusted_data_bytes(declared, riff_bytes, reader.read_bytes);
                let open_ended = data_bytes.is_none_or(|bytes| PLACEHOLDERS.contains(&bytes));
                return Ok(WavHeader { payload, channels, sample_rate, data_bytes, open_ended });
            }
            b"fmt " => {
                let mut bytes = [0; 40];
                let wanted = (size as usize).min(bytes.len());
                if read_full(reader, &mut bytes[..wanted])? < wanted || wanted < 14 {
                    return Err(HeaderError::Malformed(format!(
                        "fmt chunk of {size} bytes is cut"
                    )));
                }
                format = Some(parse_format(&bytes[..wanted])?);
                reader.skip(u64::from(size) - wanted as u64 + u64::from(size & 1))?;
            }
            b"ds64" if size >= 16 => {
                let bytes: [u8; 16] = reader.array("the ds64 chunk")?;
                wide_data_bytes = Some(u64_at(&bytes, 8));
                reader.skip(u64::from(size) - 16 + u64::from(size & 1))?;
            }
            _ => {
                reader.skip(u64::from(size) + u64::from(size & 1))?;
            }
        }
    }
}

/// A declared data size, or `None` where it must be a placeholder.
fn trusted_data_bytes(declared: u64, riff_bytes: u32, data_start: u64) -> Option<u64> {
    let riff_end = u64::from(riff_bytes) + 8;
    let riff_unknown = riff_bytes == 0 || riff_bytes == u32::MAX || riff_end <= data_start;
    match declared {
        // An empty data chunk inside a larger RIFF is followed by other chunks, not by audio.
        0 => (!riff_unknown).then_some(0),
        0xffff_ffff | u64::MAX => None,
        size => Some(size),
    }
}

fn parse_format(bytes: &[u8]) -> Result<(Payload, u16, u32), HeaderError> {
    let mut tag = u16_at(bytes, 0);
    let channels = u16_at(bytes, 2);
    let sample_rate = u32_at(bytes, 4);
    let block_align = u16_at(bytes, 12);
    let bits = if bytes.len() >= 16 { u16_at(bytes, 14) } else { 8 };
    if channels == 0 {
        return Err(HeaderError::Malformed("0 channels".to_owned()));
    }
    if sample_rate == 0 {
        return Err(HeaderError::Malformed("a sample rate of 0 Hz".to_owned()));
    }
    if tag == 0xfffe {
        // The sub-format of an extensible header is a GUID that begins with the plain tag.
        if bytes.len() < 40 {
            let len = bytes.len();
            return Err(HeaderError::Malformed(format!(
                "extensible fmt chunk of {len} bytes is cut"
            )));
        }
        tag = u16_at(bytes, 24);
    }
    let least = usize::from(bits).div_ceil(8);
    let aligned = usize::from(block_align / channels);
    // Samples narrower than their container are left-justified in it.
    let container = if block_align.is_multiple_of(channels) && (least..=8).contains(&aligned) {
        aligned
    } else {
        least
    };
    let encoding = match (tag, container) {
        (1, 1) => Encoding::U8,
        (1, 2) => Encoding::S16,
        (1, 3) => Encoding::S24,
        (1, 4) => Encoding::S32,
        (3, 4) => Encoding::F32,
        (3, 8) => Encoding::F64,
        (6, 1) => Encoding::ALaw,
        (7, 1) => Encoding::MuLaw,
        (2 | 0x11, _) => return Ok((Payload::Adpcm, channels, sample_rate)),
        (0x50 | 0x55, _) => return Ok((Payload::Mp3, channels, sample_rate)),
        _ => {
            let name = tag_name(tag);
            return Err(HeaderError::Unsupported(format!(
                "format tag {tag:#06x} ({name}), {bits} bits"
            )));
        }
    };
    Ok((Payload::Samples(encoding), channels, sample_rate))
}

fn tag_name(tag: u16) -> &'static str {
    match tag {
        1 => "PCM",
        3 => "IEEE float",
        6 => "A-law",
        7 => "mu-law",
        0x31 => "GSM 6.10",
        0x40 | 0x45 | 0x64 => "G.726",
        0x160..=0x163 => "Windows Media",
        0xff | 0x1600..=0x1610 => "AAC",
        0x2000 => "AC-3",
        0xf1ac => "FLAC",
        _ => "not known here",
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::trusted_data_bytes;

    #[test]
    fn placeholder_sizes_mean_up_to_the_end() {
        assert_eq!(trusted_data_bytes(100, 136, 44), Some(100));
        assert_eq!(trusted_data_bytes(0, 36, 44), None);
        assert_eq!(trusted_data_bytes(0, 0, 44), None);
        assert_eq!(trusted_data_bytes(0, 80, 44), Some(0));
        assert_eq!(trusted_data_bytes(0xffff_ffff, 0xffff_ffff, 44), None);
        assert_eq!(trusted_data_bytes(0x7fff_f000, 0x7fff_f024, 44), Some(0x7fff_f000));
        assert_eq!(trusted_data_bytes(u64::MAX, 0xffff_ffff, 80), None);
    }
}

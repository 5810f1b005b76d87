//! The error type of the crate.
//!
//! Every message names the source (a path, "standard input", "memory"), and as
//! far as known the container, the codec and the number that is wrong, so that
//! a caller can show it as it is.

use std::io;

/// What can go wrong while audio is read, resampled or analysed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AudioError {
    /// The file cannot be opened.
    #[error("{name}: cannot open: {source}")]
    Open {
        /// Name of the source.
        name: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// Reading failed below the audio format: a disk, a pipe, a socket.
    #[error("{name}: read failed: {source}")]
    Read {
        /// Name of the source.
        name: String,
        /// What the reader said.
        source: io::Error,
    },
    /// Writing a file failed.
    #[error("{name}: write failed: {source}")]
    Write {
        /// Name of the destination.
        name: String,
        /// What the writer said.
        source: io::Error,
    },
    /// There is not one byte.
    #[error("{name}: the file is empty (0 bytes)")]
    Empty {
        /// Name of the source.
        name: String,
    },
    /// The bytes are recognised as something that is not audio.
    #[error("{name}: not audio: this looks like {what}")]
    NotAudio {
        /// Name of the source.
        name: String,
        /// What the bytes look like, with its article.
        what: &'static str,
    },
    /// No known container was found.
    #[error(
        "{name}: unknown audio format (supported: WAV, FLAC, MP3, Ogg, Opus, WebM, M4A/AAC, AIFF)"
    )]
    UnknownFormat {
        /// Name of the source.
        name: String,
    },
    /// The container is known, its contents are broken.
    #[error("{name}: broken {container} file: {what}")]
    Malformed {
        /// Name of the source.
        name: String,
        /// Name of the container.
        container: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The container is readable, the codec is not supported.
    #[error("{name}: unsupported codec in {container}: {codec}")]
    UnsupportedCodec {
        /// Name of the source.
        name: String,
        /// Name of the container.
        container: &'static str,
        /// Name or number of the codec.
        codec: String,
    },
    /// The container holds no audio track (video or subtitles only).
    #[error("{name}: the {container} file has no audio track")]
    NoAudioTrack {
        /// Name of the source.
        name: String,
        /// Name of the container.
        container: &'static str,
    },
    /// Not one packet of the audio track could be decoded.
    #[error(
        "{name}: no {codec} packet of this {container} file can be decoded ({damaged} damaged): {first}"
    )]
    NothingDecodable {
        /// Name of the source.
        name: String,
        /// Name of the container.
        container: &'static str,
        /// Name of the codec.
        codec: String,
        /// How many packets failed.
        damaged: u64,
        /// The first failure.
        first: String,
    },
    /// The audio is longer than the limit of the caller or of this crate.
    #[error(
        "{name}: the audio is longer than the limit of {limit} samples, {} at {rate} Hz",
        length(*limit, *rate)
    )]
    TooLong {
        /// Name of the source.
        name: String,
        /// The limit in samples at `rate`.
        limit: u64,
        /// Rate of the result in Hz.
        rate: u32,
    },
    /// The file is larger than a limit that this crate sets.
    #[error("{name}: {what} is more than the limit of {limit}")]
    TooLarge {
        /// Name of the source.
        name: String,
        /// What is counted.
        what: &'static str,
        /// The limit, in the unit of `what`.
        limit: u64,
    },
    /// A sample rate that cannot be converted.
    #[error("sample rate {rate} Hz is outside {min}..={max} Hz")]
    SampleRate {
        /// The rate in Hz.
        rate: u32,
        /// Lowest accepted rate in Hz.
        min: u32,
        /// Highest accepted rate in Hz.
        max: u32,
    },
    /// The resampler refused its input, a fault of this crate.
    #[error("resampler from {from} Hz to {to} Hz: {what}")]
    Resample {
        /// Input rate in Hz.
        from: u32,
        /// Output rate in Hz.
        to: u32,
        /// What the resampler said.
        what: String,
    },
    /// A mel filter bank with wrong dimensions or values.
    #[error("mel filter bank: {what}")]
    MelFilters {
        /// What is wrong.
        what: String,
    },
}

/// A number of samples as a length of time.
fn length(samples: u64, rate: u32) -> String {
    let seconds = samples as f64 / f64::from(rate.max(1));
    if seconds < 3600.0 { format!("{seconds:.1} s") } else { format!("{:.1} h", seconds / 3600.0) }
}

//! Compressed audio: a demuxer, a decoder, and what to trim.
//!
//! Symphonia finds the container and delivers packets; it decodes all codecs
//! but Opus. A packet that cannot be decoded is counted and skipped. A file
//! that ends early gives what it has. A panic inside a third-party decoder is
//! caught and treated as damage, so that no input can stop the program.

use std::any::Any;
use std::io::{ErrorKind, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known as codec_id;
use symphonia::core::codecs::audio::{AudioCodecId, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as CodecError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::well_known as format_id;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use super::mp4_edits::{self, EditWindow};
use super::opus::{OPUS_RATE, OpusCodec, OpusHead};
use super::source::{ByteStream, FaultSlot};
use super::{AudioSpec, DecodeStats};
use crate::AudioError;

/// Demuxer errors in a row after which it is stuck and the rest is given up.
const MAX_DEMUX_FAULTS: u32 = 8;

enum Codec {
    Symphonia(Box<dyn AudioDecoder>),
    Opus(OpusCodec),
}

/// Reads one audio track of a container.
pub(super) struct DemuxReader {
    name: String,
    container: &'static str,
    codec_name: String,
    format: Box<dyn FormatReader>,
    fault: FaultSlot,
    track_id: u32,
    codec: Codec,
    spec: AudioSpec,
    duration: Option<Duration>,
    window: Option<EditWindow>,
    /// Frames that the codec asks to drop, until the first block of a stream.
    pre_skip: Option<u32>,
    /// Frames still to drop from the start.
    skip_frames: u64,
    /// Frames still to play; `None` means all.
    play_frames: Option<u64>,
    stats: DecodeStats,
    first_fault: Option<String>,
    ended: bool,
}

impl DemuxReader {
    /// Finds container, track and decoder; `promised` is the container that
    /// the first bytes name.
    pub(super) fn open(
        name: String,
        stream: ByteStream,
        promised: Option<&'static str>,
    ) -> Result<Self, AudioError> {
        let fault = stream.fault();
        let read = |source| AudioError::Read { name: name.clone(), source };
        let (stream, window) = if promised == Some("MP4") {
            let mut stream = stream.into_seekable(&name)?;
            let window = mp4_edits::find_window(&mut stream).map_err(read)?;
            stream.rewind().map_err(read)?;
            (stream, window)
        } else {
            (stream, None)
        };
        let source = MediaSourceStream::new(Box::new(stream), MediaSourceStreamOptions::default());
        let probed = guarded(|| {
            symphonia::default::get_probe().probe(
                &Hint::new(),
                source,
                FormatOptions::default(),
                MetadataOptions::default(),
            )
        });
        let format = match probed {
            Ok(format) => format,
            Err(error) => {
                if let Some(source) = fault.take() {
                    return Err(AudioError::Read { name, source });
                }
                return Err(match (promised, error) {
                    (None, Fault::Codec(CodecError::Unsupported(_) | CodecError::IoError(_))) => {
                        AudioError::UnknownFormat { name }
                    }
                    (promised, error) => {
                        let (container, what) = (promised.unwrap_or("audio"), error.describe());
                        AudioError::Malformed { name, container, what }
                    }
                });
            }
        };
        let container = container_name(format.as_ref());
        let Some(track) = pick_track(format.as_ref()) else {
            return Err(AudioError::NoAudioTrack { name, container });
        };
        let opened = open_codec(&track).map_err(|codec| AudioError::UnsupportedCodec {
            name: name.clone(),
            container,
            codec,
        })?;
        Ok(Self {
            name,
            container,
            codec_name: opened.name,
            format,
            fault,
            track_id: track.id,
            codec: opened.codec,
            spec: opened.spec,
            duration: track_duration(&track, opened.pre_skip),
            window,
            pre_skip: Some(opened.pre_skip),
            skip_frames: 0,
            play_frames: None,
            stats: DecodeStats::default(),
            first_fault: None,
            ended: false,
        })
    }

    pub(super) fn spec(&self) -> AudioSpec {
        self.spec
    }

    pub(super) fn stats(&self) -> DecodeStats {
        self.stats
    }

    pub(super) fn container(&self) -> &'static str {
        self.container
    }

    pub(super) fn codec(&self) -> &str {
        &self.codec_name
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        match self.window.and_then(|window| window.play_seconds) {
            Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            None => self.duration,
        }
    }

    /// Replaces `out` with the next block that is not empty; `false` at the end.
    pub(super) fn next_block(&mut self, out: &mut Vec<f32>) -> Result<bool, AudioError> {
        out.clear();
        while let Some(packet) = self.next_packet()? {
            match self.decode(&packet, out) {
                Ok(()) => {
                    self.stats.decoded_packets += 1;
                    self.trim(out);
                    if !out.is_empty() {
                        return Ok(true);
                    }
                }
                Err(what) => self.note_damage(what),
            }
            if self.play_frames == Some(0) {
                self.ended = true;
            }
        }
        out.clear();
        // A PCM file without samples is empty audio; any other file without a packet is broken.
        if self.stats.decoded_packets == 0
            && (self.stats.damaged_packets > 0 || !self.codec_name.starts_with("pcm"))
        {
            return Err(AudioError::NothingDecodable {
                name: self.name.clone(),
                container: self.container,
                codec: self.codec_name.clone(),
                damaged: self.stats.damaged_packets,
                first: self.first_fault.take().unwrap_or_else(|| "there is no packet".to_owned()),
            });
        }
        Ok(false)
    }

    /// The next packet of the audio track, or `None` at the end.
    fn next_packet(&mut self) -> Result<Option<Packet>, AudioError> {
        let mut faults = 0;
        while !self.ended {
            match guarded(|| self.format.next_packet()) {
                Ok(Some(packet)) if packet.track_id == self.track_id => return Ok(Some(packet)),
                Ok(Some(_)) => {}
                Ok(None) => self.ended = true,
                Err(Fault::Codec(CodecError::ResetRequired)) => self.restart()?,
                Err(Fault::Codec(CodecError::IoError(error))) => {
                    if let Some(source) = self.fault.take() {
                        return Err(AudioError::Read { name: self.name.clone(), source });
                    }
                    self.ended = true;
                    if error.kind() != ErrorKind::UnexpectedEof {
                        self.note_damage(error.to_string());
                    }
                    self.note_truncated(&error.to_string());
                }
                Err(Fault::Codec(error)) => {
                    faults += 1;
                    self.note_damage(error.to_string());
                    if faults >= MAX_DEMUX_FAULTS {
                        self.ended = true;
                        self.note_truncated("the demuxer lost its place");
                    }
                }
                Err(Fault::Panic(what)) => {
                    self.ended = true;
                    self.note_damage(what);
                    self.note_truncated("the demuxer failed");
                }
            }
        }
        Ok(None)
    }

    /// Picks track and decoder again; the demuxer began a new chained stream.
    fn restart(&mut self) -> Result<(), AudioError> {
        let Some(track) = pick_track(self.format.as_ref()) else {
            self.ended = true;
            return Ok(());
        };
        match open_codec(&track) {
            Ok(opened) => {
                self.track_id = track.id;
                self.codec_name = opened.name;
                self.codec = opened.codec;
                self.pre_skip = Some(opened.pre_skip);
            }
            Err(what) => {
                self.ended = true;
                self.note_damage(what);
            }
        }
        Ok(())
    }

    fn decode(&mut self, packet: &Packet, out: &mut Vec<f32>) -> Result<(), String> {
        match &mut self.codec {
            Codec::Opus(codec) => {
                match catch_unwind(AssertUnwindSafe(|| codec.decode(&packet.data, out))) {
                    Ok(result) => result?,
                    Err(panic) => return Err(panic_text(panic.as_ref())),
                }
                let channels = codec.channels();
                self.spec = AudioSpec { sample_rate: OPUS_RATE, channels };
                let frames = out.len() / channels;
                let end = frames.saturating_sub(frames_of(packet.trim_end.get()));
                out.truncate(end * channels);
                out.drain(..frames_of(packet.trim_start.get()).min(end) * channels);
            }
            Codec::Symphonia(decoder) => {
                let decoded = guarded(|| {
                    let buffer = decoder.decode(packet)?;
                    buffer.copy_to_vec_interleaved(out);
                    Ok((buffer.spec().rate(), buffer.num_planes()))
                });
                let (sample_rate, channels) = decoded.map_err(|fault| fault.describe())?;
                if sample_rate == 0 || channels == 0 {
                    return Err(format!("{sample_rate} Hz with {channels} channels"));
                }
                self.spec = AudioSpec { sample_rate, channels };
            }
        }
        Ok(())
    }

    /// Applies what is left of the window to a decoded block.
    fn trim(&mut self, out: &mut Vec<f32>) {
        if let Some(pre_skip) = self.pre_skip.take() {
            // The rate is known for sure only now.
            let frames = |seconds: f64| (seconds * f64::from(self.spec.sample_rate)).round() as u64;
            self.skip_frames = self.window.map_or(u64::from(pre_skip), |w| frames(w.skip_seconds));
            self.play_frames = self.window.and_then(|w| w.play_seconds).map(frames);
        }
        let channels = self.spec.channels;
        let frames = (out.len() / channels) as u64;
        let skipped = self.skip_frames.min(frames);
        self.skip_frames -= skipped;
        out.drain(..skipped as usize * channels);
        if let Some(left) = &mut self.play_frames {
            let kept = (frames - skipped).min(*left);
            *left -= kept;
            out.truncate(kept as usize * channels);
        }
    }

    fn note_damage(&mut self, what: String) {
        self.stats.damaged_packets += 1;
        tracing::warn!(name = %self.name, codec = %self.codec_name, %what, "skipped a damaged packet");
        self.first_fault.get_or_insert(what);
    }

    fn note_truncated(&mut self, what: &str) {
        tracing::warn!(name = %self.name, container = self.container, what, "file ends early");
        self.stats.truncated = true;
    }
}

/// What a third-party call can fail with.
enum Fault {
    Codec(CodecError),
    Panic(String),
}

impl Fault {
    fn describe(&self) -> String {
        match self {
            Self::Codec(error) => error.to_string(),
            Self::Panic(what) => what.clone(),
        }
    }
}

fn guarded<T>(call: impl FnOnce() -> Result<T, CodecError>) -> Result<T, Fault> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(Fault::Codec),
        Err(panic) => Err(Fault::Panic(panic_text(panic.as_ref()))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("decoder fault: {}", text.unwrap_or("unknown"))
}

fn frames_of(duration: u64) -> usize {
    usize::try_from(duration).unwrap_or(usize::MAX)
}

fn pick_track(format: &dyn FormatReader) -> Option<Track> {
    format.default_track(TrackType::Audio).or_else(|| format.first_track(TrackType::Audio)).cloned()
}

struct OpenedCodec {
    name: String,
    codec: Codec,
    spec: AudioSpec,
    /// Frames to drop from the start unless an edit list says otherwise.
    pre_skip: u32,
}

fn open_codec(track: &Track) -> Result<OpenedCodec, String> {
    let Some(CodecParameters::Audio(params)) = &track.codec_params else {
        return Err("an unknown codec".to_owned());
    };
    let channels = params.channels.as_ref().map_or(1, |channels| channels.count()).max(1);
    if params.codec == codec_id::CODEC_ID_OPUS {
        let head = match params.extra_data.as_deref() {
            Some(bytes) => OpusHead::parse(bytes),
            None => Ok(OpusHead::plain(channels)),
        };
        let head = head.map_err(|what| format!("opus: {what}"))?;
        let spec = AudioSpec { sample_rate: OPUS_RATE, channels: head.channels };
        let pre_skip = head.pre_skip;
        let codec = OpusCodec::new(head).map_err(|what| format!("opus: {what}"))?;
        return Ok(OpenedCodec {
            name: "opus".to_owned(),
            codec: Codec::Opus(codec),
            spec,
            pre_skip,
        });
    }
    let registry = symphonia::default::get_codecs();
    let Some(registered) = registry.get_audio_decoder(params.codec) else {
        return Err(unsupported_name(params.codec));
    };
    let name = registered.codec.info.short_name.to_owned();
    let decoder = guarded(|| registry.make_audio_decoder(params, &AudioDecoderOptions::default()))
        .map_err(|fault| format!("{name}: {}", fault.describe()))?;
    let spec = AudioSpec { sample_rate: params.sample_rate.unwrap_or(0), channels };
    Ok(OpenedCodec { name, codec: Codec::Symphonia(decoder), spec, pre_skip: 0 })
}

fn track_duration(track: &Track, pre_skip: u32) -> Option<Duration> {
    if let (Some(frames), Some(CodecParameters::Audio(params))) =
        (track.num_frames, &track.codec_params)
        && let Some(rate) = params.sample_rate.filter(|&rate| rate > 0)
    {
        let frames = frames.saturating_sub(u64::from(pre_skip));
        return Duration::try_from_secs_f64(frames as f64 / f64::from(rate)).ok();
    }
    let time = track.time_base?.calc_time(track.duration?.timestamp_from(track.start_ts)?)?;
    Duration::try_from_secs_f64(time.as_secs_f64()).ok()
}

fn container_name(format: &dyn FormatReader) -> &'static str {
    match format.format_info().format {
        format_id::FORMAT_ID_WAVE => "WAV",
        format_id::FORMAT_ID_AIFF => "AIFF",
        format_id::FORMAT_ID_MP1 | format_id::FORMAT_ID_MP2 | format_id::FORMAT_ID_MP3 => "MP3",
        format_id::FORMAT_ID_ADTS => "ADTS",
        format_id::FORMAT_ID_OGG => "Ogg",
        format_id::FORMAT_ID_FLAC => "FLAC",
        format_id::FORMAT_ID_ISOMP4 => "MP4",
        format_id::FORMAT_ID_MKV => "Matroska",
        _ => format.format_info().short_name,
    }
}

fn unsupported_name(codec: AudioCodecId) -> String {
    let name = match codec {
        codec_id::CODEC_ID_ALAC => "alac (Apple Lossless)",
        codec_id::CODEC_ID_AC3 => "ac3 (Dolby Digital)",
        codec_id::CODEC_ID_EAC3 => "eac3 (Dolby Digital Plus)",
        codec_id::CODEC_ID_AC4 => "ac4",
        codec_id::CODEC_ID_DCA => "dts",
        codec_id::CODEC_ID_TRUEHD => "truehd",
        codec_id::CODEC_ID_SPEEX => "speex",
        codec_id::CODEC_ID_WMA => "wma (Windows Media)",
        codec_id::CODEC_ID_MP1 => "mp1",
        codec_id::CODEC_ID_MP2 => "mp2",
        codec_id::CODEC_ID_WAVPACK => "wavpack",
        codec_id::CODEC_ID_MONKEYS_AUDIO => "ape (Monkey's Audio)",
        codec_id::CODEC_ID_TTA => "tta",
        other => return format!("codec {other}"),
    };
    name.to_owned()
}

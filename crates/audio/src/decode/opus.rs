//! Opus packets to interleaved `f32` at 48 kHz.
//!
//! The demuxers deliver packets and the identification header (RFC 7845 §5.1);
//! this module turns them into samples through one thin trait, so that the
//! codec crate can be replaced in one place. Trimming of the pre-skip and of
//! the end is the reader's work, not done here.

use opus_pure::{MAX_PACKET_SAMPLES, OpusDecoder, OpusMSDecoder};

/// Opus decodes at this rate whatever the encoder was fed.
pub(super) const OPUS_RATE: u32 = 48_000;

/// A decoder of the packets of one Opus stream.
pub(super) trait OpusPackets: Send {
    /// Decodes one packet into `out`, which has room for the longest packet;
    /// returns samples per channel.
    fn decode_packet(&mut self, packet: &[u8], out: &mut [f32]) -> Result<usize, String>;
}

impl OpusPackets for OpusDecoder {
    fn decode_packet(&mut self, packet: &[u8], out: &mut [f32]) -> Result<usize, String> {
        self.decode(packet, MAX_PACKET_SAMPLES, out).map_err(|error| error.to_string())
    }
}

impl OpusPackets for OpusMSDecoder {
    fn decode_packet(&mut self, packet: &[u8], out: &mut [f32]) -> Result<usize, String> {
        self.decode(packet, MAX_PACKET_SAMPLES, out).map_err(|error| error.to_string())
    }
}

/// The fields of an identification header that decoding needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpusHead {
    pub(super) channels: usize,
    /// Samples at 48 kHz to drop from the start.
    pub(super) pre_skip: u32,
    /// Factor that the header asks players to apply.
    gain: f32,
    family: u8,
    /// (streams, coupled streams, channel map) of families other than 0.
    layout: Option<(usize, usize, Vec<u8>)>,
}

impl OpusHead {
    /// Reads "OpusHead" and what follows.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < 19 || &bytes[..8] != b"OpusHead" {
            return Err(format!("identification header of {} bytes is broken", bytes.len()));
        }
        if bytes[8] >> 4 != 0 {
            return Err(format!("identification header version {} is unknown", bytes[8]));
        }
        let channels = usize::from(bytes[9]);
        let family = bytes[18];
        let gain_q8 = i16::from_le_bytes([bytes[16], bytes[17]]);
        let layout = match (family, bytes.get(19..21 + channels)) {
            (0, _) => None,
            (_, Some(map)) => Some((usize::from(map[0]), usize::from(map[1]), map[2..].to_vec())),
            (_, None) => return Err("channel mapping table is cut".to_owned()),
        };
        Ok(Self {
            channels,
            pre_skip: u32::from(u16::from_le_bytes([bytes[10], bytes[11]])),
            gain: 10f32.powf(f32::from(gain_q8) / (20.0 * 256.0)),
            family,
            layout,
        })
    }

    /// A plain header, for containers that carry none.
    pub(super) fn plain(channels: usize) -> Self {
        Self { channels, pre_skip: 0, gain: 1.0, family: 0, layout: None }
    }

    fn decoder(&self) -> Result<Box<dyn OpusPackets>, String> {
        let rate = OPUS_RATE as i32;
        if self.family == 0 {
            let decoder = OpusDecoder::new(rate, self.channels);
            return Ok(Box::new(decoder.map_err(|e| format!("{} channels: {e}", self.channels))?));
        }
        let decoder = OpusMSDecoder::new(rate, self.channels, self.family).map_err(|error| {
            format!("mapping family {} with {} channels: {error}", self.family, self.channels)
        })?;
        let standard = decoder.layout();
        let standard = (standard.nb_streams, standard.nb_coupled_streams, standard.mapping.clone());
        if self.layout.as_ref() != Some(&standard) {
            return Err(format!("channel mapping {:?} is not the standard one", self.layout));
        }
        Ok(Box::new(decoder))
    }
}

/// Decodes the packets of one stream and applies the header's gain.
pub(super) struct OpusCodec {
    head: OpusHead,
    decoder: Box<dyn OpusPackets>,
    scratch: Vec<f32>,
}

impl OpusCodec {
    pub(super) fn new(head: OpusHead) -> Result<Self, String> {
        let decoder = head.decoder()?;
        let scratch = vec![0.0; MAX_PACKET_SAMPLES * head.channels];
        Ok(Self { head, decoder, scratch })
    }

    pub(super) fn channels(&self) -> usize {
        self.head.channels
    }

    /// Replaces `out` with the samples of one packet.
    pub(super) fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> Result<(), String> {
        out.clear();
        if packet.is_empty() {
            return Err("empty packet".to_owned());
        }
        let frames = self.decoder.decode_packet(packet, &mut self.scratch)?;
        let samples = (frames * self.head.channels).min(self.scratch.len());
        out.extend(self.scratch[..samples].iter().map(|x| x * self.head.gain));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_are_read() {
        let mut bytes = b"OpusHead\x01\x02\x38\x01\x80\xbb\x00\x00\x00\xfa\x00".to_vec();
        let head = OpusHead::parse(&bytes).unwrap();
        assert_eq!((head.channels, head.pre_skip), (2, 312));
        // 0xfa00 is -1536 in Q7.8, that is -6 dB.
        assert!((head.gain - 0.501_187).abs() < 1e-5);
        bytes[18] = 1;
        assert!(OpusHead::parse(&bytes).is_err(), "no channel map");
        assert!(OpusHead::parse(b"OpusHead").is_err());
    }
}

//! Encoder delay and padding of MP4 audio.
//!
//! An AAC encoder puts a delay before the first sample and fills the last
//! frame. The container states what to play in an edit list (`edts/elst`,
//! ISO/IEC 14496-12 §8.6.6) or, in older iTunes files, in the text tag
//! `iTunSMPB`. The demuxer applies neither, so both are read here. Anything
//! unusual gives no window: playing too much is better than losing speech.

use std::io::{Read, Seek, SeekFrom};

use super::source::read_full;

/// Largest movie header that is looked into.
const MAX_MOOV_BYTES: u64 = 64 << 20;

/// The part of the decoded samples that is meant to be heard.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct EditWindow {
    /// Seconds to drop from the start.
    pub(super) skip_seconds: f64,
    /// Seconds to play after that; `None` means all.
    pub(super) play_seconds: Option<f64>,
}

/// Finds the window of the first audio track and rewinds to the start.
pub(super) fn find_window(stream: &mut (impl Read + Seek)) -> std::io::Result<Option<EditWindow>> {
    let moov = read_moov(stream);
    stream.seek(SeekFrom::Start(0))?;
    Ok(moov?.and_then(|moov| window_of(&moov)))
}

/// The body of the top-level `moov` box.
fn read_moov(stream: &mut (impl Read + Seek)) -> std::io::Result<Option<Vec<u8>>> {
    let end = stream.seek(SeekFrom::End(0))?;
    let mut at = 0u64;
    while at + 8 <= end {
        stream.seek(SeekFrom::Start(at))?;
        let mut header = [0; 16];
        let filled = read_full(stream, &mut header)?;
        let Some((kind, body, size)) = box_header(&header[..filled], end - at) else {
            return Ok(None);
        };
        if kind == *b"moov" {
            let len = size - body as u64;
            if len > MAX_MOOV_BYTES {
                return Ok(None);
            }
            stream.seek(SeekFrom::Start(at + body as u64))?;
            let mut moov = Vec::new();
            stream.take(len).read_to_end(&mut moov)?;
            return Ok(Some(moov));
        }
        at += size;
    }
    Ok(None)
}

/// Kind, header length and total size of the box at the start of `bytes`.
fn box_header(bytes: &[u8], available: u64) -> Option<([u8; 4], usize, u64)> {
    let kind = bytes.get(4..8)?.try_into().ok()?;
    let (body, size) = match be_u32(bytes, 0)? {
        0 => (8, available),
        1 => (16, be_u64(bytes, 8)?),
        size => (8, u64::from(size)),
    };
    (size >= body as u64 && size <= available).then_some((kind, body, size))
}

/// The bodies of the boxes in `bytes`, with their kinds.
fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (kind, body, size) = box_header(bytes, bytes.len() as u64)?;
        let (this, rest) = bytes.split_at_checked(usize::try_from(size).ok()?)?;
        bytes = rest;
        Some((kind, this.get(body..)?))
    })
}

fn child<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(bytes).find(|(k, _)| k == kind).map(|(_, body)| body)
}

fn window_of(moov: &[u8]) -> Option<EditWindow> {
    let movie_scale = timescale(child(moov, b"mvhd")?)?;
    let track =
        boxes(moov).filter(|(kind, _)| kind == b"trak").map(|(_, body)| body).find(|trak| {
            let handler = child(trak, b"mdia").and_then(|mdia| child(mdia, b"hdlr"));
            handler.and_then(|hdlr| hdlr.get(8..12)) == Some(b"soun")
        })?;
    let media_scale = timescale(child(child(track, b"mdia")?, b"mdhd")?)?;
    let list = child(track, b"edts").and_then(|edts| child(edts, b"elst"));
    match list {
        Some(list) => edit_window(list, movie_scale, media_scale),
        None => itunes_window(moov, media_scale),
    }
}

/// Units per second of an `mvhd` or `mdhd` box.
fn timescale(body: &[u8]) -> Option<f64> {
    let at = if body.first()? == &1 { 20 } else { 12 };
    be_u32(body, at).filter(|&scale| scale > 0).map(f64::from)
}

fn edit_window(list: &[u8], movie_scale: f64, media_scale: f64) -> Option<EditWindow> {
    let wide = list.first()? == &1;
    let entry_bytes = if wide { 20 } else { 12 };
    let count = be_u32(list, 4)? as usize;
    let mut window = None;
    for entry in list.get(8..)?.chunks_exact(entry_bytes).take(count) {
        let (duration, media_time) = if wide {
            (be_u64(entry, 0)?, be_u64(entry, 8)? as i64)
        } else {
            (u64::from(be_u32(entry, 0)?), i64::from(be_u32(entry, 4)? as i32))
        };
        // A negative media time is a pause before the audio.
        if media_time < 0 {
            continue;
        }
        if window.is_some() {
            return None;
        }
        window = Some(EditWindow {
            skip_seconds: media_time as f64 / media_scale,
            play_seconds: (duration > 0).then(|| duration as f64 / movie_scale),
        });
    }
    window
}

/// Reads ` 00000000 00000840 000001CA 00000000003F31F6 …`: delay, padding, length.
fn itunes_window(moov: &[u8], media_scale: f64) -> Option<EditWindow> {
    let at = moov.windows(8).position(|bytes| bytes == b"iTunSMPB")?;
    let data = moov.get(at + 8..)?;
    // The tag's value follows in a `data` box: size, kind, type, locale, text.
    let text = data.get(16..)?;
    let text = &text[..text.len().min(128)];
    let text = text.split(|b| !(b.is_ascii_hexdigit() || *b == b' ')).next()?;
    let mut fields = std::str::from_utf8(text).ok()?.split_ascii_whitespace().skip(1);
    let mut field = || u64::from_str_radix(fields.next()?, 16).ok();
    let (delay, _padding, length) = (field()?, field()?, field()?);
    let play_seconds = (length > 0).then(|| length as f64 / media_scale);
    Some(EditWindow { skip_seconds: delay as f64 / media_scale, play_seconds })
}

fn be_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn make_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut out = (body.len() as u32 + 8).to_be_bytes().to_vec();
        out.extend_from_slice(kind);
        out.extend_from_slice(body);
        out
    }

    fn movie(edits: Option<&[u8]>, extra: &[u8]) -> Vec<u8> {
        let scale = |scale: u32| {
            let mut body = vec![0; 12];
            body.extend_from_slice(&scale.to_be_bytes());
            body
        };
        let hdlr = make_box(b"hdlr", b"\0\0\0\0\0\0\0\0soun");
        let mdia = make_box(b"mdia", &[make_box(b"mdhd", &scale(16000)), hdlr].concat());
        let edts = edits.map(|list| make_box(b"edts", &make_box(b"elst", list)));
        let trak = make_box(b"trak", &[edts.unwrap_or_default(), mdia].concat());
        let mvhd = make_box(b"mvhd", &scale(1000));
        let moov = make_box(b"moov", &[mvhd, trak, extra.to_vec()].concat());
        [make_box(b"ftyp", b"M4A "), moov].concat()
    }

    fn list(entries: &[(u32, i32)]) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
        for (duration, time) in entries {
            out.extend_from_slice(&duration.to_be_bytes());
            out.extend_from_slice(&time.to_be_bytes());
            out.extend_from_slice(&[0, 1, 0, 0]);
        }
        out
    }

    fn window(bytes: Vec<u8>) -> Option<EditWindow> {
        find_window(&mut Cursor::new(bytes)).unwrap()
    }

    #[test]
    fn edit_list_gives_delay_and_length() {
        let expected = EditWindow { skip_seconds: 0.064, play_seconds: Some(11.0) };
        assert_eq!(window(movie(Some(&list(&[(11000, 1024)])), &[])), Some(expected));
        assert_eq!(window(movie(Some(&list(&[(500, -1), (11000, 1024)])), &[])), Some(expected));
        assert_eq!(window(movie(Some(&list(&[(1000, 0), (1000, 9000)])), &[])), None);
        assert_eq!(window(movie(None, &[])), None);
    }

    #[test]
    fn itunes_tag_gives_delay_and_length() {
        let mut tag = b"iTunSMPB".to_vec();
        tag.extend_from_slice(&make_box(
            b"data",
            b"\0\0\0\x01\0\0\0\0 00000000 00000840 000001CA 0000000000027100",
        ));
        let found = window(movie(None, &make_box(b"udta", &tag))).unwrap();
        assert_eq!(found, EditWindow { skip_seconds: 2112.0 / 16000.0, play_seconds: Some(10.0) });
    }

    #[test]
    fn broken_boxes_give_nothing() {
        let whole = movie(Some(&list(&[(11000, 1024)])), &[]);
        for len in 0..whole.len() {
            find_window(&mut Cursor::new(whole[..len].to_vec())).unwrap();
        }
    }
}

//! Transcripts as text, SubRip (SRT), WebVTT and JSON.
//!
//! Whatever a segment's text holds, the output is valid UTF-8 and valid in its
//! format: line breaks inside a cue become spaces, control characters go, the
//! arrow `-->` cannot appear in a cue, and WebVTT's `&`, `<`, `>` are escaped
//! (W3C WebVTT, section 4.1).

use std::fmt::Write;

use super::transcript::{Segment, Transcript};
use crate::Error;

/// Plain text: one line per segment.
pub fn to_text(transcript: &Transcript) -> String {
    let lines = transcript.segments.iter().filter_map(segment_line);
    lines.fold(String::new(), |out, line| out + &line + "\n")
}

/// The line of one segment in plain text; `None` for a segment without text.
pub fn segment_line(segment: &Segment) -> Option<String> {
    one_line(&segment.text)
}

/// SubRip: numbered cues with `HH:MM:SS,mmm` times.
pub fn to_srt(transcript: &Transcript) -> String {
    let mut out = String::new();
    for (number, (segment, text)) in (1..).zip(cues(transcript)) {
        let (start, end) = cue_times(segment);
        let text = text.replace("-->", "->");
        let (start, end) = (clock(start, ','), clock(end, ','));
        let _ = write!(out, "{number}\n{start} --> {end}\n{text}\n\n");
    }
    out
}

/// WebVTT: a header, then cues with `HH:MM:SS.mmm` times.
pub fn to_vtt(transcript: &Transcript) -> String {
    let mut out = String::from("WEBVTT\n\n");
    for (segment, text) in cues(transcript) {
        let (start, end) = cue_times(segment);
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (start, end) = (clock(start, '.'), clock(end, '.'));
        let _ = write!(out, "{start} --> {end}\n{text}\n\n");
    }
    out
}

/// JSON, indented, with a final line break.
///
/// # Errors
/// [`Error::Model`] wraps what the serialiser reports; it has nothing to report for a
/// transcript.
pub fn to_json(transcript: &Transcript) -> Result<String, Error> {
    let json =
        serde_json::to_string_pretty(transcript).map_err(|error| Error::Model(Box::new(error)))?;
    Ok(json + "\n")
}

fn cues(transcript: &Transcript) -> impl Iterator<Item = (&Segment, String)> {
    let segments = transcript.segments.iter();
    segments.filter_map(|segment| one_line(&segment.text).map(|text| (segment, text)))
}

/// The text on one line with single spaces, or `None` if nothing is left.
fn one_line(text: &str) -> Option<String> {
    let spaced = text.replace(char::is_whitespace, " ");
    let kept: String = spaced.chars().filter(|c| !c.is_control()).collect();
    let line = kept.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// Start and end in milliseconds; a cue lasts at least one.
fn cue_times(segment: &Segment) -> (u64, u64) {
    let start = milliseconds(segment.start);
    (start, milliseconds(segment.end).max(start + 1))
}

fn milliseconds(seconds: f64) -> u64 {
    // The cast saturates, and turns NaN and negative times into 0.
    ((seconds * 1000.0).round() as u64).min(u64::MAX / 2)
}

fn clock(ms: u64, decimal_mark: char) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}{decimal_mark}{ms:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(segments: &[(f64, f64, &str)]) -> Transcript {
        let segments = segments.iter().enumerate().map(|(id, &(start, end, text))| Segment {
            id,
            seek: 0,
            start,
            end,
            text: text.to_owned(),
            tokens: vec![50364, 400],
            temperature: 0.0,
            avg_logprob: -0.25,
            compression_ratio: 1.5,
            no_speech_prob: 0.125,
        });
        Transcript {
            text: "t".to_owned(),
            language: Some("de".parse().unwrap()),
            language_probability: None,
            task: Default::default(),
            duration_seconds: 3.5,
            processed_seconds: 3.5,
            segments: segments.collect(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn srt_numbers_cues_and_counts_hours() {
        let transcript = transcript(&[
            (0.0, 2.5, " Hello \"you\" \\ there"),
            (2.5, 3599.999, " a --> b\r\n\r\nc"),
            (3599.9999, 360_000.0, " \u{5b9f}"),
        ]);
        assert_eq!(
            to_srt(&transcript),
            "1\n00:00:00,000 --> 00:00:02,500\nHello \"you\" \\ there\n\n\
             2\n00:00:02,500 --> 00:59:59,999\na -> b c\n\n\
             3\n01:00:00,000 --> 100:00:00,000\n実\n\n"
        );
    }

    #[test]
    fn vtt_escapes_markup_and_skips_empty_cues() {
        let transcript = transcript(&[
            (0.0, 1.0, " \r\n\u{0} "),
            (1.0, 1.0, " a < b && c --> d"),
            (f64::NAN, -3.0, "x\u{2028}y\u{85}z\u{7}"),
        ]);
        assert_eq!(
            to_vtt(&transcript),
            "WEBVTT\n\n\
             00:00:01.000 --> 00:00:01.001\na &lt; b &amp;&amp; c --&gt; d\n\n\
             00:00:00.000 --> 00:00:00.001\nx y z\n\n"
        );
    }

    #[test]
    fn text_has_one_line_per_segment() {
        let transcript =
            transcript(&[(0.0, 1.0, " One\rtwo."), (1.0, 2.0, " "), (2.0, 3.0, "Three")]);
        assert_eq!(to_text(&transcript), "One two.\nThree\n");
    }

    #[test]
    fn json_escapes_and_reads_back() {
        let original = transcript(&[(0.0, 0.7, " \"q\" \\ \r\u{1} -->")]);
        let json = to_json(&original).unwrap();
        assert!(json.contains(r#""text": " \"q\" \\ \r\u0001 -->""#), "{json}");
        assert!(json.contains("\"end\": 0.7,"), "{json}");
        assert!(json.contains("\"language\": \"de\""), "{json}");
        assert_eq!(serde_json::from_str::<Transcript>(&json).unwrap(), original);
    }

    #[test]
    fn nothing_said_is_valid_in_every_format() {
        let empty = transcript(&[]);
        assert_eq!(to_text(&empty), "");
        assert_eq!(to_srt(&empty), "");
        assert_eq!(to_vtt(&empty), "WEBVTT\n\n");
        assert!(to_json(&empty).unwrap().contains("\"segments\": []"));
    }
}

//! Cutting a decoded window into segments, and where the next window starts.
//!
//! A pair of timestamps ends one segment and starts the next (Radford et al.
//! 2022, section 4.5). Text that ends with a single timestamp says that no
//! speech follows in its window; text cut off after a pair is taken up again at
//! that pair. Times are whole frames of 10 ms and never leave the recording.

use std::ops::Range;

use super::special::SpecialTokens;

/// Fewer frames than this (100 ms) hold no word: they are not decoded, and each
/// window moves on by at least as many, so that no sequence of tokens can make
/// the loop stand still.
pub const MIN_FRAMES: usize = 10;

/// The part of a recording that a window covers, in frames of 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpan {
    /// First frame.
    pub first: usize,
    /// Number of frames of the recording in the window (the rest is padding).
    pub frames: usize,
}

impl WindowSpan {
    fn end(self) -> usize {
        self.first + self.frames
    }

    fn clamp(self, frame: usize) -> usize {
        (self.first + frame).min(self.end())
    }
}

/// A piece of a window's tokens with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSegment {
    /// Frames from the start of the recording; empty if the tokens give no time.
    pub frames: Range<usize>,
    /// Which of the window's tokens, timestamps included.
    pub tokens: Range<usize>,
}

/// A window cut into segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowCut {
    /// The segments in order.
    pub segments: Vec<TokenSegment>,
    /// First frame of the next window, at most the end of this one.
    pub next_frame: usize,
}

/// Cuts the tokens of a window at its pairs of timestamps.
pub fn cut_window(tokens: &[u32], special: &SpecialTokens, span: WindowSpan) -> WindowCut {
    let is_timestamp: Vec<bool> = tokens.iter().map(|&t| special.is_timestamp(t)).collect();
    let ends_single = matches!(*is_timestamp, [.., false, true]);
    let pairs = is_timestamp.windows(2).zip(1..);
    let mut cuts: Vec<usize> =
        pairs.filter_map(|(pair, at)| (*pair == [true, true]).then_some(at)).collect();

    if cuts.is_empty() {
        let last_time = tokens.iter().rev().find_map(|&token| special.timestamp_frames(token));
        let frames = last_time.filter(|&frames| frames > 0).unwrap_or(span.frames);
        let segment =
            TokenSegment { frames: span.first..span.clamp(frames), tokens: 0..tokens.len() };
        return WindowCut { segments: vec![segment], next_frame: span.end() };
    }

    if ends_single {
        cuts.push(tokens.len());
    }
    let mut segments = Vec::with_capacity(cuts.len());
    let mut done = 0;
    let mut last_end = 0;
    for cut in cuts {
        let time = |at: usize| tokens.get(at).and_then(|&token| special.timestamp_frames(token));
        let start = time(done).unwrap_or(last_end);
        let end = time(cut - 1).unwrap_or(start).max(start);
        segments
            .push(TokenSegment { frames: span.clamp(start)..span.clamp(end), tokens: done..cut });
        done = cut;
        last_end = end;
    }
    let next_frame = if ends_single {
        span.end()
    } else {
        (span.first + last_end.max(MIN_FRAMES)).min(span.end())
    };
    WindowCut { segments, next_frame }
}

/// Cuts a window decoded without timestamps: one segment over the whole window.
pub fn whole_window(tokens: &[u32], span: WindowSpan) -> WindowCut {
    let segment = TokenSegment { frames: span.first..span.end(), tokens: 0..tokens.len() };
    WindowCut { segments: vec![segment], next_frame: span.end() }
}

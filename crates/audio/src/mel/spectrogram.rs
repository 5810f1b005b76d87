//! A log-mel spectrogram as the model reads it.
//!
//! Mel bins are the fastest dimension: `[n_mels, n_frames]`, one row of
//! `n_mels` values a frame.

/// A log-mel spectrogram, `[n_mels, n_frames]` with the mel bins fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct MelSpectrogram {
    n_mels: usize,
    n_frames: usize,
    data: Vec<f32>,
}

impl MelSpectrogram {
    pub(super) fn new(n_mels: usize, n_frames: usize, data: Vec<f32>) -> Self {
        assert_eq!(data.len(), n_mels * n_frames, "rows of a spectrogram");
        Self { n_mels, n_frames, data }
    }

    /// Number of mel bins.
    pub fn n_mels(&self) -> usize {
        self.n_mels
    }

    /// Number of frames, 10 ms each.
    pub fn n_frames(&self) -> usize {
        self.n_frames
    }

    /// All values, `data[frame * n_mels + mel]`.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// Gives up the values, `[n_mels, n_frames]`.
    pub fn into_data(self) -> Vec<f32> {
        self.data
    }

    /// The mel bins of one frame, or nothing past the end.
    pub fn frame(&self, frame: usize) -> &[f32] {
        match frame.checked_mul(self.n_mels) {
            Some(at) => self.data.get(at..at.saturating_add(self.n_mels)).unwrap_or(&[]),
            None => &[],
        }
    }

    /// A copy of `n_frames` frames from `first` on, `[n_mels, n_frames]`.
    /// Frames past the end are 0.0, which is how the original fills up the
    /// last window of a recording.
    pub fn window(&self, first: usize, n_frames: usize) -> Vec<f32> {
        let from = first.min(self.n_frames);
        let to = from.saturating_add(n_frames).min(self.n_frames);
        let mut out = vec![0.0; self.n_mels * n_frames];
        let present = &self.data[from * self.n_mels..to * self.n_mels];
        out[..present.len()].copy_from_slice(present);
        out
    }

    /// Keeps the first `n_frames` frames.
    pub fn truncate(&mut self, n_frames: usize) {
        self.n_frames = self.n_frames.min(n_frames);
        self.data.truncate(self.n_frames * self.n_mels);
    }
}

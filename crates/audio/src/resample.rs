//! Conversion of the sample rate of a mono stream.
//!
//! A windowed-sinc polyphase filter (rubato) whose output is aligned with its
//! input: output sample `k` is the signal at the time `k / to_rate`, and `n`
//! input samples give exactly `ceil(n * to_rate / from_rate)` output samples,
//! however the input is cut into blocks.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, FixedAsync, Resampler as _, SincInterpolationParameters, SincInterpolationType,
    WindowFunction, calculate_cutoff,
};

use crate::AudioError;

/// Lowest and highest sample rate that is converted, in Hz.
const MIN_RATE: u32 = 1_000;
const MAX_RATE: u32 = 1_536_000;

/// Filter length in samples of the lower of the two rates.
const FILTER_LEN: usize = 256;
const WINDOW: WindowFunction = WindowFunction::BlackmanHarris2;

/// Input frames that the filter takes at once.
const CHUNK: usize = 1024;

/// Largest number of filter phases that is tabulated exactly.
const MAX_PHASES: u64 = 1024;

/// Converts a mono stream from one sample rate to another.
pub struct Resampler {
    from: u32,
    to: u32,
    /// `None` where the rates are equal.
    filter: Option<Filter>,
    pushed: u64,
    produced: u64,
}

struct Filter {
    inner: Async<f32>,
    /// Input that waits for a full chunk.
    waiting: Vec<f32>,
    output: Vec<f32>,
    /// Output samples still to drop: the filter's delay.
    skip: usize,
}

impl Resampler {
    /// A resampler from `from` Hz to `to` Hz.
    ///
    /// # Errors
    /// [`AudioError::SampleRate`] if a rate is outside 1 kHz to 1,536 kHz.
    pub fn new(from: u32, to: u32) -> Result<Self, AudioError> {
        check_rate(from)?;
        check_rate(to)?;
        let filter = if from == to { None } else { Some(Filter::new(from, to)?) };
        Ok(Self { from, to, filter, pushed: 0, produced: 0 })
    }

    /// The input rate in Hz.
    pub fn from_rate(&self) -> u32 {
        self.from
    }

    /// The output rate in Hz.
    pub fn to_rate(&self) -> u32 {
        self.to
    }

    /// Output samples that `input_samples` input samples give in all.
    pub fn output_len(&self, input_samples: u64) -> u64 {
        let product = u128::from(input_samples) * u128::from(self.to);
        u64::try_from(product.div_ceil(u128::from(self.from))).unwrap_or(u64::MAX)
    }

    /// Takes the next input samples and appends the output that is ready.
    ///
    /// # Errors
    /// [`AudioError::Resample`] if the filter fails, which input cannot cause.
    pub fn push(&mut self, input: &[f32], out: &mut Vec<f32>) -> Result<(), AudioError> {
        let fail = failure(self.from, self.to);
        self.pushed += input.len() as u64;
        let Some(filter) = &mut self.filter else {
            self.produced += input.len() as u64;
            out.extend_from_slice(input);
            return Ok(());
        };
        let before = out.len();
        let mut rest = input;
        while !rest.is_empty() {
            let room = (CHUNK - filter.waiting.len()).min(rest.len());
            filter.waiting.extend_from_slice(&rest[..room]);
            rest = &rest[room..];
            if filter.waiting.len() == CHUNK {
                filter.run(out).map_err(fail)?;
            }
        }
        self.produced += (out.len() - before) as u64;
        Ok(())
    }

    /// Appends what is still inside the filter.
    ///
    /// # Errors
    /// As [`Resampler::push`].
    pub fn finish(mut self, out: &mut Vec<f32>) -> Result<(), AudioError> {
        let fail = failure(self.from, self.to);
        let total = self.output_len(self.pushed);
        let start = out.len();
        // The filter's delay keeps the output behind the input, so some of it is always missing.
        let missing = usize::try_from(total.saturating_sub(self.produced)).unwrap_or(usize::MAX);
        if let Some(filter) = &mut self.filter {
            while out.len() - start < missing {
                filter.waiting.resize(CHUNK, 0.0);
                filter.run(out).map_err(fail)?;
            }
        }
        out.truncate(start.saturating_add(missing));
        Ok(())
    }
}

/// Refuses a rate that cannot be converted.
pub(crate) fn check_rate(rate: u32) -> Result<(), AudioError> {
    if (MIN_RATE..=MAX_RATE).contains(&rate) {
        return Ok(());
    }
    Err(AudioError::SampleRate { rate, min: MIN_RATE, max: MAX_RATE })
}

fn failure(from: u32, to: u32) -> impl Fn(String) -> AudioError + Copy {
    move |what| AudioError::Resample { from, to, what }
}

impl Filter {
    fn new(from: u32, to: u32) -> Result<Self, AudioError> {
        let common = gcd(from, to);
        let (step_in, step_out) = (u64::from(from / common), u64::from(to / common));
        // When downsampling, the filter is longer by the ratio, so that its
        // transition band is as narrow in the output as in the input.
        let sinc_len = (FILTER_LEN as f64 * (f64::from(from) / f64::from(to)).max(1.0)).ceil();
        let sinc_len = (sinc_len as usize).next_multiple_of(8);
        let exact = step_out <= MAX_PHASES;
        let phases = if exact { step_out as usize } else { FILTER_LEN };
        let parameters = SincInterpolationParameters {
            sinc_len,
            f_cutoff: Some(calculate_cutoff(FILTER_LEN, WINDOW)),
            oversampling_factor: phases,
            // With one tabulated phase per output phase, the nearest one is exact.
            interpolation: if exact {
                SincInterpolationType::Nearest
            } else {
                SincInterpolationType::Cubic
            },
            window: WINDOW,
        };
        let ratio = step_out as f64 / step_in as f64;
        let fail = failure(from, to);
        let inner = Async::new_sinc(ratio, 1.0, &parameters, CHUNK, 1, FixedAsync::Input)
            .map_err(|error| fail(error.to_string()))?;
        let (lead, skip) = alignment(sinc_len as u64, phases as u64, step_in, step_out);
        let mut output = Vec::new();
        output.resize(inner.output_frames_max(), 0.0);
        let mut filter = Self { inner, waiting: Vec::with_capacity(CHUNK), output, skip };
        let mut lead = lead;
        while lead > 0 {
            let zeros = lead.min(CHUNK - filter.waiting.len());
            filter.waiting.resize(filter.waiting.len() + zeros, 0.0);
            lead -= zeros;
            if filter.waiting.len() == CHUNK {
                filter.run(&mut Vec::new()).map_err(|what| AudioError::Resample {
                    from,
                    to,
                    what,
                })?;
            }
        }
        Ok(filter)
    }

    /// Filters one full chunk and appends the output past the delay.
    fn run(&mut self, out: &mut Vec<f32>) -> Result<(), String> {
        let capacity = self.output.len();
        let input =
            InterleavedSlice::new(&self.waiting[..], 1, CHUNK).map_err(|e| e.to_string())?;
        let mut output = InterleavedSlice::new_mut(&mut self.output[..], 1, capacity)
            .map_err(|e| e.to_string())?;
        let (_, frames) = self
            .inner
            .process_into_buffer(&input, &mut output, None)
            .map_err(|error| error.to_string())?;
        let skipped = self.skip.min(frames);
        self.skip -= skipped;
        out.extend_from_slice(&self.output[skipped..frames]);
        self.waiting.clear();
        Ok(())
    }
}

/// Zeros to feed first and output samples to drop, so that output sample 0
/// falls on input sample 0.
///
/// The filter's output number `j` (from 1) is the signal at the input time
/// `j * step_in / step_out - sinc_len / 2 + 1 / phases`: the tabulated sincs
/// are centred one phase after the middle. Adding `lead` zeros and dropping
/// `j - 1` outputs must make that time 0.
fn alignment(sinc_len: u64, phases: u64, step_in: u64, step_out: u64) -> (usize, usize) {
    let mut best = (f64::INFINITY, 0, 0);
    for lead in 0..step_in.min(4096) {
        let delay = (sinc_len / 2 + lead) as f64 - 1.0 / phases as f64;
        let output = (delay * step_out as f64 / step_in as f64).round();
        let error = (output * step_in as f64 / step_out as f64 - delay).abs();
        if error + 1e-9 < best.0 {
            best = (error, lead as usize, output as usize);
        }
    }
    (best.1, best.2.saturating_sub(1))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

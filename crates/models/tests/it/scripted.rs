//! Models that follow a script instead of weights.

use tensoryard_models::Error;
use tensoryard_models::whisper::decode::{ModelDims, SpeechModel};
use tensoryard_models::whisper::special::SpecialTokens;
use tensoryard_models::whisper::transcribe::MelSource;

/// A small seeded generator (xorshift64*), so that failures can be repeated.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }

    pub fn unit(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1 << 24) as f32
    }
}

/// What the model says about one window.
#[derive(Clone)]
pub struct Script {
    /// Tokens to write, then the end of text.
    pub tokens: Vec<u32>,
    /// Probability of no speech.
    pub no_speech: f32,
    /// Logit of the scripted token; all others have 0. 20 is sure, 7.5 is unsure (at 7.3
    /// all timestamps together would win).
    pub confidence: f32,
}

impl Script {
    pub fn new(tokens: &[u32]) -> Self {
        Self { tokens: tokens.to_vec(), no_speech: 0.01, confidence: 20.0 }
    }
}

/// A model that writes one script per encoded window.
pub struct Scripted {
    pub special: SpecialTokens,
    pub scripts: Vec<Script>,
    /// Language to detect.
    pub language: &'static str,
    /// Every window that was encoded.
    pub encoded: Vec<Vec<f32>>,
    /// The initial tokens of every decoding.
    pub prompts: Vec<Vec<u32>>,
    /// Number of decoder calls.
    pub steps: usize,
    initial_len: usize,
}

pub const N_MELS: usize = 2;

impl Scripted {
    pub fn new(special: SpecialTokens, scripts: Vec<Script>) -> Self {
        Self {
            special,
            scripts,
            language: "en",
            encoded: Vec::new(),
            prompts: Vec::new(),
            steps: 0,
            initial_len: 0,
        }
    }

    fn row(&self, script: &Script, at: Option<usize>, is_sot: bool) -> Vec<f32> {
        let mut logits = vec![0.0; self.special.n_vocab as usize];
        let next = at.map(|at| script.tokens.get(at).copied().unwrap_or(self.special.eot));
        if let Some(next) = next {
            logits[next as usize] = script.confidence;
        }
        if is_sot {
            let others: f32 = logits.iter().map(|x| x.exp()).sum::<f32>() - 1.0;
            let odds = script.no_speech / (1.0 - script.no_speech);
            logits[self.special.no_speech as usize] = (odds * others).ln();
        }
        logits
    }
}

impl SpeechModel for Scripted {
    fn dims(&self) -> ModelDims {
        ModelDims { n_vocab: self.special.n_vocab as usize, n_text_ctx: 448, n_mels: N_MELS }
    }

    fn encode(&mut self, mel: &[f32]) -> Result<(), Error> {
        assert_eq!(mel.len(), 3000 * N_MELS);
        self.encoded.push(mel.to_vec());
        Ok(())
    }

    fn decode(
        &mut self,
        tokens: &[u32],
        position: usize,
        rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        self.steps += 1;
        logits.clear();
        if self.special.multilingual && position == 0 && tokens == [self.special.sot] {
            let language = self.language.parse().unwrap();
            logits.resize(self.special.n_vocab as usize, 0.0);
            logits[self.special.language_token(language).unwrap() as usize] = 8.0;
            return Ok(());
        }
        if position == 0 {
            self.initial_len = tokens.len();
            self.prompts.push(tokens.to_vec());
        }
        assert!(position + tokens.len() <= 448, "position {position} is outside the context");
        let window = self.encoded.len() - 1;
        let script = self.scripts.get(window).cloned().unwrap_or_else(|| Script::new(&[]));
        for &row in rows {
            let absolute = position + row + 1;
            let at = absolute.checked_sub(self.initial_len);
            logits.extend(self.row(&script, at, tokens[row] == self.special.sot));
        }
        Ok(())
    }
}

/// A model whose logits are noise; it may never end a text.
pub struct Noise {
    pub special: SpecialTokens,
    pub random: Random,
    pub may_end: bool,
}

impl SpeechModel for Noise {
    fn dims(&self) -> ModelDims {
        ModelDims { n_vocab: self.special.n_vocab as usize, n_text_ctx: 448, n_mels: N_MELS }
    }

    fn encode(&mut self, _mel: &[f32]) -> Result<(), Error> {
        Ok(())
    }

    fn decode(
        &mut self,
        _tokens: &[u32],
        _position: usize,
        rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let n = self.special.n_vocab as usize * rows.len();
        // A repeated block of noise with a few peaks is as good as noise, and fast.
        logits.clear();
        logits.resize(n, 0.0);
        for _ in 0..40 {
            let at = self.random.below(n as u32) as usize;
            logits[at] = self.random.unit() * 30.0;
        }
        for _ in 0..10 {
            let at = n - 1 - self.random.below(1501) as usize;
            logits[at] = self.random.unit() * 30.0;
        }
        if !self.may_end {
            for row in logits.chunks_mut(self.special.n_vocab as usize) {
                row[self.special.eot as usize] = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

/// A spectrogram whose every value is the number of its frame.
pub struct Frames(pub usize);

impl MelSource for Frames {
    fn n_frames(&self) -> usize {
        self.0
    }

    fn window(&self, first: usize, n: usize) -> Vec<f32> {
        assert!(first + n <= self.0);
        (first..first + n).flat_map(|frame| [frame as f32; N_MELS]).collect()
    }
}

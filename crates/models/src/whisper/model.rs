//! A loaded Whisper model and the sessions that run it.
//!
//! The model is read only and shared; each [`WhisperSession`] has the caches
//! and the compute memory of one stream, and no state that outlives a window's
//! encoding reaches the next one.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensoryard_audio::{LogMel, MelFilters};
use tensoryard_formats::OpenOptions;
use tensoryard_formats::whisper::{WhisperCheckpoint, WhisperConfig};
use tensoryard_graph::{DType, Graph};
use tensoryard_runtime::plan::assign;
use tensoryard_runtime::{
    AbortSignal, Input, PlanDevice, RunError, Selected, Session, SessionOptions, WeightError,
    Weights,
};

use super::config::GraphConfig;
use super::decode::{ModelDims, SpeechModel};
use super::decoder::{DecoderShape, LOGITS, MASK, POSITIONS, ROWS, TOKENS, decoder_graph};
use super::encoder::{AudioOutput, FEATURES, MEL, encoder_graph};
use super::extras::open_checkpoint;
use super::graphs::{graph_config, graphs};
use super::rules::SuppressionLists;
use super::weights::{CheckpointWeights, FileWeights};
use crate::Error;
use crate::tokenizer::Tokenizer;

/// Graphs of the decoder kept at most by a session; steps of one token need seven.
const MAX_GRAPHS: usize = 32;

/// How a model is loaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Map the file instead of reading it.
    pub mmap: bool,
    /// Type of the matrices in memory; `None` keeps f16 and f32 as stored.
    pub matrix: Option<DType>,
    /// Type of the key-value caches: f16 or f32.
    pub cache: DType,
    /// How sessions plan.
    pub session: SessionOptions,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { mmap: true, matrix: None, cache: DType::F16, session: SessionOptions::default() }
    }
}

/// A Whisper model in the memory of its devices.
pub struct WhisperModel {
    name: Option<String>,
    config: GraphConfig,
    tokenizer: Tokenizer,
    suppression: SuppressionLists,
    mel: LogMel,
    weights: Arc<Weights>,
    devices: Vec<Selected>,
    /// The encoder, then decoders at the sizes that need the most memory.
    graphs: Vec<Arc<Graph>>,
    session: SessionOptions,
}

impl fmt::Debug for WhisperModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhisperModel")
            .field("name", &self.name)
            .field("config", &self.config)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

impl WhisperModel {
    /// Loads a model: GGUF, ggml Whisper `.bin`, or a CTranslate2 folder or `model.bin`.
    ///
    /// `devices` are those that will run it, in order of priority. `progress` is told bytes
    /// loaded and bytes in all, and stops the loading by returning `false`.
    ///
    /// # Errors
    /// A file that is no Whisper model, or is damaged; memory that cannot be had;
    /// [`Error::Stopped`].
    pub fn load(
        path: impl AsRef<Path>,
        devices: &[Selected],
        options: &LoadOptions,
        progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, Error> {
        let open = OpenOptions::new().mmap(options.mmap);
        let checkpoint = open_checkpoint(path.as_ref(), open)?;
        let mut model = Self::from_checkpoint(&checkpoint, devices, options, progress)?;
        if model.session.weight_source.is_none() {
            let source = FileWeights::new(path.as_ref(), open, model.config.matrix);
            model.session.weight_source = Some(Arc::new(source));
        }
        Ok(model)
    }

    /// As [`WhisperModel::load`], from an opened checkpoint. Weights that are lost with a device
    /// can be had again only if the options name a source.
    ///
    /// # Errors
    /// As [`WhisperModel::load`].
    pub fn from_checkpoint(
        checkpoint: &WhisperCheckpoint,
        devices: &[Selected],
        options: &LoadOptions,
        progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, Error> {
        if devices.is_empty() {
            let reason = "at least one device is needed".to_owned();
            return Err(Error::InvalidOption { name: "devices", reason });
        }
        let config = graph_config(checkpoint, options)?;
        let graphs = graphs(&config).map_err(Error::model)?;
        let graphs: Vec<Arc<Graph>> = graphs.into_iter().map(|graph| graph.graph).collect();
        let plan_devices: Vec<PlanDevice> =
            devices.iter().map(|selected| PlanDevice::new(&selected.device)).collect();
        let shared: Vec<&Arc<Graph>> = graphs.iter().collect();
        let assignment =
            assign(&shared, &plan_devices, &options.session.plan).map_err(Error::model)?;
        let source = CheckpointWeights { checkpoint, matrix: config.matrix };
        let plain: Vec<&Graph> = graphs.iter().map(|graph| &**graph).collect();
        let weights =
            Weights::load(&source, &plain, &assignment, progress).map_err(|error| match error {
                WeightError::Cancelled => Error::Stopped,
                other => Error::model(other),
            })?;
        let filters = &checkpoint.mel_filters;
        let filters =
            MelFilters::from_values(filters.n_mels, filters.n_bins, filters.values.clone())
                .map_err(Error::model)?;
        Ok(Self {
            name: checkpoint.name.clone(),
            config,
            tokenizer: tokenizer(checkpoint)?,
            suppression: SuppressionLists {
                always: checkpoint.suppress_ids.clone(),
                first: checkpoint.suppress_ids_begin.clone(),
            },
            mel: LogMel::new(filters).map_err(Error::model)?,
            weights: Arc::new(weights),
            devices: devices.to_vec(),
            graphs,
            session: options.session.clone(),
        })
    }

    /// Name of the model, where the file has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The hyperparameters.
    pub fn config(&self) -> &WhisperConfig {
        &self.config.sizes
    }

    /// Sizes and types of the graphs.
    pub fn graph_config(&self) -> &GraphConfig {
        &self.config
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What turns samples into mel frames for this model.
    pub fn log_mel(&self) -> &LogMel {
        &self.mel
    }

    fn encoder(&self) -> &Arc<Graph> {
        &self.graphs[0]
    }

    /// Opens a session with caches and compute memory of its own.
    ///
    /// # Errors
    /// A device that cannot be opened; memory that cannot be had.
    pub fn session(self: &Arc<Self>) -> Result<WhisperSession, Error> {
        let graphs: Vec<&Arc<Graph>> = self.graphs.iter().collect();
        let weights = Arc::clone(&self.weights);
        let session = Session::open(&self.devices, weights, &graphs, self.session.clone())
            .map_err(Error::model)?;
        Ok(WhisperSession {
            model: Arc::clone(self),
            session,
            decoders: HashMap::new(),
            mask: Vec::new(),
            timings: Timings::default(),
        })
    }
}

pub(super) fn matrix_type(
    checkpoint: &WhisperCheckpoint,
    options: &LoadOptions,
) -> Result<DType, Error> {
    let stored = checkpoint.tensor("decoder.token_embedding.weight").map(|tensor| tensor.dtype());
    match options.matrix.or(stored) {
        Some(dtype @ (DType::F16 | DType::F32)) => Ok(dtype),
        Some(other) => Err(Error::InvalidOption {
            name: "matrix",
            reason: format!("weights of type {other} cannot be computed with, f16 and f32 can"),
        }),
        None => Ok(DType::F32),
    }
}

fn tokenizer(checkpoint: &WhisperCheckpoint) -> Result<Tokenizer, Error> {
    let vocabulary = &checkpoint.vocabulary;
    Tokenizer::from_parts(vocabulary.tokens.clone(), &vocabulary.merges)
}

/// Where the time of a session went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timings {
    /// Windows encoded.
    pub encoder_runs: usize,
    /// Time in the encoder.
    pub encoder: Duration,
    /// Steps of the decoder, of one or more tokens.
    pub decoder_runs: usize,
    /// Time in the decoder.
    pub decoder: Duration,
}

/// One stream through a model.
#[derive(Debug)]
pub struct WhisperSession {
    model: Arc<WhisperModel>,
    session: Session,
    decoders: HashMap<DecoderShape, Arc<Graph>>,
    mask: Vec<f32>,
    timings: Timings,
}

impl WhisperSession {
    /// The model.
    pub fn model(&self) -> &Arc<WhisperModel> {
        &self.model
    }

    /// The signal that stops the session's work from another thread.
    pub fn abort_signal(&self) -> AbortSignal {
        self.session.abort_signal()
    }

    /// Uses the given signal instead of the session's own.
    pub fn set_abort_signal(&mut self, signal: AbortSignal) {
        self.session.set_abort_signal(signal);
    }

    /// The runtime session, for plans and memory figures.
    pub fn runtime(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Where the time since the last call went.
    pub fn take_timings(&mut self) -> Timings {
        std::mem::take(&mut self.timings)
    }

    /// The graph that encodes a window.
    pub fn encoder_graph(&self) -> &Arc<Graph> {
        self.model.encoder()
    }

    /// Encodes a window and returns the audio features, f32 `[n_audio_state, 1500]`.
    ///
    /// # Errors
    /// A spectrogram of another size; what the devices report.
    pub fn audio_features(&mut self, mel: &[f32]) -> Result<Vec<f32>, Error> {
        self.check_mel(mel)?;
        let graph = encoder_graph(&self.model.config, AudioOutput::Features);
        let graph = Arc::new(graph.map_err(Error::model)?);
        let inputs = [Input::f32(MEL, mel)];
        let features = self.session.run_reading(&graph, &inputs, |outputs| outputs.f32(FEATURES));
        features.map_err(run_error)
    }

    fn check_mel(&self, mel: &[f32]) -> Result<(), Error> {
        let expected = self.model.config.sizes.n_mels * self.model.config.n_frames();
        if mel.len() == expected {
            return Ok(());
        }
        Err(Error::WrongSize { what: "mel window", expected, got: mel.len() })
    }

    /// The graph that runs `n_tokens` at `position`, made once for each shape.
    ///
    /// # Errors
    /// Sizes that do not fit the model.
    pub fn decoder_graph(&mut self, shape: DecoderShape) -> Result<Arc<Graph>, Error> {
        if let Some(graph) = self.decoders.get(&shape) {
            return Ok(Arc::clone(graph));
        }
        let graph = Arc::new(decoder_graph(&self.model.config, shape).map_err(Error::model)?);
        if self.decoders.len() >= MAX_GRAPHS {
            self.decoders.clear();
        }
        self.decoders.insert(shape, Arc::clone(&graph));
        Ok(graph)
    }
}

impl SpeechModel for WhisperSession {
    fn dims(&self) -> ModelDims {
        let sizes = &self.model.config.sizes;
        ModelDims { n_vocab: sizes.n_vocab, n_text_ctx: sizes.n_text_ctx, n_mels: sizes.n_mels }
    }

    fn suppression(&self) -> SuppressionLists {
        self.model.suppression.clone()
    }

    fn encode(&mut self, mel: &[f32]) -> Result<(), Error> {
        self.check_mel(mel)?;
        let start = Instant::now();
        let graph = Arc::clone(self.model.encoder());
        // A window that was stopped left its caches half written; this one writes before it reads.
        self.session.forget_state();
        self.session.run(&graph, &[Input::f32(MEL, mel)]).map_err(run_error)?;
        self.timings.encoder_runs += 1;
        self.timings.encoder += start.elapsed();
        Ok(())
    }

    fn decode(
        &mut self,
        tokens: &[u32],
        position: usize,
        rows: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let n_text_ctx = self.model.config.sizes.n_text_ctx;
        let end = position.saturating_add(tokens.len());
        if tokens.is_empty() || end > n_text_ctx {
            return Err(Error::WrongSize {
                what: "decoder positions",
                expected: n_text_ctx,
                got: end,
            });
        }
        if rows.is_empty() || rows.iter().any(|&row| row >= tokens.len()) {
            let (expected, got) = (tokens.len(), rows.len());
            return Err(Error::WrongSize { what: "rows of logits", expected, got });
        }
        let shape = DecoderShape::new(&self.model.config, position, tokens.len(), rows.len());
        let graph = self.decoder_graph(shape)?;
        let ids: Vec<i32> = tokens.iter().map(|&token| as_i32(token as usize)).collect();
        let positions: Vec<i32> = (position..end).map(as_i32).collect();
        let rows: Vec<i32> = rows.iter().map(|&row| as_i32(row)).collect();
        // Token i sees the slots up to its own position.
        self.mask.clear();
        self.mask.extend((position..end).flat_map(|own| {
            (0..shape.n_slots).map(move |slot| if slot <= own { 0.0 } else { f32::NEG_INFINITY })
        }));
        let inputs = [
            Input::i32(TOKENS, &ids),
            Input::i32(POSITIONS, &positions),
            Input::f32(MASK, &self.mask),
            Input::i32(ROWS, &rows),
        ];
        let read =
            self.session.run_reading(&graph, &inputs, |outputs| outputs.read_f32(LOGITS, logits));
        read.map_err(run_error)?;
        self.timings.decoder_runs += 1;
        self.timings.decoder += start.elapsed();
        Ok(())
    }
}

fn as_i32(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn run_error(error: RunError) -> Error {
    if error.is_cancelled() { Error::Stopped } else { Error::model(error) }
}

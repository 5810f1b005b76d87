//! What a fetch tells its caller while it works.
//!
//! Events come in order from the calling thread, so that a receiver needs no
//! locks. A receiver must return quickly: the transfer waits for it.

/// One thing that a fetch has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchEvent<'a> {
    /// Another process fetches the same model; this one waits for it.
    Waiting,
    /// A source is tried. Sources count from 1.
    Source {
        /// Number of this source.
        index: usize,
        /// How many sources the model has.
        count: usize,
        /// The source in words.
        label: &'a str,
    },
    /// A source did not deliver; the next one follows.
    SourceFailed {
        /// The source in words.
        label: &'a str,
        /// Why, in one line.
        reason: &'a str,
    },
    /// Bytes that have arrived from this source, of those it has to deliver.
    Bytes {
        /// Bytes here so far, those of an earlier, interrupted try included.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A file is complete and its checksum is computed.
    Verifying {
        /// Name of the file.
        file: &'a str,
    },
    /// The files are right and are converted.
    Converting,
}

/// Receives the events of a fetch.
pub trait FetchProgress {
    /// Takes one event.
    fn event(&mut self, event: FetchEvent<'_>);
}

/// Ignores every event.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl FetchProgress for NoProgress {
    fn event(&mut self, _event: FetchEvent<'_>) {}
}

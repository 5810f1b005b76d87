//! Where fetched models live, and the lock that keeps two processes apart.
//!
//! ```text
//! <root>/models/<name>.gguf       the converted model
//! <root>/models/<name>.manifest   what it is and where it came from
//! <root>/partial/<name>/          published files that are on their way
//! <root>/partial/<name>.lock      held while a process fetches this model
//! ```

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use etcetera::BaseStrategy;

use super::error::HubError;
use super::progress::{FetchEvent, FetchProgress};

/// How often a wait looks at the cancel flag.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// The folder that holds fetched models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDir {
    root: PathBuf,
}

impl CacheDir {
    /// `tensoryard` in the user's cache directory: `$XDG_CACHE_HOME` or
    /// `~/.cache` on Unix, the local application data on Windows.
    ///
    /// # Errors
    /// [`HubError::NoCacheDir`] when the user has no home directory.
    pub fn of_user() -> Result<Self, HubError> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| HubError::NoCacheDir)?;
        Ok(Self::at(strategy.cache_dir().join("tensoryard")))
    }

    /// A folder of the caller's choice. It is made when first needed.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the converted model of this name is or will be.
    pub fn model_path(&self, name: &str) -> PathBuf {
        self.root.join("models").join(format!("{name}.gguf"))
    }

    pub(super) fn manifest_path(&self, name: &str) -> PathBuf {
        self.root.join("models").join(format!("{name}.manifest"))
    }

    pub(super) fn partial_dir(&self, name: &str) -> PathBuf {
        self.root.join("partial").join(name)
    }

    /// Takes the lock of a model, waiting while another process holds it.
    pub(super) fn lock(
        &self,
        name: &str,
        progress: &mut dyn FetchProgress,
        cancel: &AtomicBool,
    ) -> Result<ModelLock, HubError> {
        let dir = self.root.join("partial");
        make_dir(&dir)?;
        let path = dir.join(format!("{name}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| HubError::io("open the lock", &path, source))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(ModelLock { _file: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => {
                    return Err(HubError::io("lock", &path, source));
                }
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(HubError::Cancelled);
            }
            if !told {
                progress.event(FetchEvent::Waiting);
                told = true;
            }
            thread::sleep(POLL);
        }
    }
}

/// Held while a process changes one model. The operating system releases it
/// with the file, so that a killed process leaves nothing locked.
#[derive(Debug)]
pub(super) struct ModelLock {
    _file: File,
}

pub(super) fn make_dir(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|source| HubError::io("make the folder", path, source))
}

/// Removes a file; one that is not there is no error. Tells whether it was there.
pub(super) fn remove_file(path: &Path) -> Result<bool, HubError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(HubError::io("remove", path, source)),
    }
}

/// Removes a folder with all it holds; one that is not there is no error.
pub(super) fn remove_dir(path: &Path) -> Result<(), HubError> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(HubError::io("remove the folder", path, source)),
    }
}

//! What can be wrong with a driver library.

use std::path::PathBuf;

/// A shared library that cannot serve as a driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A file that is not there, or no shared library of this machine.
    #[error("driver {path}: cannot be loaded: {reason}", path = path.display())]
    Load {
        /// Path of the library.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A shared library that is no driver.
    #[error("driver {path}: does not export {symbol}, so it is no driver", path = path.display())]
    Symbol {
        /// Path of the library.
        path: PathBuf,
        /// The function that is missing.
        symbol: &'static str,
    },
    /// A table that cannot be used.
    #[error("driver {path}: {problem}", path = path.display())]
    Table {
        /// Path of the library.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

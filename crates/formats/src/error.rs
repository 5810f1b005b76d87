//! The one error type of this crate.
//!
//! Every variant names the thing that is wrong (key, tensor, field) with the
//! numbers found and expected. Functions that open a path wrap what the parser
//! says in [`FormatError::InFile`], so that a message always begins with the
//! file. Nothing here is raised for a fault of the program itself.

use std::path::{Path, PathBuf};

use tensoryard_tensor::{Shape, TensorError};

/// What a file, a path or a caller's description of a model can have wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Something is wrong in or with the file of this path.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file or directory as the caller named it.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        error: Box<FormatError>,
    },
    /// The operating system refused an operation.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The caller's progress function asked to stop.
    #[error("stopped")]
    Stopped,
    /// The path is no model file of a known format, and this is what it seems to be.
    #[error("not a model file that can be read: it looks like {0}")]
    LooksLike(String),
    /// A file of another format than the one asked for.
    #[error("this is a {found} file, a {wanted} file is needed")]
    WrongFormat {
        /// The format asked for.
        wanted: &'static str,
        /// What the first bytes say.
        found: String,
    },
    /// A model of another architecture than the one asked for.
    #[error("this file holds a {found:?} model, a {wanted:?} model is needed")]
    WrongModel {
        /// The architecture asked for.
        wanted: &'static str,
        /// The architecture that the file names.
        found: String,
    },
    /// A version of a known format that this crate does not read.
    #[error("{format} version {version} is not supported, {supported} is")]
    Version {
        /// Name of the format.
        format: &'static str,
        /// The version in the file.
        version: u32,
        /// The versions that can be read.
        supported: &'static str,
    },
    /// The file ends before something that it announced.
    #[error(
        "the file is cut short: {what} needs {needed} bytes at offset {offset}, {available} are there"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// Where it begins.
        offset: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes left in the file.
        available: u64,
    },
    /// A count that the rest of the file cannot hold.
    #[error(
        "{what} is {count}, the rest of the file holds {limit} at most: it is cut short or damaged"
    )]
    BeyondFile {
        /// What is counted.
        what: String,
        /// The count in the file.
        count: u64,
        /// The largest count that could be true.
        limit: u64,
    },
    /// A count beyond a limit.
    #[error("{what} is {count}, at most {limit} is possible here")]
    Count {
        /// What is counted.
        what: String,
        /// The count in the file.
        count: u64,
        /// The largest count that could be true.
        limit: u64,
    },
    /// Two keys or two tensors of one name.
    #[error("two {kind}s are named {name:?}")]
    Duplicate {
        /// `key`, `tensor` or `variable`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name that is empty, too long, not UTF-8, or holds a zero byte.
    #[error("the name of {what} {problem}: {name:?}")]
    Name {
        /// What has the name.
        what: String,
        /// What is wrong with it.
        problem: &'static str,
        /// The name as far as it can be shown.
        name: String,
    },
    /// A type number that no value or tensor has.
    #[error("{what} has the unknown type number {number}")]
    UnknownType {
        /// The key or tensor.
        what: String,
        /// The number in the file.
        number: u32,
    },
    /// The type number of a tensor type that the field has removed.
    #[error(
        "tensor {tensor:?} has type {name} (number {number}), which was removed from the format"
    )]
    RemovedType {
        /// The tensor.
        tensor: String,
        /// The number in the file.
        number: u32,
        /// What the type was called.
        name: &'static str,
    },
    /// A tensor whose shape or type makes no sense.
    #[error("tensor {tensor:?}: {error}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// What its shape and type say.
        #[source]
        error: TensorError,
    },
    /// A tensor whose data does not lie where it may.
    #[error("tensor {tensor:?}: {problem}")]
    Placement {
        /// The tensor.
        tensor: String,
        /// What is wrong, with numbers.
        problem: String,
    },
    /// A tensor of another shape than the model's hyperparameters demand.
    #[error("tensor {tensor:?} has shape {found}, {wanted} is needed")]
    TensorShape {
        /// The tensor.
        tensor: String,
        /// Shape that the hyperparameters demand.
        wanted: Shape,
        /// Shape in the file.
        found: Shape,
    },
    /// A tensor that the model needs is not in the file.
    #[error("tensor {0:?} is missing")]
    MissingTensor(String),
    /// A metadata key that the model needs is not in the file.
    #[error("key {0:?} is missing")]
    MissingKey(String),
    /// A metadata value of another type than its key has.
    #[error("key {key:?} has type {found}, {wanted} is needed")]
    KeyType {
        /// The key.
        key: String,
        /// Type that the key should have.
        wanted: &'static str,
        /// Type in the file.
        found: String,
    },
    /// A value that is out of range or contradicts another.
    #[error("{what}: {problem}")]
    Invalid {
        /// The key, field or argument.
        what: String,
        /// What is wrong, with numbers.
        problem: String,
    },
}

impl FormatError {
    /// The same error, said of the file at `path`.
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            Self::InFile { .. } => self,
            error => Self::InFile { path: path.to_owned(), error: Box::new(error) },
        }
    }

    /// The error without the path that [`FormatError::InFile`] adds.
    pub fn root(&self) -> &FormatError {
        match self {
            Self::InFile { error, .. } => error.root(),
            other => other,
        }
    }

    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    pub(crate) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), problem: problem.into() }
    }

    pub(crate) fn tensor(name: &str) -> impl FnOnce(TensorError) -> Self {
        move |error| Self::Tensor { tensor: name.to_owned(), error }
    }

    pub(crate) fn placement(tensor: &str, problem: impl Into<String>) -> Self {
        Self::Placement { tensor: tensor.to_owned(), problem: problem.into() }
    }
}

/// The result of everything that reads or writes model files.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

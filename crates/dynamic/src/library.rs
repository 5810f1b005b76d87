//! A loaded library and the one place that calls it.
//!
//! Whatever belongs to a library holds it by reference count, so that its code is there until the
//! last of it is gone. Texts, counts and sizes that come from it are checked here.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::abi::{self, ErrorText, Functions, Header, Table, Text};
use crate::error::DriverError;

const SYMBOL: &str = "tensoryard_driver";

/// Longer texts are taken for a fault of the driver.
const MAX_TEXT: u64 = 1 << 16;

/// What a call of the driver ended with, other than well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: i32,
    pub reason: String,
}

/// A library with its functions.
pub(crate) struct Library {
    path: PathBuf,
    /// Name of the driver.
    pub name: String,
    functions: Functions,
    /// Keeps the code loaded; dropped with the last thing of the library.
    _keep_loaded: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({})", self.path.display())
    }
}

impl Library {
    /// Loads a library and checks its table.
    ///
    /// # Safety
    /// Loading runs the library's code, and so does every later call: it must do what the header
    /// asks of it.
    pub unsafe fn load(path: &Path) -> Result<Arc<Self>, DriverError> {
        let failed = |error: libloading::Error| DriverError::Load {
            path: path.to_owned(),
            reason: in_full(&error),
        };
        // SAFETY: the caller answers for the library.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        type Entry = unsafe extern "C" fn() -> *const Table;
        // SAFETY: a library that exports the symbol means this type by it.
        let entry = unsafe { library.get::<Entry>(SYMBOL.as_bytes()) };
        let entry =
            entry.map_err(|_| DriverError::Symbol { path: path.to_owned(), symbol: SYMBOL })?;
        // SAFETY: the function takes nothing and returns the address of a table.
        let table = unsafe { entry() };
        // SAFETY: a driver returns null or a table that begins with the header and has the size
        // given there, and that stays while the library is loaded.
        unsafe { Self::from_table(path, table, Box::new(library)) }
    }

    /// Checks a table.
    ///
    /// # Safety
    /// `table` is null or points to a header, and to as many bytes as that says; its functions
    /// are those of the C header for as long as `keep_loaded` lives.
    pub unsafe fn from_table(
        path: &Path,
        table: *const Table,
        keep_loaded: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<Self>, DriverError> {
        let wrong = |problem: String| DriverError::Table { path: path.to_owned(), problem };
        if table.is_null() || !table.is_aligned() {
            return Err(wrong(format!("{SYMBOL} returned no table")));
        }
        // SAFETY: every version begins with the header.
        let header = unsafe { table.cast::<Header>().read() };
        if header.magic != abi::MAGIC {
            let (found, wanted) = (header.magic, abi::MAGIC);
            return Err(wrong(format!("its table begins with {found:#010x}, not {wanted:#010x}")));
        }
        if header.version != abi::VERSION {
            let (found, known) = (header.version, abi::VERSION);
            return Err(wrong(format!("its table is of version {found}, known is {known}")));
        }
        let needed = size_of::<Table>() as u64;
        if header.size < needed {
            let found = header.size;
            return Err(wrong(format!("its table has {found} bytes, version 1 has {needed}")));
        }
        // SAFETY: the table is large enough by its own word.
        let table = unsafe { table.read() };
        let missing = |name| wrong(format!("its table lacks the function {name}"));
        let functions = table.functions().map_err(missing)?;
        // SAFETY: texts of the driver live while it is loaded.
        let name = unsafe { copy_text(table.name) }
            .map_err(|problem| wrong(format!("the name of the driver {problem}")))?;
        if name.is_empty() {
            return Err(wrong("the driver has no name".to_owned()));
        }
        let path = path.to_owned();
        Ok(Arc::new(Self { path, name, functions, _keep_loaded: keep_loaded }))
    }

    /// An error that names the library.
    pub fn wrong(&self, problem: impl Into<String>) -> DriverError {
        DriverError::Table { path: self.path.clone(), problem: problem.into() }
    }

    /// Calls a function of the table.
    ///
    /// # Safety
    /// `call` passes arguments that the header allows, and the error text as it is.
    pub unsafe fn call(
        &self,
        call: impl FnOnce(&Functions, *mut ErrorText) -> i32,
    ) -> Result<(), Failure> {
        let mut text = [0_u8; 512];
        let capacity = text.len() as u64;
        let mut error = ErrorText { data: text.as_mut_ptr(), capacity, size: 0 };
        let status = call(&self.functions, &mut error);
        if status == abi::OK {
            return Ok(());
        }
        let size = usize::try_from(error.size).unwrap_or(usize::MAX).min(text.len());
        let reason = String::from_utf8_lossy(&text[..size]).trim().to_owned();
        let reason = if reason.is_empty() { format!("status {status}") } else { reason };
        Err(Failure { status, reason })
    }
}

/// A text of the driver, copied; else how it is wrong.
///
/// # Safety
/// The text points to as many bytes as it says, or to nothing.
pub(crate) unsafe fn copy_text(text: Text) -> Result<String, &'static str> {
    if text.size == 0 {
        return Ok(String::new());
    }
    if text.data.is_null() {
        return Err("points to nothing");
    }
    if text.size > MAX_TEXT {
        return Err("is too long");
    }
    // SAFETY: the driver says that so many bytes are there; the size fits, as it is small.
    let bytes = unsafe { std::slice::from_raw_parts(text.data, text.size as usize) };
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "is not UTF-8")
}

/// An error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

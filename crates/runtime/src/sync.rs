//! What memory in flight, events and runs synchronise with: the standard library's means, or
//! loom's.
//!
//! With `--cfg loom` the same code runs under loom, which tries the orders in which threads may
//! go on and the values that a load may see (`models.rs`). Nothing else may differ between the
//! two.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::OnceLock,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};

/// The standard cell with loom's way of lending its address.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Lends the address for reading.
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Lends the address for writing.
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// The standard cell that is set once, which loom lacks. The value lies in one; who may see it
/// is for loom to decide.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: loom::sync::atomic::AtomicBool,
    setting: Mutex<()>,
}

#[cfg(loom)]
impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(loom)]
impl<T> OnceLock<T> {
    pub fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            is_set: loom::sync::atomic::AtomicBool::new(false),
            setting: Mutex::new(()),
        }
    }

    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let _setting = self.setting.lock();
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _setting = self.setting.lock();
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

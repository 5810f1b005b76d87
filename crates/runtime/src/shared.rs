//! Memory that work in flight and its owner share.
//!
//! A [`Buffer`](crate::Buffer) owns its memory; work that a device has been given keeps it alive
//! by reference count and is counted. The owner hands out references only while nobody is
//! counted, so that safe code never looks at memory that a device may be writing.
#![allow(unsafe_code)]

use std::sync::PoisonError;

use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, UnsafeCell};
use crate::{Event, Memory};

/// One user in [`Users::state`].
const USER: usize = 2;

/// Somebody waits, in [`Users::state`].
const WAITING: usize = 1;

/// Counts users, and lets somebody wait for there being none.
#[derive(Debug, Default)]
struct Users {
    /// How many there are, and whether somebody waits. In one word, so that the last user learns
    /// of those who wait by the very step that they see or miss.
    state: AtomicUsize,
    lock: Mutex<()>,
    idle: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Users {
    fn enter(&self) {
        self.state.fetch_add(USER, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.state.fetch_sub(USER, Ordering::Release) == USER | WAITING {
            // Whoever counted itself as waiting sleeps by now, or looks again.
            drop(lock(&self.lock));
            self.idle.notify_all();
        }
    }

    fn wait(&self) {
        // All that changes the word are read-modify-writes, so that this acquires what every
        // user released who has left.
        if self.state.load(Ordering::Acquire) < USER {
            return;
        }
        let mut guard = lock(&self.lock);
        while self.state.fetch_or(WAITING, Ordering::Acquire) >= USER {
            guard = self.idle.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.state.fetch_and(!WAITING, Ordering::Relaxed);
    }
}

/// The memory of a buffer.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    memory: UnsafeCell<Box<dyn Memory>>,
    users: Users,
    /// When the last work that was queued on this memory ends. Whoever queues more waits for it,
    /// so that it stands for all work before it, too.
    last: Mutex<Option<Event>>,
}

// SAFETY: `Memory` is `Send + Sync`. A mutable reference exists only under `&mut Buffer` while
// no user is counted (`get_mut`); shared references exist under `&Buffer` or inside a counted
// use, and both exclude `get_mut`.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub fn new(memory: Box<dyn Memory>) -> Self {
        let (users, last) = (Users::default(), Mutex::new(None));
        Self { memory: UnsafeCell::new(memory), users, last }
    }

    /// The memory, once nobody uses it. Called by the buffer that owns it, under `&self`, and by
    /// the executor while it has the buffer's owner exclusively.
    pub fn when_idle(&self) -> &dyn Memory {
        self.users.wait();
        // SAFETY: `get_mut` needs `&mut Buffer`, which the caller's borrow of the buffer or of
        // its owner excludes.
        self.memory.with(|memory| unsafe { &**memory })
    }

    /// The memory, once nobody uses it, to be written.
    ///
    /// # Safety
    /// The caller has the only buffer of this memory by `&mut` for as long as the result lives,
    /// and no user is counted in before it is done: uses are counted by the executor alone,
    /// under the same `&mut`.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the contract above")]
    pub unsafe fn get_mut(&self) -> &mut dyn Memory {
        self.users.wait();
        // SAFETY: by the contract no other reference to the memory exists: the owner is borrowed
        // exclusively, and uses, the only others, have ended.
        self.memory.with_mut(|memory| unsafe { &mut **memory })
    }

    /// The memory for somebody who is counted as its user, or who only reads memory that is
    /// never written, such as weights.
    ///
    /// # Safety
    /// The caller is counted in, or nobody holds the memory's buffer by `&mut`.
    pub unsafe fn in_use(&self) -> &dyn Memory {
        // SAFETY: `get_mut` waits until nobody is counted, or never happens, by the contract.
        self.memory.with(|memory| unsafe { &**memory })
    }

    pub fn enter(&self) {
        self.users.enter();
    }

    pub fn leave(&self) {
        self.users.leave();
    }

    /// When the last work on this memory ends, unless it has ended and that is all there is to
    /// know.
    pub fn last(&self) -> Option<Event> {
        let mut last = lock(&self.last);
        // The simulated time of a past event still says when later work may begin.
        if last.as_ref().is_some_and(|last| last.is_done_well() && last.simulated_ns().is_none()) {
            *last = None;
        }
        last.clone()
    }

    /// Work that failed is over, and whoever depends on it knows.
    pub fn forget_failure(&self) {
        let mut last = lock(&self.last);
        if last.as_ref().is_some_and(|last| last.is_done() && !last.is_done_well()) {
            *last = None;
        }
    }

    pub fn set_last(&self, event: Option<Event>) {
        *lock(&self.last) = event;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::HostMemory;

    #[test]
    fn the_owner_waits_for_users() {
        let memory = HostMemory::allocate(8, 8).unwrap();
        let shared = Arc::new(SharedMemory::new(Box::new(memory)));
        shared.enter();
        let left = Arc::new(AtomicBool::new(false));
        let user = {
            let (shared, left) = (Arc::clone(&shared), Arc::clone(&left));
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                left.store(true, Ordering::SeqCst);
                shared.leave();
            })
        };
        assert_eq!(shared.when_idle().size(), 8);
        assert!(left.load(Ordering::SeqCst));
        user.join().unwrap();
    }
}

//! A line of work and the thread that does it, one piece after the other.
//!
//! Dropping a line waits until all that was given to it is done. If its thread ends before that,
//! what is left is dropped, and so is what is given later.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};

#[cfg(loom)]
use loom::{
    sync::{Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle},
};
#[cfg(not(loom))]
use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle},
};

/// Work that waits.
struct Waiting<W> {
    pieces: VecDeque<W>,
    /// Whether there may come more.
    is_open: bool,
}

/// What both ends have in common.
struct Ends<W> {
    waiting: Mutex<Waiting<W>>,
    changed: Condvar,
}

impl<W> Ends<W> {
    fn lock(&self) -> MutexGuard<'_, Waiting<W>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a piece of work; none comes once the line is closed and empty.
    fn next(&self) -> Option<W> {
        let mut waiting = self.lock();
        loop {
            if let Some(piece) = waiting.pieces.pop_front() {
                return Some(piece);
            }
            if !waiting.is_open {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Closes the line when its thread ends, however it does.
struct LastAct<W>(Arc<Ends<W>>);

impl<W> Drop for LastAct<W> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_open = false;
        let left = std::mem::take(&mut waiting.pieces);
        // Whoever is told of the end by a piece that is dropped may look at the line.
        drop(waiting);
        drop(left);
    }
}

/// The thread of a line has ended.
#[derive(Debug)]
pub(crate) struct Ended;

/// The giving end.
pub(crate) struct Line<W> {
    ends: Arc<Ends<W>>,
    thread: Option<JoinHandle<()>>,
}

impl<W: Send + 'static> Line<W> {
    /// Begins a thread of this name that does `work` with each piece.
    pub fn begin(name: String, mut work: impl FnMut(W) + Send + 'static) -> io::Result<Self> {
        let waiting = Mutex::new(Waiting { pieces: VecDeque::new(), is_open: true });
        let ends = Arc::new(Ends { waiting, changed: Condvar::new() });
        let end = LastAct(Arc::clone(&ends));
        let thread = Builder::new().name(name).spawn(move || {
            while let Some(piece) = end.0.next() {
                work(piece);
            }
        })?;
        Ok(Self { ends, thread: Some(thread) })
    }

    /// Gives a piece of work.
    pub fn give(&self, piece: W) -> Result<(), Ended> {
        let mut waiting = self.ends.lock();
        if !waiting.is_open {
            return Err(Ended);
        }
        waiting.pieces.push_back(piece);
        drop(waiting);
        self.ends.changed.notify_one();
        Ok(())
    }
}

impl<W> Drop for Line<W> {
    fn drop(&mut self) {
        self.ends.lock().is_open = false;
        self.ends.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread's work has told of itself.
            _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_given_before_a_line_is_dropped_is_done_in_order() {
        let (sender, receiver) = channel();
        let line = Line::begin("A".to_owned(), move |n: u32| sender.send(n).unwrap()).unwrap();
        for n in 0..100 {
            line.give(n).unwrap();
        }
        drop(line);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_that_ends_drops_what_is_left_and_what_comes() {
        let (begin, begun) = channel::<()>();
        let work = move |piece: std::sync::mpsc::Sender<()>| {
            begun.recv().unwrap();
            drop(piece);
            panic!("told to");
        };
        let line = Line::begin("A".to_owned(), work).unwrap();
        let (pieces, dropped) = channel();
        for _ in 0..3 {
            line.give(pieces.clone()).unwrap();
        }
        begin.send(()).unwrap();
        drop(pieces);
        assert!(dropped.recv().is_err());
        let (late, dropped) = channel();
        assert!(line.give(late).is_err());
        assert!(dropped.recv().is_err());
    }
}

//! A value that its users have by turns, in the order in which they come.
//!
//! A plain mutex is not fair: who lets go and asks again at once mostly gets it before a sleeper
//! has woken up, so that a busy session could keep the others of its device waiting without end.
//! Here whoever lets go hands over to the one that waits longest.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Thread, park_timeout};
use std::time::Duration;

use tensoryard_runtime::AbortSignal;

/// How often those who wait look at their abort signal.
const LOOK: Duration = Duration::from_millis(2);

/// A value had by turns.
#[derive(Debug, Default)]
pub(crate) struct Turns<T> {
    line: Mutex<Line>,
    value: Mutex<T>,
}

#[derive(Debug, Default)]
struct Line {
    is_taken: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    /// Whether the turn was handed over to it.
    is_called: AtomicBool,
}

/// Somebody's turn. Dropping it is handing it over.
#[derive(Debug)]
pub(crate) struct Turn<'a, T> {
    // Let go of before the turn is handed over: fields are dropped in this order.
    value: MutexGuard<'a, T>,
    _place: Place<'a>,
}

/// The head of the line.
#[derive(Debug)]
struct Place<'a>(&'a Mutex<Line>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Turns<T> {
    pub fn new(value: T) -> Self {
        Self { line: Mutex::default(), value: Mutex::new(value) }
    }

    /// Waits for a turn; `None` if the signal was given meanwhile.
    pub fn take(&self, abort: &AbortSignal) -> Option<Turn<'_, T>> {
        let place = self.stand_in_line(abort)?;
        // Whoever had the turn before has let go of the value.
        Some(Turn { value: lock(&self.value), _place: place })
    }

    fn stand_in_line(&self, abort: &AbortSignal) -> Option<Place<'_>> {
        let mut line = lock(&self.line);
        if !line.is_taken {
            line.is_taken = true;
            return Some(Place(&self.line));
        }
        let waiter =
            Arc::new(Waiter { thread: std::thread::current(), is_called: AtomicBool::new(false) });
        line.waiting.push_back(Arc::clone(&waiter));
        drop(line);
        while !waiter.is_called.load(Ordering::Acquire) {
            if abort.is_aborted() {
                let mut line = lock(&self.line);
                let place = line.waiting.iter().position(|other| Arc::ptr_eq(other, &waiter));
                let Some(place) = place else {
                    // Called in this very moment.
                    drop(line);
                    return Some(Place(&self.line));
                };
                line.waiting.remove(place);
                return None;
            }
            park_timeout(LOOK);
        }
        Some(Place(&self.line))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = lock(self.0);
        let next = line.waiting.pop_front();
        line.is_taken = next.is_some();
        drop(line);
        if let Some(next) = next {
            next.is_called.store(true, Ordering::Release);
            next.thread.unpark();
        }
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits<T>(turns: &Turns<T>, count: usize) {
        while lock(&turns.line).waiting.len() < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn turns_come_in_the_order_of_asking_and_who_has_had_one_asks_behind_the_others() {
        let turns = Turns::new(Vec::new());
        let abort = AbortSignal::new();
        std::thread::scope(|scope| {
            let first = turns.take(&abort).unwrap();
            for number in 0..4 {
                let (turns, abort) = (&turns, &abort);
                scope.spawn(move || turns.take(abort).unwrap().push(number));
                waits(turns, number + 1);
            }
            drop(first);
            // Asked for at once, while the others may not have woken up.
            turns.take(&abort).unwrap().push(100);
        });
        assert_eq!(*turns.take(&abort).unwrap(), [0, 1, 2, 3, 100]);
    }

    #[test]
    fn who_is_aborted_leaves_the_line() {
        let turns = Turns::new(Vec::new());
        let (abort, never) = (AbortSignal::new(), AbortSignal::new());
        std::thread::scope(|scope| {
            let first = turns.take(&never).unwrap();
            let leaver = scope.spawn(|| turns.take(&abort).is_none());
            waits(&turns, 1);
            scope.spawn(|| turns.take(&never).unwrap().push(1));
            waits(&turns, 2);
            abort.abort();
            assert!(leaver.join().unwrap());
            assert_eq!(lock(&turns.line).waiting.len(), 1);
            drop(first);
        });
        assert_eq!(*turns.take(&never).unwrap(), [1]);
        assert!(!lock(&turns.line).is_taken);
    }

    #[test]
    fn a_turn_that_ends_in_a_panic_is_handed_over() {
        let turns = Turns::new(0);
        let never = AbortSignal::new();
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _turn = turns.take(&never).unwrap();
                waits(&turns, 1);
                std::panic::resume_unwind(Box::new("gone"));
            });
            while !lock(&turns.line).is_taken {
                std::thread::yield_now();
            }
            *turns.take(&never).unwrap() += 1;
            assert!(panicking.join().is_err());
        });
        assert_eq!(*turns.take(&never).unwrap(), 1);
    }

    #[test]
    fn nobody_has_the_value_beside_another() {
        let turns = Turns::new(0_u32);
        let never = AbortSignal::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mut turn = turns.take(&never).unwrap();
                        let before = *turn;
                        std::thread::yield_now();
                        *turn = before + 1;
                    }
                });
            }
        });
        assert_eq!(*turns.take(&never).unwrap(), 2000);
    }
}

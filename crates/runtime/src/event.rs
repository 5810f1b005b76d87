//! Events: points in a queue that others wait for.
//!
//! An event is signalled once, with success or with the error that ended the work before it. A
//! device that knows simulated time stamps its events with it.

use std::sync::{Arc, PoisonError};

use crate::DeviceError;
use crate::sync::{Condvar, Mutex, MutexGuard, OnceLock};

#[derive(Debug, Default)]
struct EventState {
    outcome: OnceLock<(Result<(), DeviceError>, Option<u64>)>,
    lock: Mutex<()>,
    signalled: Condvar,
}

impl EventState {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A point in a queue. Clones are the same point.
#[derive(Debug, Clone)]
#[doc(alias = "ggml_backend_event")]
pub struct Event(Arc<EventState>);

/// The right to signal an event, held by the queue that reaches it.
#[derive(Debug)]
pub struct Signal {
    device: String,
    state: Option<Arc<EventState>>,
}

impl Event {
    /// An event that a queue of `device` will reach, and the right to say so.
    #[doc(alias = "ggml_backend_event_new")]
    pub fn pending(device: &str) -> (Signal, Self) {
        let state = Arc::new(EventState::default());
        (Signal { device: device.to_owned(), state: Some(Arc::clone(&state)) }, Self(state))
    }

    /// An event that lies in the past.
    pub fn done() -> Self {
        let state = EventState::default();
        // A fresh cell is empty.
        _ = state.outcome.set((Ok(()), None));
        Self(Arc::new(state))
    }

    /// Whether the event was signalled.
    pub fn is_done(&self) -> bool {
        self.0.outcome.get().is_some()
    }

    /// Whether the event was signalled, and all was well.
    pub(crate) fn is_done_well(&self) -> bool {
        self.0.outcome.get().is_some_and(|(result, _)| result.is_ok())
    }

    /// Waits until the queue has come here.
    ///
    /// # Errors
    /// What went wrong in the queue before the event.
    #[doc(alias = "ggml_backend_event_synchronize")]
    pub fn wait(&self) -> Result<(), DeviceError> {
        if let Some((result, _)) = self.0.outcome.get() {
            return result.clone();
        }
        let mut guard = self.0.lock();
        loop {
            if let Some((result, _)) = self.0.outcome.get() {
                return result.clone();
            }
            guard = self.0.signalled.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Simulated time of a signalled event in nanoseconds, on devices that know it.
    pub fn simulated_ns(&self) -> Option<u64> {
        self.0.outcome.get().and_then(|(_, time)| *time)
    }
}

impl Signal {
    /// Says that the queue has come to the event.
    pub fn complete(self, result: Result<(), DeviceError>) {
        self.complete_at(result, None);
    }

    /// As [`Signal::complete`], at a point of simulated time.
    pub fn complete_at(mut self, result: Result<(), DeviceError>, simulated_ns: Option<u64>) {
        self.finish(result, simulated_ns);
    }

    fn finish(&mut self, result: Result<(), DeviceError>, simulated_ns: Option<u64>) {
        if let Some(state) = self.state.take() {
            let guard = state.lock();
            // The right is used once.
            _ = state.outcome.set((result, simulated_ns));
            drop(guard);
            state.signalled.notify_all();
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if self.state.is_some() {
            let device = self.device.clone();
            let reason = "its queue ended before its work was done".to_owned();
            self.finish(Err(DeviceError::Lost { device, reason }), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_signal_and_its_outcome() {
        let (signal, event) = Event::pending("A");
        assert!(!event.is_done());
        let waiter = {
            let event = event.clone();
            std::thread::spawn(move || event.wait())
        };
        signal.complete_at(Err(DeviceError::Cancelled), Some(7));
        assert!(matches!(waiter.join().unwrap(), Err(DeviceError::Cancelled)));
        assert!(matches!(event.wait(), Err(DeviceError::Cancelled)));
        assert_eq!(event.simulated_ns(), Some(7));
        assert!(event.is_done() && !event.is_done_well());
        assert!(Event::done().wait().is_ok());
    }

    #[test]
    fn a_queue_that_vanishes_is_a_lost_device() {
        let (signal, event) = Event::pending("A");
        drop(signal);
        let error = event.wait().unwrap_err();
        assert!(matches!(&error, DeviceError::Lost { device, .. } if device == "A"), "{error}");
    }
}

//! Runs in flight.
//!
//! A ticket stands for a run that was submitted. Dropping it waits for the run; forgetting it
//! does no harm, since state and workspace remember the run, too, and whoever looks at them waits.

use std::sync::Arc;

use crate::sync::OnceLock;
use crate::{DeviceError, Event};

/// The events at the ends of a run's queues.
#[derive(Debug)]
pub(crate) struct Flight {
    events: Vec<Event>,
    outcome: OnceLock<Result<(), DeviceError>>,
}

impl Flight {
    pub fn new(events: Vec<Event>) -> Arc<Self> {
        Arc::new(Self { events, outcome: OnceLock::new() })
    }

    pub fn is_done(&self) -> bool {
        self.outcome.get().is_some() || self.events.iter().all(Event::is_done)
    }

    /// Waits for all queues. Of several errors, that of a lost device comes first, since the
    /// others follow from it.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.outcome
            .get_or_init(|| {
                let errors = self.events.iter().filter_map(|event| event.wait().err());
                errors.min_by_key(DeviceError::rank).map_or(Ok(()), Err)
            })
            .clone()
    }
}

/// Tells a run of a workspace from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunMark {
    pub copy: usize,
    pub serial: u64,
}

/// A run that was submitted.
#[derive(Debug)]
#[must_use = "dropping a ticket waits for its run"]
pub struct Ticket {
    flight: Option<Arc<Flight>>,
    mark: RunMark,
}

impl Ticket {
    /// A run that is over when it has no flight.
    pub(crate) fn new(flight: Option<Arc<Flight>>, mark: RunMark) -> Self {
        Self { flight, mark }
    }

    /// The run while it may be at work.
    pub(crate) fn flight(&self) -> Option<&Arc<Flight>> {
        self.flight.as_ref()
    }

    pub(crate) fn mark(&self) -> RunMark {
        self.mark
    }

    /// Whether the run is over.
    pub fn is_done(&self) -> bool {
        self.flight.as_ref().is_none_or(|flight| flight.is_done())
    }

    /// Waits until the run is over.
    ///
    /// # Errors
    /// What went wrong on a device, or the abort signal.
    #[doc(alias = "ggml_backend_sched_synchronize")]
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.flight.as_ref().map_or(Ok(()), |flight| flight.wait())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            // Whoever wants to know the outcome asks for it; state and workspace learn it too.
            _ = flight.wait();
        }
    }
}

//! Failures on request, and what has happened so far.
//!
//! Counts run over the whole life of a device, so that a test can first count what a run does
//! and then fail each of it. A lost device stays lost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensoryard_runtime::{DeviceError, MemoryError};

/// What goes wrong, counted from 0 over the life of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The allocation of the device's memory that fails.
    pub fail_allocation_at: Option<u64>,
    /// The step that the device does not live to do.
    pub lost_at_step: Option<u64>,
    /// The transfer that the device does not live to do.
    pub lost_at_transfer: Option<u64>,
}

/// What a device has done in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimCounts {
    /// Allocations of its memory that were asked for.
    pub allocations: u64,
    /// Steps begun.
    pub steps: u64,
    /// Transfers begun: writes, reads and copies in its queues.
    pub transfers: u64,
}

#[derive(Debug, Default)]
struct Life {
    faults: Faults,
    counts: SimCounts,
    lost: Option<String>,
}

/// The life of a device, known to its queues and its memory.
#[derive(Debug)]
pub(crate) struct Fate {
    device: String,
    life: Mutex<Life>,
}

impl Fate {
    pub fn new(device: &str, faults: Faults) -> Self {
        let life = Life { faults, ..Life::default() };
        Self { device: device.to_owned(), life: Mutex::new(life) }
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn inject(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub fn counts(&self) -> SimCounts {
        self.lock().counts
    }

    /// Loses the device now.
    pub fn lose(&self, reason: &str) {
        self.lock().lost.get_or_insert_with(|| reason.to_owned());
    }

    /// The device, if it still answers.
    pub fn check(&self) -> Result<(), DeviceError> {
        match &self.lock().lost {
            None => Ok(()),
            Some(reason) => Err(self.lost(reason)),
        }
    }

    /// Its memory, if it still answers.
    pub fn check_memory(&self) -> Result<(), MemoryError> {
        match &self.lock().lost {
            None => Ok(()),
            Some(_) => Err(MemoryError::Lost { device: self.device.clone() }),
        }
    }

    fn lost(&self, reason: &str) -> DeviceError {
        DeviceError::Lost { device: self.device.clone(), reason: reason.to_owned() }
    }

    /// Counts an allocation. Returns whether it fails.
    pub fn allocates(&self) -> bool {
        let mut life = self.lock();
        let number = life.counts.allocations;
        life.counts.allocations += 1;
        life.faults.fail_allocation_at == Some(number)
    }

    /// Counts steps. If the device is lost among them: the number of steps before.
    pub fn steps(&self, steps: usize) -> Option<usize> {
        let mut life = self.lock();
        let first = life.counts.steps;
        life.counts.steps += steps as u64;
        let lost_at = life.faults.lost_at_step?;
        let before = usize::try_from(lost_at.checked_sub(first)?).ok()?;
        (before < steps).then_some(before)
    }

    /// Counts a transfer, which the device may not live to do.
    pub fn transfers(&self) -> Result<(), DeviceError> {
        let mut life = self.lock();
        let number = life.counts.transfers;
        life.counts.transfers += 1;
        if life.faults.lost_at_transfer == Some(number) {
            life.lost.get_or_insert_with(|| format!("at transfer {number}, as it was told to"));
        }
        match &life.lost {
            None => Ok(()),
            Some(reason) => Err(self.lost(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_over_the_life_of_a_device() {
        let fate = Fate::new("A", Faults { lost_at_step: Some(5), ..Faults::default() });
        assert_eq!(fate.steps(3), None);
        assert_eq!(fate.steps(2), None);
        assert_eq!(fate.steps(4), Some(0));
        assert_eq!(fate.counts().steps, 9);
        fate.inject(Faults { lost_at_step: Some(11), ..Faults::default() });
        assert_eq!(fate.steps(3), Some(2));
        assert_eq!(fate.steps(3), None);
    }

    #[test]
    fn what_is_lost_stays_lost_for_the_first_reason() {
        let fate = Fate::new("A", Faults::default());
        assert!(fate.check().is_ok() && fate.check_memory().is_ok());
        fate.lose("unplugged");
        fate.lose("again");
        assert_eq!(fate.check().unwrap_err().to_string(), "A is lost: unplugged");
        assert_eq!(fate.check_memory(), Err(MemoryError::Lost { device: "A".to_owned() }));
        assert!(fate.transfers().is_err());
    }
}

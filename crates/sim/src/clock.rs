//! Virtual time, one for all devices of a driver.
//!
//! Each device does one thing at a time; work begins when the device is free and what it waits
//! for has happened, and takes what the device's rates say. Virtual time never runs backwards:
//! a reset moves the origin, so that events of the past stay in the past.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What keeps a device busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BusyTime {
    /// Nanoseconds of steps, with the overhead of their programs.
    pub compute_ns: u64,
    /// Nanoseconds of transfers.
    pub transfer_ns: u64,
}

impl BusyTime {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.compute_ns.saturating_add(self.transfer_ns)
    }
}

/// What a piece of work is, as far as time is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Compute,
    Transfer,
}

#[derive(Debug, Clone, Copy, Default)]
struct DeviceTime {
    free_at: u64,
    busy: BusyTime,
}

#[derive(Debug, Default)]
struct Times {
    origin: u64,
    /// How far the host has come, waiting for devices that work while it waits.
    host: u64,
    devices: Vec<DeviceTime>,
}

impl Times {
    fn latest(&self) -> u64 {
        self.devices.iter().map(|device| device.free_at).fold(self.host, u64::max)
    }
}

/// The virtual time of a driver's devices. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct SimClock(Arc<Mutex<Times>>);

impl SimClock {
    fn lock(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds from the last reset to the end of the latest work of any device.
    pub fn makespan_ns(&self) -> u64 {
        let times = self.lock();
        times.latest() - times.origin
    }

    /// Begins anew: now is the latest time of any device, and nobody has been busy.
    pub fn reset(&self) {
        let mut times = self.lock();
        let now = times.latest();
        (times.origin, times.host) = (now, now);
        times.devices.fill(DeviceTime { free_at: now, busy: BusyTime::default() });
    }

    /// A place for a new device.
    pub(crate) fn add_device(&self) -> usize {
        let mut times = self.lock();
        let free_at = times.origin;
        times.devices.push(DeviceTime { free_at, busy: BusyTime::default() });
        times.devices.len() - 1
    }

    /// Nanoseconds from the last reset to the end of the latest work of a device.
    pub(crate) fn device_ns(&self, device: usize) -> u64 {
        let times = self.lock();
        times.devices.get(device).map_or(0, |device| device.free_at - times.origin)
    }

    /// What a device has done since the last reset.
    pub(crate) fn busy(&self, device: usize) -> BusyTime {
        self.lock().devices.get(device).map_or(BusyTime::default(), |device| device.busy)
    }

    /// How far the host has come.
    pub(crate) fn host_ns(&self) -> u64 {
        self.lock().host
    }

    /// The host waits until this time.
    pub(crate) fn host_waits(&self, until: u64) {
        let mut times = self.lock();
        times.host = times.host.max(until);
    }

    /// Lets a device work that long, not before `ready`. Returns when it is done.
    pub(crate) fn work(&self, device: usize, ready: u64, ns: u64, kind: Kind) -> u64 {
        let mut times = self.lock();
        let Some(device) = times.devices.get_mut(device) else { return ready };
        let end = device.free_at.max(ready).saturating_add(ns);
        device.free_at = end;
        let busy = match kind {
            Kind::Compute => &mut device.busy.compute_ns,
            Kind::Transfer => &mut device.busy.transfer_ns,
        };
        *busy = busy.saturating_add(ns);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_begins_when_the_device_is_free_and_its_sources_are_there() {
        let clock = SimClock::default();
        let (a, b) = (clock.add_device(), clock.add_device());
        assert_eq!(clock.work(a, 0, 100, Kind::Compute), 100);
        assert_eq!(clock.work(a, 0, 20, Kind::Transfer), 120);
        assert_eq!(clock.work(b, 120, 30, Kind::Compute), 150);
        assert_eq!((clock.device_ns(a), clock.device_ns(b), clock.makespan_ns()), (120, 150, 150));
        assert_eq!(clock.busy(a), BusyTime { compute_ns: 100, transfer_ns: 20 });
        assert_eq!(clock.busy(b).total_ns(), 30);
    }

    #[test]
    fn a_reset_leaves_the_past_behind() {
        let clock = SimClock::default();
        let (a, b) = (clock.add_device(), clock.add_device());
        let end = clock.work(a, 0, 100, Kind::Compute);
        clock.reset();
        assert_eq!((clock.makespan_ns(), clock.busy(a)), (0, BusyTime::default()));
        clock.work(b, end, 7, Kind::Compute);
        assert_eq!((clock.device_ns(b), clock.makespan_ns()), (7, 7));
        let late = clock.add_device();
        assert_eq!(clock.device_ns(late), 0);
    }
}

//! The drivers that the library comes with, in registries.
//!
//! A registry is a value: whoever wants other drivers starts with [`built_in`] and adds them.
//! [`default_registry`] is one for the whole process, which nobody can change.

use std::sync::{Arc, LazyLock};

use tensoryard_cpu::CpuDriver;
use tensoryard_runtime::{Driver, Registry};
use tensoryard_sim::SimDriver;

/// A registry of the drivers that the library comes with. The CPU is always there; simulated
/// devices, which compute on it, are made on request and never listed.
pub fn built_in() -> Registry {
    let cpu = CpuDriver::new();
    let sim = cpu.devices().into_iter().next().map(SimDriver::new);
    let mut drivers: Vec<Arc<dyn Driver>> = vec![Arc::new(cpu)];
    drivers.extend(sim.map(|sim| Arc::new(sim) as Arc<dyn Driver>));
    let mut registry = Registry::new();
    for driver in drivers {
        let registered = registry.register(driver);
        assert!(
            registered.is_ok(),
            "{registered:?}: drivers of the library have names of their own"
        );
    }
    registry
}

/// The registry of [`built_in`] drivers that the process shares; devices are enumerated once.
pub fn default_registry() -> &'static Registry {
    static DEFAULT: LazyLock<Registry> = LazyLock::new(built_in);
    &DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there_and_the_default_is_one() {
        assert_eq!(built_in().devices().next().unwrap().info().name, "CPU");
        assert!(std::ptr::eq(default_registry(), default_registry()));
        let [first, second] = [0, 1].map(|_| default_registry().select("cpu").unwrap().device);
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn simulated_devices_are_made_and_not_listed() {
        let registry = built_in();
        assert!(registry.devices().all(|device| device.info().name == "CPU"));
        let device = registry.select("sim:memory=64MiB;kind=accelerator").unwrap().device;
        assert_eq!((device.info().name.as_str(), device.memory().total), ("SIM0", 64 << 20));
    }
}

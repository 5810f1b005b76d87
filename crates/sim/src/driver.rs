//! The driver of simulated devices.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tensoryard_runtime::{
    Device, DeviceError, DeviceRequest, Driver, ParameterSpec, RegistryError, Selected, Selector,
};

use crate::clock::SimClock;
use crate::device::{Pools, SimDevice};
use crate::options::{PARAMETERS, Shares, SimOptions};

const NAME: &str = "SIM";

/// Makes simulated devices on request. It lists none, since none is hardware.
#[derive(Debug)]
pub struct SimDriver {
    host: Arc<dyn Device>,
    pools: Pools,
    clock: SimClock,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    count: usize,
    devices: Vec<Weak<SimDevice>>,
}

impl SimDriver {
    /// A driver whose devices compute through `host`, a device that computes in host memory.
    pub fn new(host: Arc<dyn Device>) -> Self {
        Self { host, pools: Pools::default(), clock: SimClock::default(), made: Mutex::default() }
    }

    /// The virtual time of its devices.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Makes a device.
    ///
    /// # Errors
    /// Options that do not do; a name that another of its devices has; shared memory of a device
    /// that there is not.
    pub fn device(&self, mut options: SimOptions) -> Result<Arc<SimDevice>, RegistryError> {
        if !self.host.buffer_types().first().is_some_and(|kind| kind.is_host()) {
            return Err(RegistryError::Device(DeviceError::Option {
                device: NAME.to_owned(),
                option: "host",
                value: self.host.info().name.clone(),
                wanted: "a device that computes in host memory".to_owned(),
            }));
        }
        let refuse = |key: &str, value: String, wanted: &'static str| {
            let (device, key) = (NAME.to_owned(), key.to_owned());
            RegistryError::ParameterValue { device, key, value, wanted: wanted.into() }
        };
        options.check().map_err(|(key, wanted)| refuse(key, String::new(), wanted))?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.devices.retain(|device| device.strong_count() > 0);
        let known: Vec<Arc<SimDevice>> = made.devices.iter().filter_map(Weak::upgrade).collect();
        let find =
            |name: &str| known.iter().find(|device| device.info().name.eq_ignore_ascii_case(name));
        while options.name.is_empty() {
            let name = format!("{NAME}{}", made.count);
            made.count += 1;
            if find(&name).is_none() {
                options.name = name;
            }
        }
        if find(&options.name).is_some() {
            let wanted = "a name that no other simulated device has";
            return Err(refuse("name", options.name, wanted));
        }
        let shared = match &options.shares {
            Shares::Own | Shares::Host => None,
            Shares::Device(name) => Some(find(name).ok_or_else(|| {
                let wanted = "own, host, or the name of a simulated device made before";
                refuse("shares", name.clone(), wanted)
            })?),
        };
        if shared.is_some_and(|shared| shared.options().shares == Shares::Host) {
            options.shares = Shares::Host;
        }
        let shared = shared.map(|shared| &**shared);
        let device =
            Arc::new(SimDevice::new(options, &self.host, shared, &self.pools, &self.clock));
        made.devices.push(Arc::downgrade(&device));
        Ok(device)
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &str {
        NAME
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }

    fn parameters(&self) -> &[ParameterSpec] {
        PARAMETERS
    }

    fn select(&self, request: &DeviceRequest<'_>) -> Result<Selected, RegistryError> {
        let mut options = SimOptions::from_parameters(request.parameters())?;
        match request.which() {
            Selector::First => {}
            Selector::Index(_) => {
                let name = format!("{NAME}{}", request.which());
                let known = format!("{NAME}, made on request, which has no number");
                return Err(RegistryError::UnknownDevice { name, known });
            }
            Selector::Name(name) if options.name.is_empty() => options.name.clone_from(name),
            Selector::Name(_) => {
                return Err(request.parameters().refuse("name", "one name for the device"));
            }
        }
        Ok(Selected::new(self.device(options)?))
    }
}

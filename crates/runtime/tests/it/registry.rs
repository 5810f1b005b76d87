//! Devices by name, as users write them.

use std::sync::Arc;

use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_runtime::{Device, DeviceKind, Driver, Registry};

struct TestDriver {
    name: &'static str,
    devices: Vec<(&'static str, DeviceKind)>,
}

impl Driver for TestDriver {
    fn name(&self) -> &str {
        self.name
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        let device = |&(name, kind): &(&str, DeviceKind)| {
            ReferenceOptions { kind, ..ReferenceOptions::new(name) }.build()
        };
        self.devices.iter().map(device).collect()
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let cpu = TestDriver { name: "cpu", devices: vec![("CPU", DeviceKind::Cpu)] };
    let gpu = TestDriver {
        name: "Sim",
        devices: vec![
            ("inside", DeviceKind::IntegratedGpu),
            ("Big: Card", DeviceKind::Gpu),
            ("helper", DeviceKind::Accelerator),
        ],
    };
    registry.register(Arc::new(cpu)).unwrap();
    registry.register(Arc::new(gpu)).unwrap();
    registry
}

fn select(spec: &str) -> Result<(String, usize), String> {
    let selected = registry().select(spec).map_err(|error| error.to_string())?;
    Ok((selected.device.info().name.clone(), selected.options.threads))
}

#[test]
fn devices_are_found_by_number_name_and_parameters() {
    let found = |name: &str, threads: usize| Ok((name.to_owned(), threads));
    assert_eq!(select("cpu"), found("CPU", 0));
    assert_eq!(select("CPU:threads=4"), found("CPU", 4));
    assert_eq!(select("cpu:0:threads=2"), found("CPU", 2));
    assert_eq!(select(" sim "), found("inside", 0));
    assert_eq!(select("sim:1"), found("Big: Card", 0));
    assert_eq!(select("sim:helper"), found("helper", 0));
    assert_eq!(select("sim:\"big: card\""), found("Big: Card", 0));
    assert_eq!(select("sim:\"Big: Card\":threads=0"), found("Big: Card", 0));
    assert_eq!(select("cpu:threads=1;"), found("CPU", 1));
}

#[test]
fn what_is_unknown_is_told_with_what_is_known() {
    let text = select("tpu").unwrap_err();
    let known = "cpu:0 (oracle CPU), Sim:0 (oracle inside), Sim:1 (oracle Big: Card)";
    assert!(text.starts_with(&format!(r#"no device "tpu"; there are: {known}"#)), "{text}");
    assert!(select("sim:7").unwrap_err().contains("\"sim:7\""));
    assert!(select("sim:nobody").is_err());
    assert!(select("").is_err());
    let text = select("cpu:speed=9").unwrap_err();
    assert_eq!(text, r#"cpu has no parameter "speed"; there are: threads"#);
    let text = select("cpu:threads=-1").unwrap_err();
    assert_eq!(text, r#"cpu: threads is "-1", wanted a number, 0 for automatic"#);
    assert!(select("cpu:threads").is_err());
}

#[test]
fn drivers_are_registered_once_and_the_best_device_is_a_gpu() {
    let mut registry = registry();
    let again = TestDriver { name: "CPU", devices: vec![] };
    let error = registry.register(Arc::new(again)).unwrap_err();
    assert_eq!(error.to_string(), r#"a driver named "CPU" is registered already"#);
    assert_eq!(registry.devices().count(), 4);
    assert_eq!(registry.best().unwrap().info().name, "Big: Card");
    assert_eq!(registry.by_kind(DeviceKind::Accelerator).unwrap().info().name, "helper");
    let mut only_cpu = Registry::new();
    assert!(only_cpu.best().is_none());
    let cpu = TestDriver { name: "cpu", devices: vec![("CPU", DeviceKind::Cpu)] };
    only_cpu.register(Arc::new(cpu)).unwrap();
    assert_eq!(only_cpu.best().unwrap().info().name, "CPU");
}

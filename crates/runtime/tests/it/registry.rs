//! Devices by name, as users write them.

use std::sync::Arc;
use std::time::Duration;

use tensoryard_conformance::reference::{ReferenceDevice, ReferenceOptions};
use tensoryard_conformance::rng::Rng;
use tensoryard_runtime::{
    BackendOptions, Device, DeviceInfo, DeviceKind, DeviceRequest, Driver, ParameterSpec, Registry,
    RegistryError, Selected, Selector, Usage,
};

/// A driver that enumerates devices; those of kind CPU take a number of threads.
struct TestDriver {
    name: &'static str,
    devices: Vec<(&'static str, DeviceKind)>,
    parameters: &'static [ParameterSpec],
}

const THREADS: &[ParameterSpec] = &[ParameterSpec::new("threads", "a number, 0 for automatic")];

impl TestDriver {
    fn new(name: &'static str, devices: Vec<(&'static str, DeviceKind)>) -> Self {
        Self { name, devices, parameters: &[] }
    }

    fn cpu() -> Self {
        Self { parameters: THREADS, ..Self::new("cpu", vec![("CPU", DeviceKind::Cpu)]) }
    }
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

    fn parameters(&self) -> &[ParameterSpec] {
        self.parameters
    }

    fn select(&self, request: &DeviceRequest<'_>) -> Result<Selected, RegistryError> {
        let mut selected = Selected::new(Arc::clone(request.listed()?));
        selected.options.threads = request.parameters().number("threads")?.unwrap_or(0);
        Ok(selected)
    }
}

/// A driver that lists nothing and makes a device for each request.
struct MakingDriver;

const MAKING: &[ParameterSpec] = &[
    ParameterSpec::new("memory", "a size, such as 2GiB"),
    ParameterSpec::new("latency", "a time, such as 10us"),
    ParameterSpec::new("fast", "yes or no"),
    ParameterSpec::new("ops", "names of ops, separated by +"),
    ParameterSpec::new("name", "text"),
];

impl Driver for MakingDriver {
    fn name(&self) -> &str {
        "made"
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        Vec::new()
    }

    fn parameters(&self) -> &[ParameterSpec] {
        MAKING
    }

    fn select(&self, request: &DeviceRequest<'_>) -> Result<Selected, RegistryError> {
        let given = request.parameters();
        let index = match request.which() {
            Selector::First => 0,
            Selector::Index(index) => *index,
            Selector::Name(_) => return Err(request.unknown()),
        };
        let mut options = ReferenceOptions::new(given.text("name").unwrap_or("made"));
        options.max_size = given.bytes("memory")?.unwrap_or(64);
        options.padding = index;
        if options.max_size > 1 << 40 {
            return Err(given.refuse("memory", "at most 1TiB"));
        }
        let latency = given.duration("latency")?.unwrap_or_default();
        options.alignment = usize::try_from(latency.as_nanos()).unwrap().max(1);
        if given.boolean("fast")? == Some(true) {
            options.epilogue = 9;
        }
        options.reads =
            given.list("ops")?.unwrap_or_default().iter().map(ToString::to_string).collect();
        Ok(Selected::new(Arc::new(ReferenceDevice::new(options))))
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let sim = TestDriver::new(
        "Sim",
        vec![
            ("inside", DeviceKind::IntegratedGpu),
            ("Big: Card", DeviceKind::Gpu),
            ("helper", DeviceKind::Accelerator),
            ("7", DeviceKind::Accelerator),
            ("so \"called\", a=b;c", DeviceKind::Accelerator),
        ],
    );
    registry.register(Arc::new(TestDriver::cpu())).unwrap();
    registry.register(Arc::new(sim)).unwrap();
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
    assert_eq!(select(" \"CpU\" : Threads = \"3\" "), found("CPU", 3));
    assert_eq!(select(" sim "), found("inside", 0));
    assert_eq!(select("sim:1"), found("Big: Card", 0));
    assert_eq!(select("sim: helper "), found("helper", 0));
    assert_eq!(select("sim:\"big: card\""), found("Big: Card", 0));
    assert_eq!(select("sim:\"oracle helper\""), found("helper", 0), "by description");
    assert_eq!(select("sim:\"7\""), found("7", 0), "a name that is a number");
    let awkward = "so \"called\", a=b;c";
    assert_eq!(select("sim:\"so \"\"called\"\", a=b;c\""), found(awkward, 0));
}

#[test]
fn what_is_unknown_is_told_with_what_is_known() {
    let text = select("tpu").unwrap_err();
    let known = "cpu:0 (oracle CPU), Sim:0 (oracle inside), Sim:1 (oracle Big: Card)";
    assert!(text.starts_with(&format!(r#"no device "tpu"; there are: {known}"#)), "{text}");
    let text = select("sim:7").unwrap_err();
    let known = "Sim:0 (oracle inside), Sim:1 (oracle Big: Card), Sim:2 (oracle helper)";
    assert!(text.starts_with(&format!(r#"no device "Sim:7"; there are: {known}"#)), "{text}");
    assert!(select("sim:nobody").unwrap_err().starts_with(r#"no device "Sim:nobody"; "#));
    let text = select("cpu:speed=9").unwrap_err();
    assert_eq!(text, r#"cpu has no parameter "speed"; there are: threads"#);
    let text = select("cpu:threads=-1").unwrap_err();
    assert_eq!(text, r#"cpu: threads is "-1", wanted a number, 0 for automatic"#);
    let text = select("cpu:threads=99999999999999999999").unwrap_err();
    assert!(text.contains("99999999999999999999"), "{text}");
    let text = select("sim:threads=1").unwrap_err();
    assert_eq!(text, r#"Sim has no parameter "threads"; there are: none"#);
    assert!(select("cpu:threads").unwrap_err().starts_with(r#"no device "cpu:threads"; "#));
}

#[test]
fn texts_that_name_no_device_are_told_what_is_wrong_with_them() {
    for (text, problem) in [
        ("", "a driver's name is missing"),
        ("  ", "a driver's name is missing"),
        ("::", "a driver's name is missing"),
        (":0", "a driver's name is missing"),
        ("cpu:", "a device's number or name is missing"),
        ("cpu::threads=1", "a device's number or name is missing"),
        ("cpu:0:1", "\"1\" is no parameter: key=value is wanted"),
        ("cpu:0:", "\"\" is no parameter: key=value is wanted"),
        ("cpu:threads=", "parameter \"threads\" has no value"),
        ("cpu:=4", "a parameter has no name"),
        ("cpu:threads=1;", "\"\" is no parameter: key=value is wanted"),
        ("cpu:threads=1;threads=2", "parameter \"threads\" is given twice"),
        ("cpu:threads=1;THREADS=1", "parameter \"THREADS\" is given twice"),
        ("cpu:threads=1:0", "':' stands where a device ends"),
        ("cpu:threads=1=2", "'=' stands where a device ends"),
        ("cpu=4", "'=' stands where a device ends"),
        ("cpu;", "';' stands where a device ends"),
        ("cpu:0;threads=1", "';' stands where a device ends"),
        ("sim:\"Big: Card", "a quote is not closed"),
        ("sim:\"", "a quote is not closed"),
        ("sim:Big\"Card\"", "a quote stands within a name or value"),
        ("sim:\"Big\"Card", "text follows a closed quote"),
        ("cpu:340282366920938463463374607431768211456", "no device has so large a number"),
        ("cpu,cpu", "it names several devices; quotes protect commas"),
        ("cpu,", "a driver's name is missing"),
    ] {
        assert_eq!(select(text).unwrap_err(), format!("device {text:?}: {problem}"));
    }
}

#[test]
fn lists_are_separated_by_commas_outside_of_quotes() {
    let mut registry = registry();
    registry.register(Arc::new(MakingDriver)).unwrap();
    let names = |list: &str| -> Result<Vec<String>, String> {
        let selected = registry.select_list(list).map_err(|error| error.to_string())?;
        Ok(selected.iter().map(|selected| selected.device.info().name.clone()).collect())
    };
    assert_eq!(names("cpu").unwrap(), ["CPU"]);
    assert_eq!(names("sim:1 , cpu:threads=4,sim").unwrap(), ["Big: Card", "CPU", "inside"]);
    assert_eq!(names("made:name=\"a, b: c\",cpu").unwrap(), ["a, b: c", "CPU"]);
    assert!(names("cpu,,sim").unwrap_err().contains("a driver's name is missing"));
    assert!(names("cpu,tpu").unwrap_err().starts_with("no device \"tpu\""));
}

#[test]
fn drivers_read_their_parameters_and_make_devices() {
    let mut registry = registry();
    registry.register(Arc::new(MakingDriver)).unwrap();
    assert_eq!(registry.len(), 6, "a driver that makes devices lists none");
    let made = |parameters: &str| {
        let selected = registry.select(&format!("made:{parameters}")).unwrap();
        let kind = Arc::clone(&selected.device.buffer_types()[0]);
        (kind.max_size(), kind.alignment())
    };
    assert_eq!(made("0"), (64, 1));
    assert_eq!(made("memory=2GiB"), (2 << 30, 1));
    assert_eq!(made("memory=1.5 kib;latency=1.25us"), (1536, 1250));
    assert_eq!(made("3:memory=77;latency=2ms"), (77, 2_000_000));
    assert_eq!(made("latency=3µs;fast=YES;ops=mul_mat+add"), (64, 3000));
    assert_eq!(made("latency=0.5s;fast=0;ops=\"mul_mat, add\""), (64, 500_000_000));
    let [first, second] = ["made", "made"].map(|spec| registry.select(spec).unwrap().device);
    assert!(!Arc::ptr_eq(&first, &second), "each request has a device of its own");

    let error = |spec: &str| registry.select(spec).unwrap_err().to_string();
    assert_eq!(error("made:memory=2XiB"), r#"made: memory is "2XiB", wanted a size, such as 2GiB"#);
    assert_eq!(error("made:memory=2TiB"), r#"made: memory is "2TiB", wanted at most 1TiB"#);
    for wrong in [
        "-1",
        "1e3",
        ".",
        "1.2.3",
        "GiB",
        "20000000000GiB",
        "99999999999999999999999999999999999999999",
    ] {
        assert!(error(&format!("made:memory={wrong}")).contains("wanted a size"), "{wrong}");
    }
    for wrong in ["5", "5m", "s", "1.s", "99999999999s"] {
        let text = error(&format!("made:latency={wrong}"));
        assert_eq!(text, format!(r#"made: latency is "{wrong}", wanted a time, such as 10us"#));
    }
    assert!(error("made:fast=perhaps").ends_with("wanted yes or no"));
    assert!(error("made:ops=a++b").ends_with("wanted names of ops, separated by +"));
    assert_eq!(error("made:who").as_str(), error("made:\"who\"").as_str());
    let text = error("made:who");
    assert_eq!(text, r#"no device "made:who"; there are: made (none listed)"#);
    let text = error("made:size=1");
    assert_eq!(
        text,
        r#"made has no parameter "size"; there are: memory, latency, fast, ops, name"#
    );
}

#[test]
fn times_and_sizes_are_exact() {
    let specs = [ParameterSpec::new("x", "x")];
    let read = |value: &str| {
        let pairs = vec![("x".to_owned(), value.to_owned())];
        tensoryard_runtime::Parameters::new("d", &specs, pairs).unwrap()
    };
    assert_eq!(read("0.001ns").duration("x").unwrap(), Some(Duration::ZERO));
    assert_eq!(
        read("18446744073709551615ns").duration("x").unwrap(),
        Some(Duration::from_nanos(u64::MAX))
    );
    assert!(read("18446744073709551616ns").duration("x").is_err());
    assert_eq!(read("18446744073709551615").bytes("x").unwrap(), Some(usize::MAX));
    assert_eq!(read("0.1KiB").bytes("x").unwrap(), Some(102));
    assert_eq!(read("").list("x").unwrap(), Some(vec![]));
    assert_eq!(read("-2.5").number::<f32>("x").unwrap(), Some(-2.5));
    assert_eq!(read("1").number::<u64>("y").unwrap(), None);
    let twice = vec![("x".to_owned(), "1".to_owned()), ("X".to_owned(), "1".to_owned())];
    assert!(tensoryard_runtime::Parameters::new("d", &specs, twice).is_err());
}

#[test]
fn drivers_are_registered_once_and_counted_and_found() {
    let mut registry = registry();
    let again = TestDriver::new("CPU", vec![]);
    let error = registry.register(Arc::new(again)).unwrap_err();
    assert_eq!(error.to_string(), r#"a driver named "CPU" is registered already"#);
    assert_eq!(registry.drivers().len(), 2);
    assert_eq!(registry.find_driver("sIM").unwrap().name(), "Sim");
    assert!(registry.find_driver("si").is_none());
    assert_eq!((registry.len(), registry.devices().count()), (6, 6));
    assert_eq!(registry.device(2).unwrap().info().name, "Big: Card");
    let error = registry.device(6).unwrap_err().to_string();
    assert!(error.starts_with(r#"no device "6"; there are: cpu:0 (oracle CPU), Sim:0"#), "{error}");
    assert_eq!(registry.find("HELPER").unwrap().info().name, "helper");
    assert!(registry.find("help").is_none());
    let named: Vec<String> = registry.named_devices().map(|(name, _)| name).collect();
    assert_eq!(named, ["cpu:0", "Sim:0", "Sim:1", "Sim:2", "Sim:3", "Sim:4"]);
    assert!(format!("{registry:?}").contains("Sim:1 (oracle Big: Card)"));
    assert!(Registry::new().is_empty());
}

#[test]
fn a_registry_holds_any_number_of_drivers_and_devices() {
    let mut registry = Registry::new();
    for n in 0..40 {
        let name: &'static str = Box::leak(format!("d{n}").into_boxed_str());
        let driver = TestDriver::new(name, vec![("x", DeviceKind::Accelerator); 40]);
        registry.register(Arc::new(driver)).unwrap();
    }
    assert_eq!((registry.drivers().len(), registry.len()), (40, 1600));
    assert!(registry.select("d39:39").is_ok());
}

#[test]
fn the_best_device_is_a_gpu_then_an_integrated_one_then_the_cpu() {
    let of = |kinds: &[DeviceKind]| {
        let mut registry = Registry::new();
        let devices = kinds.iter().map(|kind| (kind.name(), *kind)).collect();
        registry.register(Arc::new(TestDriver::new("d", devices))).unwrap();
        registry.best().map(|device| device.info().kind)
    };
    use DeviceKind::{Accelerator, Cpu, Gpu, IntegratedGpu};
    assert_eq!(of(&[Cpu, Accelerator, IntegratedGpu, Gpu]), Some(Gpu));
    assert_eq!(of(&[Cpu, IntegratedGpu, Accelerator]), Some(IntegratedGpu));
    assert_eq!(of(&[Accelerator, Cpu]), Some(Cpu));
    assert_eq!(of(&[Accelerator]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn devices_open_by_kind_by_text_and_as_the_best() {
    let registry = registry();
    let options = BackendOptions::default();
    assert_eq!(registry.by_kind(DeviceKind::Accelerator).unwrap().info().name, "helper");
    assert!(registry.open_by_kind(DeviceKind::Gpu, &options).is_ok());
    assert!(registry.open_best().is_ok());
    assert!(registry.open("cpu:threads=1").is_ok());
    // The reference device refuses more than one thread, and its refusal is passed on.
    let error = registry.open("cpu:threads=2").err().unwrap();
    assert_eq!(error.to_string(), "CPU: threads is 2, wanted 0 or 1");
    let empty = Registry::new();
    let error = empty.open_best().err().unwrap();
    assert!(error.to_string().starts_with(r#"no device "best""#), "{error}");
    let error = empty.open_by_kind(DeviceKind::IntegratedGpu, &options).err().unwrap();
    assert!(error.to_string().starts_with(r#"no device "integrated GPU""#), "{error}");
}

#[test]
fn memory_of_a_device_is_allocated_through_the_registry() {
    let mut registry = registry();
    registry.register(Arc::new(MakingDriver)).unwrap();
    assert_eq!(registry.default_buffer_type(1).unwrap().name(), "inside memory");
    let buffer = registry.allocate(1, 1000).unwrap();
    assert_eq!((buffer.size(), buffer.usage()), (1000, Usage::Any));
    assert_eq!(buffer.buffer_type().name(), "inside memory");
    let error = registry.allocate(1, 1 << 31).unwrap_err().to_string();
    let wanted =
        "inside: 2147483648 bytes exceed the largest buffer of inside memory, 1073741824 bytes";
    assert_eq!(error, wanted);
    assert!(registry.allocate(99, 1).is_err());
}

/// A driver of devices with ids.
struct CardDriver(&'static str, &'static [(&'static str, Option<&'static str>)]);

/// A reference device that says where it is plugged in.
#[derive(Debug)]
struct Card(Arc<dyn Device>, DeviceInfo);

impl Device for Card {
    fn info(&self) -> &DeviceInfo {
        &self.1
    }
    fn memory(&self) -> tensoryard_runtime::MemoryInfo {
        self.0.memory()
    }
    fn features(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn buffer_types(&self) -> &[Arc<dyn tensoryard_runtime::BufferType>] {
        self.0.buffer_types()
    }
    fn weight_buffer_type(
        &self,
        layout: &tensoryard_graph::Layout,
        uses: &[tensoryard_runtime::WeightUse],
    ) -> Arc<dyn tensoryard_runtime::BufferType> {
        self.0.weight_buffer_type(layout, uses)
    }
    fn supports_op(
        &self,
        case: &tensoryard_runtime::OpCase<'_>,
    ) -> Result<(), tensoryard_runtime::Unsupported> {
        self.0.supports_op(case)
    }
    fn supports_buffer_type(&self, kind: &dyn tensoryard_runtime::BufferType) -> bool {
        self.0.supports_buffer_type(kind)
    }
    fn open(
        &self,
        options: &BackendOptions,
    ) -> Result<Box<dyn tensoryard_runtime::Backend>, tensoryard_runtime::DeviceError> {
        self.0.open(options)
    }
}

impl Driver for CardDriver {
    fn name(&self) -> &str {
        self.0
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        let card = |&(name, id): &(&str, Option<&str>)| -> Arc<dyn Device> {
            let device = ReferenceOptions::new(name).build();
            let info = DeviceInfo { id: id.map(str::to_owned), ..device.info().clone() };
            Arc::new(Card(device, info))
        };
        self.1.iter().map(card).collect()
    }
}

#[test]
fn hardware_that_two_drivers_offer_is_listed_once_by_the_first() {
    let mut registry = Registry::new();
    let first = CardDriver("one", &[("a", Some("0000:0A:00.0")), ("b", None)]);
    let second = CardDriver(
        "two",
        &[
            ("A", Some("0000:0a:00.0")),
            ("B", None),
            ("c", Some("0000:0b:00.0")),
            ("c", Some("0000:0b:00.0")),
        ],
    );
    registry.register(Arc::new(first)).unwrap();
    registry.register(Arc::new(second)).unwrap();
    let names: Vec<_> =
        registry.named_devices().map(|(text, d)| (text, d.info().name.clone())).collect();
    let expected = [("one:0", "a"), ("one:1", "b"), ("two:0", "B"), ("two:1", "c")];
    assert_eq!(names, expected.map(|(text, name)| (text.to_owned(), name.to_owned())));
    assert_eq!(registry.find("a").unwrap().info().description, "oracle a");
}

#[test]
fn any_text_is_a_device_or_an_error() {
    let mut registry = registry();
    registry.register(Arc::new(MakingDriver)).unwrap();
    let pieces = [
        "cpu",
        "sim",
        "made",
        ":",
        ":",
        "=",
        ";",
        ",",
        "\"",
        "\"",
        " ",
        "0",
        "1",
        "99",
        "threads",
        "memory",
        "latency",
        "ops",
        "fast",
        "yes",
        "4",
        "2GiB",
        "10us",
        "+",
        "-",
        ".",
        "µ",
        "🦀",
        "\u{0}",
        "\n",
        "é",
        "18446744073709551616",
        "Big: Card",
    ];
    let mut found = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let text: String = (0..rng.below(10)).map(|_| pieces[rng.below(pieces.len())]).collect();
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| registry.select_list(&text)));
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}: {text:?} panicked"));
        match outcome {
            Ok(devices) => {
                assert!(!devices.is_empty(), "seed {seed}: {text:?}");
                found += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty(), "seed {seed}: {text:?}"),
        }
    }
    assert!(found > 100, "only {found} texts named devices");
}

//! Loading of weights.

use std::sync::Arc;
use std::sync::Mutex;

use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_conformance::reference::ReferenceOptions;
use tensoryard_graph::{DType, Graph, GraphBuilder, Layout, OpKind, Shape};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, Device, DeviceError, DeviceInfo, LoadReport, MemoryInfo,
    OpCase, PlacedLayout, SharedBytes, Unsupported, WeightError, WeightSource, WeightUse, Weights,
    host_buffer_type,
};

use crate::queue::DeviceKind;
use crate::support::full;

fn graph(dtype: DType) -> Graph {
    let g = GraphBuilder::new("weights");
    let x = g.input("x", DType::F32, [4, 1]);
    let table = g.weight("table", dtype, [4, 8]);
    let rows = table.get_rows(g.input("ids", DType::I32, [1]));
    table.mul_mat(rows.add(x)).output("y");
    g.weight("other", DType::F32, [4]).add(x.reshape([4])).output("z");
    _ = g.weight("unused", DType::F32, [4]).scale(1.0, 0.0);
    g.finish().unwrap()
}

fn layout(dtype: DType, dims: &[usize]) -> Layout {
    Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
}

fn source() -> MemoryWeights {
    let mut source = MemoryWeights::default();
    let table: Vec<f32> = (0..32).map(|v| v as f32).collect();
    source.insert("table", layout(DType::F32, &[4, 8]), encode(DType::F32, &table));
    source.insert("other", layout(DType::F32, &[4]), encode(DType::F32, &[1.0; 4]));
    source
}

fn load(source: &dyn WeightSource, device: &dyn Device) -> Result<Weights, WeightError> {
    Weights::load_on(source, &[&graph(DType::F32)], device, |_, _| true)
}

#[test]
fn weights_that_are_read_are_loaded_and_others_not_asked_for() {
    let device = full("A").build();
    let weights = load(&source(), &*device).unwrap();
    let table = weights.get("table").unwrap();
    let mut bytes = vec![0; 128];
    table.buffer().memory().read_tensor(table.offset_bytes(), table.layout(), &mut bytes).unwrap();
    assert_eq!(bytes, source().bytes("table").unwrap());
    assert!(weights.get("unused").is_none());
    // 128 bytes, then 16 at the next multiple of 32.
    assert_eq!(weights.sizes(), [("A memory".to_owned(), 144)]);
}

#[test]
fn missing_and_unfitting_weights_are_named() {
    let device = full("A").build();
    let error = load(&MemoryWeights::default(), &*device).unwrap_err();
    assert_eq!(error.to_string(), r#"weight "table" is missing"#);
    let mut other = source();
    other.insert("table", layout(DType::F16, &[4, 8]), vec![0; 64]);
    let error = load(&other, &*device).unwrap_err();
    assert_eq!(error.to_string(), r#"weight "table" is f16 [4, 8], the model wants f32 [4, 8]"#);
    let mut short = source();
    short.insert("other", layout(DType::F32, &[4]), vec![0; 12]);
    for device in [device, Arc::new(HostDevice::new()) as Arc<dyn Device>] {
        let error = load(&short, &*device).unwrap_err();
        assert!(error.to_string().starts_with(r#"weight "other": 12 bytes given"#), "{error}");
    }
    let small = ReferenceOptions { max_size: 100, ..full("A") }.build();
    assert!(
        matches!(load(&source(), &*small), Err(WeightError::Memory { name, .. }) if name == "table")
    );
}

#[test]
fn loading_tells_its_progress_and_stops_when_told() {
    let device = full("A").build();
    let mut told = Vec::new();
    Weights::load_on(&source(), &[&graph(DType::F32)], &*device, |done, all| {
        told.push((done, all));
        true
    })
    .unwrap();
    assert_eq!(told, [(0, 144), (128, 144), (144, 144)]);
    let stopped = Weights::load_on(&source(), &[&graph(DType::F32)], &*device, |done, _| done == 0);
    assert!(matches!(stopped, Err(WeightError::Cancelled)));
}

#[test]
fn a_group_beyond_the_largest_buffer_takes_several() {
    let small = ReferenceOptions { max_size: 130, ..full("A") }.build();
    let weights = load(&source(), &*small).unwrap();
    assert_eq!(weights.get("table").unwrap().buffer().size(), 128);
    assert_eq!(weights.get("other").unwrap().buffer().size(), 16);
}

/// A source whose bytes begin at an odd address, as in a file.
#[derive(Default)]
struct Odd {
    shift: usize,
    released: Mutex<Vec<String>>,
}

impl WeightSource for Odd {
    fn layout(&self, name: &str) -> Option<Layout> {
        source().layout(name)
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        let source = source();
        let bytes = source.bytes(name).ok_or("missing")?;
        // Nine bytes in front leave room for every residue of the address.
        let mut file = vec![0; 16];
        let start = (0..8).find(|at| (file.as_ptr() as usize + at).is_multiple_of(8)).unwrap_or(0);
        file.truncate(start + self.shift);
        file.reserve_exact(bytes.len());
        file.extend_from_slice(bytes);
        let at = start + self.shift;
        SharedBytes::new(Arc::new(file), at..at + bytes.len()).map_err(|error| error.to_string())
    }

    fn release(&self, name: &str) {
        self.released.lock().unwrap().push(name.to_owned());
    }
}

/// A device that wants weights in host memory, or in memory of another kind.
#[derive(Debug)]
struct HostDevice {
    inner: Arc<dyn Device>,
    kind: Arc<dyn BufferType>,
    asked: std::sync::Mutex<Vec<Vec<WeightUse>>>,
}

impl HostDevice {
    fn new() -> Self {
        Self::of(host_buffer_type())
    }

    fn of(kind: &Arc<dyn BufferType>) -> Self {
        let (inner, kind) = (full("host").build(), Arc::clone(kind));
        Self { inner, kind, asked: std::sync::Mutex::default() }
    }
}

impl Device for HostDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn features(&self) -> Vec<(String, String)> {
        self.inner.features()
    }

    fn buffer_types(&self) -> &[Arc<dyn BufferType>] {
        self.inner.buffer_types()
    }

    fn weight_buffer_type(&self, _: &Layout, uses: &[WeightUse]) -> Arc<dyn BufferType> {
        self.asked.lock().unwrap().push(uses.to_vec());
        Arc::clone(&self.kind)
    }

    fn supports_op(&self, case: &OpCase<'_>) -> Result<(), Unsupported> {
        self.inner.supports_op(case)
    }

    fn supports_buffer_type(&self, buffer_type: &dyn BufferType) -> bool {
        buffer_type.name() == "CPU" || self.inner.supports_buffer_type(buffer_type)
    }

    fn open(&self, options: &BackendOptions) -> Result<Box<dyn Backend>, DeviceError> {
        self.inner.open(options)
    }
}

#[test]
fn bytes_of_the_source_are_used_where_they_are_aligned_and_copied_where_not() {
    let device = HostDevice::new();
    let aligned = load(&MemoryWeights::default(), &device);
    assert!(matches!(aligned, Err(WeightError::Missing { .. })));
    for shift in 0..5 {
        let odd = Odd { shift, ..Odd::default() };
        let weights = load(&odd, &device).unwrap();
        let table = weights.get("table").unwrap();
        let host = table.buffer().memory().host().unwrap();
        assert!((host.base() as usize + table.offset_bytes()).is_multiple_of(4));
        let expected = source();
        let found = host.slice(table.offset_bytes(), 128).unwrap();
        assert_eq!(found, expected.bytes("table").unwrap(), "shift {shift}");
        // What was copied is given back to the source; what is used in place is not.
        let copied = usize::from(host.is_writable());
        assert_eq!(copied, usize::from(shift % 4 != 0));
        // Both tensors are shifted alike.
        let (in_place, unaligned) = (2 * (1 - copied), 2 * copied);
        let wanted = LoadReport { in_place, placed: unaligned, unaligned, converted: 0 };
        assert_eq!(weights.report(), wanted, "shift {shift}");
        let released = odd.released.lock().unwrap();
        assert_eq!(released.iter().filter(|name| *name == "table").count(), copied);
    }
}

/// A source that stores its tensors in another byte order.
struct Swapped(MemoryWeights);

impl WeightSource for Swapped {
    fn layout(&self, name: &str) -> Option<Layout> {
        self.0.layout(name)
    }

    fn read(&self, name: &str) -> Result<SharedBytes, String> {
        self.0.read(name)
    }

    fn converts(&self, _: &str) -> bool {
        true
    }
}

#[test]
fn what_the_source_converts_and_what_is_placed_is_counted() {
    let weights = load(&Swapped(source()), &HostDevice::new()).unwrap();
    assert_eq!(weights.report().converted, 2);
    let device = full("A").build();
    let weights = load(&source(), &*device).unwrap();
    assert_eq!(weights.report(), LoadReport { placed: 2, ..LoadReport::default() });
}

#[test]
fn the_memory_is_told_of_each_weight_before_it_is_written() {
    let kind = DeviceKind::new("told");
    let told = Arc::clone(&kind.told);
    load(&source(), &HostDevice::of(&(Arc::new(kind) as _))).unwrap();
    let placed = |offset_bytes, dims: &[usize]| PlacedLayout {
        offset_bytes,
        layout: layout(DType::F32, dims),
        base: None,
    };
    assert_eq!(*told.lock().unwrap(), [placed(0, &[4, 8]), placed(128, &[4])]);
}

#[test]
fn the_device_hears_all_uses_of_a_weight() {
    let device = HostDevice::new();
    load(&source(), &device).unwrap();
    let asked = device.asked.lock().unwrap();
    let table = [
        WeightUse { op: OpKind::GetRows, operand: 0 },
        WeightUse { op: OpKind::MulMat, operand: 0 },
    ];
    assert_eq!(asked[0], table);
    assert_eq!(asked[1], [WeightUse { op: OpKind::Binary, operand: 0 }]);
}

//! Packed weights and high-bandwidth memory as buffer types.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tensoryard_conformance::data::{MemoryWeights, encode};
use tensoryard_cpu::{CpuDevice, HbmBufferType, Isa, hbm_buffer_type, packed_buffer_type};
use tensoryard_graph::{DType, GraphBuilder, Layout, Shape};
use tensoryard_runtime::tensors::{CopyPath, Strided, TensorDataError, TensorKey, Tensors};
use tensoryard_runtime::{
    BackendOptions, Buffer, BufferType, Device, Input, MemoryError, Selected, Session,
    SessionOptions, Usage, Weights, host_buffer_type,
};

fn layout(dtype: DType, dims: &[usize]) -> Layout {
    Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
}

/// A packed matrix of 5 × 40 f16 elements with bytes that count up.
fn packed() -> (Tensors, TensorKey, Vec<u8>) {
    let mut tensors = Tensors::new();
    let w = tensors.add("w", layout(DType::F16, &[5, 40]));
    tensors.place_all(packed_buffer_type(), Usage::Weights).unwrap();
    let bytes: Vec<u8> = (0..400usize).map(|value| (value % 251) as u8).collect();
    tensors.set(w, 0, &bytes).unwrap();
    (tensors, w, bytes)
}

fn refused(error: TensorDataError, tensor: &str, what: &str) {
    let text = error.to_string();
    assert!(text.contains(&format!("CPU_Packed holds whole tensors only: {what}")), "{text}");
    assert!(text.starts_with(&format!("{tensor:?}")), "{text}");
}

#[test]
fn the_packed_type_says_what_it_is() {
    let kind = packed_buffer_type();
    assert_eq!((kind.name(), kind.is_host(), kind.takes_views()), ("CPU_Packed", false, false));
    // 40 rows fill two panels of 32.
    assert_eq!(kind.tensor_bytes(&layout(DType::F16, &[5, 40])), 5 * 64 * 2);
    for dims in [&[3, 1][..], &[64, 64], &[2, 3, 5], &[1, 2, 3, 4]] {
        let tensor = layout(DType::F32, dims);
        assert!(kind.tensor_bytes(&tensor) >= tensor.data_bytes());
    }
    assert!(CpuDevice::new(Isa::detect()).supports_buffer_type(&**kind));
}

#[test]
fn writing_packs_and_reading_gives_the_bytes_back() {
    let (tensors, w, bytes) = packed();
    assert_eq!(tensors.read(w).unwrap(), bytes);
    let place = tensors.slot(w).unwrap().place().unwrap();
    let memory = tensors.buffer(place.buffer).unwrap().memory();
    assert!(memory.host().is_none());
    // Any part may be read: it is converted back and cut out.
    let mut part = [0; 7];
    tensors.get(w, 33, &mut part).unwrap();
    assert_eq!(part, bytes[33..40]);
    let rows =
        Strided { offset_bytes: 2, row_bytes: 3, rows: 4, tensor_stride: 10, host_stride: 3 };
    let mut read = [0; 12];
    tensors.get_2d(w, &rows, &mut read).unwrap();
    assert_eq!(read[3..6], bytes[12..15]);
}

#[test]
fn parts_are_not_written_and_only_whole_rows_viewed() {
    let (mut tensors, w, bytes) = packed();
    refused(tensors.set(w, 0, &[0; 10]).unwrap_err(), "w", "a write of a part");
    refused(tensors.set(w, 10, &bytes[10..]).unwrap_err(), "w", "a write of a part");
    refused(tensors.fill(w, 0, 20, 1).unwrap_err(), "w", "a write of a part");
    let rows =
        Strided { offset_bytes: 0, row_bytes: 2, rows: 2, tensor_stride: 10, host_stride: 2 };
    refused(tensors.set_2d(w, &rows, &[0; 4]).unwrap_err(), "w", "a write of a part");

    // Rows 3 to 7 as they are stored.
    let some = tensors.add_view("some", w, 30, layout(DType::F16, &[5, 5])).unwrap();
    tensors.init_view(some).unwrap();
    assert_eq!(tensors.read(some).unwrap(), bytes[30..80]);
    let mut part = [0; 4];
    tensors.get(some, 8, &mut part).unwrap();
    assert_eq!(part, bytes[38..42]);
    refused(tensors.set(some, 0, &[0; 50]).unwrap_err(), "some", "a write of a part");
    refused(tensors.write(some, &[0; 50]).unwrap_err(), "some", "a write of a part");

    let turned = layout(DType::F16, &[5, 40]).permute([1, 0, 2, 3]).unwrap();
    let columns =
        Layout::strided(DType::F16, Shape::new(&[2, 40]).unwrap(), [2, 10, 0, 0]).unwrap();
    for (name, offset, layout) in [
        ("columns", 0, columns),
        ("turned", 0, turned),
        ("shifted", 2, layout(DType::F16, &[5, 2])),
        ("short", 0, layout(DType::F16, &[3])),
        ("other", 0, layout(DType::I16, &[5, 2])),
    ] {
        let view = tensors.add_view(name, w, offset, layout).unwrap();
        let error = tensors.init_view(view).unwrap_err();
        refused(error, name, "a view other than whole rows in storage order");
    }
    assert_eq!(tensors.read(w).unwrap(), bytes);
    // What is no matrix of floats is not placed at all.
    tensors.add("ids", layout(DType::I32, &[5, 40]));
    let error = tensors.place_all(packed_buffer_type(), Usage::Any).unwrap_err();
    assert!(error.to_string().contains("CPU_Packed cannot hold i32 [5, 40]"), "{error}");
}

#[test]
fn the_memory_itself_moves_no_bytes() {
    let mut buffer = Buffer::allocate(packed_buffer_type(), 640, Usage::Weights).unwrap();
    let memory = buffer.memory_mut();
    let errors =
        [memory.read_bytes(0, &mut [0; 4]), memory.write_bytes(0, &[0; 4]), memory.fill(0, 4, 0)];
    for error in errors {
        assert!(matches!(error, Err(MemoryError::WholeTensorsOnly { .. })));
    }
}

#[test]
fn copies_of_packed_tensors_are_converted() {
    let (mut tensors, w, bytes) = packed();
    let plain = tensors.add("plain", layout(DType::F16, &[5, 40]));
    let part = tensors.add("part", layout(DType::F16, &[5, 2]));
    tensors.place_all(host_buffer_type(), Usage::Any).unwrap();
    assert_eq!(tensors.copy(w, plain).unwrap(), CopyPath::ToHost);
    assert_eq!(tensors.read(plain).unwrap(), bytes);
    let rows = tensors.add_view("rows", w, 10, layout(DType::F16, &[5, 2])).unwrap();
    tensors.init_view(rows).unwrap();
    tensors.copy(rows, part).unwrap();
    assert_eq!(tensors.read(part).unwrap(), bytes[10..30]);
    let error = tensors.copy(part, rows).unwrap_err();
    refused(error, "rows", "a copy into a view");
    tensors.fill(plain, 0, 400, 3).unwrap();
    assert_eq!(tensors.copy(plain, w).unwrap(), CopyPath::FromHost);
    assert_eq!(tensors.read(w).unwrap(), [3; 400]);
}

#[test]
fn a_tied_embedding_is_in_memory_once_and_read_by_both_ops() {
    let g = GraphBuilder::new("tied");
    let table = g.weight("table", DType::F32, [4, 40]);
    let rows = table.get_rows(g.input("ids", DType::I32, [2]));
    rows.output("rows");
    table.mul_mat(rows).output("logits");
    let graph = Arc::new(g.finish().unwrap());
    let values: Vec<f32> = (0..160).map(|value| (value % 7) as f32).collect();
    let mut source = MemoryWeights::default();
    source.insert("table", layout(DType::F32, &[4, 40]), encode(DType::F32, &values));
    let device: Arc<dyn Device> = Arc::new(CpuDevice::new(Isa::detect()));
    let weights = Weights::load_on(&source, &[&graph], &*device, |_, _| true).unwrap();
    assert_eq!(weights.sizes(), [("CPU_Packed".to_owned(), 4 * 64 * 4)]);
    let selected = Selected { device, options: BackendOptions { threads: 1 } };
    let options = SessionOptions::default();
    let mut session = Session::open(&[selected], Arc::new(weights), &[&graph], options).unwrap();
    let outputs = session.run(&graph, &[Input::i32("ids", &[3, 39])]).unwrap();
    let rows = outputs.f32("rows").unwrap();
    assert_eq!(rows, [&values[12..16], &values[156..160]].concat());
    let logits = outputs.f32("logits").unwrap();
    for (at, logit) in logits.iter().enumerate() {
        let (row, token) = (&rows[at / 40 * 4..][..4], &values[at % 40 * 4..][..4]);
        let wanted: f32 = row.iter().zip(token).map(|(a, b)| a * b).sum();
        assert_eq!(*logit, wanted);
    }
}

/// A directory of node files: lists of nodes with memory and with processors, free memory.
fn node_files(memory: &str, processors: &str, free_kib: usize) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("has_memory", memory);
    write("has_cpu", processors);
    for node in 0..4 {
        let info = format!(
            "Node {node} MemTotal:  2048 kB\nNode {node} MemFree: {free_kib} kB\nNode {node} \
             Inactive(file): 4 kB\n"
        );
        write(&format!("node{node}/meminfo"), &info);
    }
    directory
}

fn bandwidth(directory: &Path, node: u32, megabytes: &str) {
    let place = directory.join(format!("node{node}/access0/initiators"));
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("read_bandwidth"), megabytes).unwrap();
}

#[test]
fn nodes_of_memory_only_are_found_at_run_time() {
    let files = node_files("0-3\n", "0-1\n", 1024);
    let found = HbmBufferType::find(files.path()).unwrap();
    assert_eq!(found.nodes(), [2, 3]);
    assert_eq!((found.name(), found.alignment(), found.is_host()), ("CPU_HBM", 64, true));
    assert_eq!(found.max_size(), 2 * 2048 * 1024);
    let tensor = layout(DType::F16, &[3, 5]);
    assert_eq!(found.tensor_bytes(&tensor), 30);
    // Where the node itself says that it has processors, it has.
    fs::write(files.path().join("node2/cpulist"), "8-15\n").unwrap();
    fs::write(files.path().join("node3/cpulist"), "\n").unwrap();
    assert_eq!(HbmBufferType::find(files.path()).unwrap().nodes(), [3]);
}

#[test]
fn slow_nodes_of_memory_only_are_left_out() {
    let files = node_files("0-3\n", "0\n", 1024);
    bandwidth(files.path(), 0, "200000\n");
    bandwidth(files.path(), 1, "900000\n");
    bandwidth(files.path(), 2, "60000\n");
    // Nothing is known of node 3.
    assert_eq!(HbmBufferType::find(files.path()).unwrap().nodes(), [1, 3]);
}

#[test]
fn asking_for_what_the_machine_does_not_have_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    for directory in [node_files("0-3\n", "0-3\n", 1024).path(), empty.path()] {
        let error = HbmBufferType::find(directory).unwrap_err().to_string();
        assert!(error.starts_with("there is no CPU_HBM here: no node in "), "{error}");
        let device = CpuDevice::new(Isa::detect()).with_memory_nodes(directory);
        assert!(device.buffer_types().iter().all(|kind| kind.name() != "CPU_HBM"));
    }
    // On this machine, one or the other.
    match hbm_buffer_type() {
        Ok(found) => assert_eq!(found.name(), "CPU_HBM"),
        Err(error) => assert!(error.to_string().contains("CPU_HBM"), "{error}"),
    }
}

#[test]
fn a_device_lists_its_buffer_types_the_default_first() {
    let files = node_files("0-3\n", "0-2\n", 1024);
    let device = CpuDevice::new(Isa::detect()).with_memory_nodes(files.path());
    let names: Vec<&str> = device.buffer_types().iter().map(|kind| kind.name()).collect();
    assert_eq!(names, ["CPU", "CPU_Packed", "CPU_HBM"]);
    for kind in device.buffer_types() {
        assert!(device.supports_buffer_type(&**kind));
    }
}

#[test]
fn memory_is_bound_to_the_nodes_or_refused_with_the_reason() {
    // Node 0 of the machine passes for one without processors.
    let files = node_files("0-1\n", "1\n", 1024);
    let kind: Arc<dyn BufferType> = Arc::new(HbmBufferType::find(files.path()).unwrap());
    assert_eq!(Buffer::allocate(&kind, 0, Usage::Any).unwrap().size(), 0);
    let error = Buffer::allocate(&kind, 1100 * 1024, Usage::Any).unwrap_err();
    assert_eq!(error, MemoryError::Allocation { bytes: 1100 * 1024 });
    let error = Buffer::allocate(&kind, 3000 * 1024, Usage::Any).unwrap_err();
    assert!(matches!(error, MemoryError::TooLarge { .. }), "{error}");
    match Buffer::allocate(&kind, 1028 * 1024, Usage::Any) {
        Ok(mut buffer) => {
            assert_eq!((buffer.size(), buffer.base().unwrap() % 64), (1028 * 1024, 0));
            buffer.clear(5).unwrap();
            let mut last = [0];
            buffer.memory().read_bytes(1028 * 1024 - 1, &mut last).unwrap();
            assert_eq!(last, [5]);
        }
        // A container may be forbidden the call, and other systems do not have it.
        Err(error) => {
            assert!(matches!(error, MemoryError::Unavailable { .. }), "{error}");
        }
    }
    // Nodes that the machine does not have cannot be bound to.
    let files = node_files("0-3\n", "0-2\n", 1024);
    let kind: Arc<dyn BufferType> = Arc::new(HbmBufferType::find(files.path()).unwrap());
    if !Path::new("/sys/devices/system/node/node3").exists() {
        let error = Buffer::allocate(&kind, 4096, Usage::Any).unwrap_err();
        assert!(error.to_string().contains("4096 bytes were not bound to nodes [3]"), "{error}");
    }
}

//! Tables that break the rules of the header, each refused or survived.
#![allow(unsafe_code, clippy::unwrap_used, reason = "tests fail by panicking, and forge tables")]

use std::cell::Cell;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tensoryard_graph::ops::{Op, Scale};
use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_runtime::{
    Aliasing, BackendOptions, Buffer, DeviceError, Driver, MemoryError, Operand, Region, Step,
    StepOp, Usage,
};

use crate::abi::{self, ErrorText, Header, Table, Text};
use crate::error::DriverError;
use crate::library::Library;
use crate::{DynamicDriver, abi::Functions};

/// What the forged functions answer.
#[derive(Clone, Copy)]
struct Answers {
    devices: u64,
    name: &'static [u8],
    kind: u32,
    flags: u32,
    features: u64,
    types: u64,
    type_name: &'static [u8],
    alignment: u64,
    status: i32,
    error: &'static [u8],
    error_size: Option<u64>,
    gives_handles: bool,
}

const GOOD: Answers = Answers {
    devices: 1,
    name: b"Forged",
    kind: abi::GPU,
    flags: 0,
    features: 0,
    types: 1,
    type_name: b"memory",
    alignment: 16,
    status: abi::OK,
    error: b"",
    error_size: None,
    gives_handles: true,
};

thread_local! {
    static ANSWERS: Cell<Answers> = const { Cell::new(GOOD) };
}

fn answers() -> Answers {
    ANSWERS.get()
}

fn text(bytes: &'static [u8]) -> Text {
    Text { data: bytes.as_ptr(), size: bytes.len() as u64 }
}

/// The status that is asked for, with its text.
fn end(error: *mut ErrorText) -> i32 {
    let Answers { status, error: text, error_size, .. } = answers();
    // SAFETY: the host passes a place with room for 512 bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), (*error).data, text.len());
        (*error).size = error_size.unwrap_or(text.len() as u64);
    }
    status
}

fn put<T>(to: *mut T, value: T) {
    // SAFETY: the host passes a place for each result.
    unsafe { to.write(value) }
}

/// A handle that is never looked at, or nothing.
fn handle<T>() -> *mut T {
    if answers().gives_handles {
        std::ptr::dangling_mut::<u64>().cast()
    } else {
        std::ptr::null_mut()
    }
}

unsafe extern "C" fn device_count(count: *mut u64, _: *mut ErrorText) -> i32 {
    put(count, answers().devices);
    abi::OK
}

unsafe extern "C" fn device_info(_: u64, info: *mut abi::DeviceInfo, _: *mut ErrorText) -> i32 {
    let a = answers();
    put(
        info,
        abi::DeviceInfo {
            name: text(a.name),
            description: Text::EMPTY,
            id: Text::EMPTY,
            kind: a.kind,
            flags: a.flags,
            feature_count: a.features,
            buffer_type_count: a.types,
        },
    );
    abi::OK
}

unsafe extern "C" fn device_memory(
    _: u64,
    free: *mut u64,
    total: *mut u64,
    e: *mut ErrorText,
) -> i32 {
    put(free, 9);
    put(total, 5);
    end(e)
}

unsafe extern "C" fn device_feature(
    _: u64,
    _: u64,
    name: *mut Text,
    value: *mut Text,
    _: *mut ErrorText,
) -> i32 {
    put(name, text(b"feature"));
    put(value, Text { data: std::ptr::null(), size: 3 });
    abi::OK
}

unsafe extern "C" fn buffer_type_info(
    _: u64,
    _: u64,
    info: *mut abi::BufferTypeInfo,
    _: *mut ErrorText,
) -> i32 {
    let a = answers();
    let (name, alignment) = (text(a.type_name), a.alignment);
    put(
        info,
        abi::BufferTypeInfo { name, alignment, max_size: u64::MAX, flags: a.flags, reserved: 0 },
    );
    abi::OK
}

unsafe extern "C" fn buffer_alloc(
    _: u64,
    _: u64,
    _: u64,
    buffer: *mut *mut abi::Buffer,
    e: *mut ErrorText,
) -> i32 {
    put(buffer, handle());
    end(e)
}

unsafe extern "C" fn buffer_free(_: *mut abi::Buffer, e: *mut ErrorText) -> i32 {
    end(e)
}

unsafe extern "C" fn buffer_base(
    _: *mut abi::Buffer,
    base: *mut *mut c_void,
    _: *mut ErrorText,
) -> i32 {
    put(base, if answers().gives_handles { 8 as *mut c_void } else { std::ptr::null_mut() });
    abi::OK
}

unsafe extern "C" fn buffer_read(
    _: *const abi::Buffer,
    _: u64,
    _: *mut c_void,
    _: u64,
    e: *mut ErrorText,
) -> i32 {
    end(e)
}

unsafe extern "C" fn buffer_write(
    _: *mut abi::Buffer,
    _: u64,
    _: *const c_void,
    _: u64,
    e: *mut ErrorText,
) -> i32 {
    end(e)
}

unsafe extern "C" fn buffer_fill(
    _: *mut abi::Buffer,
    _: u64,
    _: u64,
    _: u8,
    _: *mut ErrorText,
) -> i32 {
    abi::OK
}

unsafe extern "C" fn supports_op(_: u64, _: *const abi::Step, e: *mut ErrorText) -> i32 {
    end(e)
}

unsafe extern "C" fn queue_open(_: u64, queue: *mut *mut abi::Queue, e: *mut ErrorText) -> i32 {
    put(queue, handle());
    end(e)
}

unsafe extern "C" fn queue_close(_: *mut abi::Queue, e: *mut ErrorText) -> i32 {
    end(e)
}

unsafe extern "C" fn program_compile(
    _: *mut abi::Queue,
    _: *const abi::Step,
    _: u64,
    _: u64,
    program: *mut *mut abi::Program,
    e: *mut ErrorText,
) -> i32 {
    put(program, handle());
    end(e)
}

unsafe extern "C" fn program_free(_: *mut abi::Program, e: *mut ErrorText) -> i32 {
    end(e)
}

unsafe extern "C" fn queue_submit(
    _: *mut abi::Queue,
    _: *const abi::Program,
    _: *const abi::Binding,
    _: u64,
    _: *const u8,
    e: *mut ErrorText,
) -> i32 {
    end(e)
}

unsafe extern "C" fn queue_synchronize(_: *mut abi::Queue, e: *mut ErrorText) -> i32 {
    end(e)
}

const FUNCTIONS: Functions = Functions {
    device_count,
    device_info,
    device_memory,
    device_feature,
    buffer_type_info,
    buffer_alloc,
    buffer_free,
    buffer_base,
    buffer_read,
    buffer_write,
    buffer_fill,
    supports_op,
    queue_open,
    queue_close,
    program_compile,
    program_free,
    queue_submit,
    queue_synchronize,
};

fn table() -> Table {
    let size = size_of::<Table>() as u64;
    let header = Header { magic: abi::MAGIC, version: abi::VERSION, size };
    Table::new(header, text(b"forged"), FUNCTIONS)
}

fn library_of(table: &Table) -> Result<Arc<Library>, DriverError> {
    // SAFETY: the table is one, or ends before what is wrong with it is passed.
    unsafe { Library::from_table(Path::new("forged.so"), table, Box::new(())) }
}

/// The driver of a good table, with these answers to its functions.
fn driver(answers: Answers) -> Result<DynamicDriver, String> {
    ANSWERS.set(answers);
    let library = library_of(&table()).unwrap();
    DynamicDriver::of_library(library).map_err(|error| error.to_string())
}

fn problem(answers: Answers) -> String {
    let text = driver(answers).unwrap_err();
    text.strip_prefix("driver forged.so: ").unwrap_or(&text).to_owned()
}

#[test]
fn tables_of_another_kind_are_refused() {
    let refused = |edit: &dyn Fn(&mut Table)| {
        let mut table = table();
        edit(&mut table);
        let text = library_of(&table).err().unwrap().to_string();
        text.strip_prefix("driver forged.so: ").unwrap().to_owned()
    };
    let text = refused(&|table| table.header.magic = 7);
    assert_eq!(text, "its table begins with 0x00000007, not 0x52445954");
    let text = refused(&|table| table.header.version = 2);
    assert_eq!(text, "its table is of version 2, known is 1");
    let text = refused(&|table| table.header.size = 100);
    assert_eq!(text, "its table has 100 bytes, version 1 has 176");
    let text = refused(&|table| table.queue_submit = None);
    assert_eq!(text, "its table lacks the function queue_submit");
    let text = refused(&|table| table.device_count = None);
    assert_eq!(text, "its table lacks the function device_count");
    assert_eq!(refused(&|table| table.name.size = 0), "the driver has no name");
    let text = refused(&|table| table.name.data = std::ptr::null());
    assert_eq!(text, "the name of the driver points to nothing");
    let text = refused(&|table| table.name.size = u64::MAX);
    assert_eq!(text, "the name of the driver is too long");
    // SAFETY: nothing is there to be read.
    let none = unsafe { Library::from_table(Path::new("x.so"), std::ptr::null(), Box::new(())) };
    let text = none.err().unwrap().to_string();
    assert_eq!(text, "driver x.so: tensoryard_driver returned no table");
}

#[test]
fn a_larger_table_of_this_version_is_taken() {
    let mut larger = table();
    larger.header.size += 64;
    // Only its known part is looked at.
    assert_eq!(library_of(&larger).unwrap().name, "forged");
}

#[test]
fn devices_that_make_no_sense_are_refused() {
    assert!(driver(GOOD).is_ok());
    assert!(driver(Answers { devices: 0, ..GOOD }).unwrap().devices().is_empty());
    let text = problem(Answers { devices: u64::MAX, ..GOOD });
    assert_eq!(text, "it says that it has 18446744073709551615 devices");
    assert_eq!(problem(Answers { name: b"", ..GOOD }), "device 0 has no name");
    let text = problem(Answers { name: b"\xff\xfe", ..GOOD });
    assert_eq!(text, "the name of a device is not UTF-8");
    assert_eq!(problem(Answers { kind: 9, ..GOOD }), "device \"Forged\" is of kind 9");
    assert_eq!(problem(Answers { types: 0, ..GOOD }), "device \"Forged\" has no buffer type");
    let text = problem(Answers { types: 1 << 40, ..GOOD });
    assert_eq!(text, "it says that it has 1099511627776 buffer types");
    let text = problem(Answers { features: 1, ..GOOD });
    assert_eq!(text, "the value of a feature points to nothing");
    let text = problem(Answers { type_name: b"", ..GOOD });
    assert_eq!(text, "buffer type 0 of device 0 has no name");
    for alignment in [0, 3, 48, 1 << 63] {
        let text = problem(Answers { alignment, ..GOOD });
        let wanted = format!("buffer type \"memory\" has alignment {alignment}, no power of two");
        assert_eq!(text, wanted);
    }
}

#[test]
fn errors_are_told_in_the_drivers_words_however_badly_given() {
    let device = driver(GOOD).unwrap().devices().remove(0);
    assert_eq!((device.memory().free, device.memory().total), (5, 5), "never more than all");
    let open = |answers: Answers| {
        ANSWERS.set(answers);
        let opened = device.open(&BackendOptions::default());
        ANSWERS.set(GOOD);
        opened.err().unwrap()
    };
    let failed = Answers { status: abi::FAILED, error: b" it is busy\n", ..GOOD };
    assert_eq!(open(failed).to_string(), "Forged: it is busy");
    assert_eq!(open(Answers { status: -77, ..GOOD }).to_string(), "Forged: status -77");
    let huge = Answers { error_size: Some(u64::MAX), ..failed };
    assert!(open(huge).to_string().starts_with("Forged: it is busy"));
    let garbage = Answers { error: b"\xff!", ..failed };
    assert_eq!(open(garbage).to_string(), "Forged: \u{fffd}!");
    let lost = open(Answers { status: abi::LOST, ..failed });
    assert!(matches!(&lost, DeviceError::Lost { device, .. } if device == "Forged"), "{lost}");
    let full = open(Answers { status: abi::OUT_OF_MEMORY, ..failed });
    assert!(matches!(full, DeviceError::Memory { .. }), "{full}");
    let none = open(Answers { gives_handles: false, ..GOOD });
    assert_eq!(none.to_string(), "Forged: queue_open gave no queue");
    ANSWERS.set(Answers { status: abi::FAILED, ..GOOD });
    assert_eq!(device.memory().total, 0, "a device that does not tell has none");
    ANSWERS.set(GOOD);
}

#[test]
fn steps_and_runs_that_fail_are_errors() {
    let device = driver(GOOD).unwrap().devices().remove(0);
    let mut backend = device.open(&BackendOptions::default()).unwrap();
    let failing = |status| ANSWERS.set(Answers { status, error: b"so", ..GOOD });
    failing(abi::UNSUPPORTED);
    let error = backend.compile(&[]).unwrap_err();
    assert!(matches!(&error, DeviceError::Compile { reason, .. } if reason == "so"), "{error}");
    failing(abi::FAILED);
    assert_eq!(backend.compile(&[]).unwrap_err().to_string(), "Forged: so");
    assert_eq!(backend.synchronize().unwrap_err().to_string(), "Forged: so");
    failing(abi::CANCELLED);
    assert!(matches!(backend.synchronize(), Err(DeviceError::Cancelled)));
    ANSWERS.set(Answers { gives_handles: false, ..GOOD });
    let error = backend.compile(&[]).unwrap_err().to_string();
    assert_eq!(error, "Forged: program_compile gave no program");
    ANSWERS.set(GOOD);
    assert!(backend.compile(&[]).is_ok());
}

#[test]
fn forged_steps_never_reach_the_driver() {
    let device = driver(GOOD).unwrap().devices().remove(0);
    let backend = device.open(&BackendOptions::default()).unwrap();
    let row = Layout::contiguous(DType::F32, Shape::new(&[8]).unwrap()).unwrap();
    let operand = |region, offset_bytes| Operand {
        region,
        offset_bytes,
        layout: row,
        buffer_type: Arc::clone(&device.buffer_types()[0]),
        aliasing: Aliasing::Disjoint,
    };
    let compile = |source, dst| {
        let op = StepOp::Op(Op::from(Scale { factor: 2.0, offset: 0.0 }));
        let step = Step { name: "twice".to_owned(), op, dst, sources: vec![Some(source)] };
        backend.compile(&[step])
    };
    let chunk = |offset| operand(Region::Chunk(0), offset);
    let refusal = |source, dst| match compile(source, dst).unwrap_err() {
        DeviceError::Compile { device, step, reason } => {
            assert_eq!((&*device, &*step), ("Forged", "twice"));
            reason
        }
        other => panic!("{other}"),
    };
    assert_eq!(refusal(chunk(0), chunk(0)), "operand 0 overlaps the destination");
    assert_eq!(refusal(chunk(0), chunk(16)), "an operand overlaps the destination in part");
    let weight = operand(Region::Weight(0), 0);
    assert_eq!(refusal(chunk(0), weight), "the destination is a weight");
    assert!(refusal(chunk(2), chunk(64)).contains("byte 2"));
    assert!(compile(chunk(0), chunk(64)).is_ok());
}

#[test]
fn memory_that_fails_is_an_error() {
    let device = driver(GOOD).unwrap().devices().remove(0);
    let kind = Arc::clone(&device.buffer_types()[0]);
    assert!(kind.max_size() <= isize::MAX as usize, "the driver says {}", u64::MAX);
    let allocate = || Buffer::allocate(&kind, 16, Usage::Any);
    let with = |answers: Answers| {
        ANSWERS.set(answers);
        let result = allocate();
        ANSWERS.set(GOOD);
        result.unwrap_err()
    };
    let full = with(Answers { status: abi::OUT_OF_MEMORY, ..GOOD });
    assert_eq!(full, MemoryError::Allocation { bytes: 16 });
    let none = with(Answers { gives_handles: false, ..GOOD });
    assert_eq!(none.to_string(), "forged/memory: buffer_alloc gave no buffer");
    let lost = with(Answers { status: abi::LOST, ..GOOD });
    // Recovery looks for the device by this name.
    assert_eq!(lost, MemoryError::Lost { device: "Forged".to_owned() });
    let mut buffer = allocate().unwrap();
    ANSWERS.set(Answers { status: abi::FAILED, error: b"parity", ..GOOD });
    let error = buffer.memory().read_bytes(0, &mut [0; 4]).unwrap_err().to_string();
    assert_eq!(error, "forged/memory: parity");
    let error = buffer.memory_mut().write_bytes(0, &[0; 4]).unwrap_err().to_string();
    assert_eq!(error, "forged/memory: parity");
    ANSWERS.set(Answers { status: abi::LOST, ..GOOD });
    let lost = buffer.memory().read_bytes(0, &mut [0; 4]).unwrap_err();
    assert_eq!(lost, MemoryError::Lost { device: "Forged".to_owned() });
    drop(buffer);
    ANSWERS.set(GOOD);
    let host = Answers { flags: abi::HOST_MEMORY, ..GOOD };
    let device = driver(host).unwrap().devices().remove(0);
    let kind = Arc::clone(&device.buffer_types()[0]);
    let error = Buffer::allocate(&kind, 16, Usage::Any).unwrap_err().to_string();
    assert_eq!(error, "forged/memory: buffer_base gave an address that is not aligned");
}

#[test]
fn a_library_is_let_go_with_the_last_that_is_of_it() {
    struct Loaded(Arc<AtomicBool>);
    impl Drop for Loaded {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let gone = Arc::new(AtomicBool::new(false));
    ANSWERS.set(GOOD);
    let loaded = Box::new(Loaded(Arc::clone(&gone)));
    let table = table();
    // SAFETY: the table is one, of functions that are always there.
    let library = unsafe { Library::from_table(Path::new("forged.so"), &raw const table, loaded) };
    let driver = DynamicDriver::of_library(library.unwrap()).unwrap();
    let device = driver.devices().remove(0);
    let is_gone = || gone.load(Ordering::SeqCst);
    drop(driver);
    assert!(!is_gone(), "a device lives");
    let kind = Arc::clone(&device.buffer_types()[0]);
    let backend = device.open(&BackendOptions::default()).unwrap();
    drop(device);
    let buffer = Buffer::allocate(&kind, 16, Usage::Any).unwrap();
    drop(kind);
    let program = backend.compile(&[]).unwrap();
    drop(backend);
    assert!(!is_gone(), "a buffer and a program live");
    drop(buffer);
    assert!(!is_gone(), "a program lives");
    drop(program);
    assert!(is_gone());
}

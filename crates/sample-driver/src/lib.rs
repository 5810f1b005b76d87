//! A driver library as somebody else would write it: one small accelerator with memory of its own.
//!
//! It computes sums, products, scaled tensors and matrix products of f32 by plain loops, and
//! implements every function of `docs/tensoryard_driver.h`. It shares no code with the host.
//! Nothing here may unwind into the host: every function runs inside of `guard`.
#![allow(unsafe_code)]

mod abi;
mod step;

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::abi::{
    TY_ACCELERATOR, TY_CANCELLED, TY_FAILED, TY_MAGIC, TY_NUMBER, TY_OK, TY_OUT_OF_MEMORY,
    TY_PRESENT, TY_UNSUPPORTED, TY_VERSION, TY_WORD, TyBinding, TyBufferTypeInfo, TyDeviceInfo,
    TyDriver, TyError, TyParameter, TyStep, TyTensor, TyText,
};
use crate::step::{Step, Tensor};

/// Why a function did not do its work.
#[derive(Debug)]
struct Failure {
    status: i32,
    reason: String,
}

fn fail<T>(status: i32, reason: &str) -> Result<T, Failure> {
    Err(Failure { status, reason: reason.to_owned() })
}

fn unsupported<T>(reason: &str) -> Result<T, Failure> {
    fail(TY_UNSUPPORTED, reason)
}

/// Turns failures and panics into a status and a text.
///
/// # Safety
/// `error` is a text with room for `capacity` bytes, or null.
unsafe fn guard(error: *mut TyError, work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return TY_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "without a text".to_owned());
            Failure { status: TY_FAILED, reason: format!("panicked: {text}") }
        }
    };
    // SAFETY: as the caller promises.
    if let Some(error) = unsafe { error.as_mut() } {
        let size = failure.reason.len().min(usize::try_from(error.capacity).unwrap_or(0));
        // SAFETY: `size` bytes fit; the reason is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(failure.reason.as_ptr(), error.data, size) };
        error.size = size as u64;
    }
    failure.status
}

/// Writes a result for the host.
///
/// # Safety
/// `to` is a place for it; what is there has no destructor.
unsafe fn give<T>(to: *mut T, value: T) {
    // SAFETY: as the caller promises.
    unsafe { to.write(value) };
}

const fn text(text: &'static str) -> TyText {
    TyText { data: text.as_ptr(), size: text.len() as u64 }
}

/// A text of the host.
///
/// # Safety
/// `data` points to `size` bytes, which live as long as `text`.
unsafe fn read_text(text: &TyText) -> Result<&str, Failure> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { list(text.data, text.size) };
    std::str::from_utf8(bytes).or_else(|_| fail(TY_FAILED, "a text that is not UTF-8"))
}

/// # Safety
/// `data` points to `count` values, which live for `'a`.
unsafe fn list<'a, T>(data: *const T, count: u64) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data, count as usize) }
}

const MEMORY_BYTES: u64 = 64 << 20;

/// Device memory. Words keep it aligned.
struct Buffer(UnsafeCell<Vec<u64>>);

impl Buffer {
    fn bytes(&self) -> *mut u8 {
        // SAFETY: only the address is taken; the vector never grows.
        unsafe { (*self.0.get()).as_mut_ptr().cast() }
    }
}

/// # Safety
/// The handle came from `buffer_alloc` and is not freed during `'a`.
unsafe fn buffer<'a>(handle: *const c_void) -> &'a Buffer {
    // SAFETY: as the caller promises.
    unsafe { &*handle.cast::<Buffer>() }
}

struct Program(Vec<Step>);

unsafe extern "C" fn device_count(count: *mut u64, error: *mut TyError) -> i32 {
    let work = || {
        // SAFETY: the host passes a place for the result.
        unsafe { give(count, 1) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn device_info(_: u64, info: *mut TyDeviceInfo, error: *mut TyError) -> i32 {
    let work = || {
        let found = TyDeviceInfo {
            name: text("Sample"),
            description: text("sample accelerator"),
            id: text("sample:0"),
            kind: TY_ACCELERATOR,
            flags: 0,
            feature_count: 1,
            buffer_type_count: 1,
        };
        // SAFETY: the host passes a place for the result.
        unsafe { give(info, found) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn device_memory(
    _: u64,
    free: *mut u64,
    total: *mut u64,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes a place for the result.
        unsafe { give(free, MEMORY_BYTES) };
        // SAFETY: the host passes a place for the result.
        unsafe { give(total, MEMORY_BYTES) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn device_feature(
    _: u64,
    _: u64,
    name: *mut TyText,
    value: *mut TyText,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes a place for the result.
        unsafe { give(name, text("kernels")) };
        // SAFETY: the host passes a place for the result.
        unsafe { give(value, text("loops")) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_type_info(
    _: u64,
    _: u64,
    info: *mut TyBufferTypeInfo,
    error: *mut TyError,
) -> i32 {
    let work = || {
        let (alignment, max_size) = (32, MEMORY_BYTES);
        let name = text("memory");
        let found = TyBufferTypeInfo { name, alignment, max_size, flags: 0, reserved: 0 };
        // SAFETY: the host passes a place for the result.
        unsafe { give(info, found) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_alloc(
    _: u64,
    _: u64,
    size: u64,
    handle: *mut *mut c_void,
    error: *mut TyError,
) -> i32 {
    let work = || {
        let words = size.div_ceil(8) as usize;
        let mut memory = Vec::new();
        if size > MEMORY_BYTES || memory.try_reserve_exact(words).is_err() {
            return fail(TY_OUT_OF_MEMORY, "the sample accelerator has 64 MiB");
        }
        memory.resize(words, u64::MAX);
        let buffer = Box::into_raw(Box::new(Buffer(UnsafeCell::new(memory))));
        // SAFETY: the host passes a place for the result.
        unsafe { give(handle, buffer.cast()) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_free(handle: *mut c_void, error: *mut TyError) -> i32 {
    let work = || {
        // SAFETY: the buffer came from `buffer_alloc`, and the host frees it once.
        drop(unsafe { Box::from_raw(handle.cast::<Buffer>()) });
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_base(_: *mut c_void, _: *mut *mut c_void, error: *mut TyError) -> i32 {
    let work = || unsupported("the memory is no host memory");
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_read(
    handle: *const c_void,
    offset: u64,
    bytes: *mut c_void,
    size: u64,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes a buffer that it got from `buffer_alloc` and did not free.
        let from = unsafe { buffer(handle) }.bytes().wrapping_add(offset as usize);
        // SAFETY: the host checked the range and has room for it.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.cast(), size as usize) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_write(
    handle: *mut c_void,
    offset: u64,
    bytes: *const c_void,
    size: u64,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes a buffer that it got from `buffer_alloc` and did not free.
        let to = unsafe { buffer(handle) }.bytes().wrapping_add(offset as usize);
        // SAFETY: the host checked the range, and is the only one to use the buffer now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.cast(), to, size as usize) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn buffer_fill(
    handle: *mut c_void,
    offset: u64,
    size: u64,
    byte: u8,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes a buffer that it got from `buffer_alloc` and did not free.
        let to = unsafe { buffer(handle) }.bytes().wrapping_add(offset as usize);
        // SAFETY: as for `buffer_write`.
        unsafe { std::ptr::write_bytes(to, byte, size as usize) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

fn tensor(flat: &TyTensor) -> Result<Tensor, Failure> {
    if flat.flags & TY_PRESENT == 0 {
        return unsupported("an absent operand");
    }
    if flat.dtype != 0 {
        return unsupported("f32 only");
    }
    if flat.nb.iter().any(|stride| !stride.is_multiple_of(4)) {
        return unsupported("strides that are no whole number of elements");
    }
    Ok(Tensor {
        binding: flat.binding as usize,
        offset: flat.offset as usize,
        ne: flat.ne.map(|n| n as usize),
        nb: flat.nb.map(|n| n as usize),
    })
}

/// # Safety
/// The step's texts, lists and destination are the host's: as long as they say, and alive.
unsafe fn read_step(flat: &TyStep) -> Result<Step, Failure> {
    // SAFETY: as the caller promises.
    let parameters = unsafe { list::<TyParameter>(flat.parameters, flat.parameter_count) };
    let (mut word, mut numbers) = (None, Vec::new());
    for parameter in parameters {
        // SAFETY: as the caller promises.
        let name = unsafe { read_text(&parameter.name) }?;
        if parameter.kind == TY_NUMBER {
            numbers.push((name, parameter.number as f32));
        } else if parameter.kind == TY_WORD && word.is_none() {
            // SAFETY: as the caller promises.
            word = Some(unsafe { read_text(&parameter.word) }?);
        }
    }
    let number =
        |name: &str| numbers.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    // SAFETY: as the caller promises; every step has a destination.
    let (op, dst, sources) =
        unsafe { (read_text(&flat.op)?, &*flat.dst, list(flat.sources, flat.source_count)) };
    let op = step::op(op, word, number)?;
    let sources = sources.iter().map(tensor).collect::<Result<_, _>>()?;
    let step = Step { op, dst: tensor(dst)?, sources };
    step.check()?;
    Ok(step)
}

unsafe extern "C" fn supports_op(_: u64, step: *const TyStep, error: *mut TyError) -> i32 {
    // SAFETY: the host passes a step, whose texts and lists are the host's.
    let work = || unsafe { read_step(&*step) }.map(drop);
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn queue_open(_: u64, queue: *mut *mut c_void, error: *mut TyError) -> i32 {
    let work = || {
        // Work is done when it is submitted; a queue only has to be something.
        let opened = Box::into_raw(Box::new(0_u8));
        // SAFETY: the host passes a place for the result.
        unsafe { give(queue, opened.cast()) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn queue_close(queue: *mut c_void, error: *mut TyError) -> i32 {
    let work = || {
        // SAFETY: the queue came from `queue_open`, and the host closes it once.
        drop(unsafe { Box::from_raw(queue.cast::<u8>()) });
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn program_compile(
    _: *mut c_void,
    steps: *const TyStep,
    step_count: u64,
    binding_count: u64,
    program: *mut *mut c_void,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes as many steps.
        let steps: &[TyStep] = unsafe { list(steps, step_count) };
        // SAFETY: their texts and lists are the host's.
        let steps = steps.iter().map(|step| unsafe { read_step(step) });
        let steps: Vec<Step> = steps.collect::<Result<_, _>>()?;
        let tensors = steps.iter().flat_map(|step| step.sources.iter().chain([&step.dst]));
        if tensors.into_iter().any(|tensor| tensor.binding as u64 >= binding_count) {
            return fail(TY_FAILED, "a tensor without a binding");
        }
        let compiled = Box::into_raw(Box::new(Program(steps)));
        // SAFETY: the host passes a place for the result.
        unsafe { give(program, compiled.cast()) };
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn program_free(program: *mut c_void, error: *mut TyError) -> i32 {
    let work = || {
        // SAFETY: the program came from `program_compile`, and the host frees it once.
        drop(unsafe { Box::from_raw(program.cast::<Program>()) });
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn queue_submit(
    _: *mut c_void,
    program: *const c_void,
    bindings: *const TyBinding,
    binding_count: u64,
    abort: *const u8,
    error: *mut TyError,
) -> i32 {
    let work = || {
        // SAFETY: the host passes a program that it got from `program_compile`.
        let Program(steps) = unsafe { &*program.cast::<Program>() };
        // SAFETY: the host passes as many bindings.
        let bindings: &[TyBinding] = unsafe { list(bindings, binding_count) };
        // SAFETY: the flag lives as long as the call, and is only written as a whole byte.
        let abort = unsafe { AtomicU8::from_ptr(abort.cast_mut()) };
        for step in steps {
            for tensor in step.sources.iter().chain([&step.dst]) {
                let fits = bindings.get(tensor.binding).is_some_and(|binding| {
                    let has_memory = !binding.buffer.is_null() || tensor.ne.contains(&0);
                    has_memory && tensor.end() as u64 <= binding.size
                });
                if !fits {
                    return fail(TY_FAILED, "a tensor beyond its binding");
                }
            }
            let address = |binding: usize, at: usize| {
                let binding = &bindings[binding];
                // SAFETY: the host binds buffers that it got from `buffer_alloc` and did not free.
                let bytes = unsafe { buffer(binding.buffer) }.bytes();
                bytes.wrapping_add(binding.offset as usize + at)
            };
            // SAFETY: all elements lie inside of their bindings, which were checked above and
            // which nobody else touches while the program runs.
            let read = |binding, at| unsafe { address(binding, at).cast::<f32>().read_unaligned() };
            // SAFETY: as for reading.
            let write = |binding, at, value| unsafe {
                address(binding, at).cast::<f32>().write_unaligned(value);
            };
            if !step.run(read, write, || abort.load(Ordering::Relaxed) != 0) {
                return fail(TY_CANCELLED, "the abort flag was raised");
            }
        }
        Ok(())
    };
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, work) }
}

unsafe extern "C" fn queue_synchronize(_: *mut c_void, error: *mut TyError) -> i32 {
    // SAFETY: `error` is what the host passed.
    unsafe { guard(error, || Ok(())) }
}

static DRIVER: TyDriver = TyDriver {
    magic: TY_MAGIC,
    version: TY_VERSION,
    size: size_of::<TyDriver>() as u64,
    name: text("sample"),
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

/// The table of this driver.
#[unsafe(no_mangle)]
pub extern "C" fn tensoryard_driver() -> *const TyDriver {
    &raw const DRIVER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_failures_become_texts_that_fit() {
        fn given(error: *mut TyError, work: impl FnOnce() -> Result<(), Failure>) -> i32 {
            // SAFETY: the texts of this test have room, or there is none.
            unsafe { guard(error, work) }
        }
        let mut bytes = [0_u8; 12];
        let mut error = TyError { data: bytes.as_mut_ptr(), capacity: 12, size: 0 };
        assert_eq!(given(&raw mut error, || panic!("oh")), TY_FAILED);
        assert_eq!((error.size, &bytes[..12]), (12, b"panicked: oh".as_slice()));
        assert_eq!(given(&raw mut error, || unsupported("this is far too long")), TY_UNSUPPORTED);
        assert_eq!(&bytes, b"this is far ");
        assert_eq!(given(std::ptr::null_mut(), || fail(TY_CANCELLED, "no")), TY_CANCELLED);
        assert_eq!(given(std::ptr::null_mut(), || Ok(())), TY_OK);
    }

    #[test]
    fn texts_of_the_host_are_checked() {
        let read = |bytes: &'static [u8]| {
            let text = TyText { data: bytes.as_ptr(), size: bytes.len() as u64 };
            // SAFETY: the text is that long.
            let read = unsafe { read_text(&text) };
            read.map(str::to_owned).map_err(|failure| failure.reason)
        };
        assert_eq!(read(b"scale").as_deref(), Ok("scale"));
        assert_eq!(read(b"").as_deref(), Ok(""));
        assert_eq!(read(b"\xff\xfe").unwrap_err(), "a text that is not UTF-8");
    }
}

//! A driver library as somebody else would write it: one small accelerator with memory of its own.
//!
//! It computes sums, products, scaled tensors and matrix products of f32 by plain loops, and
//! implements every function of `docs/tensoryard_driver.h`. It shares no code with the host.
//! Nothing here may unwind into the host: every function runs inside of [`guard`].
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
fn guard(error: *mut TyError, work: impl FnOnce() -> Result<(), Failure>) -> i32 {
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
    // SAFETY: the host passes a text with room for `capacity` bytes, or nothing.
    if let Some(error) = unsafe { error.as_mut() } {
        let size = failure.reason.len().min(usize::try_from(error.capacity).unwrap_or(0));
        // SAFETY: `size` bytes fit; the reason is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(failure.reason.as_ptr(), error.data, size) };
        error.size = size as u64;
    }
    failure.status
}

/// Writes a result for the host.
fn give<T>(to: *mut T, value: T) {
    // SAFETY: the host passes a place for every result; what is there has no destructor.
    unsafe { to.write(value) };
}

const fn text(text: &'static str) -> TyText {
    TyText { data: text.as_ptr(), size: text.len() as u64 }
}

/// A text of the host.
fn read_text(text: &TyText) -> &str {
    if text.size == 0 {
        return "";
    }
    // SAFETY: the host's texts are that long, are UTF-8, and live as long as the call.
    unsafe {
        std::str::from_utf8_unchecked(std::slice::from_raw_parts(text.data, text.size as usize))
    }
}

fn list<'a, T>(data: *const T, count: u64) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the host's arrays are that long and live as long as the call.
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

fn buffer<'a>(handle: *const c_void) -> &'a Buffer {
    // SAFETY: the host passes buffers that it got from `buffer_alloc` and did not free.
    unsafe { &*handle.cast::<Buffer>() }
}

struct Program(Vec<Step>);

extern "C" fn device_count(count: *mut u64, error: *mut TyError) -> i32 {
    guard(error, || {
        give(count, 1);
        Ok(())
    })
}

extern "C" fn device_info(_: u64, info: *mut TyDeviceInfo, error: *mut TyError) -> i32 {
    guard(error, || {
        give(
            info,
            TyDeviceInfo {
                name: text("Sample"),
                description: text("sample accelerator"),
                id: text("sample:0"),
                kind: TY_ACCELERATOR,
                flags: 0,
                feature_count: 1,
                buffer_type_count: 1,
            },
        );
        Ok(())
    })
}

extern "C" fn device_memory(_: u64, free: *mut u64, total: *mut u64, error: *mut TyError) -> i32 {
    guard(error, || {
        give(free, MEMORY_BYTES);
        give(total, MEMORY_BYTES);
        Ok(())
    })
}

extern "C" fn device_feature(
    _: u64,
    _: u64,
    name: *mut TyText,
    value: *mut TyText,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        give(name, text("kernels"));
        give(value, text("loops"));
        Ok(())
    })
}

extern "C" fn buffer_type_info(
    _: u64,
    _: u64,
    info: *mut TyBufferTypeInfo,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        let (alignment, max_size) = (32, MEMORY_BYTES);
        let name = text("memory");
        give(info, TyBufferTypeInfo { name, alignment, max_size, flags: 0, reserved: 0 });
        Ok(())
    })
}

extern "C" fn buffer_alloc(
    _: u64,
    _: u64,
    size: u64,
    handle: *mut *mut c_void,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        let words = size.div_ceil(8) as usize;
        let mut memory = Vec::new();
        if size > MEMORY_BYTES || memory.try_reserve_exact(words).is_err() {
            return fail(TY_OUT_OF_MEMORY, "the sample accelerator has 64 MiB");
        }
        memory.resize(words, u64::MAX);
        give(handle, Box::into_raw(Box::new(Buffer(UnsafeCell::new(memory)))).cast());
        Ok(())
    })
}

extern "C" fn buffer_free(handle: *mut c_void, error: *mut TyError) -> i32 {
    guard(error, || {
        // SAFETY: the buffer came from `buffer_alloc`, and the host frees it once.
        drop(unsafe { Box::from_raw(handle.cast::<Buffer>()) });
        Ok(())
    })
}

extern "C" fn buffer_base(_: *mut c_void, _: *mut *mut c_void, error: *mut TyError) -> i32 {
    guard(error, || unsupported("the memory is no host memory"))
}

extern "C" fn buffer_read(
    handle: *const c_void,
    offset: u64,
    bytes: *mut c_void,
    size: u64,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        let from = buffer(handle).bytes().wrapping_add(offset as usize);
        // SAFETY: the host checked the range and has room for it.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.cast(), size as usize) };
        Ok(())
    })
}

extern "C" fn buffer_write(
    handle: *mut c_void,
    offset: u64,
    bytes: *const c_void,
    size: u64,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        let to = buffer(handle).bytes().wrapping_add(offset as usize);
        // SAFETY: the host checked the range, and is the only one to use the buffer now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.cast(), to, size as usize) };
        Ok(())
    })
}

extern "C" fn buffer_fill(
    handle: *mut c_void,
    offset: u64,
    size: u64,
    byte: u8,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        let to = buffer(handle).bytes().wrapping_add(offset as usize);
        // SAFETY: as for `buffer_write`.
        unsafe { std::ptr::write_bytes(to, byte, size as usize) };
        Ok(())
    })
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

fn read_step(flat: &TyStep) -> Result<Step, Failure> {
    let parameters = list::<TyParameter>(flat.parameters, flat.parameter_count);
    let word = parameters.iter().find(|p| p.kind == TY_WORD).map(|p| read_text(&p.word));
    let number = |name: &str| {
        let mut found = parameters.iter().filter(|p| p.kind == TY_NUMBER);
        found.find(|p| read_text(&p.name) == name).map(|p| p.number as f32)
    };
    let op = step::op(read_text(&flat.op), word, number)?;
    // SAFETY: every step has a destination.
    let dst = tensor(unsafe { &*flat.dst })?;
    let sources = list(flat.sources, flat.source_count).iter().map(tensor);
    let step = Step { op, dst, sources: sources.collect::<Result<_, _>>()? };
    step.check()?;
    Ok(step)
}

extern "C" fn supports_op(_: u64, step: *const TyStep, error: *mut TyError) -> i32 {
    // SAFETY: the host passes a step.
    guard(error, || read_step(unsafe { &*step }).map(drop))
}

extern "C" fn queue_open(_: u64, queue: *mut *mut c_void, error: *mut TyError) -> i32 {
    guard(error, || {
        // Work is done when it is submitted; a queue only has to be something.
        give(queue, Box::into_raw(Box::new(0_u8)).cast());
        Ok(())
    })
}

extern "C" fn queue_close(queue: *mut c_void, error: *mut TyError) -> i32 {
    guard(error, || {
        // SAFETY: the queue came from `queue_open`, and the host closes it once.
        drop(unsafe { Box::from_raw(queue.cast::<u8>()) });
        Ok(())
    })
}

extern "C" fn program_compile(
    _: *mut c_void,
    steps: *const TyStep,
    step_count: u64,
    binding_count: u64,
    program: *mut *mut c_void,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        let steps: Vec<Step> =
            list(steps, step_count).iter().map(read_step).collect::<Result<_, _>>()?;
        let tensors = steps.iter().flat_map(|step| step.sources.iter().chain([&step.dst]));
        if tensors.into_iter().any(|tensor| tensor.binding as u64 >= binding_count) {
            return fail(TY_FAILED, "a tensor without a binding");
        }
        give(program, Box::into_raw(Box::new(Program(steps))).cast());
        Ok(())
    })
}

extern "C" fn program_free(program: *mut c_void, error: *mut TyError) -> i32 {
    guard(error, || {
        // SAFETY: the program came from `program_compile`, and the host frees it once.
        drop(unsafe { Box::from_raw(program.cast::<Program>()) });
        Ok(())
    })
}

extern "C" fn queue_submit(
    _: *mut c_void,
    program: *const c_void,
    bindings: *const TyBinding,
    binding_count: u64,
    abort: *const u8,
    error: *mut TyError,
) -> i32 {
    guard(error, || {
        // SAFETY: the host passes a program that it got from `program_compile`.
        let Program(steps) = unsafe { &*program.cast::<Program>() };
        let bindings = list(bindings, binding_count);
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
                buffer(binding.buffer).bytes().wrapping_add(binding.offset as usize + at)
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
    })
}

extern "C" fn queue_synchronize(_: *mut c_void, error: *mut TyError) -> i32 {
    guard(error, || Ok(()))
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
        let mut bytes = [0_u8; 12];
        let mut error = TyError { data: bytes.as_mut_ptr(), capacity: 12, size: 0 };
        assert_eq!(guard(&raw mut error, || panic!("oh")), TY_FAILED);
        assert_eq!((error.size, &bytes[..12]), (12, b"panicked: oh".as_slice()));
        assert_eq!(guard(&raw mut error, || unsupported("this is far too long")), TY_UNSUPPORTED);
        assert_eq!(&bytes, b"this is far ");
        assert_eq!(guard(std::ptr::null_mut(), || fail(TY_CANCELLED, "no")), TY_CANCELLED);
        assert_eq!(guard(std::ptr::null_mut(), || Ok(())), TY_OK);
    }
}

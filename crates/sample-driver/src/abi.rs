//! The structures of `docs/tensoryard_driver.h`, written out once more.
//!
//! This crate shares no code with the host, as a driver of somebody else would not; what both
//! agree on is the header alone.

use std::ffi::c_void;

pub const TY_MAGIC: u32 = 0x5244_5954;
pub const TY_VERSION: u32 = 1;

pub const TY_OK: i32 = 0;
pub const TY_FAILED: i32 = 1;
pub const TY_OUT_OF_MEMORY: i32 = 2;
pub const TY_UNSUPPORTED: i32 = 3;
pub const TY_CANCELLED: i32 = 4;

pub const TY_ACCELERATOR: u32 = 3;
pub const TY_NUMBER: u32 = 1;
pub const TY_WORD: u32 = 2;
pub const TY_PRESENT: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct TyText {
    pub data: *const u8,
    pub size: u64,
}

#[repr(C)]
pub struct TyError {
    pub data: *mut u8,
    pub capacity: u64,
    pub size: u64,
}

#[repr(C)]
pub struct TyDeviceInfo {
    pub name: TyText,
    pub description: TyText,
    pub id: TyText,
    pub kind: u32,
    pub flags: u32,
    pub feature_count: u64,
    pub buffer_type_count: u64,
}

#[repr(C)]
pub struct TyBufferTypeInfo {
    pub name: TyText,
    pub alignment: u64,
    pub max_size: u64,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct TyParameter {
    pub name: TyText,
    pub kind: u32,
    pub reserved: u32,
    pub integer: i64,
    pub number: f64,
    pub word: TyText,
}

#[repr(C)]
pub struct TyTensor {
    pub flags: u32,
    pub dtype: u32,
    pub ne: [u64; 4],
    pub nb: [u64; 4],
    pub offset: u64,
    pub binding: u32,
    pub reserved: u32,
    pub buffer_type: TyText,
}

#[repr(C)]
pub struct TyStep {
    pub name: TyText,
    pub op: TyText,
    pub parameters: *const TyParameter,
    pub parameter_count: u64,
    pub dst: *const TyTensor,
    pub sources: *const TyTensor,
    pub source_count: u64,
}

#[repr(C)]
pub struct TyBinding {
    pub buffer: *mut c_void,
    pub host: *mut c_void,
    pub offset: u64,
    pub size: u64,
    pub is_written: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct TyDriver {
    pub magic: u32,
    pub version: u32,
    pub size: u64,
    pub name: TyText,
    pub device_count: unsafe extern "C" fn(*mut u64, *mut TyError) -> i32,
    pub device_info: unsafe extern "C" fn(u64, *mut TyDeviceInfo, *mut TyError) -> i32,
    pub device_memory: unsafe extern "C" fn(u64, *mut u64, *mut u64, *mut TyError) -> i32,
    pub device_feature:
        unsafe extern "C" fn(u64, u64, *mut TyText, *mut TyText, *mut TyError) -> i32,
    pub buffer_type_info:
        unsafe extern "C" fn(u64, u64, *mut TyBufferTypeInfo, *mut TyError) -> i32,
    pub buffer_alloc: unsafe extern "C" fn(u64, u64, u64, *mut *mut c_void, *mut TyError) -> i32,
    pub buffer_free: unsafe extern "C" fn(*mut c_void, *mut TyError) -> i32,
    pub buffer_base: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut TyError) -> i32,
    pub buffer_read:
        unsafe extern "C" fn(*const c_void, u64, *mut c_void, u64, *mut TyError) -> i32,
    pub buffer_write:
        unsafe extern "C" fn(*mut c_void, u64, *const c_void, u64, *mut TyError) -> i32,
    pub buffer_fill: unsafe extern "C" fn(*mut c_void, u64, u64, u8, *mut TyError) -> i32,
    pub supports_op: unsafe extern "C" fn(u64, *const TyStep, *mut TyError) -> i32,
    pub queue_open: unsafe extern "C" fn(u64, *mut *mut c_void, *mut TyError) -> i32,
    pub queue_close: unsafe extern "C" fn(*mut c_void, *mut TyError) -> i32,
    pub program_compile: unsafe extern "C" fn(
        *mut c_void,
        *const TyStep,
        u64,
        u64,
        *mut *mut c_void,
        *mut TyError,
    ) -> i32,
    pub program_free: unsafe extern "C" fn(*mut c_void, *mut TyError) -> i32,
    pub queue_submit: unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        *const TyBinding,
        u64,
        *const u8,
        *mut TyError,
    ) -> i32,
    pub queue_synchronize: unsafe extern "C" fn(*mut c_void, *mut TyError) -> i32,
}

// SAFETY: the table points to constants and functions only.
unsafe impl Sync for TyDriver {}

//! The C table of a driver as `docs/tensoryard_driver.h` defines it, version 1.
//!
//! Nothing here interprets what a driver says: [`crate::library`] checks it. Types stand for the
//! structures of the header under their names without prefix, field for field.

use std::ffi::c_void;

pub const MAGIC: u32 = 0x5244_5954;
pub const VERSION: u32 = 1;

pub const OK: i32 = 0;
pub const FAILED: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const UNSUPPORTED: i32 = 3;
pub const CANCELLED: i32 = 4;
pub const LOST: i32 = 5;

pub const CPU: u32 = 0;
pub const GPU: u32 = 1;
pub const INTEGRATED_GPU: u32 = 2;
pub const ACCELERATOR: u32 = 3;

pub const READS_HOST_MEMORY: u32 = 1;
pub const HOST_MEMORY: u32 = 1;

pub const INTEGER: u32 = 0;
pub const NUMBER: u32 = 1;
pub const WORD: u32 = 2;
pub const TYPE: u32 = 3;

pub const PRESENT: u32 = 1;
pub const SAME_AS_DST: u32 = 2;
pub const NO_BINDING: u32 = u32::MAX;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Text {
    pub data: *const u8,
    pub size: u64,
}

impl Text {
    pub const EMPTY: Self = Self { data: std::ptr::null(), size: 0 };

    /// A text that lives at least as long as the call that it is given to.
    pub fn lend(text: &str) -> Self {
        Self { data: text.as_ptr(), size: text.len() as u64 }
    }
}

#[repr(C)]
#[derive(Debug)]
pub struct ErrorText {
    pub data: *mut u8,
    pub capacity: u64,
    pub size: u64,
}

#[repr(C)]
pub struct Buffer([u8; 0]);
#[repr(C)]
pub struct Queue([u8; 0]);
#[repr(C)]
pub struct Program([u8; 0]);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceInfo {
    pub name: Text,
    pub description: Text,
    pub id: Text,
    pub kind: u32,
    pub flags: u32,
    pub feature_count: u64,
    pub buffer_type_count: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BufferTypeInfo {
    pub name: Text,
    pub alignment: u64,
    pub max_size: u64,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: Text,
    pub kind: u32,
    pub reserved: u32,
    pub integer: i64,
    pub number: f64,
    pub word: Text,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    pub flags: u32,
    pub dtype: u32,
    pub ne: [u64; 4],
    pub nb: [u64; 4],
    pub offset: u64,
    pub binding: u32,
    pub reserved: u32,
    pub buffer_type: Text,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub name: Text,
    pub op: Text,
    pub parameters: *const Parameter,
    pub parameter_count: u64,
    pub dst: *const Tensor,
    pub sources: *const Tensor,
    pub source_count: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    pub buffer: *mut Buffer,
    pub host: *mut c_void,
    pub offset: u64,
    pub size: u64,
    pub is_written: u32,
    pub reserved: u32,
}

/// What stands before the functions in every version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Header {
    pub magic: u32,
    pub version: u32,
    pub size: u64,
}

macro_rules! table {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The table with functions that may be missing.
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct Table {
            pub header: Header,
            pub name: Text,
            $(pub $name: Option<unsafe extern "C" fn($($argument,)* *mut ErrorText) -> i32>,)*
        }

        /// The functions of a table that has them all.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument,)* *mut ErrorText) -> i32,)*
        }

        impl Table {
            /// A table of these functions.
            #[cfg(test)]
            pub fn new(header: Header, name: Text, functions: Functions) -> Self {
                Self { header, name, $($name: Some(functions.$name),)* }
            }

            /// All functions, or the name of the first that is missing.
            pub fn functions(&self) -> Result<Functions, &'static str> {
                Ok(Functions { $($name: self.$name.ok_or(stringify!($name))?,)* })
            }
        }
    };
}

table! {
    device_count(*mut u64);
    device_info(u64, *mut DeviceInfo);
    device_memory(u64, *mut u64, *mut u64);
    device_feature(u64, u64, *mut Text, *mut Text);
    buffer_type_info(u64, u64, *mut BufferTypeInfo);
    buffer_alloc(u64, u64, u64, *mut *mut Buffer);
    buffer_free(*mut Buffer);
    buffer_base(*mut Buffer, *mut *mut c_void);
    buffer_read(*const Buffer, u64, *mut c_void, u64);
    buffer_write(*mut Buffer, u64, *const c_void, u64);
    buffer_fill(*mut Buffer, u64, u64, u8);
    supports_op(u64, *const Step);
    queue_open(u64, *mut *mut Queue);
    queue_close(*mut Queue);
    program_compile(*mut Queue, *const Step, u64, u64, *mut *mut Program);
    program_free(*mut Program);
    queue_submit(*mut Queue, *const Program, *const Binding, u64, *const u8);
    queue_synchronize(*mut Queue);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_header() {
        let sizes = [
            size_of::<Text>(),
            size_of::<ErrorText>(),
            size_of::<DeviceInfo>(),
            size_of::<BufferTypeInfo>(),
            size_of::<Parameter>(),
            size_of::<Tensor>(),
            size_of::<Step>(),
            size_of::<Binding>(),
            size_of::<Table>(),
        ];
        // Counted by hand from the fields; the compiler must have added nothing.
        assert_eq!(sizes, [16, 24, 72, 40, 56, 104, 72, 40, 32 + 18 * 8]);
    }
}

//! What the CPU computes.
//!
//! Row kernels take slices; matrix kernels take packed panels, views of rows
//! and a window of the result that the caller owns. Every kernel has a scalar
//! form that states what it computes and a vector form compiled for each
//! instruction-set level. Lengths that do not match are bugs of the caller
//! and panic. Kernels never allocate: where they need scratch memory, a
//! function beside them says how much.

pub mod attention;
pub mod convert;
pub mod elementwise;
pub mod mat_mul;
pub mod norm;
pub mod rows;
pub mod soft_max;
pub mod unary;

#[cfg(test)]
pub(crate) mod testing;

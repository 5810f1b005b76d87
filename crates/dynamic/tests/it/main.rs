//! Tests of drivers in shared libraries, with the sample driver as one.

#![allow(clippy::unwrap_used, unsafe_code, reason = "tests fail by panicking, and load libraries")]

mod load;
mod sample;
mod support;

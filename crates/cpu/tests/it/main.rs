//! Tests of the CPU device from outside.

#![allow(clippy::unwrap_used, reason = "a test that fails here has found its fault")]

mod abort;
mod compare;
mod conformance;
mod device;
mod limits;
mod memory;
mod queue;

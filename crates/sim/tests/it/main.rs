//! Tests of simulated devices, and of everything that needs devices that work on their own.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod conformance;
mod copies;
mod device;
mod failures;
mod growth;
mod observed;
mod queue;
mod random;
mod recovery;
mod runs;
mod support;
mod survive;
mod tensors;
mod time;
mod unchanged;

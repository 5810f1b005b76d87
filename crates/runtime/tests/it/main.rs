//! Tests of planning and execution on reference devices.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests fail by panicking")]

mod allocate;
mod assign;
mod cases;
mod cost;
mod limits;
mod pins;
mod place;
mod policy;
mod predict;
mod random;
mod registry;
mod select;
mod session;
mod split;
mod support;
mod verify;
mod weights;

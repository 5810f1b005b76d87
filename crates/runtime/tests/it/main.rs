//! Tests of planning and execution on reference devices.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests fail by panicking")]

mod allocate;
mod arrivals;
mod assign;
mod buffers;
mod calibrate;
mod cases;
mod cases_plan;
mod compare;
mod cost;
mod greedy;
mod limits;
mod many;
mod observed;
mod offload;
mod pins;
mod place;
mod policy;
mod predict;
mod queue;
mod random;
mod registry;
mod select;
mod session;
mod split;
mod staged;
mod support;
mod tensor_data;
mod tensor_queue;
mod verify;
mod watched;
mod weights;

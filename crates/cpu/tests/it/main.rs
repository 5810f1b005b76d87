//! Tests of the CPU device from outside.

mod conformance;

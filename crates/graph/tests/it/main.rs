//! Tests of building graphs: what is refused and where, versions, text, fingerprints.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod builder;
mod data;
mod rules;
mod versions;
mod views;

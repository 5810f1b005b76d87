//! The suite judged by devices whose answers are known.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod suite;

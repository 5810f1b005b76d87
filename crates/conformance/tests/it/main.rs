//! The suite judged by devices whose answers are known.

mod suite;

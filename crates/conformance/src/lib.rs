//! Conformance cases for backends, judged by an f64 oracle.

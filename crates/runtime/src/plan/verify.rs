//! The plan verifier.

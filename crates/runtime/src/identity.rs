//! Tokens that tell values apart.

use std::sync::Arc;

/// An address of its own, and nothing else: equal only to itself for as long as anybody
/// remembers it.
#[derive(Debug)]
pub(crate) struct Identity {
    // Not of size zero: allocations of nothing may share an address.
    _byte: u8,
}

impl Identity {
    /// A token unlike all others.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { _byte: 0 })
    }
}

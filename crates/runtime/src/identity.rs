//! Tokens that tell values apart.

use std::sync::Arc;

/// Equal to its clones and to nothing else, for as long as anybody remembers it.
#[derive(Debug, Clone)]
pub(crate) struct Identity(
    // Not of size zero: allocations of nothing may share an address.
    Arc<u8>,
);

impl Default for Identity {
    fn default() -> Self {
        Self(Arc::new(0))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Identity {}

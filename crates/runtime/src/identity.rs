//! Tokens that tell values apart.

use std::sync::{Arc, Weak};

/// Equal to its clones and to nothing else, for as long as anybody remembers it.
#[derive(Debug, Clone)]
pub(crate) struct Identity(
    // Not of size zero: allocations of nothing may share an address.
    Arc<u8>,
);

impl Identity {
    /// Stands for the value without keeping its memory from being told gone.
    pub fn downgrade(&self) -> WeakIdentity {
        WeakIdentity(Arc::downgrade(&self.0))
    }
}

/// An identity that says whether the value is still there.
#[derive(Debug, Clone)]
pub(crate) struct WeakIdentity(Weak<u8>);

impl WeakIdentity {
    /// Whether this stands for the value of an identity.
    pub fn is(&self, identity: &Identity) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&identity.0))
    }

    /// Whether nobody remembers the value.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

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

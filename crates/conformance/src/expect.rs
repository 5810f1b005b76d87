//! Cases that a backend is known to fail, each with its reason.
//!
//! One that passes is an error, so that the list never outlives its reasons.

/// A family of cases that fail for a known reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Text that the names of the cases contain.
    pub name_contains: &'static str,
    /// Why they fail.
    pub reason: &'static str,
}

impl Expectation {
    /// Whether a case belongs to the family.
    pub fn covers(&self, name: &str) -> bool {
        name.contains(self.name_contains)
    }
}

/// The first expectation that covers a case.
pub fn find<'a>(expectations: &'a [Expectation], name: &str) -> Option<&'a Expectation> {
    expectations.iter().find(|expectation| expectation.covers(name))
}

//! Typed ids of a graph's tensors and dense maps keyed by them.
//!
//! An id is an index into the arena of one graph. Ids grow in the order in
//! which the builder made the tensors, so sources always have smaller ids.

use std::fmt;
use std::ops::{Index, IndexMut};

/// A tensor of one graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(u32);

impl TensorId {
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Position in the arena of the graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A value for every tensor of one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap<T>(Vec<T>);

impl<T: Clone> TensorMap<T> {
    /// `value` for each of `len` tensors.
    pub fn filled(value: T, len: usize) -> Self {
        Self(vec![value; len])
    }
}

impl<T> TensorMap<T> {
    /// Pairs of id and value in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (TensorId, &T)> {
        self.0.iter().enumerate().map(|(index, value)| (TensorId::from_index(index), value))
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the graph has no tensors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Index<TensorId> for TensorMap<T> {
    type Output = T;
    fn index(&self, id: TensorId) -> &T {
        &self.0[id.index()]
    }
}

impl<T> IndexMut<TensorId> for TensorMap<T> {
    fn index_mut(&mut self, id: TensorId) -> &mut T {
        &mut self.0[id.index()]
    }
}

//! Immutable compute graphs and the operations in them.

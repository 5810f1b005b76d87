//! The `tensoryard` program.

fn main() {}

//! Small graphs made in place, for tests that are about one thing.

use std::sync::Arc;

use tensoryard_graph::{Graph, GraphBuilder};

/// The graph that `make` declares.
///
/// # Panics
/// The graph is none.
pub fn build(name: &str, make: impl FnOnce(&GraphBuilder)) -> Arc<Graph> {
    let builder = GraphBuilder::new(name);
    make(&builder);
    match builder.finish() {
        Ok(graph) => Arc::new(graph),
        Err(error) => panic!("{name}: {error}"),
    }
}

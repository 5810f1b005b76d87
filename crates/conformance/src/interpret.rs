//! Whole graphs by the oracle, node by node: no placement, no reuse, no fusion.
//!
//! Every root has memory of its own. What a plan computes on any devices must
//! agree with this.

use std::collections::HashMap;

use tensoryard_graph::{Graph, Origin, TensorId};

use crate::oracle::{Dense, OracleError, compute};

/// The memory of a graph after it was interpreted.
#[derive(Debug, Clone)]
pub struct Interpretation {
    /// Bytes of each root that has any, by id.
    memory: HashMap<TensorId, Vec<u8>>,
}

impl Interpretation {
    /// The elements that a live tensor has at the end.
    pub fn tensor(&self, graph: &Graph, id: TensorId) -> Option<Dense> {
        let bytes = self.memory.get(&graph.root(id))?;
        let layout = graph.layout(id);
        let start = graph.root_offset(id);
        Some(Dense::gather(layout, &bytes[start..start + layout.extent_bytes()]))
    }

    /// The bytes of a live leaf at the end.
    pub fn leaf(&self, graph: &Graph, name: &str) -> Option<&[u8]> {
        self.memory.get(&graph.leaf(name)?).map(Vec::as_slice)
    }
}

/// Computes every live node of the graph. `leaf` gives the contiguous bytes of leaves by name.
///
/// # Errors
/// An id outside its table, or a leaf without bytes.
pub fn interpret(
    graph: &Graph,
    leaf: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<Interpretation, OracleError> {
    let mut memory: HashMap<TensorId, Vec<u8>> = HashMap::new();
    for id in graph.ids().filter(|&id| graph.is_live(id)) {
        let desc = graph.tensor(id);
        let op = match &desc.origin {
            Origin::Weight | Origin::State | Origin::Input => {
                let bytes = leaf(&desc.name)
                    .filter(|bytes| bytes.len() == desc.layout.data_bytes())
                    .ok_or(OracleError::Operands("a leaf has no bytes, or too few"))?;
                memory.insert(id, bytes);
                continue;
            }
            Origin::Op(op) if op.is_view() => continue,
            Origin::Op(op) => op,
        };
        let read = |id: TensorId| {
            let bytes = &memory[&graph.root(id)];
            let layout = graph.layout(id);
            let start = graph.root_offset(id);
            Dense::gather(layout, &bytes[start..start + layout.extent_bytes()])
        };
        let sources: Vec<Option<Dense>> =
            desc.sources.iter().map(|source| source.map(read)).collect();
        let values = compute(op, &sources, &desc.layout)?;
        let bytes =
            memory.entry(graph.root(id)).or_insert_with(|| vec![0; desc.layout.extent_bytes()]);
        let start = graph.root_offset(id);
        Dense::scatter(
            &values,
            &desc.layout,
            &mut bytes[start..start + desc.layout.extent_bytes()],
        );
    }
    Ok(Interpretation { memory })
}

//! The parts of a model, found in the names of its weights.
//!
//! Most nodes have no name of their own. An operation belongs to the part that
//! its weight is named after; one without weights to the part before it.

use tensoryard_graph::{Graph, Op, Origin, TensorId};

/// Where an operation stands in the model: the parts from the outside in, and a name inside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) group: Vec<String>,
    pub(super) label: String,
}

/// The parts of operations, given the nodes that each computes.
pub(super) fn parts<'a>(
    graph: &Graph,
    operations: impl Iterator<Item = &'a [TensorId]>,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut unnamed_so_far = 0;
    let mut group: Option<Vec<String>> = None;
    for nodes in operations {
        let named = nodes.iter().find_map(|&node| named_after(graph, node));
        let label = nodes.last().map_or("temporary", |&node| word_of(graph, node)).to_owned();
        match named {
            Some(mut path) => {
                let name = path.pop().unwrap_or(label);
                // What stands before the first named part belongs to it.
                if group.is_none() {
                    for part in &mut parts[..unnamed_so_far] {
                        part.group.clone_from(&path);
                    }
                }
                group = Some(path.clone());
                parts.push(Part { group: path, label: name });
            }
            None => {
                unnamed_so_far += usize::from(group.is_none());
                let label = state_of(graph, nodes).unwrap_or(label);
                parts.push(Part { group: group.clone().unwrap_or_default(), label });
            }
        }
    }
    parts
}

/// The op of a node in one word: for arithmetic and functions, which.
pub(super) fn word_of(graph: &Graph, node: TensorId) -> &'static str {
    match graph.tensor(node).op() {
        Some(Op::Binary(op)) => op.kind.name(),
        Some(Op::Unary(op)) => op.kind.name(),
        Some(op) => op.name(),
        None => "leaf",
    }
}

/// The path in the name of the first weight that the node reads, or in its own if it was given one.
fn named_after(graph: &Graph, node: TensorId) -> Option<Vec<String>> {
    let desc = graph.tensor(node);
    let roots = desc.present_sources().map(|source| graph.tensor(graph.root(source)));
    let weight = roots.into_iter().find(|root| root.origin == Origin::Weight);
    let name = weight.map_or(&desc.name, |weight| &weight.name);
    let given = weight.is_some() || (desc.name.contains('.') && !is_automatic(graph, node));
    given.then(|| path(name))
}

/// The state tensor that an operation writes.
fn state_of(graph: &Graph, nodes: &[TensorId]) -> Option<String> {
    let root = graph.tensor(graph.root(*nodes.last()?));
    (root.origin == Origin::State).then(|| root.name.clone())
}

fn is_automatic(graph: &Graph, node: TensorId) -> bool {
    let desc = graph.tensor(node);
    let Some(op) = desc.op() else { return false };
    desc.name == format!("{}.{}", op.name(), node.index())
}

/// `encoder.blocks.0.mlp.2.weight` becomes `encoder`, `blocks.0`, `mlp.2`.
fn path(name: &str) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for word in name.split('.') {
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        match path.last_mut() {
            Some(last) if is_number => {
                last.push('.');
                last.push_str(word);
            }
            Some(_) | None => path.push(word.to_owned()),
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "weight" || last == "bias") {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use tensoryard_graph::{DType, GraphBuilder};

    use super::*;

    #[test]
    fn numbers_belong_to_the_word_before() {
        assert_eq!(path("encoder.blocks.0.mlp.2.weight"), ["encoder", "blocks.0", "mlp.2"]);
        assert_eq!(path("decoder.positional_embedding"), ["decoder", "positional_embedding"]);
        assert_eq!(path("weight"), ["weight"]);
        assert_eq!(path("0.weight"), ["0"]);
        assert_eq!(path(""), [""]);
        assert_eq!(path("a..1"), ["a", ".1"]);
    }

    #[test]
    fn operations_without_weights_belong_to_the_part_before_them() {
        let g = GraphBuilder::new("parts");
        let x = g.input("x", DType::F32, [4, 2]).scale(2.0, 0.0);
        let y = g.weight("block.0.up.weight", DType::F32, [4, 4]).mul_mat(x);
        let z = y.gelu_erf();
        let w = g.weight("block.1.norm.bias", DType::F32, [4]);
        let a = z.add(w).output("a");
        let ids = [x, y, z, a].map(|tensor| vec![tensor.id()]);
        let graph = g.finish().unwrap();
        let parts = parts(&graph, ids.iter().map(Vec::as_slice));
        let shown: Vec<_> =
            parts.iter().map(|part| format!("{} > {}", part.group.join("/"), part.label)).collect();
        assert_eq!(
            shown,
            ["block.0 > scale", "block.0 > up", "block.0 > gelu_erf", "block.1 > norm"]
        );
    }
}

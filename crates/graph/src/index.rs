//! Dense tables over a finished graph, for passes that walk all of it.
//!
//! A [`TensorDesc`] is what people and errors need and spans several cache lines. A pass over
//! thousands of nodes needs a few integers of each: who computes, what it reads, whose memory
//! that is, and whether two nodes are alike. Made once with the graph and never changed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::{Layout, TensorDesc, TensorId, TensorMap};

/// A live tensor that an op computes or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The tensor.
    pub id: TensorId,
    /// The tensor that owns its memory: itself, unless the op writes into another one.
    pub root: TensorId,
    /// Nodes of one class have ops of one kind, parameters aside, operands of the same layouts
    /// and results of the same layout.
    pub class: u32,
    /// The operand that the op writes into.
    pub written: Option<u8>,
    first_source: u32,
    sources: u32,
}

/// An operand of a [`Node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The tensor.
    pub id: TensorId,
    /// The tensor that owns its memory.
    pub root: TensorId,
}

#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) nodes: Vec<Node>,
    pub(crate) views: Vec<TensorId>,
    pub(crate) leaves: Vec<TensorId>,
    pub(crate) outputs: Vec<TensorId>,
    pub(crate) roots: TensorMap<TensorId>,
    pub(crate) layouts: TensorMap<u32>,
    pub(crate) n_layouts: usize,
    sources: Vec<Option<Source>>,
}

impl Index {
    pub(crate) fn new(tensors: &[TensorDesc], live: &TensorMap<bool>) -> Self {
        let mut classes = Classes::default();
        let zero = TensorId::from_index(0);
        let mut index = Self {
            nodes: Vec::new(),
            views: Vec::new(),
            leaves: Vec::new(),
            outputs: Vec::new(),
            roots: TensorMap::filled(zero, tensors.len()),
            layouts: TensorMap::filled(0, tensors.len()),
            n_layouts: 0,
            sources: Vec::new(),
        };
        for (position, desc) in tensors.iter().enumerate() {
            let id = TensorId::from_index(position);
            let root = desc.view.map_or(id, |view| view.root);
            index.roots[id] = root;
            index.layouts[id] = classes.layout(&desc.layout);
            if desc.output {
                index.outputs.push(id);
            }
            if !live[id] {
                continue;
            }
            let Some(op) = desc.op() else {
                index.leaves.push(id);
                continue;
            };
            if op.is_view() {
                index.views.push(id);
                continue;
            }
            let first_source = index.sources.len();
            for source in &desc.sources {
                let source = source.map(|id| Source { id, root: index.roots[id] });
                index.sources.push(source);
            }
            let sources = desc.sources.iter().map(|id| id.map(|id| index.layouts[id]));
            index.nodes.push(Node {
                id,
                root,
                class: classes.op(op.kind() as u32, index.layouts[id], sources),
                written: op.writes().and_then(|operand| u8::try_from(operand).ok()),
                first_source: u32::try_from(first_source).unwrap_or(u32::MAX),
                sources: u32::try_from(desc.sources.len()).unwrap_or(u32::MAX),
            });
        }
        index.n_layouts = classes.layouts.len();
        index
    }

    pub(crate) fn sources(&self, node: &Node) -> &[Option<Source>] {
        let first = node.first_source as usize;
        &self.sources[first..first + node.sources as usize]
    }
}

/// Numbers for things that are equal. A chain of pairs stands for a list.
#[derive(Default)]
struct Classes {
    layouts: HashMap<Layout, u32, BuildHasherDefault<Mixer>>,
    pairs: HashMap<(u32, u32), u32, BuildHasherDefault<Mixer>>,
}

impl Classes {
    fn layout(&mut self, layout: &Layout) -> u32 {
        let next = self.layouts.len() as u32;
        *self.layouts.entry(*layout).or_insert(next)
    }

    fn pair(&mut self, first: u32, second: u32) -> u32 {
        // Below are the numbers that begin a chain.
        let next = self.pairs.len() as u32 + 256;
        *self.pairs.entry((first, second)).or_insert(next)
    }

    fn op(&mut self, kind: u32, dst: u32, sources: impl Iterator<Item = Option<u32>>) -> u32 {
        let start = self.pair(kind, dst);
        let class =
            sources.fold(start, |class, source| self.pair(class, source.unwrap_or(u32::MAX)));
        class - 256
    }
}

/// A fast hash for keys that nobody chooses to collide: multiplication by the golden ratio.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        rest.iter().for_each(|&byte| self.mix(u64::from(byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, GraphBuilder};

    #[test]
    fn nodes_are_alike_when_kind_and_layouts_are() {
        let g = GraphBuilder::new("alike");
        let x = g.input("x", DType::F32, [4, 3]);
        let row = g.weight("row", DType::F32, [4]);
        let a = x.scale(2.0, 0.0);
        let b = a.scale(3.0, 1.0);
        let c = b.add(row);
        let d = c.transpose().scale(1.0, 0.0);
        let e = d.transpose().cont().add(c);
        let f = e.soft_max(1.0, None);
        f.soft_max(1.0, Some(f)).add(row).output("y");
        let _dead = x.scale(1.0, 0.0);
        let (a, c) = (a.id(), c.id());
        let graph = g.finish().unwrap();
        let nodes = graph.nodes();
        let class = |n: usize| nodes[n].class;
        assert_eq!(nodes.len(), 9);
        // Parameters aside, the first two are alike; another layout or operand makes a difference.
        assert_eq!((nodes[0].id, class(0)), (a, class(1)));
        assert_ne!(class(0), class(3));
        assert_ne!(class(2), class(5));
        assert_ne!(class(6), class(7));
        assert_eq!(class(2), class(8));
        let sources = graph.node_sources(&nodes[3]);
        assert_eq!(sources[0].unwrap().root, c);
        assert_eq!(graph.node_sources(&nodes[6])[1], None);
        assert_eq!(graph.live_views().len(), 2);
        assert_eq!(graph.leaves().len(), 2);
        assert_eq!(graph.layout_class(a), graph.layout_class(c));
        assert_ne!(graph.layout_class(a), graph.layout_class(nodes[3].id));
        assert!(graph.layout_classes() >= 4);
    }
}

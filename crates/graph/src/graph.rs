//! The finished, immutable graph.
//!
//! An arena of tensors in builder order, which is an order in which they can
//! be computed. Memory is owned by *roots*: leaves, and op results that are
//! not views. A view names its root directly, however many views it was taken
//! through.

use std::collections::HashMap;
use std::panic::Location;

use crate::index::{Index, Node, Source};
use crate::{Layout, Op, TensorId, TensorMap};

/// Where a tensor's values come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Origin {
    /// Bound by name before the run and never written by a graph.
    Weight,
    /// Memory that outlives the run; graphs read and write it.
    State,
    /// Given by the caller for each run.
    Input,
    /// Computed by an op.
    Op(Op),
}

impl Origin {
    /// `weight`, `state`, `input` or the name of the op.
    pub fn name(&self) -> &'static str {
        match self {
            Origin::Weight => "weight",
            Origin::State => "state",
            Origin::Input => "input",
            Origin::Op(op) => op.name(),
        }
    }
}

/// The memory that a view looks into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ViewOf {
    /// The tensor that owns the memory; never a view itself.
    pub root: TensorId,
    /// Distance in bytes from the root's first element to the view's.
    pub offset_bytes: usize,
}

/// Everything that the graph says of one tensor.
#[derive(Debug, Clone, PartialEq)]
#[doc(alias = "ggml_tensor")]
pub struct TensorDesc {
    /// Name, unique among leaves and among outputs.
    pub name: String,
    /// Type, shape and strides.
    pub layout: Layout,
    /// Where the values come from.
    pub origin: Origin,
    /// The operands in declared order; absent optional ones are `None`.
    pub sources: Vec<Option<TensorId>>,
    /// The memory looked into, for views and for the results of writes.
    pub view: Option<ViewOf>,
    /// Which version of the root's memory this tensor is, counting writes.
    pub version: u32,
    /// Whether the caller reads the values after the run.
    pub output: bool,
    /// Where the builder was called.
    pub location: &'static Location<'static>,
}

impl TensorDesc {
    /// The op, unless the tensor is a leaf.
    pub fn op(&self) -> Option<&Op> {
        match &self.origin {
            Origin::Op(op) => Some(op),
            Origin::Weight | Origin::State | Origin::Input => None,
        }
    }

    /// Whether an op computes or writes something here: an op that is not a mere view.
    pub fn is_computed(&self) -> bool {
        self.op().is_some_and(|op| !op.is_view())
    }

    /// The present sources.
    pub fn present_sources(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.sources.iter().flatten().copied()
    }
}

/// An immutable compute graph.
#[derive(Debug, Clone)]
#[doc(alias = "ggml_cgraph")]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) tensors: Vec<TensorDesc>,
    pub(crate) leaves: HashMap<String, TensorId>,
    pub(crate) outputs: HashMap<String, TensorId>,
    pub(crate) live: TensorMap<bool>,
    pub(crate) fingerprint: u64,
    pub(crate) index: Index,
}

impl Graph {
    /// Name given to the builder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of tensors, leaves and views included.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the graph has no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// All ids in builder order; sources come before their readers.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = TensorId> + ExactSizeIterator + use<> {
        (0..self.tensors.len()).map(TensorId::from_index)
    }

    /// Description of a tensor.
    pub fn tensor(&self, id: TensorId) -> &TensorDesc {
        &self.tensors[id.index()]
    }

    /// Layout of a tensor.
    pub fn layout(&self, id: TensorId) -> &Layout {
        &self.tensors[id.index()].layout
    }

    /// The tensor that owns the memory of `id`: itself, unless it is a view.
    pub fn root(&self, id: TensorId) -> TensorId {
        self.index.roots[id]
    }

    /// Distance in bytes from the first element of the root to that of `id`.
    pub fn root_offset(&self, id: TensorId) -> usize {
        self.tensors[id.index()].view.map_or(0, |view| view.offset_bytes)
    }

    /// Whether `id` is an output, leads to one, or writes state.
    pub fn is_live(&self, id: TensorId) -> bool {
        self.live[id]
    }

    /// Live tensors that an op computes or writes, in order, views aside.
    pub fn live_nodes(&self) -> impl DoubleEndedIterator<Item = TensorId> + '_ {
        self.index.nodes.iter().map(|node| node.id)
    }

    /// [`Graph::live_nodes`] with what passes over all of them need.
    pub fn nodes(&self) -> &[Node] {
        &self.index.nodes
    }

    /// The operands of a node in declared order; absent optional ones are `None`.
    pub fn node_sources(&self, node: &Node) -> &[Option<Source>] {
        self.index.sources(node)
    }

    /// Live views, in order.
    pub fn live_views(&self) -> &[TensorId] {
        &self.index.views
    }

    /// Live leaves of all kinds, in order.
    pub fn leaves(&self) -> &[TensorId] {
        &self.index.leaves
    }

    /// A number that tensors of equal layout share, below [`Graph::layout_classes`].
    pub fn layout_class(&self, id: TensorId) -> u32 {
        self.index.layouts[id]
    }

    /// How many different layouts the tensors have.
    pub fn layout_classes(&self) -> usize {
        self.index.n_layouts
    }

    /// Live leaves of one kind, in order.
    pub fn live_leaves(&self, origin: Origin) -> impl Iterator<Item = TensorId> + '_ {
        let leaves = self.index.leaves.iter().copied();
        leaves.filter(move |&id| self.tensor(id).origin == origin)
    }

    /// The leaf of a name.
    pub fn leaf(&self, name: &str) -> Option<TensorId> {
        self.leaves.get(name).copied()
    }

    /// The output of a name.
    pub fn output(&self, name: &str) -> Option<TensorId> {
        self.outputs.get(name).copied()
    }

    /// The outputs in order of their ids.
    pub fn outputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.index.outputs.iter().copied()
    }

    /// A hash over ops, parameters, wiring, types, layouts, names and flags.
    /// Equal graphs have equal fingerprints; [`Graph::same_as`] decides the rest.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Whether both graphs are the same data; where they were built does not matter.
    pub fn same_as(&self, other: &Graph) -> bool {
        let same = |a: &TensorDesc, b: &TensorDesc| {
            a.name == b.name
                && a.layout == b.layout
                && a.origin == b.origin
                && a.sources == b.sources
                && a.view == b.view
                && a.version == b.version
                && a.output == b.output
        };
        std::ptr::eq(self, other)
            || (self.fingerprint == other.fingerprint
                && self.tensors.len() == other.tensors.len()
                && self.tensors.iter().zip(&other.tensors).all(|(a, b)| same(a, b)))
    }
}

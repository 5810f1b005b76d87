//! Building a graph.
//!
//! Methods return handles and never fail: the first error is kept with the
//! caller's source line, later calls go on with placeholders, and
//! [`GraphBuilder::finish`] reports it. A handle of one builder given to
//! another, and a read of memory that a later op has already overwritten, are
//! such errors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;

use crate::graph::{Graph, Origin, TensorDesc, ViewOf};
use crate::index::Index;
use crate::ops::Op;
use crate::{DType, GraphError, Layout, OpError, Shape, Tensor, TensorError, TensorId, TensorMap};

/// Dimensions given as an array, a slice or a [`Shape`], fastest first.
pub trait IntoDims {
    /// The shape of these dimensions.
    ///
    /// # Errors
    /// Too many dimensions, or more elements than can be addressed.
    fn into_shape(self) -> Result<Shape, TensorError>;
}

impl<const N: usize> IntoDims for [usize; N] {
    fn into_shape(self) -> Result<Shape, TensorError> {
        Shape::new(&self)
    }
}

impl IntoDims for &[usize] {
    fn into_shape(self) -> Result<Shape, TensorError> {
        Shape::new(self)
    }
}

impl IntoDims for Shape {
    fn into_shape(self) -> Result<Shape, TensorError> {
        Ok(self)
    }
}

#[derive(Debug, Default)]
struct Inner {
    tensors: Vec<TensorDesc>,
    leaves: HashMap<String, TensorId>,
    outputs: HashMap<String, TensorId>,
    /// Version that the memory of each root holds, by root.
    versions: HashMap<TensorId, u32>,
    error: Option<GraphError>,
}

/// A graph in the making.
#[derive(Debug)]
#[doc(alias = "ggml_context")]
pub struct GraphBuilder {
    name: String,
    inner: RefCell<Inner>,
}

impl GraphBuilder {
    /// An empty graph of the given name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), inner: RefCell::default() }
    }

    /// A tensor of the model, bound by name before the run and read only.
    #[track_caller]
    pub fn weight(&self, name: impl Into<String>, dtype: DType, dims: impl IntoDims) -> Tensor<'_> {
        self.leaf(Origin::Weight, name.into(), dtype, dims.into_shape(), Location::caller())
    }

    /// Memory that outlives the run, such as a key-value cache.
    #[track_caller]
    pub fn state(&self, name: impl Into<String>, dtype: DType, dims: impl IntoDims) -> Tensor<'_> {
        self.leaf(Origin::State, name.into(), dtype, dims.into_shape(), Location::caller())
    }

    /// Values that the caller gives for each run.
    #[track_caller]
    #[doc(alias = "ggml_set_input")]
    pub fn input(&self, name: impl Into<String>, dtype: DType, dims: impl IntoDims) -> Tensor<'_> {
        self.leaf(Origin::Input, name.into(), dtype, dims.into_shape(), Location::caller())
    }

    /// Makes the graph immutable.
    ///
    /// # Errors
    /// The first error of any call since the builder was made, with its source line.
    pub fn finish(self) -> Result<Graph, GraphError> {
        let inner = self.inner.into_inner();
        if let Some(error) = inner.error {
            return Err(error);
        }
        if let Some((id, error)) = inner.overwritten_output() {
            let desc = &inner.tensors[id.index()];
            return Err(GraphError {
                graph: self.name,
                op: "output",
                tensor: desc.name.clone(),
                location: desc.location,
                error: Box::new(error),
            });
        }
        let live = find_live(&inner.tensors);
        let fingerprint = fingerprint(&self.name, &inner.tensors);
        let index = Index::new(&inner.tensors, &live);
        Ok(Graph {
            name: self.name,
            index,
            tensors: inner.tensors,
            leaves: inner.leaves,
            outputs: inner.outputs,
            live,
            fingerprint,
        })
    }

    fn leaf(
        &self,
        origin: Origin,
        name: String,
        dtype: DType,
        shape: Result<Shape, TensorError>,
        location: &'static Location<'static>,
    ) -> Tensor<'_> {
        let layout = shape.and_then(|shape| Layout::contiguous(dtype, shape));
        let taken = self.inner.borrow().leaves.contains_key(&name);
        match layout {
            Ok(layout) if !taken => {
                let tensor = self.push(TensorDesc {
                    name: name.clone(),
                    layout,
                    origin,
                    sources: Vec::new(),
                    view: None,
                    version: 0,
                    output: false,
                    location,
                });
                self.inner.borrow_mut().leaves.insert(name, tensor.id);
                tensor
            }
            Ok(_) => self.fail(origin.name(), name, location, OpError::NameTaken),
            Err(error) => self.fail(origin.name(), name, location, error.into()),
        }
    }

    /// Adds the result of `op`, or keeps the error and returns a placeholder.
    pub(crate) fn apply<'g>(
        &'g self,
        op: Op,
        sources: &[Option<Tensor<'g>>],
        location: &'static Location<'static>,
    ) -> Tensor<'g> {
        match self.checked_apply(op, sources, location) {
            Ok(tensor) => tensor,
            Err(error) => {
                let name = sources.iter().flatten().next().map(|tensor| tensor.name());
                self.fail(op.name(), name.unwrap_or_default(), location, error)
            }
        }
    }

    fn checked_apply<'g>(
        &'g self,
        op: Op,
        sources: &[Option<Tensor<'g>>],
        location: &'static Location<'static>,
    ) -> Result<Tensor<'g>, OpError> {
        let mut layouts = Vec::with_capacity(sources.len());
        for (source, spec) in sources.iter().zip(op.operands()) {
            if let Some(source) = source {
                if !std::ptr::eq(source.builder, self) {
                    return Err(OpError::OtherGraph(spec.name));
                }
                self.check_version(source.id)?;
            }
            layouts.push(source.map(|source| source.layout()));
        }
        let layout = op.infer(&layouts)?;
        let mut version = 0;
        let mut view = None;
        if let Some(base) = op.writes().and_then(|operand| sources[operand]) {
            let mut inner = self.inner.borrow_mut();
            let base_view = inner.view_of(base.id);
            match inner.tensors[base_view.root.index()].origin {
                Origin::State | Origin::Op(_) => {}
                Origin::Weight => return Err(OpError::ReadOnly("weight")),
                Origin::Input => return Err(OpError::ReadOnly("graph input")),
            }
            if layout.overlaps_itself() {
                return Err(OpError::Layout {
                    operand: "base",
                    found: layout,
                    wanted: "rows that do not overlap",
                });
            }
            let current = inner.versions.entry(base_view.root).or_default();
            *current += 1;
            version = *current;
            view = Some(base_view);
        }
        Ok(self.push(TensorDesc {
            name: format!("{}.{}", op.name(), self.inner.borrow().tensors.len()),
            layout,
            origin: Origin::Op(op),
            sources: sources.iter().map(|source| source.map(|tensor| tensor.id)).collect(),
            view,
            version,
            output: false,
            location,
        }))
    }

    /// Adds a view of `base`, or keeps the error and returns a placeholder. The offset counts
    /// from the first element of `base`.
    pub(crate) fn apply_view<'g>(
        &'g self,
        base: Tensor<'g>,
        offset_bytes: usize,
        layout: Result<Layout, OpError>,
        location: &'static Location<'static>,
    ) -> Tensor<'g> {
        let start = self.root_of(base.id).1.saturating_add(offset_bytes);
        self.apply_view_at(base, start, layout, location)
    }

    /// As [`GraphBuilder::apply_view`], the offset counting from the root.
    pub(crate) fn apply_view_at<'g>(
        &'g self,
        base: Tensor<'g>,
        start: usize,
        layout: Result<Layout, OpError>,
        location: &'static Location<'static>,
    ) -> Tensor<'g> {
        let checked = || {
            self.check_version(base.id)?;
            let layout = layout?;
            let inner = self.inner.borrow();
            let of = inner.view_of(base.id);
            let base_bytes = inner.tensors[of.root.index()].layout.extent_bytes();
            // A view without elements reads nothing, wherever a slice of an empty base would begin.
            let start = if layout.shape().is_empty() { of.offset_bytes } else { start };
            let end = start.saturating_add(layout.extent_bytes());
            if end > base_bytes {
                return Err(OpError::OutsideBase { start, end, base_bytes });
            }
            check_alignment(&layout, start)?;
            let version = inner.tensors[base.id.index()].version;
            Ok((layout, ViewOf { root: of.root, offset_bytes: start }, version))
        };
        match checked() {
            Ok((layout, view, version)) => self.push(TensorDesc {
                name: format!("view.{}", self.inner.borrow().tensors.len()),
                layout,
                origin: Origin::Op(Op::View),
                sources: vec![Some(base.id)],
                view: Some(view),
                version,
                output: false,
                location,
            }),
            Err(error) => self.fail(Op::View.name(), base.name(), location, error),
        }
    }

    fn check_version(&self, id: TensorId) -> Result<(), OpError> {
        self.inner.borrow().check_version(id)
    }

    fn push(&self, desc: TensorDesc) -> Tensor<'_> {
        let mut inner = self.inner.borrow_mut();
        let id = TensorId::from_index(inner.tensors.len());
        inner.tensors.push(desc);
        Tensor { builder: self, id }
    }

    /// Keeps the first error and returns a placeholder of one element.
    pub(crate) fn fail(
        &self,
        op: &'static str,
        tensor: String,
        location: &'static Location<'static>,
        error: OpError,
    ) -> Tensor<'_> {
        self.inner.borrow_mut().error.get_or_insert_with(|| GraphError {
            graph: self.name.clone(),
            op,
            tensor,
            location,
            error: Box::new(error),
        });
        self.push(TensorDesc {
            name: String::new(),
            layout: Layout::scalar(DType::F32),
            origin: Origin::Input,
            sources: Vec::new(),
            view: None,
            version: 0,
            output: false,
            location,
        })
    }

    pub(crate) fn layout_of(&self, id: TensorId) -> Layout {
        self.inner.borrow().tensors[id.index()].layout
    }

    pub(crate) fn name_of(&self, id: TensorId) -> String {
        self.inner.borrow().tensors[id.index()].name.clone()
    }

    pub(crate) fn root_of(&self, id: TensorId) -> (Layout, usize) {
        let inner = self.inner.borrow();
        let of = inner.view_of(id);
        (inner.tensors[of.root.index()].layout, of.offset_bytes)
    }

    pub(crate) fn is_op(&self, id: TensorId) -> bool {
        self.inner.borrow().tensors[id.index()].op().is_some()
    }

    pub(crate) fn rename(&self, id: TensorId, name: String) {
        self.inner.borrow_mut().tensors[id.index()].name = name;
    }

    pub(crate) fn mark_output(
        &self,
        id: TensorId,
        name: String,
        location: &'static Location<'static>,
    ) {
        if self.inner.borrow().outputs.contains_key(&name) {
            self.fail("output", name, location, OpError::NameTaken);
            return;
        }
        if let Err(error) = self.check_version(id) {
            self.fail("output", name, location, error);
            return;
        }
        let mut inner = self.inner.borrow_mut();
        let desc = &mut inner.tensors[id.index()];
        desc.output = true;
        // A leaf keeps the name that it is bound by.
        if desc.op().is_some() {
            desc.name.clone_from(&name);
        }
        inner.outputs.insert(name, id);
    }
}

/// Elements of a view must lie where elements of their type can be read.
fn check_alignment(layout: &Layout, offset_bytes: usize) -> Result<(), OpError> {
    let alignment = layout.dtype().alignment();
    let wanted = "whole elements apart";
    if !offset_bytes.is_multiple_of(alignment) {
        let value = offset_bytes.to_string();
        return Err(OpError::Parameter { name: "offset in bytes", value, wanted });
    }
    let mut strides = layout.strides().into_iter().zip(layout.shape().dims());
    match strides.find(|&(stride, dim)| dim > 1 && !stride.is_multiple_of(alignment)) {
        Some((stride, _)) => {
            let value = stride.to_string();
            Err(OpError::Parameter { name: "stride in bytes", value, wanted })
        }
        None => Ok(()),
    }
}

impl Inner {
    fn view_of(&self, id: TensorId) -> ViewOf {
        self.tensors[id.index()].view.unwrap_or(ViewOf { root: id, offset_bytes: 0 })
    }

    fn check_version(&self, id: TensorId) -> Result<(), OpError> {
        let root = self.view_of(id).root;
        let current = self.versions.get(&root).copied().unwrap_or(0);
        let read = self.tensors[id.index()].version;
        if read == current {
            return Ok(());
        }
        Err(OpError::OldVersion { root: self.tensors[root.index()].name.clone(), read, current })
    }

    /// An output whose memory a later op wrote, so that the caller would read other values.
    fn overwritten_output(&self) -> Option<(TensorId, OpError)> {
        self.outputs.values().find_map(|&id| self.check_version(id).err().map(|error| (id, error)))
    }
}

/// Marks outputs, writes into state and everything that they read.
fn find_live(tensors: &[TensorDesc]) -> TensorMap<bool> {
    let mut live = TensorMap::filled(false, tensors.len());
    for (index, desc) in tensors.iter().enumerate().rev() {
        let id = TensorId::from_index(index);
        let root_is_state = |view: ViewOf| tensors[view.root.index()].origin == Origin::State;
        let writes_state = desc.op().is_some_and(|op| op.writes().is_some())
            && desc.view.is_some_and(root_is_state);
        if desc.output || writes_state {
            live[id] = true;
        }
        if live[id] {
            desc.present_sources().for_each(|source| live[source] = true);
            if let Some(view) = desc.view {
                live[view.root] = true;
            }
        }
    }
    live
}

fn fingerprint(name: &str, tensors: &[TensorDesc]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    for desc in tensors {
        desc.name.hash(&mut hasher);
        desc.layout.hash(&mut hasher);
        desc.sources.hash(&mut hasher);
        desc.view.hash(&mut hasher);
        desc.version.hash(&mut hasher);
        desc.output.hash(&mut hasher);
        match &desc.origin {
            Origin::Weight => 0u8.hash(&mut hasher),
            Origin::State => 1u8.hash(&mut hasher),
            Origin::Input => 2u8.hash(&mut hasher),
            Origin::Op(op) => op.hash_into(&mut hasher),
        }
    }
    hasher.finish()
}

//! The data of a graph with memory of its own for every tensor.
//!
//! No plan and no reuse: each tensor that owns memory has some, views lie in that of their roots,
//! and any value can be looked at after it was computed. For copies of a graph's data to another
//! device, and for running a graph node by node; programs that only want results use a session.

use std::collections::HashMap;
use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin, TensorId, TensorMap};

use super::{CompareError, Input, State};
use crate::submission::{Bindings, BoundRegion, Submission};
use crate::tensors::{TensorDataError, TensorKey, Tensors};
use crate::{
    AbortSignal, Aliasing, Backend, BufferType, Operand, Region, Step, StepOp, Usage, Weights,
    bytes_for,
};

/// A graph with the memory of all its live tensors.
#[derive(Debug)]
#[doc(alias = "ggml_backend_graph_copy")]
pub struct GraphData {
    graph: Arc<Graph>,
    tensors: Tensors,
    keys: TensorMap<Option<TensorKey>>,
    /// Room for operands that lie where their node writes.
    temporaries: HashMap<(TensorId, usize), TensorKey>,
    bindings: Option<Arc<Bindings>>,
}

impl GraphData {
    /// A graph without data.
    ///
    /// # Errors
    /// Never in a graph that a builder finished.
    pub fn new(graph: &Arc<Graph>) -> Result<Self, CompareError> {
        let mut data = Self {
            graph: Arc::clone(graph),
            tensors: Tensors::new(),
            keys: TensorMap::filled(None, graph.len()),
            temporaries: HashMap::new(),
            bindings: None,
        };
        for id in graph.ids().filter(|&id| graph.is_live(id)) {
            let desc = graph.tensor(id);
            let name = desc.name.clone();
            let key = match desc.view {
                None => data.tensors.add(name, desc.layout),
                Some(view) => {
                    let root = data.key(view.root)?;
                    data.tensors.add_view(name, root, view.offset_bytes, desc.layout)?
                }
            };
            data.keys[id] = Some(key);
        }
        for node in graph.live_nodes() {
            for (operand, layout) in overlapping_operands(graph, node) {
                let name = format!("{}.operand{operand}", graph.tensor(node).name);
                data.temporaries.insert((node, operand), data.tensors.add(name, layout));
            }
        }
        Ok(data)
    }

    /// A graph with weights, state and inputs in memory of one kind. The results of nodes are
    /// undefined until they are computed.
    ///
    /// # Errors
    /// A leaf that is not given, or has another layout or size; state that a failed run left
    /// unusable; memory that cannot be had.
    pub fn load(
        graph: &Arc<Graph>,
        buffer_type: &Arc<dyn BufferType>,
        weights: &Weights,
        state: &State,
        inputs: &[Input<'_>],
    ) -> Result<Self, CompareError> {
        let mut data = Self::new(graph)?;
        data.allocate(buffer_type)?;
        for &id in graph.leaves() {
            let desc = graph.tensor(id);
            let missing = || CompareError::NoData {
                graph: graph.name().to_owned(),
                tensor: desc.name.clone(),
            };
            let fits = |found: &Layout| match *found == desc.layout {
                true => Ok(()),
                false => Err(CompareError::LeafLayout {
                    tensor: desc.name.clone(),
                    found: *found,
                    wanted: desc.layout,
                }),
            };
            match desc.origin {
                Origin::Weight => {
                    let weight = weights.get(&desc.name).ok_or_else(missing)?;
                    fits(weight.layout())?;
                    let unreadable =
                        |error| CompareError::Leaf { tensor: desc.name.clone(), error };
                    let mut bytes = bytes_for(desc.layout.data_bytes()).map_err(unreadable)?;
                    let memory = weight.buffer().memory();
                    memory
                        .read_tensor(weight.offset_bytes(), weight.layout(), &mut bytes)
                        .map_err(unreadable)?;
                    data.write(id, &bytes)?;
                }
                Origin::State => {
                    fits(state.get(&desc.name).ok_or_else(missing)?.layout())?;
                    let bytes = state.read(&desc.name).map_err(|error| CompareError::State {
                        tensor: desc.name.clone(),
                        error: Box::new(error),
                    })?;
                    data.write(id, &bytes)?;
                }
                Origin::Input => {
                    let given = inputs.iter().find(|input| input.name == desc.name);
                    data.write(id, given.ok_or_else(missing)?.bytes)?;
                }
                Origin::Op(_) => {}
            }
        }
        Ok(data)
    }

    /// Gives every tensor that owns memory its own, in buffers of one kind.
    ///
    /// # Errors
    /// A tensor larger than the largest buffer; memory that cannot be had. Nothing is kept then.
    pub fn allocate(&mut self, buffer_type: &Arc<dyn BufferType>) -> Result<(), CompareError> {
        self.tensors.place_all(buffer_type, Usage::Any)?;
        let buffers = self.tensors.buffers();
        let region = |number: usize| Region::Chunk(u32::try_from(number).unwrap_or(u32::MAX));
        let bound = |buffer: &crate::Buffer| {
            let shared = Arc::clone(buffer.shared());
            BoundRegion { shared, offset_bytes: 0 }
        };
        self.bindings = Some(Arc::new(Bindings {
            weights: Vec::new(),
            states: Vec::new(),
            chunks: buffers.iter().map(bound).collect(),
            splits: vec![(0..buffers.len()).map(region).collect()],
        }));
        Ok(())
    }

    /// The same data in memory of another kind: every tensor that owns memory has its own there,
    /// and is copied once however many read it; views stay views; layouts, names and parameters
    /// are those of the graph, which both share.
    ///
    /// # Errors
    /// A graph without data; memory that cannot be had. Nothing is kept then.
    #[doc(alias = "ggml_backend_graph_copy")]
    pub fn copy_to(&self, buffer_type: &Arc<dyn BufferType>) -> Result<Self, CompareError> {
        let mut copy = Self::new(&self.graph)?;
        let roots: Vec<TensorId> = self.roots().collect();
        for &root in &roots {
            self.placed(root)?;
        }
        copy.allocate(buffer_type)?;
        for root in roots {
            copy.copy_root(self, root)?;
        }
        Ok(copy)
    }

    /// The live tensors that own memory.
    fn roots(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.graph.ids().filter(|&id| self.graph.is_live(id) && self.graph.root(id) == id)
    }

    /// Copies the memory of a root from other data of the same graph.
    pub(super) fn copy_root(&mut self, from: &Self, root: TensorId) -> Result<(), CompareError> {
        let (src, dst) = (from.key(root)?, self.key(root)?);
        self.tensors.copy_from(&from.tensors, src, dst)?;
        Ok(())
    }

    /// The graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The tensors in their buffers, with what copies into them have cost.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// The key of a live tensor.
    ///
    /// # Errors
    /// A tensor that is not live.
    pub fn key(&self, id: TensorId) -> Result<TensorKey, CompareError> {
        let known = (id.index() < self.keys.len()).then(|| self.keys[id]).flatten();
        known.ok_or_else(|| CompareError::UnknownNode {
            graph: self.graph.name().to_owned(),
            node: id.to_string(),
        })
    }

    /// Reads the elements of a live tensor in order.
    ///
    /// # Errors
    /// A tensor that is not live or has no memory; a device that cannot be read.
    pub fn read(&self, id: TensorId) -> Result<Vec<u8>, CompareError> {
        Ok(self.tensors.read(self.key(id)?)?)
    }

    /// Writes the elements of a live tensor in order.
    ///
    /// # Errors
    /// A tensor that is not live or has no memory; a byte count that is not the tensor's.
    pub fn write(&mut self, id: TensorId, elements: &[u8]) -> Result<(), CompareError> {
        Ok(self.tensors.write(self.key(id)?, elements)?)
    }

    /// Computes one node from the values that its operands have now, and waits for it. A view
    /// needs no computing.
    ///
    /// # Errors
    /// A graph without data; an op that the device does not run; a device that failed.
    pub fn compute(&mut self, backend: &mut dyn Backend, id: TensorId) -> Result<(), CompareError> {
        let graph = Arc::clone(&self.graph);
        self.placed(id)?;
        let Some(&op) = graph.tensor(id).op().filter(|op| !op.is_view()) else { return Ok(()) };
        let desc = graph.tensor(id);
        let dst = self.operand(self.key(id)?)?;
        let mut sources = Vec::with_capacity(desc.sources.len());
        for (number, source) in desc.sources.iter().enumerate() {
            let Some(source) = *source else {
                sources.push(None);
                continue;
            };
            let mut key = self.key(source)?;
            if let Some(&temporary) = self.temporaries.get(&(id, number)) {
                let elements = self.tensors.read(key)?;
                self.tensors.write(temporary, &elements)?;
                key = temporary;
            }
            let mut operand = self.operand(key)?;
            let is_written = op.writes() == Some(number) && !operand.layout.shape().is_empty();
            operand.aliasing = if is_written { Aliasing::SameAsDst } else { Aliasing::Disjoint };
            sources.push(Some(operand));
        }
        let step = Step { name: desc.name.clone(), op: StepOp::Op(op), dst, sources };
        let bindings = self.bindings.as_ref().ok_or_else(|| self.without_data(id))?;
        let submission = Submission::split(bindings, 0);
        let run = || {
            let program = backend.compile(&[step])?;
            for buffer in self.tensors.buffers() {
                if let Some(event) = buffer.shared().last() {
                    backend.wait(&event)?;
                }
            }
            backend.submit(&program, submission, &AbortSignal::new())?;
            backend.synchronize()
        };
        run().map_err(|error| CompareError::Device { node: desc.name.clone(), error })
    }

    fn without_data(&self, id: TensorId) -> CompareError {
        let (graph, tensor) = (self.graph.name().to_owned(), &self.graph.tensor(id).name);
        CompareError::NoData { graph, tensor: tensor.clone() }
    }

    fn placed(&self, id: TensorId) -> Result<(), CompareError> {
        let placed = self.tensors.slot(self.key(id)?)?.place().is_some();
        if placed { Ok(()) } else { Err(self.without_data(id)) }
    }

    fn operand(&self, key: TensorKey) -> Result<Operand, CompareError> {
        let slot = self.tensors.slot(key)?;
        let unplaced = || TensorDataError::Unplaced {
            tensor: slot.name().to_owned(),
            offset_bytes: 0,
            bytes: slot.layout().extent_bytes(),
        };
        let place = slot.place().ok_or_else(unplaced)?;
        Ok(Operand {
            region: Region::Chunk(u32::try_from(place.buffer.number()).unwrap_or(u32::MAX)),
            offset_bytes: place.offset_bytes,
            layout: *slot.layout(),
            buffer_type: Arc::clone(self.tensors.buffer(place.buffer)?.buffer_type()),
            aliasing: Aliasing::Disjoint,
        })
    }
}

/// The operands of a node, besides the written one, that share bytes with what it writes, with
/// the layout of a copy.
fn overlapping_operands(graph: &Graph, node: TensorId) -> Vec<(usize, Layout)> {
    let desc = graph.tensor(node);
    let Some(written) = desc.op().and_then(|op| op.writes()) else { return Vec::new() };
    let range = |id: TensorId| {
        let start = graph.root_offset(id);
        start..start + graph.layout(id).extent_bytes()
    };
    let target = range(node);
    let overlaps = |&(operand, source): &(usize, TensorId)| {
        let other = range(source);
        operand != written
            && graph.root(source) == graph.root(node)
            && other.start < target.end
            && target.start < other.end
    };
    let sources = desc.sources.iter().enumerate();
    sources
        .filter_map(|(operand, source)| Some((operand, (*source)?)))
        .filter(overlaps)
        .filter_map(|(operand, source)| {
            let layout = graph.layout(source);
            Some((operand, Layout::contiguous(layout.dtype(), layout.shape()).ok()?))
        })
        .collect()
}

//! Weights: read-only tensors, shared by any number of sessions.
//!
//! Where each weight lives is decided by the first stage of planning, from the
//! graphs that use it, and is fixed in the value. Weights that a device wants
//! in another form are converted once, tensor by tensor, so that loading needs
//! little more memory than the result; the others stay in the source's own
//! memory when that is aligned for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tensoryard_graph::{Graph, Layout, Origin};

use crate::identity::Identity;
use crate::{
    Assignment, Buffer, BufferType, Device, HostMemory, MemoryError, PlacedLayout, SharedBytes,
    Usage, WeightError, host_buffer_type, same_buffer_type,
};

/// Where weights come from, commonly a model file.
pub trait WeightSource: Send + Sync {
    /// Layout of the tensor of a name.
    fn layout(&self, name: &str) -> Option<Layout>;

    /// The bytes of the tensor, its elements in order.
    ///
    /// # Errors
    /// A text that says why they cannot be read.
    fn read(&self, name: &str) -> Result<SharedBytes, String>;

    /// Whether [`WeightSource::read`] makes a copy, because the tensor is stored in another type or
    /// another order of elements or bytes than asked for.
    fn converts(&self, name: &str) -> bool {
        _ = name;
        false
    }

    /// Tells the source that the bytes of the tensor were copied and are not needed again soon.
    fn release(&self, name: &str) {
        _ = name;
    }
}

/// A weight in memory.
#[derive(Debug, Clone)]
pub struct Weight {
    buffer: Arc<Buffer>,
    offset_bytes: usize,
    layout: Layout,
}

impl Weight {
    /// The buffer that holds it.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Distance in bytes from the start of the buffer.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Type, shape and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// What became of the tensors of a source when they were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadReport {
    /// Tensors used where they lie in the source, without a copy.
    pub in_place: usize,
    /// Tensors written into buffers.
    pub placed: usize,
    /// Those among the placed ones that the source has at an address not aligned for their
    /// elements; otherwise they would have been used in place.
    pub unaligned: usize,
    /// Tensors that the source converted to another type or order of elements or bytes.
    pub converted: usize,
}

/// Read-only tensors by name.
#[derive(Debug, Default)]
pub struct Weights {
    report: LoadReport,
    tensors: HashMap<String, Weight>,
    identity: Identity,
    kinds: Vec<(Arc<dyn BufferType>, usize)>,
}

/// A weight that some graph needs.
struct Wanted {
    name: String,
    layout: Layout,
}

/// Weights that share one buffer, with their offsets.
struct Group {
    buffer_type: Arc<dyn BufferType>,
    members: Vec<(Wanted, usize)>,
    size: usize,
}

impl Weights {
    /// Loads every weight that the graphs need into the memory of one device, in the form that
    /// the device wants.
    ///
    /// # Errors
    /// As [`Weights::load`].
    pub fn load_on(
        source: &dyn WeightSource,
        graphs: &[&Graph],
        device: &dyn Device,
        progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, WeightError> {
        check(source, graphs)?;
        let assignment = Assignment::on_device(graphs, device)?;
        Self::load(source, graphs, &assignment, progress)
    }

    /// Loads every weight that the graphs need, each into the memory that it was assigned to.
    /// `progress` is told bytes loaded and bytes in all, and stops the loading by returning
    /// `false`.
    ///
    /// # Errors
    /// A weight that is missing, of another layout, or unreadable; one that the assignment was
    /// not made for; memory that cannot be had.
    pub fn load(
        source: &dyn WeightSource,
        graphs: &[&Graph],
        assignment: &Assignment,
        mut progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Self, WeightError> {
        let wanted = check(source, graphs)?;
        let total: usize = wanted.iter().map(|weight| weight.layout.data_bytes()).sum();
        let mut done = 0;
        let mut weights = Self::default();
        let mut groups: Vec<Group> = Vec::new();
        for weight in wanted {
            let unassigned = || WeightError::Unassigned { name: weight.name.clone() };
            let home = assignment.weight(&weight.name).ok_or_else(unassigned)?;
            let buffer_type = Arc::clone(&home.buffer_type);
            weights.report.converted += usize::from(source.converts(&weight.name));
            if same_buffer_type(&*buffer_type, &**host_buffer_type()) {
                if let Some(mapped) = map(source, &weight)? {
                    weights.report.in_place += 1;
                    done += weight.layout.data_bytes();
                    weights.tensors.insert(weight.name, mapped);
                    continue;
                }
                weights.report.unaligned += 1;
            }
            weights.report.placed += 1;
            add_to_group(&mut groups, buffer_type, weight)?;
        }
        for group in groups {
            let fail = |name: &str, error| WeightError::Memory { name: name.to_owned(), error };
            let first = group.members.first().map_or("", |(weight, _)| &weight.name).to_owned();
            let mut buffer = Buffer::allocate(&group.buffer_type, group.size, Usage::Weights)
                .map_err(|error| fail(&first, error))?;
            for (weight, offset) in &group.members {
                if !progress(done, total) {
                    return Err(WeightError::Cancelled);
                }
                let bytes = read(source, &weight.name)?;
                let (offset_bytes, layout) = (*offset, weight.layout);
                let memory = buffer.memory_mut();
                memory
                    .init_tensor(&PlacedLayout { offset_bytes, layout, base: None })
                    .and_then(|()| memory.write_tensor(*offset, &weight.layout, bytes.as_slice()))
                    .map_err(|error| fail(&weight.name, error))?;
                drop(bytes);
                source.release(&weight.name);
                done += weight.layout.data_bytes();
            }
            let buffer = Arc::new(buffer);
            for (weight, offset_bytes) in group.members {
                let buffer = Arc::clone(&buffer);
                let layout = weight.layout;
                weights.tensors.insert(weight.name, Weight { buffer, offset_bytes, layout });
            }
        }
        progress(total, total);
        weights.count();
        Ok(weights)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Adds the buffers up, each once.
    fn count(&mut self) {
        let mut seen = HashSet::new();
        for weight in self.tensors.values() {
            if !seen.insert(Arc::as_ptr(&weight.buffer)) {
                continue;
            }
            let (kind, size) = (weight.buffer.buffer_type(), weight.buffer.size());
            match self.kinds.iter_mut().find(|(known, _)| same_buffer_type(&**known, &**kind)) {
                Some((_, bytes)) => *bytes += size,
                None => self.kinds.push((Arc::clone(kind), size)),
            }
        }
        self.kinds.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    }

    /// What became of the tensors of the source.
    pub fn report(&self) -> LoadReport {
        self.report
    }

    /// The weight of a name.
    pub fn get(&self, name: &str) -> Option<&Weight> {
        self.tensors.get(name)
    }

    /// Bytes of all buffers by kind of memory, each buffer once, in order of the kinds' names.
    pub fn kinds(&self) -> &[(Arc<dyn BufferType>, usize)] {
        &self.kinds
    }

    /// As [`Weights::kinds`], with the kinds' names.
    pub fn sizes(&self) -> Vec<(String, usize)> {
        self.kinds.iter().map(|(kind, bytes)| (kind.name().to_owned(), *bytes)).collect()
    }
}

/// The weights of all graphs, each once, as they are in the source.
fn check(source: &dyn WeightSource, graphs: &[&Graph]) -> Result<Vec<Wanted>, WeightError> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut known: HashMap<&str, Layout> = HashMap::new();
    for graph in graphs {
        for id in graph.live_leaves(Origin::Weight) {
            let desc = graph.tensor(id);
            let name = || desc.name.clone();
            let found = match known.get(&*desc.name) {
                Some(layout) => *layout,
                None => {
                    let missing = || WeightError::Missing { name: name() };
                    let layout = source.layout(&desc.name).ok_or_else(missing)?;
                    known.insert(&desc.name, layout);
                    wanted.push(Wanted { name: name(), layout });
                    layout
                }
            };
            if found != desc.layout {
                return Err(WeightError::Layout { name: name(), found, wanted: desc.layout });
            }
        }
    }
    Ok(wanted)
}

fn read(source: &dyn WeightSource, name: &str) -> Result<SharedBytes, WeightError> {
    source.read(name).map_err(|reason| WeightError::Source { name: name.to_owned(), reason })
}

/// The weight in the source's own memory, if that is aligned for its elements.
fn map(source: &dyn WeightSource, weight: &Wanted) -> Result<Option<Weight>, WeightError> {
    let bytes = read(source, &weight.name)?;
    if bytes.as_slice().len() != weight.layout.data_bytes() {
        let error = MemoryError::ByteCount {
            layout: weight.layout,
            needed: weight.layout.data_bytes(),
            given: bytes.as_slice().len(),
        };
        return Err(WeightError::Memory { name: weight.name.clone(), error });
    }
    if !(bytes.as_slice().as_ptr() as usize).is_multiple_of(weight.layout.dtype().alignment()) {
        return Ok(None);
    }
    let memory = Box::new(HostMemory::from_shared(bytes));
    let buffer = Buffer::from_memory(host_buffer_type(), memory, Usage::Weights);
    Ok(Some(Weight { buffer: Arc::new(buffer), offset_bytes: 0, layout: weight.layout }))
}

fn add_to_group(
    groups: &mut Vec<Group>,
    buffer_type: Arc<dyn BufferType>,
    weight: Wanted,
) -> Result<(), WeightError> {
    let bytes = buffer_type.tensor_bytes(&weight.layout);
    let alignment = buffer_type.alignment();
    let last =
        groups.iter_mut().rev().find(|group| same_buffer_type(&*group.buffer_type, &*buffer_type));
    if let Some(group) = last {
        let offset = group.size.next_multiple_of(alignment);
        if let Some(end) = offset.checked_add(bytes).filter(|&end| end <= buffer_type.max_size()) {
            group.members.push((weight, offset));
            group.size = end;
            return Ok(());
        }
    }
    if bytes > buffer_type.max_size() {
        let error = MemoryError::TooLarge {
            buffer_type: buffer_type.name().to_owned(),
            bytes,
            max: buffer_type.max_size(),
        };
        return Err(WeightError::Memory { name: weight.name, error });
    }
    groups.push(Group { buffer_type, members: vec![(weight, 0)], size: bytes });
    Ok(())
}

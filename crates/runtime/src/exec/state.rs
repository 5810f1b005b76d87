//! State: tensors that outlive a run, such as key-value caches.
//!
//! Borrowed exclusively by each run. Zeroed when created. After a failed run each tensor says
//! whether it is as the last good run left it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tensoryard_graph::{Graph, Layout, Origin};

use super::ticket::Flight;
use crate::identity::Identity;
use crate::plan::Home;
use crate::{
    Assignment, Buffer, Device, DeviceError, MemoryError, PlacedLayout, RunError, Usage, bytes_for,
};

/// What became of a state tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StateStatus {
    /// As the last run that ended well left it, or as it was written since.
    #[default]
    Committed,
    /// A run that failed may have written a part of it.
    Torn,
    /// It lay in the memory of a device that is lost.
    Lost,
}

impl fmt::Display for StateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StateStatus::Committed => "committed",
            StateStatus::Torn => "torn",
            StateStatus::Lost => "lost",
        })
    }
}

/// A state tensor in memory.
#[derive(Debug)]
pub struct StateTensor {
    buffer: Buffer,
    layout: Layout,
    /// Name of the device whose memory it lies in.
    device: Arc<str>,
    status: StateStatus,
    /// What the caller did to it since [`State::take_changes`] was asked last.
    change: Option<Change>,
}

/// What a caller did to a state tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Written,
    Cleared,
}

impl StateTensor {
    fn zeroed(home: &Home, layout: Layout) -> Result<Self, MemoryError> {
        let bytes = home.buffer_type.tensor_bytes(&layout);
        let mut buffer = Buffer::allocate(&home.buffer_type, bytes, Usage::Any)?;
        let placed = PlacedLayout { offset_bytes: 0, layout, base: None };
        buffer.memory_mut().init_tensor(&placed)?;
        buffer.memory_mut().clear(0)?;
        let (device, status) = (Arc::clone(&home.device_name), StateStatus::Committed);
        Ok(Self { buffer, layout, device, status, change: None })
    }

    /// The buffer that holds it, from its first byte on.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Type, shape and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether its memory went with a device.
    fn is_gone(&self) -> bool {
        let mut byte = [0; 1];
        let bytes = self.buffer.size().min(1);
        let answer = self.buffer.memory().read_bytes(0, &mut byte[..bytes]);
        matches!(answer, Err(MemoryError::Lost { .. }))
    }
}

/// A run in flight with the state tensors that it writes.
#[derive(Debug)]
struct Pending {
    flight: Arc<Flight>,
    written: Vec<String>,
    /// What becomes whole again when the run ends well.
    mended: Vec<String>,
}

/// State tensors by name.
#[derive(Debug, Default)]
pub struct State {
    tensors: HashMap<String, StateTensor>,
    pending: Mutex<Vec<Pending>>,
    identity: Identity,
}

impl State {
    /// Creates every state tensor that the graphs name, zeroed, in the default memory of a device.
    ///
    /// # Errors
    /// As [`State::create`].
    pub fn create_on(graphs: &[&Graph], device: &dyn Device) -> Result<Self, RunError> {
        check(graphs)?;
        Self::create(graphs, &Assignment::on_device(graphs, device)?)
    }

    /// Creates every state tensor that the graphs name, zeroed, in the memory that it was
    /// assigned to.
    ///
    /// # Errors
    /// Graphs that disagree about a tensor; one that the assignment was not made for; memory
    /// that cannot be had.
    pub fn create(graphs: &[&Graph], assignment: &Assignment) -> Result<Self, RunError> {
        let mut state = Self::default();
        for (name, layout) in check(graphs)? {
            let unassigned = || RunError::UnassignedState(name.to_owned());
            let home = assignment.state(name).ok_or_else(unassigned)?;
            let tensor = StateTensor::zeroed(home, layout);
            let tensor = tensor.map_err(|error| memory_error(&home.device_name, error))?;
            state.tensors.insert(name.to_owned(), tensor);
        }
        Ok(state)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All state tensors, in no order.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &StateTensor> {
        self.tensors.values()
    }

    /// The state tensor of a name.
    pub fn get(&self, name: &str) -> Option<&StateTensor> {
        self.tensors.get(name)
    }

    fn tensor(&self, name: &str) -> Result<&StateTensor, RunError> {
        self.tensors.get(name).ok_or_else(|| RunError::UnknownState(name.to_owned()))
    }

    /// Names of all state tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// What became of a state tensor. Waits for runs in flight.
    ///
    /// # Errors
    /// An unknown name.
    pub fn status(&self, name: &str) -> Result<StateStatus, RunError> {
        let tensor = self.tensor(name)?;
        let mut status = tensor.status;
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_failed = false;
        for run in &*pending {
            let ended_well = run.flight.wait().is_ok();
            status = after(status, ended_well, run, name);
            has_failed |= !ended_well;
        }
        drop(pending);
        Ok(if has_failed && tensor.is_gone() { StateStatus::Lost } else { status })
    }

    /// Reads a state tensor as contiguous bytes of its elements. Waits for runs in flight.
    ///
    /// # Errors
    /// An unknown name; a tensor that is torn or lost; a device that cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, RunError> {
        let status = self.status(name)?;
        if status != StateStatus::Committed {
            return Err(RunError::StateUnusable { name: name.to_owned(), status });
        }
        let tensor = self.tensor(name)?;
        let mut bytes = bytes_for(tensor.layout.data_bytes())?;
        let read = tensor.buffer.memory().read_tensor(0, &tensor.layout, &mut bytes);
        read.map_err(|error| memory_error(&tensor.device, error))?;
        Ok(bytes)
    }

    /// Writes a state tensor from contiguous bytes of its elements, which commits it.
    ///
    /// # Errors
    /// An unknown name; a byte count that is not the tensor's.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), RunError> {
        self.settle(true);
        let tensor =
            self.tensors.get_mut(name).ok_or_else(|| RunError::UnknownState(name.to_owned()))?;
        let written = tensor.buffer.memory_mut().write_tensor(0, &tensor.layout, bytes);
        written.map_err(|error| memory_error(&tensor.device, error))?;
        tensor.status = StateStatus::Committed;
        tensor.change = Some(Change::Written);
        Ok(())
    }

    /// Sets every state tensor to zero bytes, which commits it.
    ///
    /// # Errors
    /// A device that cannot be written.
    pub fn clear(&mut self) -> Result<(), RunError> {
        self.settle(true);
        for tensor in self.tensors.values_mut() {
            let cleared = tensor.buffer.memory_mut().clear(0);
            cleared.map_err(|error| memory_error(&tensor.device, error))?;
            tensor.status = StateStatus::Committed;
            tensor.change = Some(Change::Cleared);
        }
        Ok(())
    }

    /// What the caller wrote since this was asked last, as far as it can be read.
    pub(crate) fn take_changes(&mut self) -> Vec<(String, Result<Vec<u8>, RunError>)> {
        self.settle(true);
        let changed = self.tensors.iter_mut().filter_map(|(name, tensor)| {
            let change = tensor.change.take()?;
            Some((name.clone(), change, tensor.layout.data_bytes()))
        });
        let changed: Vec<(String, Change, usize)> = changed.collect();
        let read = |(name, change, bytes): (String, Change, usize)| {
            let bytes = match change {
                Change::Written => self.read(&name),
                Change::Cleared => Ok(vec![0; bytes]),
            };
            (name, bytes)
        };
        changed.into_iter().map(read).collect()
    }

    /// Whether the caller cleared everything, and that is all there is to know.
    pub(crate) fn was_cleared(&self) -> bool {
        self.tensors.values().all(|tensor| tensor.change == Some(Change::Cleared))
    }

    /// Nothing counts as written by the caller any more.
    pub(crate) fn forget_changes(&mut self) {
        self.tensors.values_mut().for_each(|tensor| tensor.change = None);
    }

    /// Takes torn tensors as they are: for callers who write every element before they read it.
    /// What is lost stays lost.
    pub fn accept_torn(&mut self) {
        self.settle(true);
        for tensor in self.tensors.values_mut() {
            if tensor.status == StateStatus::Torn {
                tensor.status = StateStatus::Committed;
            }
        }
    }

    /// Bytes of all state tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.values().map(|tensor| tensor.buffer.size()).sum()
    }

    /// A run was submitted that writes these tensors.
    pub(super) fn in_flight(
        &mut self,
        flight: &Arc<Flight>,
        written: Vec<String>,
        mended: Vec<String>,
    ) {
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        pending.push(Pending { flight: Arc::clone(flight), written, mended });
    }

    /// Learns the outcome of runs that are over; of all runs, if it waits.
    pub(super) fn settle(&mut self, wait: bool) {
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut has_failed = false;
        // In order: a later run that mends a tensor comes after the one that tore it.
        while pending.first().is_some_and(|run| wait || run.flight.is_done()) {
            let run = pending.remove(0);
            let ended_well = run.flight.wait().is_ok();
            has_failed |= !ended_well;
            for name in run.written.iter().chain(&run.mended) {
                if let Some(tensor) = self.tensors.get_mut(name) {
                    tensor.status = after(tensor.status, ended_well, &run, name);
                }
            }
        }
        if has_failed {
            self.find_lost();
        }
    }

    /// A run has failed, whose work is over: what it left behind does not keep later runs from
    /// running. Tensors that it may have written are torn, those that went with a device lost.
    pub(super) fn run_failed<'a>(&mut self, written: impl Iterator<Item = &'a str>) {
        self.settle(true);
        written.for_each(|name| self.mark(name, StateStatus::Torn));
        self.find_lost();
    }

    fn find_lost(&mut self) {
        for tensor in self.tensors.values_mut() {
            tensor.buffer.shared().forget_failure();
            if tensor.is_gone() {
                tensor.status = StateStatus::Lost;
            }
        }
    }

    /// Says what became of a tensor.
    pub(crate) fn mark(&mut self, name: &str, status: StateStatus) {
        if let Some(tensor) = self.tensors.get_mut(name) {
            tensor.status = status;
        }
    }

    /// The first of these tensors that cannot be read.
    pub(super) fn unusable<'a>(
        &self,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Option<(&'a str, StateStatus)> {
        names.find_map(|name| {
            let status = self.tensors.get(name)?.status;
            (status != StateStatus::Committed).then_some((name, status))
        })
    }
}

fn memory_error(device: &str, error: MemoryError) -> RunError {
    DeviceError::Memory { device: device.to_owned(), error }.into()
}

/// The status of a tensor after a run.
fn after(before: StateStatus, ended_well: bool, run: &Pending, name: &str) -> StateStatus {
    let is_in = |names: &[String]| names.iter().any(|known| known == name);
    match (before, ended_well) {
        (_, true) if is_in(&run.mended) => StateStatus::Committed,
        (StateStatus::Lost, false) => before,
        (_, false) if is_in(&run.written) => StateStatus::Torn,
        (_, _) => before,
    }
}

/// The state tensors of all graphs, each once.
fn check<'a>(graphs: &[&'a Graph]) -> Result<Vec<(&'a str, Layout)>, RunError> {
    let mut wanted: Vec<(&str, Layout)> = Vec::new();
    let mut known: HashMap<&str, Layout> = HashMap::new();
    for graph in graphs {
        for id in graph.live_leaves(Origin::State) {
            let desc = graph.tensor(id);
            let first = *known.entry(&desc.name).or_insert_with(|| {
                wanted.push((&desc.name, desc.layout));
                desc.layout
            });
            if first != desc.layout {
                let (name, second) = (desc.name.clone(), desc.layout);
                return Err(RunError::StateLayout { name, first, second });
            }
        }
    }
    Ok(wanted)
}

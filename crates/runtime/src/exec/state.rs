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
use crate::{Assignment, Buffer, BufferType, Device, MemoryError, PlacedLayout, RunError, Usage};

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
    status: StateStatus,
}

impl StateTensor {
    /// The buffer that holds it, from its first byte on.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Type, shape and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
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
            let bytes = home.buffer_type.tensor_bytes(&layout);
            let mut buffer = Buffer::allocate(&home.buffer_type, bytes, Usage::Any)?;
            let placed = PlacedLayout { offset_bytes: 0, layout, base: None };
            buffer.memory_mut().init_tensor(&placed)?;
            buffer.memory_mut().clear(0)?;
            let status = StateStatus::Committed;
            let tensor = StateTensor { buffer, layout, status };
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
        let mut status = self.tensor(name)?.status;
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for run in &*pending {
            let ended_well = run.flight.wait().is_ok();
            status = after(status, ended_well, run, name);
        }
        Ok(status)
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
        let mut bytes = vec![0; tensor.layout.data_bytes()];
        tensor.buffer.memory().read_tensor(0, &tensor.layout, &mut bytes)?;
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
        tensor.buffer.memory_mut().write_tensor(0, &tensor.layout, bytes)?;
        tensor.status = StateStatus::Committed;
        Ok(())
    }

    /// Sets every state tensor to zero bytes, which commits it.
    ///
    /// # Errors
    /// A device that cannot be written.
    pub fn clear(&mut self) -> Result<(), MemoryError> {
        self.settle(true);
        for tensor in self.tensors.values_mut() {
            tensor.buffer.memory_mut().clear(0)?;
            tensor.status = StateStatus::Committed;
        }
        Ok(())
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
        // In order: a later run that mends a tensor comes after the one that tore it.
        while pending.first().is_some_and(|run| wait || run.flight.is_done()) {
            let run = pending.remove(0);
            let ended_well = run.flight.wait().is_ok();
            if !ended_well {
                self.tensors.values().for_each(|tensor| tensor.buffer.shared().forget_failure());
            }
            for name in run.written.iter().chain(&run.mended) {
                if let Some(tensor) = self.tensors.get_mut(name) {
                    tensor.status = after(tensor.status, ended_well, &run, name);
                }
            }
        }
    }

    /// What failed runs left behind does not keep later ones from running.
    pub(super) fn forget_failures(&self) {
        self.tensors.values().for_each(|tensor| tensor.buffer.shared().forget_failure());
    }

    /// Marks tensors of a run that failed or mended them.
    pub(super) fn mark(&mut self, name: &str, status: StateStatus) {
        if let Some(tensor) = self.tensors.get_mut(name)
            && tensor.status != StateStatus::Lost
        {
            tensor.status = status;
        }
    }

    /// Marks what lies in memory that a lost device takes with it.
    pub fn mark_lost(&mut self, is_lost: impl Fn(&dyn BufferType) -> bool) {
        self.settle(true);
        for tensor in self.tensors.values_mut() {
            if is_lost(&**tensor.buffer.buffer_type()) {
                tensor.status = StateStatus::Lost;
            }
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

/// The status of a tensor after a run.
fn after(before: StateStatus, ended_well: bool, run: &Pending, name: &str) -> StateStatus {
    let is_in = |names: &[String]| names.iter().any(|known| known == name);
    match (before, ended_well) {
        (StateStatus::Lost, _) => before,
        (_, true) if is_in(&run.mended) => StateStatus::Committed,
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

//! State: tensors that outlive a run, such as key-value caches.
//!
//! Borrowed exclusively by each run. Zeroed when created.

use std::collections::HashMap;

use tensoryard_graph::{Graph, Layout, Origin};

use crate::{Buffer, Device, MemoryError, RunError, Usage};

/// A state tensor in memory.
#[derive(Debug)]
pub struct StateTensor {
    buffer: Buffer,
    layout: Layout,
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

/// State tensors by name.
#[derive(Debug, Default)]
pub struct State {
    tensors: HashMap<String, StateTensor>,
}

impl State {
    /// Creates every state tensor that the graphs name, zeroed, in the default memory of a device.
    ///
    /// # Errors
    /// Graphs that disagree about a tensor; memory that cannot be had.
    pub fn create(graphs: &[&Graph], device: &dyn Device) -> Result<Self, RunError> {
        let mut state = Self::default();
        let buffer_type = &device.buffer_types()[0];
        for graph in graphs {
            for id in graph.live_leaves(Origin::State) {
                let desc = graph.tensor(id);
                if let Some(known) = state.tensors.get(&desc.name) {
                    if known.layout != desc.layout {
                        return Err(RunError::StateLayout {
                            name: desc.name.clone(),
                            first: known.layout,
                            second: desc.layout,
                        });
                    }
                    continue;
                }
                let bytes = buffer_type.tensor_bytes(&desc.layout);
                let mut buffer = Buffer::allocate(buffer_type, bytes, Usage::Any)?;
                buffer.memory_mut().clear(0)?;
                let tensor = StateTensor { buffer, layout: desc.layout };
                state.tensors.insert(desc.name.clone(), tensor);
            }
        }
        Ok(state)
    }

    /// The state tensor of a name.
    pub fn get(&self, name: &str) -> Option<&StateTensor> {
        self.tensors.get(name)
    }

    /// Reads a state tensor as contiguous bytes of its elements.
    ///
    /// # Errors
    /// An unknown name; a device that cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, RunError> {
        let tensor =
            self.tensors.get(name).ok_or_else(|| RunError::UnknownState(name.to_owned()))?;
        let mut bytes = vec![0; tensor.layout.data_bytes()];
        tensor.buffer.memory().read_tensor(0, &tensor.layout, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a state tensor from contiguous bytes of its elements.
    ///
    /// # Errors
    /// An unknown name; a byte count that is not the tensor's.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), RunError> {
        let tensor =
            self.tensors.get_mut(name).ok_or_else(|| RunError::UnknownState(name.to_owned()))?;
        tensor.buffer.memory_mut().write_tensor(0, &tensor.layout, bytes)?;
        Ok(())
    }

    /// Sets every state tensor to zero bytes.
    ///
    /// # Errors
    /// A device that cannot be written.
    pub fn clear(&mut self) -> Result<(), MemoryError> {
        self.tensors.values_mut().try_for_each(|tensor| tensor.buffer.memory_mut().clear(0))
    }

    /// Bytes of all state tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.values().map(|tensor| tensor.buffer.size()).sum()
    }
}

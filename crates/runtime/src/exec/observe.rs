//! Looking into a run: values of nodes as they are computed, and where the time goes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use tensoryard_graph::{DType, Graph, Layout, TensorId};

use super::output::locate;
use super::{State, Workspace};
use crate::{Device, DeviceIndex, MemoryError, Plan, RunError, Weights, bytes_for};

/// Is shown values while a graph runs.
///
/// Before the run each live node, views included, is asked about exactly once, in graph order.
/// Nodes between observed ones run together; an observed node is never fused away.
#[doc(alias = "ggml_backend_sched_eval_callback")]
pub trait Observer {
    /// Whether the values of a node are wanted.
    fn wants(&mut self, graph: &Graph, node: TensorId) -> bool;

    /// Is shown a node that was wanted, when it is computed and its device is idle. Breaking
    /// ends the whole run as cancelled.
    fn observe(&mut self, seen: &Seen<'_>) -> ControlFlow<()>;
}

/// A node with its values, valid during the call.
#[derive(Debug)]
pub struct Seen<'a> {
    pub(super) plan: &'a Plan,
    pub(super) weights: &'a Weights,
    pub(super) state: &'a State,
    pub(super) workspace: &'a Workspace,
    pub(super) copy: usize,
    pub(super) node: TensorId,
    pub(super) device: DeviceIndex,
}

impl Seen<'_> {
    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.plan.graph
    }

    /// The node.
    pub fn node(&self) -> TensorId {
        self.node
    }

    /// Name of the node.
    pub fn name(&self) -> &str {
        &self.plan.graph.tensor(self.node).name
    }

    /// Type, shape and strides.
    pub fn layout(&self) -> &Layout {
        self.plan.graph.layout(self.node)
    }

    /// The device that computed it.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.plan.devices[self.device.0].device
    }

    /// The elements in order, as they are stored.
    ///
    /// # Errors
    /// Memory that cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>, RunError> {
        let mut bytes = bytes_for(self.layout().data_bytes())?;
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// The elements of an f32 node, in order.
    ///
    /// # Errors
    /// Another type; memory that cannot be read.
    pub fn f32(&self) -> Result<Vec<f32>, RunError> {
        self.values(DType::F32)
    }

    /// The elements of an i32 node, in order.
    ///
    /// # Errors
    /// Another type; memory that cannot be read.
    pub fn i32(&self) -> Result<Vec<i32>, RunError> {
        self.values(DType::I32)
    }

    fn values<T: Pod>(&self, wanted: DType) -> Result<Vec<T>, RunError> {
        let layout = *self.layout();
        if layout.dtype() != wanted {
            let (name, wanted) = (self.name().to_owned(), wanted.name());
            return Err(RunError::OutputType { name, layout, wanted });
        }
        let mut values = vec![T::zeroed(); layout.shape().elements()];
        self.read(bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    fn read(&self, bytes: &mut [u8]) -> Result<(), RunError> {
        let Self { plan, weights, state, workspace, copy, node, .. } = *self;
        let (memory, offset) = locate(plan, node, (weights, state, workspace), copy)?;
        let named = |error: MemoryError| plan.memory_error(self.device, error);
        Ok(memory.read_tensor(offset, self.layout(), bytes).map_err(named)?)
    }
}

/// Time that a split took, taken when asked for: the device is waited for after its copies and
/// after its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitTiming {
    /// Number of the split in its plan.
    pub split: usize,
    /// The device.
    pub device: DeviceIndex,
    /// Bytes copied in.
    pub copied_bytes: usize,
    /// Time of the copies, and of waiting for what they copy.
    pub copy: Duration,
    /// Time of the steps.
    pub compute: Duration,
}

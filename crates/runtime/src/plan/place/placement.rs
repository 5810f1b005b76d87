//! The result of placement: a device for each tensor, with the reason.

use tensoryard_graph::{Graph, TensorId, TensorMap};

use crate::plan::DeviceIndex;

/// Why a tensor is placed where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The user said so.
    Pinned,
    /// A leaf, or an op that writes one: the memory is there already.
    InMemory,
    /// A view follows the tensor whose memory it looks into.
    BaseOfView,
    /// A graph input goes to the last device.
    Input,
    /// The weight that is this operand is there.
    Weight(u32),
    /// The weight lies in host memory, and a faster device wants the op.
    Offloaded,
    /// A neighbour earlier in the graph is there.
    GrownDown,
    /// A neighbour later in the graph is there.
    GrownUp,
    /// A device of higher priority uses the same memory.
    Upgraded,
    /// Most sources can be read there.
    MostReadableSources,
    /// The first device that runs the op.
    FirstAble,
    /// The run is predicted to end soonest this way.
    Predicted,
    /// A leaf in memory that no device can use goes where its first reader is.
    Consumer,
    /// Nothing reads the tensor.
    Unused,
}

impl Reason {
    /// The reason in words, for reports.
    pub fn text(self) -> String {
        match self {
            Reason::Pinned => "pinned".to_owned(),
            Reason::InMemory => "in memory".to_owned(),
            Reason::BaseOfView => "base of view".to_owned(),
            Reason::Input => "input".to_owned(),
            Reason::Weight(operand) => format!("weight {operand}"),
            Reason::Offloaded => "offloaded".to_owned(),
            Reason::GrownDown => "grown down".to_owned(),
            Reason::GrownUp => "grown up".to_owned(),
            Reason::Upgraded => "upgraded".to_owned(),
            Reason::MostReadableSources => "most readable sources".to_owned(),
            Reason::FirstAble => "first able".to_owned(),
            Reason::Predicted => "predicted".to_owned(),
            Reason::Consumer => "consumer".to_owned(),
            Reason::Unused => "unused".to_owned(),
        }
    }
}

/// The stages of placement, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Pins are honoured.
    Pins,
    /// Leaves, and what writes into memory that exists.
    Memory,
    /// Ops that their weights draw.
    Weights,
    /// Neighbours of what is placed, in four sweeps.
    Growth,
    /// Ops raised to better devices, and those still open.
    Upgrades,
    /// Leaves that follow their readers, and views.
    Followers,
}

/// A tensor whose device the user fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_backend_sched_set_tensor_backend")]
#[doc(alias = "ggml_backend_sched_set_node_backend")]
pub struct Pin {
    /// The tensor.
    pub tensor: TensorId,
    /// Its device.
    pub device: DeviceIndex,
}

/// The device of each tensor, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    devices: TensorMap<Option<(DeviceIndex, Reason)>>,
}

impl Placement {
    /// A placement of nothing.
    pub fn open(graph: &Graph) -> Self {
        Self { devices: TensorMap::filled(None, graph.len()) }
    }

    /// Number of tensors of the graph that it is for.
    pub(crate) fn len(&self) -> usize {
        self.devices.len()
    }

    /// Places a tensor.
    pub fn set(&mut self, id: TensorId, device: DeviceIndex, reason: Reason) {
        self.devices[id] = Some((device, reason));
    }

    /// The device of a live tensor; `None` for one that nothing reads.
    #[doc(alias = "ggml_backend_sched_get_tensor_backend")]
    #[doc(alias = "ggml_backend_sched_get_node_backend")]
    pub fn device(&self, id: TensorId) -> Option<DeviceIndex> {
        self.devices[id].map(|(device, _)| device)
    }

    /// Why the tensor is there.
    pub fn reason(&self, id: TensorId) -> Reason {
        self.devices[id].map_or(Reason::Unused, |(_, reason)| reason)
    }

    /// States another reason for where a placed tensor is.
    pub(crate) fn restate(&mut self, id: TensorId, reason: Reason) {
        if let Some((_, stated)) = &mut self.devices[id] {
            *stated = reason;
        }
    }
}

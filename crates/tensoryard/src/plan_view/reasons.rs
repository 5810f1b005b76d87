//! Why an operation runs where it runs, in a sentence that names names.

use tensoryard_graph::{OpKind, TensorId};
use tensoryard_runtime::plan::Reason;
use tensoryard_runtime::{Blueprint, MatrixOp, StepOp};

use super::report::Family;

/// The reason of a node's placement in a few words, the same for all nodes that share it.
pub(super) fn words(reason: Reason) -> &'static str {
    match reason {
        Reason::Pinned => "pinned",
        Reason::InMemory => "writes what is kept there",
        Reason::BaseOfView => "looks into memory there",
        Reason::Input => "an input",
        Reason::Weight(_) => "its weight is there",
        Reason::Offloaded => "faster than where its weight is",
        Reason::Consumer => "its first reader is there",
        Reason::GrownDown => "follows what comes before",
        Reason::GrownUp => "goes with what comes after",
        Reason::Upgraded => "first device with that memory",
        Reason::MostReadableSources => "most of its sources are there",
        Reason::FirstAble => "first device that can",
        Reason::Predicted => "predicted to end soonest",
        Reason::Unused => "unused",
    }
}

/// The reason of a node's placement as a sentence.
pub(super) fn sentence(blueprint: &Blueprint, node: TensorId) -> String {
    let graph = &blueprint.graph;
    let device = blueprint
        .placement
        .device(node)
        .map_or("no device", |device| blueprint.devices[device.0].device.info().name.as_str());
    let memory = |id: TensorId| blueprint.residence.of(graph.root(id)).map(|kind| kind.name());
    match blueprint.placement.reason(node) {
        Reason::Pinned => format!("You pinned it to {device}."),
        Reason::InMemory => {
            let root = &graph.tensor(graph.root(node)).name;
            let place = memory(node).unwrap_or(device);
            format!("It writes {root}, which is kept in {place}.")
        }
        Reason::BaseOfView => "It is where the memory that it looks into is.".to_owned(),
        Reason::Input => format!("Inputs are given to {device}, the last device."),
        Reason::Weight(operand) => {
            let weight = graph.tensor(node).sources.get(operand as usize).copied().flatten();
            weight.map_or_else(
                || format!("Its weight is on {device}."),
                |id| {
                    let name = &graph.tensor(graph.root(id)).name;
                    format!("Its weight {name} is kept in {}.", memory(id).unwrap_or(device))
                },
            )
        }
        Reason::Offloaded => {
            format!("{device} is worth copying its weight to, which lies in host memory.")
        }
        Reason::Consumer => format!("Its first reader runs on {device}."),
        Reason::GrownDown => format!("What comes before it runs on {device}, so nothing moves."),
        Reason::GrownUp => format!("What comes after it runs on {device}, so nothing moves."),
        Reason::Upgraded => {
            format!("{device} comes first of the devices that use the same memory.")
        }
        Reason::MostReadableSources => format!("{device} can read most of its sources in place."),
        Reason::FirstAble => format!("{device} is the first device that can run it."),
        Reason::Predicted => {
            format!("With it on {device} the run is predicted to end soonest.")
        }
        Reason::Unused => "Nothing reads it.".to_owned(),
    }
}

/// The family of what a step computes.
pub(super) fn family(op: &StepOp) -> Family {
    match op {
        StepOp::Op(op) => family_of(op.kind()),
        StepOp::NormAffine { .. } => Family::Norm,
        StepOp::Matrix { base: MatrixOp::MulMat(_) | MatrixOp::Conv1d(_), .. } => Family::Matrix,
    }
}

/// The family of an op.
pub(super) fn family_of(kind: OpKind) -> Family {
    match kind {
        OpKind::MulMat | OpKind::Conv1d => Family::Matrix,
        OpKind::Attention | OpKind::SoftMax => Family::Attention,
        OpKind::LayerNorm | OpKind::RmsNorm => Family::Norm,
        OpKind::Binary | OpKind::Scale | OpKind::Unary => Family::Elementwise,
        OpKind::View | OpKind::Copy | OpKind::CopyInto | OpKind::GetRows | OpKind::SetRows => {
            Family::Movement
        }
    }
}

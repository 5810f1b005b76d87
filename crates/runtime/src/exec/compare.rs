//! Two devices compared node by node.
//!
//! Every node of a graph runs on both, alone and unfused, and the results are held against each
//! other, so that the first node that a device computes wrongly can be told from those that
//! only carry its fault on.

use std::ops::ControlFlow;
use std::sync::Arc;

use tensoryard_graph::{DType, Layout, TensorId, TensorMap};
use tensoryard_tensor::decode_to_f32;

use super::graph_data::GraphData;
use crate::tensors::TensorDataError;
use crate::{Backend, BufferType, DeviceError, MemoryError, RunError};

/// Where the operands of a node come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Feed {
    /// Each device goes on with its own results: differences add up as they do in use.
    #[default]
    OwnResults,
    /// Both devices compute each node from the reference's values: each node is judged alone.
    ReferenceInputs,
}

/// What to compare.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompareOptions<'a> {
    /// Where the operands of a node come from.
    pub feed: Feed,
    /// Names of the nodes to compare; `None` for all. The others are computed all the same, up
    /// to the last of these.
    pub nodes: Option<&'a [&'a str]>,
}

/// How far values are from those of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Distance {
    /// Σ(a−b)²/Σa², a being the reference's; 0/0 is 0. Infinite where an infinity meets anything
    /// else. Pairs with a NaN do not count.
    pub nmse: f64,
    /// Largest |a−b|. Pairs with a NaN do not count.
    pub max_abs: f64,
    /// The first element that is NaN on either side.
    pub first_nan: Option<usize>,
}

impl Distance {
    /// Measures how far `other` is from `reference`, element by element, as far as the shorter
    /// goes.
    pub fn between(reference: &[f64], other: &[f64]) -> Self {
        let mut distance = Self::default();
        let (mut error, mut power) = (0.0, 0.0);
        for (index, (&a, &b)) in reference.iter().zip(other).enumerate() {
            if a.is_nan() || b.is_nan() {
                distance.first_nan.get_or_insert(index);
                continue;
            }
            // Equal infinities have no difference, though their subtraction is NaN.
            let apart = if a == b { 0.0 } else { (a - b).abs() };
            error += apart * apart;
            power += if a.is_finite() { a * a } else { 0.0 };
            distance.max_abs = distance.max_abs.max(apart);
        }
        distance.nmse = if error == 0.0 { 0.0 } else { error / power };
        distance
    }
}

/// The results of one node on both devices.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "ggml_backend_eval_callback")]
pub struct NodePair<'a> {
    /// Position among the computed nodes of the graph, views aside.
    pub index: usize,
    /// The node.
    pub id: TensorId,
    /// Its name.
    pub name: &'a str,
    /// Name of its op.
    pub op: &'static str,
    /// Its layout.
    pub layout: &'a Layout,
    /// The reference's values, elements in order.
    pub reference: &'a [f64],
    /// The other device's values, elements in order.
    pub other: &'a [f64],
    /// How far they are apart.
    pub distance: Distance,
}

/// What was found of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDistance {
    /// Position among the computed nodes of the graph, views aside.
    pub index: usize,
    /// Name of the node.
    pub name: String,
    /// Name of its op.
    pub op: &'static str,
    /// How far the results are apart.
    pub distance: Distance,
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompareReport {
    /// The nodes that were compared, in order.
    pub nodes: Vec<NodeDistance>,
    /// Whether the callback stopped it.
    pub stopped: bool,
}

impl CompareReport {
    /// The first node whose results are further apart than that, or hold a NaN.
    pub fn first_beyond(&self, nmse: f64) -> Option<&NodeDistance> {
        let beyond =
            |node: &&NodeDistance| node.distance.nmse > nmse || node.distance.first_nan.is_some();
        self.nodes.iter().find(beyond)
    }
}

/// A graph's data could not be copied, or devices not be compared.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A tensor without memory or values.
    #[error("graph {graph:?} has no data for {tensor:?}")]
    NoData {
        /// Name of the graph.
        graph: String,
        /// Name of the tensor.
        tensor: String,
    },
    /// A node to compare that the graph does not compute.
    #[error("graph {graph:?} computes no {node:?}")]
    UnknownNode {
        /// Name of the graph.
        graph: String,
        /// The name given.
        node: String,
    },
    /// A leaf of another layout.
    #[error("{tensor:?} is {found}, the graph wants {wanted}")]
    LeafLayout {
        /// Name of the tensor.
        tensor: String,
        /// Its layout.
        found: Layout,
        /// Layout in the graph.
        wanted: Layout,
    },
    /// A weight that could not be read.
    #[error("{tensor:?}: {error}")]
    Leaf {
        /// Name of the tensor.
        tensor: String,
        /// What happened.
        #[source]
        error: MemoryError,
    },
    /// State that could not be read.
    #[error("{tensor:?}: {error}")]
    State {
        /// Name of the tensor.
        tensor: String,
        /// What happened.
        #[source]
        error: Box<RunError>,
    },
    /// A type whose values cannot be compared.
    #[error("{tensor:?} is {dtype}, whose values cannot be compared")]
    Type {
        /// Name of the tensor.
        tensor: String,
        /// Its type.
        dtype: DType,
    },
    /// Memory could not be had, written, read or copied.
    #[error(transparent)]
    Data(#[from] TensorDataError),
    /// A device does not run a node, or failed at it.
    #[error("node {node:?}: {error}")]
    Device {
        /// Name of the node.
        node: String,
        /// What happened.
        #[source]
        error: DeviceError,
    },
}

/// Computes a graph on two devices node by node and hands each pair of results to `each`, which
/// stops the comparison by returning [`ControlFlow::Break`]. Views are not reported: they compute
/// nothing.
///
/// `reference` holds the graph's weights, state and inputs in memory that `reference_backend`
/// computes with, and holds its results afterwards; they are copied to memory of `buffer_type`
/// for `backend`. For what a session holds, see [`GraphData::load`].
///
/// # Errors
/// A graph without data; a node to compare that the graph does not compute; a device that does
/// not run a node or failed; memory that cannot be had.
#[doc(alias = "ggml_backend_compare_graph_backend")]
pub fn compare(
    reference: &mut GraphData,
    reference_backend: &mut dyn Backend,
    backend: &mut dyn Backend,
    buffer_type: &Arc<dyn BufferType>,
    options: &CompareOptions<'_>,
    mut each: impl FnMut(&NodePair<'_>) -> ControlFlow<()>,
) -> Result<CompareReport, CompareError> {
    let graph = Arc::clone(reference.graph());
    let wanted = options.nodes.map(|names| find_all(reference, names)).transpose()?;
    let last = wanted.as_ref().map(|wanted| wanted.iter().max().copied());
    let mut other = reference.copy_to(buffer_type)?;
    let mut report = CompareReport::default();
    // Roots that hold the other device's results where the reference's are wanted.
    let mut own = TensorMap::filled(false, graph.len());
    for (index, id) in graph.live_nodes().enumerate() {
        if last.is_some_and(|last| last.is_none_or(|last| id > last)) {
            break;
        }
        let desc = graph.tensor(id);
        if options.feed == Feed::ReferenceInputs {
            for root in desc.present_sources().map(|source| graph.root(source)) {
                if std::mem::take(&mut own[root]) {
                    other.copy_root(reference, root)?;
                }
            }
        }
        reference.compute(reference_backend, id)?;
        other.compute(backend, id)?;
        own[graph.root(id)] = true;
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&id)) {
            continue;
        }
        let (a, b) = (values(reference, id)?, values(&other, id)?);
        let pair = NodePair {
            index,
            id,
            name: &desc.name,
            op: desc.origin.name(),
            layout: &desc.layout,
            reference: &a,
            other: &b,
            distance: Distance::between(&a, &b),
        };
        let flow = each(&pair);
        let (name, NodePair { op, distance, .. }) = (desc.name.clone(), pair);
        report.nodes.push(NodeDistance { index, name, op, distance });
        if flow.is_break() {
            report.stopped = true;
            break;
        }
    }
    Ok(report)
}

fn find_all(data: &GraphData, names: &[&str]) -> Result<Vec<TensorId>, CompareError> {
    let graph = data.graph();
    let find = |&name: &&str| {
        graph.live_nodes().find(|&id| graph.tensor(id).name == name).ok_or_else(|| {
            CompareError::UnknownNode { graph: graph.name().to_owned(), node: name.to_owned() }
        })
    };
    names.iter().map(find).collect()
}

/// The values of a tensor, elements in order.
fn values(data: &GraphData, id: TensorId) -> Result<Vec<f64>, CompareError> {
    let bytes = data.read(id)?;
    let desc = data.graph().tensor(id);
    match desc.layout.dtype() {
        DType::F64 => Ok(bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect()),
        DType::I32 => {
            Ok(bytes.as_chunks().0.iter().map(|&b| f64::from(i32::from_le_bytes(b))).collect())
        }
        dtype => {
            let mut decoded = vec![0.0; desc.layout.shape().elements()];
            decode_to_f32(dtype, &bytes, &mut decoded)
                .map_err(|_| CompareError::Type { tensor: desc.name.clone(), dtype })?;
            Ok(decoded.into_iter().map(f64::from).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        let of = |a: &[f64], b: &[f64]| {
            let Distance { nmse, max_abs, first_nan } = Distance::between(a, b);
            (nmse, max_abs, first_nan)
        };
        assert_eq!(of(&[3.0, 4.0], &[3.0, 4.5]), (0.25 / 25.0, 0.5, None));
        assert_eq!(of(&[0.0, 0.0], &[0.0, -0.0]), (0.0, 0.0, None));
        assert_eq!(of(&[], &[]), (0.0, 0.0, None));
        assert_eq!(of(&[0.0], &[2.0]), (f64::INFINITY, 2.0, None));
        assert_eq!(of(&[1.0, f64::NAN, 2.0], &[f64::NAN, 1.0, 2.0]), (0.0, 0.0, Some(0)));
        assert_eq!(of(&[f64::INFINITY, 1.0], &[f64::INFINITY, 1.0]), (0.0, 0.0, None));
        let (nmse, max_abs, _) = of(&[1.0, f64::INFINITY], &[1.0, f64::NEG_INFINITY]);
        assert_eq!((nmse, max_abs), (f64::INFINITY, f64::INFINITY));
    }
}

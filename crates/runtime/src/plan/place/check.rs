//! Whether a device runs a node, in full and in words.
//!
//! Sources in memory that the device cannot use are asked about without a kind of memory, since
//! they would be copied. A result that later ops write into must lie where they run.

use tensoryard_graph::ops::{Copy, Op};
use tensoryard_graph::{Layout, Node, TensorId};

use super::Placer;
use crate::plan::facts::usable_type;
use crate::plan::{DeviceIndex, Kind};
use crate::{BufferType, OpCase, StepOp};

/// The memory that a root is taken to lie in, while it is not placed yet.
type Assumed = Option<(TensorId, Kind)>;

impl Placer<'_> {
    /// The ops that write into the result of a node.
    pub(super) fn writers_of(&self, node: &Node) -> &[(TensorId, Node)] {
        let start = self.writers.partition_point(|(root, _)| *root < node.id);
        let count = self.writers[start..].partition_point(|(root, _)| *root == node.id);
        &self.writers[start..start + count]
    }

    fn kind_of(&self, root: TensorId, assumed: Assumed) -> Option<Kind> {
        match assumed {
            Some((of, kind)) if of == root => Some(kind),
            Some(_) | None => self.memory[root],
        }
    }

    fn usable(
        &self,
        root: TensorId,
        device: DeviceIndex,
        assumed: Assumed,
    ) -> Option<&dyn BufferType> {
        match assumed {
            Some((of, kind)) if of == root => self
                .facts
                .can_use(device, kind)
                .then(|| -> &dyn BufferType { &**self.facts.buffer_type(kind) }),
            Some(_) | None => usable_type(self.facts, &self.memory, device, root),
        }
    }

    /// Whether the device runs the node, as text when not.
    pub(super) fn check(&self, node: &Node, device: DeviceIndex) -> Result<(), String> {
        self.check_assuming(node, device, None)?;
        let kind = self.facts.kind_of_device(device);
        for (_, writer) in self.writers_of(node) {
            let able = self.facts.device_indices().any(|other| {
                self.facts.can_use(other, kind)
                    && self.check_assuming(writer, other, Some((node.id, kind))).is_ok()
            });
            if !able {
                let name = &self.facts.graph.tensor(writer.id).name;
                let memory = self.facts.buffer_type(kind).name();
                return Err(format!("no device writes {name:?} into {memory}"));
            }
        }
        Ok(())
    }

    fn check_assuming(
        &self,
        node: &Node,
        device: DeviceIndex,
        assumed: Assumed,
    ) -> Result<(), String> {
        let sources = self.facts.graph.node_sources(node);
        self.facts.check_sizes(|root| self.kind_of(root, assumed), node, device)?;
        if let Some(written) = node.written {
            match self.kind_of(node.root, assumed) {
                Some(kind) if self.facts.can_use(device, kind) => {}
                Some(kind) => {
                    return Err(format!("cannot use {}", self.facts.buffer_type(kind).name()));
                }
                None => return Err("what it writes into is not placed".to_owned()),
            }
            for (operand, source) in sources.iter().enumerate() {
                if let Some(source) = source
                    && operand != usize::from(written)
                    && source.root == node.root
                {
                    self.check_copy(source.id, device, assumed)?;
                }
            }
        }
        self.with_case(node, device, assumed, |case| {
            let answer = self.facts.devices[device.0].device.supports_op(case);
            answer.map_err(|unsupported| unsupported.to_string())
        })
        .unwrap_or(Ok(()))
    }

    /// Whether a device that runs a node wants it although its weights lie elsewhere.
    pub(super) fn wants(&self, node: &Node, device: DeviceIndex) -> bool {
        self.with_case(node, device, None, |case| {
            self.facts.devices[device.0].device.wants_offload(case)
        })
        .unwrap_or(false)
    }

    fn with_case<T>(
        &self,
        node: &Node,
        device: DeviceIndex,
        assumed: Assumed,
        ask: impl FnOnce(&OpCase<'_>) -> T,
    ) -> Option<T> {
        let graph = self.facts.graph;
        let sources = graph.node_sources(node);
        let op = StepOp::Op(*graph.tensor(node.id).op()?);
        let layouts: Vec<Option<Layout>> =
            sources.iter().map(|source| source.map(|s| *graph.layout(s.id))).collect();
        let buffer_types: Vec<Option<&dyn BufferType>> = sources
            .iter()
            .map(|source| source.and_then(|s| self.usable(s.root, device, assumed)))
            .collect();
        let dst = graph.layout(node.id);
        Some(ask(&OpCase { op: &op, sources: &layouts, buffer_types: &buffer_types, dst }))
    }

    /// Whether the device can copy a source out of memory that an op writes.
    fn check_copy(
        &self,
        source: TensorId,
        device: DeviceIndex,
        assumed: Assumed,
    ) -> Result<(), String> {
        let layout = self.facts.graph.layout(source);
        let dst = Layout::contiguous(layout.dtype(), layout.shape()).map_err(|e| e.to_string())?;
        let root = self.facts.graph.root(source);
        let case = OpCase {
            op: &StepOp::Op(Op::from(Copy { dtype: layout.dtype() })),
            sources: &[Some(*layout)],
            buffer_types: &[self.usable(root, device, assumed)],
            dst: &dst,
        };
        let answer = self.facts.devices[device.0].device.supports_op(&case);
        answer.map_err(|unsupported| format!("a source lies in what is written: {unsupported}"))
    }

    /// What every device says of a node that none of them runs.
    pub(super) fn refusals(&self, node: &Node) -> String {
        let said = self.facts.device_indices().map(|device| {
            let name = &self.facts.devices[device.0].device.info().name;
            let answer = self.check(node, device).err().unwrap_or_else(|| "runs it".to_owned());
            format!("{name}: {answer}")
        });
        said.collect::<Vec<_>>().join("; ")
    }
}

//! The text form of a plan, for people and for tests that compare it.

use std::fmt::Write;

use super::{Blueprint, Slot};
use crate::{Operand, Region};

impl Blueprint {
    /// The plan as text: devices, memory, and each split with its copies and steps.
    pub fn dump(&self) -> String {
        let mut text = format!("plan of graph {:?}\n", self.graph.name());
        for (index, device) in self.devices.iter().enumerate() {
            let (name, kind) = (&device.device.info().name, device.buffer_type.name());
            _ = writeln!(text, "  device {index}: {name}, compute memory {kind}");
        }
        for (index, (pool, bytes)) in self.memory.chunks.iter().enumerate() {
            let kind = self.memory.pools[*pool].buffer_type.name();
            _ = writeln!(text, "  chunk {index}: {bytes} bytes of {kind}");
        }
        let mut operations = self.operations.iter();
        for (number, split) in self.splits.iter().enumerate() {
            let device = &self.devices[split.device.0].device.info().name;
            _ = writeln!(text, "  split {number} on {device}");
            for &index in &split.arrivals {
                let arrival = self.arrivals[index.0];
                let desc = self.graph.tensor(arrival.tensor);
                let place = self.memory.arrivals[index.0];
                let (name, bytes) = (&desc.name, desc.layout.data_bytes());
                let (chunk, offset) = (place.chunk, place.offset_bytes);
                _ = writeln!(text, "    copy {device}#{name}: {bytes} bytes to c{chunk}+{offset}");
            }
            for step in &split.steps {
                let sources: Vec<String> = step
                    .sources
                    .iter()
                    .map(|source| source.as_ref().map_or_else(|| "-".to_owned(), place))
                    .collect();
                let node = operations.next().and_then(|operation| operation.nodes.last());
                let reason = node.map_or_else(String::new, |&id| {
                    format!(" because {}", self.placement.reason(id).text())
                });
                _ = writeln!(
                    text,
                    "    {} = {}({}) -> {} {}{reason}",
                    step.name,
                    step.op.name(),
                    sources.join(", "),
                    place(&step.dst),
                    step.dst.layout,
                );
            }
        }
        text
    }

    /// Bytes of compute memory by kind.
    pub fn compute_bytes(&self) -> Vec<(String, usize)> {
        let pools = self.memory.pools.iter().enumerate();
        pools
            .map(|(number, pool)| {
                let chunks = self.memory.chunks.iter();
                let bytes = chunks.filter(|(of, _)| *of == number).map(|(_, bytes)| bytes).sum();
                (pool.buffer_type.name().to_owned(), bytes)
            })
            .collect()
    }

    /// Number of tensors that took the memory of another one over.
    pub fn reused_in_place(&self) -> usize {
        self.memory.tensors.iter().filter(|(_, slot)| matches!(slot, Slot::Reuses(_))).count()
    }
}

fn place(operand: &Operand) -> String {
    let offset = operand.offset_bytes;
    match operand.region {
        Region::Weight(n) => format!("w{n}+{offset}"),
        Region::State(n) => format!("s{n}+{offset}"),
        Region::Chunk(n) => format!("c{n}+{offset}"),
    }
}

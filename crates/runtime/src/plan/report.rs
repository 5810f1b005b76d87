//! The text form of a plan, for people and for tests that compare it.

use std::fmt::Write;

use super::{Blueprint, Located, Slot};
use crate::Region;

impl Blueprint {
    /// The plan as text: devices, memory, and each split with its copies and steps.
    pub fn dump(&self) -> String {
        let mut text = format!("plan of graph {:?}\n", self.graph.name());
        for (index, device) in self.devices.iter().enumerate() {
            let (name, kind) = (&device.device.info().name, device.buffer_type.name());
            _ = writeln!(text, "  device {index}: {name}, compute memory {kind}");
        }
        for (index, chunk) in self.memory.chunks.iter().enumerate() {
            let kind = self.memory.buffer_type(index).map_or("nothing", |kind| kind.name());
            let staged = if chunk.staged { ", staged" } else { "" };
            _ = writeln!(text, "  chunk {index}: {} bytes of {kind}{staged}", chunk.bytes);
        }
        for (number, split) in self.splits.iter().enumerate() {
            let device = &self.devices[split.device.0].device.info().name;
            _ = writeln!(text, "  split {number} on {device}");
            for &index in &split.arrivals {
                let arrival = self.arrivals[index.0];
                let desc = self.graph.tensor(arrival.tensor);
                let place = self.memory.arrivals[index.0];
                let (name, bytes) = (&desc.name, desc.layout.data_bytes());
                let (chunk, offset) = (place.chunk, place.offset_bytes);
                let kept = if arrival.kept { ", kept" } else { "" };
                let version = match arrival.version {
                    0 => String::new(),
                    version => format!(" version {version}"),
                };
                _ = writeln!(
                    text,
                    "    copy {device}#{name}{version}: {bytes} bytes to c{chunk}+{offset}{kept}"
                );
            }
            for number in split.steps.clone() {
                self.dump_step(number, &mut text);
            }
            for &id in &split.observed {
                _ = writeln!(text, "    observe {}", self.graph.tensor(id).name);
            }
        }
        text
    }

    fn dump_step(&self, number: usize, text: &mut String) {
        let (Some(operation), Some(result)) =
            (self.operations.get(number), self.places.results.get(number))
        else {
            return;
        };
        let sources = self.operations.entries[number].sources.clone();
        let sources: Vec<String> = self
            .places
            .sources
            .get(sources)
            .unwrap_or_default()
            .iter()
            .map(|source| source.as_ref().map_or_else(|| "-".to_owned(), place))
            .collect();
        let reason = operation.nodes.last().map_or_else(String::new, |&id| {
            format!(" because {}", self.placement.reason(id).text())
        });
        let layout = self.layout(operation.dst).map_or_else(String::new, ToString::to_string);
        _ = writeln!(
            text,
            "    {} = {}({}) -> {} {layout}{reason}",
            self.step_name(number).unwrap_or_default(),
            operation.op.name(),
            sources.join(", "),
            place(result),
        );
    }

    /// Bytes of compute memory by kind, with all copies of what is staged.
    #[doc(alias = "ggml_backend_sched_reserve_size")]
    #[doc(alias = "ggml_gallocr_reserve_n_size")]
    pub fn compute_bytes(&self) -> Vec<(String, usize)> {
        let pools = self.memory.pools.iter().enumerate();
        pools
            .map(|(number, pool)| {
                let chunks = self.memory.chunks.iter();
                let own = chunks.filter(|chunk| chunk.pool == number);
                let bytes = own.map(|chunk| self.memory.chunk_bytes(chunk)).sum();
                (pool.buffer_type.name().to_owned(), bytes)
            })
            .collect()
    }

    /// Number of tensors that took the memory of another one over.
    pub fn reused_in_place(&self) -> usize {
        self.memory.tensors.iter().filter(|(_, slot)| matches!(slot, Slot::Reuses { .. })).count()
    }
}

fn place(operand: &Located) -> String {
    let offset = operand.offset_bytes;
    match operand.region {
        Region::Weight(n) => format!("w{n}+{offset}"),
        Region::State(n) => format!("s{n}+{offset}"),
        Region::Chunk(n) => format!("c{n}+{offset}"),
    }
}

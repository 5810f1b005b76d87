//! The report for a terminal.

use std::fmt::Write;

use super::escape::printable;
use super::report::{CopyReport, GraphReport, MemoryReport, OperationReport, Report, TypeReport};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Devices, memory, splits and copies.
    Summary,
    /// Each operation, too.
    Operations,
}

/// Copies of a split that the summary lists by name.
const SHOWN_COPIES: usize = 3;
/// Splits of a graph that the summary lists.
const SHOWN_SPLITS: usize = 24;

impl Report {
    /// The report as lines of text.
    pub fn text(&self, detail: Detail) -> String {
        let mut text = String::new();
        _ = writeln!(text, "{}, strategy {}", printable(&self.title), printable(&self.strategy));
        text.push_str("\nDevices\n");
        let width = widest(self.devices.iter().map(|device| device.name.as_str()));
        for device in &self.devices {
            let name = printable(&device.name);
            let (description, kind) = (printable(&device.description), device.kind);
            _ = writeln!(text, "  {name:width$}  {description} ({kind})");
        }
        if let Some(unknown) = self.without_speed() {
            let option = match self.threads {
                0 => String::new(),
                threads => format!(" --threads {threads}"),
            };
            _ = writeln!(
                text,
                "  No time is predicted: the speed of {unknown} is not known \
                 (`tensoryard devices --calibrate{option}` measures it)."
            );
        }
        self.memory_table(&mut text);
        for graph in &self.graphs {
            self.graph_text(graph, detail, &mut text);
        }
        text.push('\n');
        text.push_str(&self.verdict());
        text.push('\n');
        text
    }

    /// Whether everything fits, and else what does not and by how much, in one line.
    pub fn verdict(&self) -> String {
        if self.fits {
            return "Everything fits.".to_owned();
        }
        let over: Vec<String> = self
            .memory
            .iter()
            .filter(|memory| memory.over_bytes > 0)
            .map(|memory| {
                format!(
                    "{} needs {} of {}, {} too much",
                    self.memory_name(memory),
                    mebibytes(memory.peak_bytes),
                    mebibytes(memory.limit_bytes.unwrap_or(0)),
                    mebibytes(memory.over_bytes)
                )
            })
            .collect();
        match (over.is_empty(), &self.problem) {
            (true, Some(problem)) => format!("Does not fit: {}.", printable(problem)),
            (_, Some(_) | None) => format!("Does not fit: {}.", over.join("; ")),
        }
    }

    /// The devices that compute in a memory, else its own name.
    pub(super) fn memory_name(&self, memory: &MemoryReport) -> String {
        let names: Vec<String> = memory.devices.iter().map(|&at| self.device(at)).collect();
        if names.is_empty() { printable(&memory.name) } else { names.join(", ") }
    }

    /// The devices for whose sake no time is predicted.
    fn without_speed(&self) -> Option<String> {
        let unknown = self.devices.iter().filter(|device| !device.speed_known);
        let names: Vec<String> = unknown.map(|device| printable(&device.name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn memory_table(&self, text: &mut String) {
        // Memory that no device computes in matters where something is kept in it.
        let is_shown = |m: &&MemoryReport| m.peak_bytes > 0 || !m.devices.is_empty();
        let memory: Vec<&MemoryReport> = self.memory.iter().filter(is_shown).collect();
        let names: Vec<String> = memory.iter().map(|memory| self.memory_name(memory)).collect();
        let width = widest(names.iter().map(String::as_str)).max(6);
        _ = writeln!(
            text,
            "\n{:width$}  {:>12}  {:>12}  {:>12}  {:>12}  {:>12}",
            "Memory",
            "weights",
            "state",
            "compute",
            "peak",
            "limit",
            width = width + 2,
        );
        for (name, memory) in names.iter().zip(memory) {
            let MemoryReport { weights_bytes, state_bytes, compute_bytes, .. } = memory;
            let limit = memory.limit_bytes.map_or_else(|| "-".to_owned(), mebibytes);
            let over = match memory.over_bytes {
                0 => String::new(),
                over => format!("  over by {}", mebibytes(over)),
            };
            _ = writeln!(
                text,
                "  {:width$}  {:>12}  {:>12}  {:>12}  {:>12}  {limit:>12}{over}",
                name,
                mebibytes(*weights_bytes),
                mebibytes(*state_bytes),
                mebibytes(*compute_bytes),
                mebibytes(memory.peak_bytes),
            );
        }
    }

    fn device(&self, index: usize) -> String {
        self.devices.get(index).map_or_else(|| "?".to_owned(), |device| printable(&device.name))
    }

    fn graph_text(&self, graph: &GraphReport, detail: Detail, text: &mut String) {
        _ = writeln!(text, "\n{} ({})", printable(&graph.name), printable(&graph.purpose));
        let mut facts = vec![
            format!(
                "{} in {}",
                count(graph.operations.len(), "operation"),
                count(graph.splits.len(), "split")
            ),
            match graph.copies.len() {
                0 => "no copies".to_owned(),
                copies => format!("{} of {}", count(copies, "copy"), size(graph.copied_bytes)),
            },
            work(graph.flops),
        ];
        if let Some(time) = graph.predicted_ns {
            facts.push(format!("predicted {}", duration(time)));
        }
        _ = writeln!(text, "  {}", facts.join(", "));
        let shown = match detail {
            Detail::Summary => graph.splits.len().min(SHOWN_SPLITS),
            Detail::Operations => graph.splits.len(),
        };
        let device = widest(self.devices.iter().map(|device| device.name.as_str()));
        for (number, split) in graph.splits.iter().take(shown).enumerate() {
            let name = self.device(split.device);
            let ops = if split.operations == 1 { "op" } else { "ops" };
            let mut line =
                format!("  split {number:<3} {name:device$}  {:>4} {ops:3}", split.operations);
            if let Some(time) = split.predicted {
                _ = write!(line, "  {:>9}", duration(time.compute_ns));
            }
            let copies: Vec<&CopyReport> =
                split.copies.iter().filter_map(|&at| graph.copies.get(at)).collect();
            if let Some(first) = copies.first() {
                let listed = match detail {
                    Detail::Summary => copies.len().min(SHOWN_COPIES),
                    Detail::Operations => copies.len(),
                };
                let names: Vec<String> =
                    copies[..listed].iter().map(|copy| copy_name(graph, copy)).collect();
                _ = write!(line, "  copies {} in: {}", size(split.copied_bytes), names.join(", "));
                if copies.len() > listed {
                    _ = write!(line, " and {} more", copies.len() - listed);
                }
                if let Some(from) = first.from
                    && copies.iter().all(|copy| copy.from == first.from)
                {
                    _ = write!(line, " from {}", self.device(from));
                }
            }
            _ = writeln!(text, "{}", line.trim_end());
            if detail == Detail::Operations {
                let last = split.first_operation + split.operations;
                for operation in
                    graph.operations.get(split.first_operation..last).unwrap_or_default()
                {
                    operation_text(operation, text);
                }
            }
        }
        if graph.splits.len() > shown {
            _ = writeln!(text, "  and {} more splits", graph.splits.len() - shown);
        }
    }
}

fn operation_text(operation: &OperationReport, text: &mut String) {
    let mut path = operation.group.clone();
    path.push(operation.label.clone());
    let path = printable(&path.join(" › "));
    let name = printable(&operation.name);
    let mut line = format!(
        "      {:<44} {:<20} {:<22} {:<18} {:>10}",
        path,
        name,
        operation.op,
        type_text(&operation.result),
        size(operation.bytes),
    );
    if let Some(time) = operation.predicted_ns {
        _ = write!(line, " {:>9}", duration(time));
    }
    _ = writeln!(text, "{line}  {}", printable(&operation.because));
}

/// What is copied, by the part of the model that computes it.
fn copy_name(graph: &GraphReport, copy: &CopyReport) -> String {
    let operation = copy.operation.and_then(|at| graph.operations.get(at));
    operation.map_or_else(
        || printable(&copy.tensor),
        |operation| match operation.group.last() {
            Some(part) => printable(&format!("{part} › {}", operation.label)),
            None => printable(&operation.label),
        },
    )
}

/// Number of characters of the longest.
fn widest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0)
}

/// A number with its noun.
pub(super) fn count(n: usize, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (n, Some(stem)) => format!("{n} {stem}ies"),
        (n, None) => format!("{n} {what}s"),
    }
}

pub(super) fn type_text(of: &TypeReport) -> String {
    let dims: Vec<String> = of.shape.iter().map(ToString::to_string).collect();
    format!("{} [{}]", of.dtype, dims.join(", "))
}

/// Bytes in MiB, always, for columns that are compared.
fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Bytes in the unit that suits them.
pub(super) fn size(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Floating-point operations in the unit that suits them.
pub(super) fn work(flops: f64) -> String {
    for (unit, name) in [(1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP")] {
        if flops >= unit {
            return format!("{:.2} {name}", flops / unit);
        }
    }
    format!("{flops:.0} FLOP")
}

/// Nanoseconds in the unit that suits them.
pub(super) fn duration(ns: u64) -> String {
    let value = ns as f64;
    if ns < 1000 {
        format!("{ns} ns")
    } else if ns < 1_000_000 {
        format!("{:.1} µs", value / 1e3)
    } else if ns < 1_000_000_000 {
        format!("{:.2} ms", value / 1e6)
    } else {
        format!("{:.2} s", value / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units_that_suit_them() {
        let sizes = [0, 1023, 1024, 1536 << 10, 3 << 30].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.0 GiB"]);
        let times = [250, 12_340, 12_345_000, 2_500_000_000].map(duration);
        assert_eq!(times, ["250 ns", "12.3 µs", "12.35 ms", "2.50 s"]);
        let works = [48.0, 1500.0, 68.92e6, 41.2e9].map(work);
        assert_eq!(works, ["48 FLOP", "1.50 kFLOP", "68.92 MFLOP", "41.20 GFLOP"]);
        assert_eq!(["split", "copy"].map(|word| count(2, word)), ["2 splits", "2 copies"]);
    }
}

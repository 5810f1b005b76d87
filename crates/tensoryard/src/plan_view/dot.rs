//! The report in the DOT language of Graphviz: a cluster for each split, an edge for each tensor
//! that is read, dashed and labelled with bytes where it is copied.

use std::fmt::Write;

use super::escape::{dot, printable};
use super::report::{Family, GraphReport, Report};
use super::text::{duration, size, type_text};

impl Report {
    /// The report as one directed graph in the DOT language.
    pub fn dot(&self) -> String {
        let mut text = String::new();
        _ = writeln!(text, "digraph \"{}\" {{", dot(&self.title));
        text.push_str("  rankdir=TB; compound=true; newrank=true;\n");
        text.push_str("  graph [fontname=\"Helvetica\", style=rounded, color=\"#9aa0ab\"];\n");
        text.push_str("  node [fontname=\"Helvetica\", fontsize=10, shape=box, style=\"filled,rounded\", color=\"#00000022\"];\n");
        text.push_str("  edge [fontname=\"Helvetica\", fontsize=9, color=\"#7b828e\"];\n");
        for (number, graph) in self.graphs.iter().enumerate() {
            self.dot_graph(number, graph, &mut text);
        }
        text.push_str("}\n");
        text
    }

    fn dot_graph(&self, number: usize, graph: &GraphReport, text: &mut String) {
        _ = writeln!(text, "  subgraph cluster_g{number} {{");
        let time = graph.predicted_ns.map_or_else(String::new, |ns| format!(", {}", duration(ns)));
        let label = format!("{}: {}{time}", graph.name, graph.purpose);
        _ = writeln!(text, "    label=\"{}\";", dot(&label));
        for (at, split) in graph.splits.iter().enumerate() {
            _ = writeln!(text, "    subgraph cluster_g{number}s{at} {{");
            let device = self.devices.get(split.device).map_or("?", |device| &device.name);
            _ = writeln!(text, "      label=\"split {at} on {}\";", dot(device));
            let operations = graph.operations.iter().enumerate();
            for (at, operation) in operations.skip(split.first_operation).take(split.operations) {
                let label = format!(
                    "{}\\n{}\\n{}",
                    dot(&operation.label),
                    dot(&operation.op),
                    dot(&type_text(&operation.result))
                );
                let mut path = operation.group.clone();
                path.push(operation.name.clone());
                let tooltip = format!("{}: {}", printable(&path.join(" › ")), operation.because);
                _ = writeln!(
                    text,
                    "      g{number}o{at} [label=\"{label}\", fillcolor=\"{}\", tooltip=\"{}\"];",
                    fill(operation.family),
                    dot(&tooltip)
                );
            }
            text.push_str("    }\n");
        }
        for (at, operation) in graph.operations.iter().enumerate() {
            for source in &operation.sources {
                let Some(from) = source.operation else { continue };
                let style = match source.copy {
                    Some(_) => format!(" [style=dashed, label=\"{}\"]", size(source.bytes)),
                    None => String::new(),
                };
                _ = writeln!(text, "    g{number}o{from} -> g{number}o{at}{style};");
            }
        }
        text.push_str("  }\n");
    }
}

fn fill(family: Family) -> &'static str {
    match family {
        Family::Matrix => "#cfe0ff",
        Family::Attention => "#ffd6e4",
        Family::Norm => "#ffe9b8",
        Family::Elementwise => "#d2f0d9",
        Family::Movement => "#e4e0f5",
    }
}

//! The report as one static picture: memory bars, then for each graph its splits as lanes by
//! device, with copies as arrows between them.
//!
//! The horizontal axis is predicted time where every split has one, else the order of execution.

use std::fmt::Write;

use super::escape::xml;
use super::lanes::{Lanes, lanes};
use super::report::{Family, GraphReport, MemoryReport, Report};
use super::text::{count, duration, size, type_text};

const WIDTH: f64 = 1280.0;
const MARGIN: f64 = 24.0;
/// Room for the names of devices.
const GUTTER: f64 = 120.0;
const BAND: f64 = 19.0;
const OPERATION: f64 = 40.0;
const HEAD: f64 = 18.0;
const LANE: f64 = HEAD + OPERATION + 8.0;
const GAP: f64 = 44.0;
/// Levels of parts that are drawn.
const BANDS: usize = 2;
/// Width of a letter of the smaller text, at most.
const LETTER: f64 = 6.4;

const STYLE: &str = include_str!("picture.css");

impl Report {
    /// The report as an SVG picture.
    pub fn svg(&self) -> String {
        let mut body = String::new();
        let mut y = self.svg_head(&mut body);
        for graph in &self.graphs {
            y = self.svg_graph(graph, y + 34.0, &mut body);
        }
        let height = y + MARGIN;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\" aria-label=\"Plan of {}\">\n\
             <style>\n{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{body}</svg>\n",
            xml(&self.title)
        )
    }

    /// Title, verdict, legend and memory bars; where they end.
    fn svg_head(&self, out: &mut String) -> f64 {
        text(out, "title", MARGIN, 40.0, &self.title);
        let verdict = if self.fits { "good" } else { "bad" };
        text(out, verdict, MARGIN, 62.0, &self.verdict());
        let mut x = WIDTH - MARGIN - 560.0;
        for family in Family::ALL {
            let name = family.name();
            _ = writeln!(
                out,
                "<rect class=\"part {name}\" x=\"{x:.0}\" y=\"31\" width=\"10\" height=\"10\" rx=\"2\"/>"
            );
            text(out, "note", x + 15.0, 40.0, name);
            x += 112.0;
        }
        let mut y = 78.0;
        for memory in &self.memory {
            self.svg_memory(memory, y, out);
            y += 26.0;
        }
        y
    }

    fn svg_memory(&self, memory: &MemoryReport, y: f64, out: &mut String) {
        let name = self.memory_name(memory);
        text(out, "name", MARGIN, y + 13.0, &cut(&name, GUTTER - 8.0));
        let width = 420.0;
        let whole = memory.limit_bytes.unwrap_or(0).max(memory.peak_bytes).max(1) as f64;
        _ = writeln!(
            out,
            "<rect class=\"lane\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"3\"/>",
            MARGIN + GUTTER
        );
        let mut x = MARGIN + GUTTER;
        let parts = [
            ("weights", memory.weights_bytes),
            ("state", memory.state_bytes),
            ("compute", memory.compute_bytes),
        ];
        for (class, bytes) in parts {
            let part = width * bytes as f64 / whole;
            _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{part:.1}\" height=\"16\"><title>{class} {}</title></rect>",
                size(bytes)
            );
            x += part;
        }
        if let Some(limit) = memory.limit_bytes.filter(|_| memory.over_bytes > 0) {
            let at = MARGIN + GUTTER + width * limit as f64 / whole;
            _ = writeln!(
                out,
                "<rect class=\"over\" x=\"{at:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"16\"/>",
                MARGIN + GUTTER + width - at
            );
        }
        let limit =
            memory.limit_bytes.map_or_else(String::new, |limit| format!(" of {}", size(limit)));
        let parts = parts.map(|(name, bytes)| format!("{name} {}", size(bytes))).join(", ");
        let mut line = format!("{}{limit}: {parts}", size(memory.peak_bytes));
        if memory.over_bytes > 0 {
            _ = write!(line, ", over by {}", size(memory.over_bytes));
        }
        text(out, "note", MARGIN + GUTTER + width + 14.0, y + 13.0, &line);
    }

    /// One graph from `top` on; where it ends.
    fn svg_graph(&self, graph: &GraphReport, top: f64, out: &mut String) -> f64 {
        let lanes = lanes(graph, BANDS);
        text(out, "head", MARGIN, top, &graph.name);
        let mut facts = format!(
            "{}: {} in {}, {} of {}",
            graph.purpose,
            count(graph.operations.len(), "operation"),
            count(graph.splits.len(), "split"),
            count(graph.copies.len(), "copy"),
            size(graph.copied_bytes)
        );
        if let Some(ns) = graph.predicted_ns {
            _ = write!(facts, ", predicted {}", duration(ns));
        }
        text(out, "note", MARGIN + GUTTER, top, &facts);
        let picture = Picture { report: self, graph, lanes: &lanes, top: top + 12.0 };
        picture.draw(out)
    }
}

struct Picture<'a> {
    report: &'a Report,
    graph: &'a GraphReport,
    lanes: &'a Lanes,
    top: f64,
}

impl Picture<'_> {
    fn x(&self, at: f64) -> f64 {
        let width = WIDTH - 2.0 * MARGIN - GUTTER;
        MARGIN + GUTTER + at / self.lanes.end * width
    }

    /// Height of a lane; a device that runs nothing of the graph needs little.
    fn lane_height(&self, device: usize) -> f64 {
        let used = self.graph.operations.iter().any(|operation| operation.device == device);
        if used { LANE } else { 26.0 }
    }

    fn lane_top(&self, device: usize) -> f64 {
        let gap = if self.graph.copies.is_empty() { 8.0 } else { GAP };
        let above: f64 = (0..device).map(|at| self.lane_height(at) + gap).sum();
        self.top + self.lanes.depth as f64 * BAND + 8.0 + above
    }

    fn draw(&self, out: &mut String) -> f64 {
        for band in &self.lanes.bands {
            let (x, y) = (self.x(band.start), self.top + band.level as f64 * BAND);
            let width = (self.x(band.end) - x - 1.0).max(0.5);
            let full = xml(&band.path.join(" › "));
            _ = writeln!(
                out,
                "<rect class=\"band\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"3\"><title>{full}</title></rect>",
                BAND - 3.0
            );
            let name = band.path.last().map_or("", String::as_str);
            text(out, "note", x + 5.0, y + 12.0, &cut(name, width - 8.0));
        }
        for (at, device) in self.report.devices.iter().enumerate() {
            let y = self.lane_top(at);
            _ = writeln!(
                out,
                "<rect class=\"lane\" x=\"{MARGIN}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\"/>",
                WIDTH - 2.0 * MARGIN,
                self.lane_height(at)
            );
            let is_used = self.lane_height(at) >= LANE;
            let line = y + if is_used { 22.0 } else { 17.0 };
            text(out, "name", MARGIN + 10.0, line, &cut(&device.name, GUTTER - 16.0));
            if !is_used {
                text(out, "note", MARGIN + GUTTER, line, "runs nothing of this graph");
                continue;
            }
            let ops = self.graph.operations.iter().filter(|op| op.device == at).count();
            text(out, "note", MARGIN + 10.0, y + 39.0, &count(ops, "op"));
        }
        for (number, split) in self.graph.splits.iter().enumerate() {
            let (start, end) = self.lanes.splits[number];
            let (x, y) = (self.x(start), self.lane_top(split.device));
            let width = (self.x(end) - x).max(0.8);
            _ = writeln!(
                out,
                "<rect class=\"split\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\"/>",
                x - 1.5,
                y + 2.0,
                width + 3.0,
                LANE - 4.0
            );
            let time = split
                .predicted
                .map_or_else(String::new, |time| format!(" · {}", duration(time.compute_ns)));
            let name = format!("split {number} · {}{time}", count(split.operations, "op"));
            let short = if width > LETTER * name.chars().count() as f64 {
                name
            } else {
                number.to_string()
            };
            text(out, "note", x + 4.0, y + 14.0, &cut(&short, width));
        }
        self.operations(out);
        self.copies(out);
        let last = self.report.devices.len().saturating_sub(1);
        self.lane_top(last) + self.lane_height(last)
    }

    fn operations(&self, out: &mut String) {
        for (operation, &(start, end)) in self.graph.operations.iter().zip(&self.lanes.operations) {
            let (x, y) = (self.x(start), self.lane_top(operation.device) + HEAD + 2.0);
            let width = self.x(end) - x;
            let inner = if width > 4.0 { width - 1.0 } else { width.max(0.4) };
            let mut path = operation.group.clone();
            path.push(operation.label.clone());
            let title = format!(
                "{}: {} → {}. {}",
                path.join(" › "),
                operation.op,
                type_text(&operation.result),
                operation.because
            );
            _ = writeln!(
                out,
                "<rect class=\"op {}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{inner:.2}\" height=\"{OPERATION}\"><title>{}</title></rect>",
                operation.family.name(),
                xml(&title)
            );
            let label = cut(&operation.label, inner - 6.0);
            text(out, "note", x + 4.0, y + 24.0, &label);
        }
    }

    fn copies(&self, out: &mut String) {
        for bundle in &self.lanes.bundles {
            let down = bundle.from.is_none_or(|from| from < bundle.to);
            let edge = |device: usize, below: bool| {
                self.lane_top(device) + if below { self.lane_height(device) } else { 0.0 }
            };
            let y0 = bundle.from.map_or(self.top - 4.0, |from| edge(from, down));
            let y1 = edge(bundle.to, !down);
            let turn = if down { 1.0 } else { -1.0 };
            let middle = y1 - turn * 14.0;
            let (x0, x1) = (self.x(bundle.start), self.x(bundle.end));
            let x0 = if x1 - x0 < 6.0 { x1 } else { x0 };
            _ = writeln!(
                out,
                "<g class=\"copy\"><title>{} to {}</title><path d=\"M{x0:.1} {y0:.1}V{middle:.1}H{x1:.1}V{:.1}\"/>\
                 <path class=\"tip\" d=\"M{:.1} {:.1}h7l-3.5 {:.1}z\"/>",
                size(bundle.bytes),
                xml(self.report.devices.get(bundle.to).map_or("", |device| &device.name)),
                y1 - turn * 5.0,
                x1 - 3.5,
                y1 - turn * 6.0,
                turn * 6.0
            );
            let label = size(bundle.bytes);
            let width = label.chars().count() as f64 * LETTER + 8.0;
            // Where copies are many, their labels would hide each other.
            if bundle.room > width {
                let x = f64::midpoint(x0, x1)
                    .clamp(MARGIN + GUTTER + width / 2.0, WIDTH - MARGIN - width / 2.0);
                _ = writeln!(
                    out,
                    "<rect class=\"pill\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"15\" rx=\"7.5\"/>",
                    x - width / 2.0,
                    middle - 7.5
                );
                _ = writeln!(
                    out,
                    "<text class=\"note\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
                    middle + 4.0
                );
            }
            out.push_str("</g>\n");
        }
    }
}

fn text(out: &mut String, class: &str, x: f64, y: f64, content: &str) {
    if !content.is_empty() {
        let content = xml(content);
        _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{content}</text>");
    }
}

/// As much of a text as fits; nothing where less than three letters would.
fn cut(content: &str, width: f64) -> String {
    let fits = (width / LETTER).max(0.0) as usize;
    if content.chars().count() <= fits {
        return content.to_owned();
    }
    if fits < 3 {
        return String::new();
    }
    content.chars().take(fits - 1).chain(['…']).collect()
}

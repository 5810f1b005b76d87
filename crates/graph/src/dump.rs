//! The text form of a graph, one tensor a line, that tests compare and people read.
//!
//! ```text
//! graph "linear"
//!   %0 x: input f32 [384, 10]
//!   %1 weight: weight f16 [384, 1536]
//!   %2 mul_mat.2: mul_mat(weight %1, input %0) f32 [1536, 10] -> output
//! ```

use std::fmt::Write;

use crate::Graph;

impl Graph {
    /// The graph as text.
    pub fn dump(&self) -> String {
        let mut text = format!("graph {:?}\n", self.name());
        for id in self.ids() {
            let desc = self.tensor(id);
            let mut line = format!("  {id} {}: {}", desc.name, desc.origin.name());
            if let Some(op) = desc.op() {
                let operands: Vec<String> = op
                    .operands()
                    .iter()
                    .zip(&desc.sources)
                    .filter_map(|(spec, source)| source.map(|s| format!("{} {s}", spec.name)))
                    .collect();
                _ = write!(line, "({})", operands.join(", "));
                let parameters = op.parameters();
                if !parameters.is_empty() {
                    _ = write!(line, " {{{parameters}}}");
                }
            }
            _ = write!(line, " {}", desc.layout);
            if let Some(view) = desc.view {
                _ = write!(line, " in {} at {}", view.root, view.offset_bytes);
            }
            if desc.version > 0 {
                _ = write!(line, " v{}", desc.version);
            }
            if desc.output {
                line.push_str(" -> output");
            }
            if !self.is_live(id) {
                line.push_str(" (unused)");
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

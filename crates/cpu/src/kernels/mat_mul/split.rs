//! How a matrix product is cut into chunks for a team.

use std::ops::Range;

use crate::team::split_even;

/// Activation rows of the largest register tile of any level; chunks of rows
/// are whole multiples of it, except the last.
const ROW_UNIT: usize = 12;

/// A product cut into `row_parts` × `panel_parts` chunks of about equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatMulSplit {
    n: usize,
    panels: usize,
    row_parts: usize,
    panel_parts: usize,
}

impl MatMulSplit {
    /// At least `parts` chunks of a product of `n` activation rows and
    /// `panels` panels, as far as there is work for so many: rows are split
    /// when there are many, panels when there are few, both in between.
    pub fn new(n: usize, panels: usize, parts: usize) -> Self {
        let row_units = n.div_ceil(ROW_UNIT).max(1);
        // Every part converts or streams all panels, so each should have several tiles of rows.
        let row_parts =
            if row_units >= 4 * parts { parts } else { (row_units / 4).clamp(1, parts.max(1)) };
        let panel_parts = parts.div_ceil(row_parts).clamp(1, panels.max(1));
        Self { n, panels, row_parts, panel_parts }
    }

    /// At least `parts` chunks, as far as there is work for so many, by cutting further:
    /// rows into parts of no more than `block_rows`, then panels, and rows again where panels
    /// are few. Chunks that follow one another share their rows.
    #[must_use]
    pub fn finer(self, block_rows: usize, parts: usize) -> Self {
        if parts <= self.chunks() {
            return self;
        }
        let row_units = self.n.div_ceil(ROW_UNIT).max(1);
        let row_parts = self.n.div_ceil(block_rows.max(1)).clamp(self.row_parts, row_units);
        let panel_parts =
            parts.div_ceil(row_parts).clamp(self.panel_parts, self.panels.max(self.panel_parts));
        let row_parts = parts.div_ceil(panel_parts).clamp(row_parts, row_units.max(row_parts));
        Self { row_parts, panel_parts, ..self }
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.row_parts * self.panel_parts
    }

    /// Activation rows and panels of one chunk; either may be empty.
    pub fn chunk(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let (row_part, panel_part) = (index / self.panel_parts, index % self.panel_parts);
        (
            split_even(self.n, ROW_UNIT, self.row_parts, row_part),
            split_even(self.panels, 1, self.panel_parts, panel_part),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_tile_the_product_exactly_once() {
        for (n, panels) in [(0, 3), (1, 1), (1, 12), (5, 48), (100, 2), (1500, 48)] {
            for (parts, finer) in [(1, 1), (2, 2), (3, 3), (8, 8), (1, 7), (2, 60), (3, 100_000)] {
                let split = MatMulSplit::new(n, panels, parts).finer(300, finer);
                let most = n.div_ceil(ROW_UNIT).max(1) * panels;
                assert!(split.chunks() >= finer.min(most), "{split:?} for {finer}");
                let mut hits = vec![0; n * panels];
                for index in 0..split.chunks() {
                    let (rows, panel_range) = split.chunk(index);
                    for row in rows {
                        for panel in panel_range.clone() {
                            hits[row * panels + panel] += 1;
                        }
                    }
                }
                assert!(hits.iter().all(|hits| *hits == 1), "{n} {panels} {parts}");
            }
        }
    }

    #[test]
    fn many_rows_split_rows_and_few_split_panels() {
        assert_eq!(MatMulSplit::new(1500, 12, 2).chunk(0), (0..756, 0..12));
        assert_eq!(MatMulSplit::new(1, 12, 2).chunk(1), (0..1, 6..12));
    }

    #[test]
    fn finer_chunks_keep_blocks_of_rows_while_there_are_panels() {
        let split = MatMulSplit::new(1500, 48, 1).finer(300, 20);
        assert_eq!((split.row_parts, split.panel_parts), (5, 4));
        assert_eq!((split.chunk(1), split.chunk(4)), ((0..300, 12..24), (300..600, 0..12)));
        let split = MatMulSplit::new(1500, 2, 2).finer(300, 20);
        assert_eq!((split.row_parts, split.panel_parts), (10, 2));
        assert_eq!(MatMulSplit::new(1500, 12, 2).finer(300, 2), MatMulSplit::new(1500, 12, 2));
    }
}

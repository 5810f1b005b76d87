//! The loops around the tiles.
//!
//! Activation rows are taken in blocks that stay in the second cache; inside
//! a block each panel is made ready once (half floats widened, plain rows
//! packed) and used for all tiles of the block.

use std::ops::Range;

use crate::isa::Isa;
use crate::kernels::convert::Widen;
use crate::kernels::mat_mul::epilogue::Epilogue;
use crate::kernels::mat_mul::tile::{self, PanelElement, stream};
use crate::kernels::rows::{AnyRows, Rows};
use crate::pack::{PANEL_ROWS, PanelData, Panels};
use crate::simd::{Kernel, Simd};
use crate::span::DstRows;

/// Bytes of activation rows in one block.
const BLOCK_BYTES: usize = 512 * 1024;

/// The most activation rows of any level's tile.
const MAX_TILE_ROWS: usize = 12;

#[derive(Clone, Copy)]
pub(super) enum Weights<'a> {
    Packed(Panels<'a>),
    Rows(AnyRows<'a>),
}

impl Weights<'_> {
    fn rows(&self) -> usize {
        match self {
            Weights::Packed(panels) => panels.rows(),
            Weights::Rows(rows) => rows.n(),
        }
    }

    fn k(&self) -> usize {
        match self {
            Weights::Packed(panels) => panels.k(),
            Weights::Rows(rows) => rows.k(),
        }
    }

    fn value(&self, m: usize, k: usize) -> f32 {
        match self {
            Weights::Rows(rows) => rows.value(m, k),
            Weights::Packed(panels) => {
                let at = m / PANEL_ROWS * panels.panel_len() + k * PANEL_ROWS + m % PANEL_ROWS;
                match panels.data() {
                    PanelData::F32(data) => data[at],
                    PanelData::F16(data) => data[at].to_f32(),
                }
            }
        }
    }
}

pub(super) struct MatMul<'a, 'w> {
    pub isa: Isa,
    pub weights: Weights<'a>,
    pub panels: Range<usize>,
    pub rows: Rows<'a>,
    pub epilogue: &'a Epilogue<'a>,
    pub dst: &'a mut DstRows<'w>,
    pub scratch: &'a mut [f32],
}

impl MatMul<'_, '_> {
    pub fn run(self) {
        let m = self.weights.rows();
        assert_eq!(self.weights.k(), self.rows.k(), "inner sizes differ");
        assert_eq!(self.rows.n(), self.dst.n(), "row counts differ");
        assert!(self.panels.end <= m.div_ceil(PANEL_ROWS), "no panel {}", self.panels.end);
        assert!(self.epilogue.suits(self.rows.n(), m), "bias or residual of another size");
        if self.rows.n() > 0 && !self.panels.is_empty() {
            self.isa.run(self);
        }
    }

    /// The weight rows of a panel that are no padding.
    fn columns(&self, panel: usize) -> Range<usize> {
        panel * PANEL_ROWS..self.weights.rows().min((panel + 1) * PANEL_ROWS)
    }

    /// Few activation rows: every panel once, straight from its memory.
    #[inline(always)]
    fn stream<S: Simd, E: PanelElement>(mut self, s: S, data: &[E]) {
        let (n, k) = (self.rows.n(), self.rows.k());
        let mut tile = TileBuffer::default();
        for panel in self.panels.clone() {
            let elements = &data[panel * PANEL_ROWS * k..][..PANEL_ROWS * k];
            if n <= S::STREAM_ROWS {
                stream(s, elements, &self.rows, &mut tile.0, PANEL_ROWS);
            } else {
                tile::tile(s, elements, &self.rows, &mut tile.0, PANEL_ROWS);
            }
            self.finish(s, &tile, 0..n, panel);
        }
    }

    /// Many activation rows: every panel as `f32` for a block of them.
    #[inline(always)]
    fn blocks<S: Simd>(mut self, s: S) {
        let (n, k) = (self.rows.n(), self.rows.k());
        let block = (BLOCK_BYTES / 4 / k.max(1) / S::TILE_ROWS).max(4) * S::TILE_ROWS;
        let scratch = std::mem::take(&mut self.scratch);
        let scratch = match self.weights {
            Weights::Packed(Panels { .. }) if !self.needs_scratch() => &mut [],
            _ => aligned(scratch, PANEL_ROWS * k),
        };
        let mut tile = TileBuffer::default();
        for block_start in (0..n).step_by(block) {
            let block_end = n.min(block_start + block);
            for panel in self.panels.clone() {
                let elements = self.panel(s, panel, scratch);
                for first in (block_start..block_end).step_by(S::TILE_ROWS) {
                    let rows = first..block_end.min(first + S::TILE_ROWS);
                    self.prefetch(s, rows.clone(), panel);
                    let part = self.rows.slice(rows.clone());
                    tile::tile(s, elements, &part, &mut tile.0, PANEL_ROWS);
                    self.finish(s, &tile, rows, panel);
                }
            }
        }
    }

    fn needs_scratch(&self) -> bool {
        match self.weights {
            Weights::Packed(panels) => !matches!(panels.data(), PanelData::F32(_)),
            Weights::Rows(_) => true,
        }
    }

    #[inline(always)]
    fn panel<'b, S: Simd>(&self, s: S, panel: usize, scratch: &'b mut [f32]) -> &'b [f32]
    where
        Self: 'b,
    {
        let range = panel * PANEL_ROWS * self.rows.k()..(panel + 1) * PANEL_ROWS * self.rows.k();
        match self.weights {
            Weights::Packed(panels) => match panels.data() {
                PanelData::F32(data) => return &data[range],
                PanelData::F16(data) => s.enter(Widen { src: &data[range], dst: scratch }),
            },
            Weights::Rows(rows) => pack_f32_panel(s, &rows.slice(self.columns(panel)), scratch),
        }
        scratch
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, rows: Range<usize>, panel: usize) {
        for n in rows {
            let first = self.dst.address(n, panel * PANEL_ROWS);
            s.prefetch(first);
            s.prefetch(first.wrapping_add(PANEL_ROWS / 2));
        }
    }

    #[inline(always)]
    fn finish<S: Simd>(&mut self, s: S, tile: &TileBuffer, rows: Range<usize>, panel: usize) {
        let columns = self.columns(panel);
        self.epilogue.finish_tile(s, &tile.0, rows, columns, self.dst);
    }
}

impl Kernel for MatMul<'_, '_> {
    type Output = ();

    fn scalar(self) {
        for panel in self.panels.clone() {
            for m in self.columns(panel) {
                for n in 0..self.rows.n() {
                    let row = self.rows.row(n);
                    let weight = |k| f64::from(self.weights.value(m, k));
                    let products = row.iter().enumerate().map(|(k, v)| weight(k) * f64::from(*v));
                    let product: f64 = products.sum();
                    let out = &mut self.dst.row_mut(n, m..m + 1)[0];
                    *out = self.epilogue.finish_element(product as f32, n, m, *out);
                }
            }
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let n = self.rows.n();
        match self.weights {
            Weights::Packed(panels) if n <= S::TILE_ROWS => match panels.data() {
                PanelData::F32(data) => self.stream(s, data),
                PanelData::F16(data) => self.stream(s, data),
            },
            Weights::Packed(_) | Weights::Rows(_) => self.blocks(s),
        }
    }
}

/// Where a tile leaves its products before the epilogue.
#[repr(align(64))]
struct TileBuffer([f32; MAX_TILE_ROWS * PANEL_ROWS]);

impl Default for TileBuffer {
    fn default() -> Self {
        Self([0.0; MAX_TILE_ROWS * PANEL_ROWS])
    }
}

/// `len` elements of `scratch` that begin at a cache line.
pub(crate) fn aligned(scratch: &mut [f32], len: usize) -> &mut [f32] {
    let skip = scratch.as_ptr().align_offset(64);
    let skip = if skip + len <= scratch.len() { skip } else { 0 };
    &mut scratch[skip..][..len]
}

/// Packs up to 32 rows as an `f32` panel; missing rows become zeros.
#[inline(always)]
pub(crate) fn pack_f32_panel<S: Simd>(s: S, rows: &AnyRows<'_>, panel: &mut [f32]) {
    s.enter(PackPanel { rows: *rows, panel });
}

struct PackPanel<'a> {
    rows: AnyRows<'a>,
    panel: &'a mut [f32],
}

impl Kernel for PackPanel<'_> {
    type Output = ();

    fn scalar(self) {
        for (k, step) in self.panel.chunks_exact_mut(PANEL_ROWS).enumerate() {
            for (row, out) in step.iter_mut().enumerate() {
                *out = if row < self.rows.n() { self.rows.value(row, k) } else { 0.0 };
            }
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        // Short pieces of k, so that the part of the panel being filled stays in the first cache.
        const PIECE: usize = 64;
        let mut values = [0.0; PIECE];
        for (piece, steps) in self.panel.chunks_mut(PIECE * PANEL_ROWS).enumerate() {
            let k = piece * PIECE..piece * PIECE + steps.len() / PANEL_ROWS;
            for row in 0..PANEL_ROWS {
                let values = &mut values[..k.len()];
                if row >= self.rows.n() {
                    values.fill(0.0);
                } else {
                    match &self.rows {
                        AnyRows::F32(rows) => values.copy_from_slice(&rows.row(row)[k.clone()]),
                        AnyRows::F16(rows) => {
                            Widen { src: &rows.row(row)[k.clone()], dst: values }.simd(s);
                        }
                    }
                }
                let column = steps[row..].iter_mut().step_by(PANEL_ROWS);
                column.zip(values).for_each(|(out, value)| *out = *value);
            }
        }
    }
}

//! Many queries: K and V of the head become panels in scratch memory, and
//! both products run through the register tile.
//!
//! A strip holds the scores of as many queries as a tile has rows; it is
//! written, turned into weights and multiplied with V while it stays in the
//! second cache.

use std::f32::consts::LOG2_E;

use super::{HeadQueries, direct, inverse, scaled, weights};
use crate::kernels::mat_mul::pack_f32_panel;
use crate::kernels::mat_mul::tile::tile;
use crate::kernels::rows::Rows;
use crate::pack::PANEL_ROWS;
use crate::simd::{MAX_LANES, Simd};

/// The most rows of any level's tile.
const MAX_TILE_ROWS: usize = 12;

pub(super) fn scratch_len(n_kv: usize, [k_dim, v_dim]: [usize; 2]) -> usize {
    let strip = n_kv.next_multiple_of(PANEL_ROWS);
    let k_panels = strip * k_dim;
    let v_panels = v_dim.next_multiple_of(PANEL_ROWS) * n_kv;
    let queries = MAX_TILE_ROWS * k_dim.next_multiple_of(MAX_LANES);
    k_panels + v_panels + queries + MAX_TILE_ROWS * (strip + PANEL_ROWS)
}

#[inline(always)]
pub(super) fn run<S: Simd>(s: S, mut task: HeadQueries<'_, '_>) {
    let (n_kv, k_dim, v_dim) = (task.k.n(), task.k.k(), task.v.k());
    if n_kv == 0 {
        return direct::run(s, task);
    }
    let scratch = std::mem::take(&mut task.scratch);
    let misaligned = scratch.as_ptr().align_offset(64).min(MAX_LANES);
    let (_, parts) = scratch.split_at_mut(misaligned);
    let strip_len = n_kv.next_multiple_of(PANEL_ROWS);
    let (k_panels, parts) = parts.split_at_mut(strip_len * k_dim);
    let (v_panels, parts) = parts.split_at_mut(v_dim.next_multiple_of(PANEL_ROWS) * n_kv);
    let (strip, parts) = parts.split_at_mut(MAX_TILE_ROWS * strip_len);
    let (products, parts) = parts.split_at_mut(MAX_TILE_ROWS * PANEL_ROWS);
    let queries = &mut parts[..MAX_TILE_ROWS * k_dim];

    let k_panel_len = PANEL_ROWS * k_dim;
    for first in (0..n_kv).step_by(PANEL_ROWS) {
        let rows = task.k.slice(first..n_kv.min(first + PANEL_ROWS));
        pack_f32_panel(s, &rows, &mut k_panels[first * k_dim..][..k_panel_len]);
    }
    if !pack_values(s, &task, v_panels) {
        task.scratch = scratch;
        return direct::run(s, task);
    }

    let n_q = task.q.n();
    for block in (0..n_q).step_by(S::TILE_ROWS) {
        let rows = S::TILE_ROWS.min(n_q - block);
        for (i, query) in queries.chunks_exact_mut(k_dim.max(1)).take(rows).enumerate() {
            scaled(s, task.q.row(block + i), task.scale * LOG2_E, query);
        }
        let query_rows = Rows::new(queries, k_dim, rows, k_dim).expect("queries fit");
        for first in (0..n_kv).step_by(PANEL_ROWS) {
            let panel = &k_panels[first * k_dim..][..k_panel_len];
            tile(s, panel, &query_rows, &mut strip[first..], strip_len);
        }
        let mut factors = [0.0; MAX_TILE_ROWS];
        for (i, scores) in strip.chunks_exact_mut(strip_len).take(rows).enumerate() {
            let mask = task.mask.map(|mask| mask.row(block + i));
            factors[i] = inverse(weights(s, &mut scores[..n_kv], mask));
        }
        let strip_rows = Rows::new(strip, strip_len, rows, n_kv).expect("the strip fits");
        let v_panel_len = PANEL_ROWS * n_kv;
        for (panel, first) in v_panels.chunks_exact(v_panel_len).zip((0..v_dim).step_by(PANEL_ROWS))
        {
            tile(s, panel, &strip_rows, products, PANEL_ROWS);
            let columns = first..v_dim.min(first + PANEL_ROWS);
            for (i, factor) in factors[..rows].iter().enumerate() {
                let row = &products[i * PANEL_ROWS..][..columns.len()];
                scaled(s, row, *factor, task.dst.row_mut(block + i, columns.clone()));
            }
        }
    }
}

/// Packs Vᵀ: a panel is 32 dimensions of all rows of V. Rows that no query
/// sees become zeros when they are not finite, since zero times those is not
/// zero. Returns false when such a row is hidden from some queries only.
#[inline(always)]
fn pack_values<S: Simd>(s: S, task: &HeadQueries<'_, '_>, panels: &mut [f32]) -> bool {
    let (n_kv, v_dim) = (task.v.n(), task.v.k());
    for j in 0..n_kv {
        let row = task.v.row(j);
        let mut check = s.zero();
        for panel in 0..v_dim.div_ceil(PANEL_ROWS) {
            let out = &mut panels[(panel * n_kv + j) * PANEL_ROWS..][..PANEL_ROWS];
            for lane in (0..PANEL_ROWS).step_by(S::LANES) {
                let first = panel * PANEL_ROWS + lane;
                let count = S::LANES.min(v_dim.saturating_sub(first));
                let value = if count > 0 { row.load(s, first, count) } else { s.zero() };
                check = s.mul_add(value, s.zero(), check);
                s.store(value, &mut out[lane..]);
            }
        }
        // The sum of all values times zero.
        if task.mask.is_some() && s.reduce_add(check) != 0.0 {
            let n_q = task.q.n();
            let hidden = (0..n_q).filter(|i| task.hides(*i, j)).count();
            if hidden > 0 && hidden < n_q {
                return false;
            }
            if hidden == n_q {
                for panel in panels.chunks_exact_mut(n_kv * PANEL_ROWS) {
                    panel[j * PANEL_ROWS..][..PANEL_ROWS].fill(0.0);
                }
            }
        }
    }
    true
}

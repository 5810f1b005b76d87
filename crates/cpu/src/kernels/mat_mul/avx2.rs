//! Tiles of the AVX2 level: 2 vectors of 8 weight rows × 6 activation rows
//! are 12 of 16 registers; a panel is two such halves.

use crate::kernels::mat_mul::tile::{MatMulTiles, PanelElement, TileRun, tile_of};
use crate::simd::{Avx2, Simd};

const HALF: usize = 16;

impl MatMulTiles for Avx2 {
    const TILE_ROWS: usize = 6;
    const STREAM_ROWS: usize = 2;

    #[inline(always)]
    unsafe fn tile<E: PanelElement>(self, run: TileRun<E>, n: usize) {
        for half in 0..2 {
            // SAFETY: both halves lie inside the panel and the result.
            let (panel, out) = unsafe { (run.panel.add(half * HALF), run.out.add(half * HALF)) };
            let run = TileRun { panel, out, ..run };
            tile_of!(self, run, n, 2: 1 * 2, 2 * 2, 3 * 2, 4 * 1, 5 * 1, 6 * 1);
        }
    }

    #[inline(always)]
    unsafe fn stream<E: PanelElement>(self, run: TileRun<E>, n: usize) {
        tile_of!(self, run, n, 4: 1 * 2, 2 * 1);
    }
}

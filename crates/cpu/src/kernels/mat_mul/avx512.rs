//! Tiles of the AVX-512 level: 2 vectors of 16 weight rows × 12 activation
//! rows are 24 of 32 registers.

use crate::kernels::mat_mul::tile::{MatMulTiles, PanelElement, TileRun, tile_of};
use crate::simd::{Avx512, Simd};

impl MatMulTiles for Avx512 {
    const TILE_ROWS: usize = 12;
    const STREAM_ROWS: usize = 4;

    #[inline(always)]
    unsafe fn tile<E: PanelElement>(self, run: TileRun<E>, n: usize) {
        tile_of!(self, run, n, 2: 1 * 2, 2 * 4, 3 * 2, 4 * 2, 5 * 2, 6 * 1, 7 * 1, 8 * 1, 9 * 1,
            10 * 1, 11 * 1, 12 * 1);
    }

    #[inline(always)]
    unsafe fn stream<E: PanelElement>(self, run: TileRun<E>, n: usize) {
        // SAFETY: the same contract; with both vectors in one tile the panel is read in order.
        unsafe { self.tile(run, n) };
    }
}

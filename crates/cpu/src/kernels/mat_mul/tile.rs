//! The register tile: 32 weight rows times a few activation rows.
//!
//! A tile keeps its sums in vector registers over the whole of `k`: one load
//! of the panel's vectors and one broadcast an activation row per step. The
//! result comes out as whole vectors of `dst[n][m..]`, so nothing is summed
//! across lanes. Each level says how many vectors and activation rows its
//! registers hold. [`tile`] and [`stream`] check the operands once and are
//! the only way here from safe code; behind them the unsafe code reads
//! through the pointers of a [`TileRun`].

use std::hint::black_box;

use half::f16;

use crate::kernels::rows::Rows;
use crate::pack::PANEL_ROWS;
use crate::simd::{Kernel, Simd};
use crate::span::fits;

/// Products of the 32 weight rows of a panel and all of `rows`, at most
/// [`MatMulTiles::TILE_ROWS`]: 32 values for each, `out_stride` apart.
#[inline(always)]
pub(crate) fn tile<S: Simd, E: PanelElement>(
    s: S,
    panel: &[E],
    rows: &Rows<'_>,
    out: &mut [f32],
    out_stride: usize,
) {
    assert!(rows.n() <= S::TILE_ROWS);
    let run = TileRun::checked(panel, rows, out, out_stride);
    // SAFETY: `checked` compared the operands with the number of rows.
    unsafe { s.tile(run, rows.n()) };
}

/// As [`tile`] for at most [`MatMulTiles::STREAM_ROWS`] rows, reading the
/// panel strictly in order.
#[inline(always)]
pub(crate) fn stream<S: Simd, E: PanelElement>(
    s: S,
    panel: &[E],
    rows: &Rows<'_>,
    out: &mut [f32],
    out_stride: usize,
) {
    assert!(rows.n() <= S::STREAM_ROWS);
    let run = TileRun::checked(panel, rows, out, out_stride);
    // SAFETY: `checked` compared the operands with the number of rows.
    unsafe { s.stream(run, rows.n()) };
}

/// The operands of one tile.
pub(crate) struct TileRun<E> {
    /// `k` × 32 elements of a panel.
    pub panel: *const E,
    pub k: usize,
    /// `n` rows of `k` values, `row_stride` apart.
    pub rows: *const f32,
    pub row_stride: usize,
    /// Receives `n` rows of 32 values, `out_stride` apart.
    pub out: *mut f32,
    pub out_stride: usize,
}

impl<E> TileRun<E> {
    #[inline(always)]
    fn checked(panel: &[E], rows: &Rows<'_>, out: &mut [f32], out_stride: usize) -> Self {
        assert!(panel.len() >= rows.k() * PANEL_ROWS);
        assert!(fits(out.len(), out_stride, rows.n(), PANEL_ROWS).is_some());
        Self {
            panel: panel.as_ptr(),
            k: rows.k(),
            rows: rows.as_ptr(),
            row_stride: rows.stride(),
            out: out.as_mut_ptr(),
            out_stride,
        }
    }
}

impl<E> Clone for TileRun<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for TileRun<E> {}

/// An element of a panel.
pub(crate) trait PanelElement: Copy {
    /// # Safety
    /// `src` is valid for reading `S::LANES` elements.
    unsafe fn load<S: Simd>(s: S, src: *const Self) -> S::F;

    fn value(self) -> f32;
}

impl PanelElement for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, src: *const f32) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { s.load_ptr(src) }
    }

    fn value(self) -> f32 {
        self
    }
}

impl PanelElement for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, src: *const f16) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { s.load_f16_ptr(src) }
    }

    fn value(self) -> f32 {
        self.to_f32()
    }
}

/// The tiles of a level.
pub(crate) trait MatMulTiles: Sized {
    /// Activation rows of the largest tile.
    const TILE_ROWS: usize;
    /// Activation rows of the largest tile that reads each panel once, in order.
    const STREAM_ROWS: usize;

    /// Computes `n` ≤ [`MatMulTiles::TILE_ROWS`] activation rows.
    ///
    /// # Safety
    /// The panel is valid for reading `32 * k` elements, `rows` for `n` rows
    /// of `k`, `out` for writing `n` rows of 32, at the given strides.
    unsafe fn tile<E: PanelElement>(self, run: TileRun<E>, n: usize);

    /// Computes `n` ≤ [`MatMulTiles::STREAM_ROWS`] activation rows, reading
    /// the panel strictly in order.
    ///
    /// # Safety
    /// As for [`MatMulTiles::tile`].
    unsafe fn stream<E: PanelElement>(self, run: TileRun<E>, n: usize);
}

/// `V` vectors of weight rows × `N` activation rows, with `U` steps of `k` in
/// independent sums.
pub(crate) struct Tile<E, const V: usize, const N: usize, const U: usize>(TileRun<E>);

impl<E: PanelElement, const V: usize, const N: usize, const U: usize> Tile<E, V, N, U> {
    const STEPS: usize = steps(N, U);

    /// # Safety
    /// As for [`MatMulTiles::tile`], with `N` activation rows and, instead of
    /// 32, as many weight rows as `V` vectors have lanes.
    pub unsafe fn new(run: TileRun<E>) -> Self {
        Self(run)
    }
}

impl<E: PanelElement, const V: usize, const N: usize, const U: usize> Kernel for Tile<E, V, N, U> {
    type Output = ();

    fn scalar(self) {
        let run = self.0;
        for n in 0..N {
            for m in 0..PANEL_ROWS {
                let mut sum = 0.0;
                for k in 0..run.k {
                    // SAFETY: inside the panel and the rows that `new` was promised.
                    let (weight, value) = unsafe {
                        let weight = *run.panel.add(k * PANEL_ROWS + m);
                        (weight.value(), *run.rows.add(n * run.row_stride + k))
                    };
                    sum += weight * value;
                }
                // SAFETY: inside the result that `new` was promised.
                unsafe { *run.out.add(n * run.out_stride + m) = sum };
            }
        }
    }

    #[inline(always)]
    fn simd<S: Simd>(self, s: S) {
        let run = self.0;
        let mut sums = [[[s.zero(); V]; N]; U];
        let mut panel = run.panel;
        let mut rows = RowPointers::<N>::new(&run);
        for _ in 0..run.k / Self::STEPS {
            for u in 0..Self::STEPS {
                let panel = panel.wrapping_add(u * PANEL_ROWS);
                // SAFETY: this is step k < run.k of the panel and the rows.
                unsafe { step(s, panel, &rows, u, &mut sums[u % U]) };
            }
            panel = panel.wrapping_add(Self::STEPS * PANEL_ROWS);
            rows.advance(Self::STEPS);
        }
        for _ in 0..run.k % Self::STEPS {
            // SAFETY: this is step k < run.k of the panel and the rows.
            unsafe { step(s, panel, &rows, 0, &mut sums[0]) };
            panel = panel.wrapping_add(PANEL_ROWS);
            rows.advance(1);
        }
        for n in 0..N {
            for v in 0..V {
                let mut sum = sums[0][n][v];
                for more in &sums[1..] {
                    sum = s.add(sum, more[n][v]);
                }
                // SAFETY: inside the result that `new` was promised.
                unsafe { s.store_ptr(sum, run.out.add(n * run.out_stride + v * S::LANES)) };
            }
        }
    }
}

/// Pointers into `N` rows: one for every four, the others at one, two and
/// three strides from it, as far as an address can be formed without adding.
struct RowPointers<const N: usize> {
    every_fourth: [*const f32; MAX_ROWS.div_ceil(4)],
    stride: usize,
    three_strides: usize,
}

/// Steps of `k` in one turn of the loop: large tiles are short of issue slots,
/// small ones wait for memory and keep their loads in one short sequence.
const fn steps(n: usize, u: usize) -> usize {
    if n > 4 { 4 } else { u }
}

/// The most activation rows of any tile.
const MAX_ROWS: usize = 12;

impl<const N: usize> RowPointers<N> {
    #[inline(always)]
    fn new<E>(run: &TileRun<E>) -> Self {
        // The compiler must not see how the pointers are related: it would compute
        // one from the other in every step.
        let mut every_fourth = [run.rows; MAX_ROWS.div_ceil(4)];
        if N > 4 {
            every_fourth[1] = black_box(run.rows.wrapping_add(4 * run.row_stride));
        }
        if N > 8 {
            every_fourth[2] = black_box(run.rows.wrapping_add(8 * run.row_stride));
        }
        let three_strides = if N > 3 { black_box(3 * run.row_stride) } else { 3 * run.row_stride };
        Self { every_fourth, stride: run.row_stride, three_strides }
    }

    #[inline(always)]
    fn get(&self, n: usize) -> *const f32 {
        let first = self.every_fourth[n / 4];
        match n % 4 {
            0 => first,
            1 => first.wrapping_add(self.stride),
            2 => first.wrapping_add(2 * self.stride),
            _ => first.wrapping_add(self.three_strides),
        }
    }

    #[inline(always)]
    fn advance(&mut self, steps: usize) {
        for pointer in &mut self.every_fourth[..N.div_ceil(4)] {
            *pointer = pointer.wrapping_add(steps);
        }
    }
}

/// One step of `k`: `sums[n][v] += panel[v] * rows[n][u]`.
///
/// # Safety
/// `panel` is valid for `V` vectors, the `rows` at `u` for reading.
#[inline(always)]
unsafe fn step<S: Simd, E: PanelElement, const V: usize, const N: usize>(
    s: S,
    panel: *const E,
    rows: &RowPointers<N>,
    u: usize,
    sums: &mut [[S::F; V]; N],
) {
    let mut weights = [s.zero(); V];
    for (v, weight) in weights.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        *weight = unsafe { E::load(s, panel.add(v * S::LANES)) };
    }
    for (n, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's contract.
        let value = s.splat(unsafe { *rows.get(n).wrapping_add(u) });
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = s.mul_add(weight, value, *sum);
        }
    }
}

/// Calls the tile whose constant number of activation rows is `n`.
macro_rules! tile_of {
    ($s:ident, $run:expr, $n:expr, $vectors:literal: $($rows:literal * $steps:literal),*) => {
        match $n {
            // SAFETY: the caller's contract is that of the tile.
            $($rows => $s.enter(unsafe {
                $crate::kernels::mat_mul::tile::Tile::<E, $vectors, $rows, $steps>::new($run)
            }),)*
            other => unreachable!("no tile for {other} activation rows"),
        }
    };
}
pub(crate) use tile_of;

//! What happens to a product while its tile is still in the first cache.

use std::ops::Range;

use crate::kernels::rows::{Rows, load, store};
use crate::kernels::unary::{GeluErf, GeluTanh, Map, Relu, Silu};
use crate::pack::PANEL_ROWS;
use crate::simd::Simd;
use crate::span::DstRows;

/// Activation function of an [`Epilogue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// GELU with the error function.
    GeluErf,
    /// GELU in its tanh approximation.
    GeluTanh,
    /// x / (1 + e^-x)
    Silu,
    /// max(x, 0)
    Relu,
}

/// What is added at the end.
#[derive(Debug, Clone, Copy, Default)]
pub enum Residual<'a> {
    /// Nothing.
    #[default]
    None,
    /// What the result's memory held before.
    InPlace,
    /// These rows, as many and as long as those of the result.
    Rows(Rows<'a>),
}

/// `activation(product * scale + bias[m]) + residual[n][m]`.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a> {
    /// Factor of the product.
    pub scale: f32,
    /// One value for each weight row.
    pub bias: Option<&'a [f32]>,
    /// Function of the sum.
    pub activation: Option<Activation>,
    /// Added last.
    pub residual: Residual<'a>,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Self { scale: 1.0, bias: None, activation: None, residual: Residual::None }
    }
}

impl Epilogue<'_> {
    /// Whether bias and residual suit a result of `n` rows of `m` elements.
    pub(super) fn suits(&self, n: usize, m: usize) -> bool {
        let bias = self.bias.is_none_or(|bias| bias.len() == m);
        let residual = match self.residual {
            Residual::None | Residual::InPlace => true,
            Residual::Rows(rows) => rows.n() == n && rows.k() == m,
        };
        bias && residual
    }

    /// One element, as specified.
    pub(super) fn finish_element(&self, product: f32, n: usize, m: usize, old: f32) -> f32 {
        let sum = product * self.scale + self.bias.map_or(0.0, |bias| bias[m]);
        let active = match self.activation {
            None => sum,
            Some(Activation::GeluErf) => GeluErf.scalar(sum),
            Some(Activation::GeluTanh) => GeluTanh.scalar(sum),
            Some(Activation::Silu) => Silu.scalar(sum),
            Some(Activation::Relu) => Relu.scalar(sum),
        };
        match self.residual {
            Residual::None => active,
            Residual::InPlace => active + old,
            Residual::Rows(rows) => active + rows.row(n)[m],
        }
    }

    /// Stores a tile: the products of activation row `n` and the weight rows
    /// `m` begin at `tile[(n - rows.start) * PANEL_ROWS]`.
    #[inline(always)]
    pub(super) fn finish_tile<S: Simd>(
        &self,
        s: S,
        tile: &[f32],
        rows: Range<usize>,
        m: Range<usize>,
        dst: &mut DstRows<'_>,
    ) {
        match self.activation {
            None => self.finish_rows(s, Identity, tile, rows, m, dst),
            Some(Activation::GeluErf) => self.finish_rows(s, GeluErf, tile, rows, m, dst),
            Some(Activation::GeluTanh) => self.finish_rows(s, GeluTanh, tile, rows, m, dst),
            Some(Activation::Silu) => self.finish_rows(s, Silu, tile, rows, m, dst),
            Some(Activation::Relu) => self.finish_rows(s, Relu, tile, rows, m, dst),
        }
    }

    #[inline(always)]
    fn finish_rows<S: Simd, M: Map>(
        &self,
        s: S,
        activation: M,
        tile: &[f32],
        rows: Range<usize>,
        m: Range<usize>,
        dst: &mut DstRows<'_>,
    ) {
        let scale = s.splat(self.scale);
        let bias = self.bias.map(|bias| &bias[m.clone()]);
        for (n, products) in rows.zip(tile.chunks_exact(PANEL_ROWS)) {
            let out = dst.row_mut(n, m.clone());
            let residual = match self.residual {
                Residual::Rows(rows) => Some(&rows.row(n)[m.clone()]),
                Residual::None | Residual::InPlace => None,
            };
            let mut first = 0;
            while first < out.len() {
                let count = S::LANES.min(out.len() - first);
                let mut value = s.mul(s.load(&products[first..]), scale);
                if let Some(bias) = bias {
                    value = s.add(value, load(s, bias, first, count));
                }
                value = activation.simd(s, value);
                if let Some(residual) = residual {
                    value = s.add(value, load(s, residual, first, count));
                } else if matches!(self.residual, Residual::InPlace) {
                    value = s.add(value, load(s, out, first, count));
                }
                store(s, value, out, first, count);
                first += S::LANES;
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Identity;

impl Map for Identity {
    fn scalar(self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn simd<S: Simd>(self, _: S, x: S::F) -> S::F {
        x
    }
}

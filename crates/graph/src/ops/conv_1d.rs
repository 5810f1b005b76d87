//! One-dimensional convolution over frames of channels.

use std::panic::Location;

use super::{Declare, OperandSpec, Operands, ParameterValue};
use crate::{DType, Layout, Op, OpError, Shape, Tensor};

/// `dst[o, t] = Σ_j Σ_i weight[i, j, o] · x[i, t·stride + j − padding]`, frames outside x being zero
/// (a cross-correlation, as in the field).
///
/// Channels are the fastest dimension, so that the window of each output frame is one run of
/// memory and the convolution is a matrix product over overlapping rows.
/// weight: f32 or f16 `[in_channels, kernel, out_channels]`, contiguous.
/// x: f32 `[in_channels, n_frames, batch]`, contiguous.
/// dst: f32 `[out_channels, (n_frames + 2·padding − kernel)/stride + 1, batch]`, contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(alias = "ggml_conv_1d")]
pub struct Conv1d {
    /// Frames from one window to the next, at least 1.
    pub stride: u32,
    /// Zero frames assumed before the first and after the last frame.
    pub padding: u32,
}

impl Declare for Conv1d {
    const NAME: &'static str = "conv_1d";
    const OPERANDS: &'static [OperandSpec] =
        &[OperandSpec::required("weight"), OperandSpec::required("x")];

    fn infer(&self, operands: Operands<'_>) -> Result<Layout, OpError> {
        let weight = operands.typed(0, &[DType::F32, DType::F16], "f32 or f16")?;
        let x = operands.typed(1, &[DType::F32], "f32")?;
        for (index, layout) in [(0, weight), (1, x)] {
            if !layout.is_contiguous() || layout.shape().rank() > 3 {
                return Err(OpError::Layout {
                    operand: operands.name(index),
                    found: layout,
                    wanted: "three dimensions without gaps",
                });
            }
        }
        let ([channels, kernel, out, _], x) = (weight.shape().dims(), x.shape().dims());
        operands.equal("channels", (0, channels), (1, x[0]))?;
        if self.stride == 0 {
            return Err(OpError::Parameter {
                name: "stride",
                value: "0".to_owned(),
                wanted: "at least 1",
            });
        }
        let padded = x[1].saturating_add(2 * self.padding as usize);
        if kernel == 0 || padded < kernel {
            return Err(OpError::Sizes {
                what: "kernel and padded frames",
                left_name: "weight",
                left: kernel,
                right_name: "x",
                right: padded,
            });
        }
        let frames = (padded - kernel) / self.stride as usize + 1;
        Ok(Layout::contiguous(DType::F32, Shape::new(&[out, frames, x[2]])?)?)
    }

    fn flops(&self, operands: Operands<'_>, dst: &Layout) -> f64 {
        let [channels, kernel, ..] = operands.optional(0).map_or([0; 4], |w| w.shape().dims());
        2.0 * (channels * kernel) as f64 * dst.shape().elements() as f64
    }

    fn describe(&self, visit: &mut dyn FnMut(&'static str, ParameterValue)) {
        visit("stride", self.stride.into());
        visit("padding", self.padding.into());
    }
}

impl<'g> Tensor<'g> {
    /// Convolution of the frames of `x` with this weight: see [`Conv1d`].
    ///
    /// self: f32 or f16 `[in_channels, kernel, out_channels]`; x: f32 `[in_channels, n_frames, batch]`.
    /// Result: f32 `[out_channels, frames, batch]`.
    /// Errors: other types; gaps; channels that differ; stride 0; a kernel longer than the padded frames.
    #[track_caller]
    #[must_use]
    pub fn conv_1d(self, x: Tensor<'g>, stride: u32, padding: u32) -> Self {
        let op = Op::from(Conv1d { stride, padding });
        self.builder.apply(op, &[Some(self), Some(x)], Location::caller())
    }
}

//! The handle that model code works with while a graph is built.
//!
//! Handles are copyable and borrow the builder. The methods that make ops
//! stand in the files of the ops; views are here, since they compute nothing.

use std::panic::Location;

use crate::{GraphBuilder, IntoDims, Layout, OpError, Shape, TensorId};

/// A tensor of a graph that is being built.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'g> {
    pub(crate) builder: &'g GraphBuilder,
    pub(crate) id: TensorId,
}

impl<'g> Tensor<'g> {
    /// The id that the tensor has in the finished graph.
    pub fn id(self) -> TensorId {
        self.id
    }

    /// Type, shape and strides.
    pub fn layout(self) -> Layout {
        self.builder.layout_of(self.id)
    }

    /// Number of elements along each dimension, fastest first.
    pub fn shape(self) -> Shape {
        self.layout().shape()
    }

    /// Number of elements along one dimension; 1 beyond the last.
    pub fn dim(self, dim: usize) -> usize {
        self.shape().dims().get(dim).copied().unwrap_or(1)
    }

    /// Current name.
    pub fn name(self) -> String {
        self.builder.name_of(self.id)
    }

    /// Gives the tensor a name for reports and errors. Leaves keep the name they are bound by.
    #[must_use]
    #[doc(alias = "ggml_set_name")]
    pub fn named(self, name: impl Into<String>) -> Self {
        if self.builder.is_op(self.id) {
            self.builder.rename(self.id, name.into());
        }
        self
    }

    /// Marks the values as a result that the caller reads after the run, under `name`.
    #[track_caller]
    #[doc(alias = "ggml_set_output")]
    pub fn output(self, name: impl Into<String>) -> Self {
        self.builder.mark_output(self.id, name.into(), Location::caller());
        self
    }

    /// The same elements under other dimensions.
    ///
    /// Errors: another element count; a layout with gaps.
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_reshape")]
    pub fn reshape(self, dims: impl IntoDims) -> Self {
        let layout = dims.into_shape().and_then(|shape| self.layout().reshape(shape));
        self.builder.apply_view(self, 0, layout.map_err(OpError::from), Location::caller())
    }

    /// Dimensions in another order: dimension `axes[i]` becomes dimension `i`.
    ///
    /// Errors: `axes` is not a permutation of 0..4.
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_permute")]
    pub fn permute(self, axes: [usize; 4]) -> Self {
        let layout = self.layout().permute(axes);
        self.builder.apply_view(self, 0, layout.map_err(OpError::from), Location::caller())
    }

    /// Exchanges the two fastest dimensions.
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_transpose")]
    pub fn transpose(self) -> Self {
        let layout = self.layout().permute([1, 0, 2, 3]);
        self.builder.apply_view(self, 0, layout.map_err(OpError::from), Location::caller())
    }

    /// Elements at byte strides from `offset_bytes` on, which counts from this tensor's first
    /// element, inside the memory of its root. Rows may overlap, as the windows of a
    /// convolution do.
    ///
    /// Errors: an extent outside the root; an offset or strides that are no whole number of
    /// elements; a shape that overflows.
    #[track_caller]
    #[must_use]
    #[doc(alias = "ggml_view_4d")]
    pub fn view(self, dims: impl IntoDims, strides: [usize; 4], offset_bytes: usize) -> Self {
        let dtype = self.layout().dtype();
        let layout = dims.into_shape().and_then(|shape| Layout::strided(dtype, shape, strides));
        self.builder.apply_view(
            self,
            offset_bytes,
            layout.map_err(OpError::from),
            Location::caller(),
        )
    }

    /// The whole tensor that owns the memory, at this tensor's version: after a write into a
    /// part of a tensor, the way to all of it.
    #[track_caller]
    #[must_use]
    pub fn whole(self) -> Self {
        let (layout, _) = self.builder.root_of(self.id);
        self.builder.apply_view_at(self, 0, Ok(layout), Location::caller())
    }

    /// `len` neighbours along dimension `dim`, from `start` on.
    ///
    /// Errors: a range outside the dimension; a cut through a block of a quantised type.
    #[track_caller]
    #[must_use]
    pub fn slice(self, dim: usize, start: usize, len: usize) -> Self {
        let layout = self.layout();
        let checked = || {
            let mut dims = layout.shape().dims();
            let parameter = |name, value: usize, wanted| OpError::Parameter {
                name,
                value: value.to_string(),
                wanted,
            };
            if dim >= dims.len() {
                return Err(parameter("dim", dim, "a dimension from 0 to 3"));
            }
            if start.checked_add(len).is_none_or(|end| end > dims[dim]) {
                return Err(parameter(
                    "end of slice",
                    start.saturating_add(len),
                    "inside the dimension",
                ));
            }
            let block = if dim == 0 { layout.dtype().block_len() } else { 1 };
            if !start.is_multiple_of(block) {
                return Err(parameter("start of slice", start, "a whole number of blocks"));
            }
            dims[dim] = len;
            let shape = Shape::new(&dims)?;
            let offset = start / block * layout.strides()[dim];
            Ok((offset, Layout::strided(layout.dtype(), shape, layout.strides())?))
        };
        match checked() {
            Ok((offset, layout)) => {
                self.builder.apply_view(self, offset, Ok(layout), Location::caller())
            }
            Err(error) => self.builder.apply_view(self, 0, Err(error), Location::caller()),
        }
    }
}

//! Where each element of a tensor lies: type, shape and byte strides.
//!
//! Strides are in bytes, fastest dimension first. For block types the first
//! stride is that of a block. A layout describes offsets from the tensor's
//! first element and knows nothing of the memory that holds it. Overlapping
//! rows are legal (a convolution reads its input that way); writing through
//! such a layout is not, and [`Layout::overlaps_itself`] tells.

use std::fmt;

use crate::{DType, MAX_DIMS, Shape, TensorError};

/// Element type, shape and byte strides of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    dtype: DType,
    shape: Shape,
    strides: [usize; MAX_DIMS],
}

impl Layout {
    /// Elements one after the other, without gaps.
    ///
    /// # Errors
    /// A row that is not whole blocks of `dtype`, or a size beyond `isize`.
    pub fn contiguous(dtype: DType, shape: Shape) -> Result<Self, TensorError> {
        let dims = shape.dims();
        if !dims[0].is_multiple_of(dtype.block_len()) {
            return Err(TensorError::PartialBlock {
                dtype,
                row: dims[0],
                block: dtype.block_len(),
            });
        }
        let overflow = || TensorError::Overflow(dims.iter().map(|&dim| dim as u64).collect());
        let mut strides = [dtype.block_bytes(); MAX_DIMS];
        strides[1] = dtype.bytes(dims[0].max(dtype.block_len())).ok_or_else(overflow)?;
        for dim in 2..MAX_DIMS {
            strides[dim] =
                strides[dim - 1].checked_mul(dims[dim - 1].max(1)).ok_or_else(overflow)?;
        }
        strides[3]
            .checked_mul(dims[3].max(1))
            .filter(|&total| total <= isize::MAX as usize)
            .ok_or_else(overflow)?;
        Ok(Self { dtype, shape, strides })
    }

    /// A single element of a plain type, or a single block.
    pub fn scalar(dtype: DType) -> Self {
        let strides = [dtype.block_bytes(); MAX_DIMS];
        Self { dtype, shape: Shape::single(dtype.block_len()), strides }
    }

    /// Elements at the given byte strides, fastest dimension first.
    ///
    /// # Errors
    /// A row that is not whole blocks, or an extent beyond `isize`.
    pub fn strided(
        dtype: DType,
        shape: Shape,
        strides: [usize; MAX_DIMS],
    ) -> Result<Self, TensorError> {
        Self::contiguous(dtype, shape)?;
        let layout = Self { dtype, shape, strides };
        let overflow =
            || TensorError::Overflow(shape.dims().iter().map(|&dim| dim as u64).collect());
        layout.checked_extent().filter(|&end| end <= isize::MAX as usize).ok_or_else(overflow)?;
        Ok(layout)
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements along each dimension, fastest first.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Distance in bytes between neighbours along each dimension, fastest first.
    pub fn strides(&self) -> [usize; MAX_DIMS] {
        self.strides
    }

    /// Bytes of one row: the elements of the fastest dimension, without gaps.
    pub fn row_bytes(&self) -> usize {
        self.shape[0] / self.dtype.block_len() * self.dtype.block_bytes()
    }

    /// Bytes of all elements, gaps and overlaps aside.
    pub fn data_bytes(&self) -> usize {
        self.row_bytes() * self.shape.rows()
    }

    /// Distance from the first byte to behind the last one that belongs to an element.
    pub fn extent_bytes(&self) -> usize {
        self.checked_extent().unwrap_or(usize::MAX)
    }

    fn checked_extent(&self) -> Option<usize> {
        if self.shape.is_empty() {
            return Some(0);
        }
        let blocks = self.shape[0] / self.dtype.block_len();
        let mut last = (blocks - 1).checked_mul(self.strides[0])?;
        for dim in 1..MAX_DIMS {
            last = last.checked_add((self.shape[dim] - 1).checked_mul(self.strides[dim])?)?;
        }
        last.checked_add(self.dtype.block_bytes())
    }

    /// Whether elements follow one another without gaps, in order.
    /// Strides of dimensions with a single element do not matter.
    pub fn is_contiguous(&self) -> bool {
        let dims = self.shape.dims();
        let mut expected = self.dtype.block_bytes();
        for dim in 0..MAX_DIMS {
            let count = if dim == 0 { dims[0] / self.dtype.block_len() } else { dims[dim] };
            if count > 1 && self.strides[dim] != expected {
                return false;
            }
            expected *= count.max(1);
        }
        true
    }

    /// Whether the elements within each row are neighbours.
    pub fn has_contiguous_rows(&self) -> bool {
        self.shape[0] <= self.dtype.block_len() || self.strides[0] == self.dtype.block_bytes()
    }

    /// Whether two different indices may reach the same byte.
    pub fn overlaps_itself(&self) -> bool {
        // Strides of an empty layout may be of any size.
        if self.shape.is_empty() {
            return false;
        }
        let dims = self.shape.dims();
        let mut axes: Vec<(usize, usize)> = (0..MAX_DIMS)
            .map(|dim| {
                let count = if dim == 0 { dims[0] / self.dtype.block_len() } else { dims[dim] };
                (self.strides[dim], count)
            })
            .filter(|&(_, count)| count > 1)
            .collect();
        axes.sort_unstable();
        let mut extent = self.dtype.block_bytes();
        for (stride, count) in axes {
            if stride < extent {
                return true;
            }
            extent += stride * (count - 1);
        }
        false
    }

    /// Byte offset of row `(i1, i2, i3)` from the first element.
    pub fn row_offset(&self, [i1, i2, i3]: [usize; 3]) -> usize {
        i1 * self.strides[1] + i2 * self.strides[2] + i3 * self.strides[3]
    }

    /// Byte offset of row number `row`, counting dimension 1 fastest.
    pub fn nth_row_offset(&self, row: usize) -> usize {
        let dims = self.shape.dims();
        let (i1, rest) = (row % dims[1], row / dims[1]);
        self.row_offset([i1, rest % dims[2], rest / dims[2]])
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// Another element count, or a layout with gaps.
    pub fn reshape(&self, shape: Shape) -> Result<Self, TensorError> {
        if shape.elements() != self.shape.elements() {
            return Err(TensorError::ElementCount { from: self.shape, to: shape });
        }
        if !self.is_contiguous() {
            return Err(TensorError::NotContiguous(self.to_string()));
        }
        Self::contiguous(self.dtype, shape)
    }

    /// Dimensions in another order: dimension `axes[i]` of `self` becomes dimension `i`.
    ///
    /// # Errors
    /// `axes` is not a permutation, or it moves the blocks of a quantised type.
    pub fn permute(&self, axes: [usize; MAX_DIMS]) -> Result<Self, TensorError> {
        let mut seen = [false; MAX_DIMS];
        for axis in axes {
            match seen.get_mut(axis) {
                Some(slot) if !*slot => *slot = true,
                _ => return Err(TensorError::Permutation(axes)),
            }
        }
        if self.dtype.is_quantized() && axes[0] != 0 {
            return Err(TensorError::PartialBlock {
                dtype: self.dtype,
                row: self.shape[axes[0]],
                block: self.dtype.block_len(),
            });
        }
        let dims = axes.map(|axis| self.shape[axis]);
        Ok(Self {
            dtype: self.dtype,
            shape: Shape::new(&dims)?,
            strides: axes.map(|axis| self.strides[axis]),
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)?;
        if !self.is_contiguous() {
            write!(f, " strides {:?}", &self.strides[..self.shape.rank()])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dims: &[usize]) -> Layout {
        Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap()
    }

    #[test]
    fn contiguous_strides_and_extent() {
        let l = layout(&[3, 5, 2]);
        assert_eq!(l.strides(), [4, 12, 60, 120]);
        assert_eq!(l.extent_bytes(), 120);
        assert!(l.is_contiguous());
        let q = Layout::contiguous(DType::Q8_0, Shape::new(&[64, 2]).unwrap()).unwrap();
        assert_eq!(q.strides(), [34, 68, 136, 136]);
        assert_eq!(q.extent_bytes(), 136);
        assert!(Layout::contiguous(DType::Q8_0, Shape::new(&[33]).unwrap()).is_err());
    }

    #[test]
    fn permuting_keeps_the_extent_and_loses_contiguity() {
        let l = layout(&[4, 3, 2]).permute([1, 0, 2, 3]).unwrap();
        assert_eq!(l.shape().dims(), [3, 4, 2, 1]);
        assert_eq!(l.strides(), [16, 4, 48, 96]);
        assert_eq!(l.extent_bytes(), 96);
        assert!(!l.is_contiguous());
        assert!(!l.has_contiguous_rows());
        assert!(l.reshape(Shape::new(&[24]).unwrap()).is_err());
        assert!(layout(&[4]).permute([0, 0, 2, 3]).is_err());
        assert!(layout(&[4]).permute([0, 1, 2, 4]).is_err());
    }

    #[test]
    fn overlapping_rows_are_told() {
        let shape = Shape::new(&[6, 3]).unwrap();
        let windows = Layout::strided(DType::F32, shape, [4, 8, 0, 0]).unwrap();
        assert!(windows.overlaps_itself());
        assert_eq!(windows.extent_bytes(), 5 * 4 + 2 * 8 + 4);
        assert!(!layout(&[6, 3]).overlaps_itself());
        assert!(!layout(&[6, 3]).permute([1, 0, 2, 3]).unwrap().overlaps_itself());
    }

    #[test]
    fn row_offsets_walk_the_outer_dimensions() {
        let l = layout(&[2, 3, 4, 5]);
        assert_eq!(l.nth_row_offset(3 * 4 + 2), l.row_offset([2, 0, 1]));
        assert_eq!(l.row_offset([2, 0, 1]), 2 * 8 + 96);
    }

    #[test]
    fn empty_layouts_have_no_extent() {
        assert_eq!(layout(&[0, 4]).extent_bytes(), 0);
        assert!(layout(&[0, 4]).is_contiguous());
        let shape = Shape::new(&[0, 3, 3]).unwrap();
        let wide = Layout::strided(DType::F32, shape, [4, usize::MAX, usize::MAX, 0]).unwrap();
        assert_eq!(wide.extent_bytes(), 0);
        assert!(!wide.overlaps_itself());
    }
}

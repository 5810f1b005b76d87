//! Shapes, written **fastest dimension first**, as GGUF stores them.
//!
//! `[head_dim, n_tokens, n_heads]` means that elements of one head are
//! neighbours in memory, then tokens, then heads. Every shape in this project
//! has four dimensions; missing ones are 1. A dimension may be 0: the tensor
//! is then empty.

use std::fmt;

use crate::TensorError;

/// Number of dimensions that every [`Shape`] has.
pub const MAX_DIMS: usize = 4;

/// Number of elements along each of four dimensions, fastest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape([usize; MAX_DIMS]);

impl Shape {
    /// A shape from up to four dimensions, fastest first; missing ones are 1.
    ///
    /// # Errors
    /// More than [`MAX_DIMS`] dimensions, or an element count beyond `isize`.
    pub fn new(dims: &[usize]) -> Result<Self, TensorError> {
        if dims.len() > MAX_DIMS {
            return Err(TensorError::TooManyDims { count: dims.len(), max: MAX_DIMS });
        }
        let mut full = [1; MAX_DIMS];
        full[..dims.len()].copy_from_slice(dims);
        // Zero dimensions must not hide an overflow of the others, since strides multiply them.
        full.iter()
            .try_fold(1usize, |product, &dim| product.checked_mul(dim.max(1)))
            .filter(|&product| product <= isize::MAX as usize)
            .ok_or_else(|| TensorError::Overflow(dims.iter().map(|&dim| dim as u64).collect()))?;
        Ok(Self(full))
    }

    /// A single row of `row` elements.
    pub(crate) const fn single(row: usize) -> Self {
        Self([row, 1, 1, 1])
    }

    /// The four dimensions, fastest first.
    pub fn dims(&self) -> [usize; MAX_DIMS] {
        self.0
    }

    /// Number of elements in all.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of rows: all dimensions but the fastest.
    pub fn rows(&self) -> usize {
        self.0[1..].iter().product()
    }

    /// Number of dimensions up to the last that is not 1; at least 1.
    pub fn rank(&self) -> usize {
        self.0.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1)
    }

    /// Whether no element exists.
    pub fn is_empty(&self) -> bool {
        self.elements() == 0
    }

    /// Whether `self` repeated a whole number of times along each dimension gives `other`.
    pub fn repeats_into(&self, other: &Shape) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .all(|(&small, large)| if small == 0 { large == 0 } else { large % small == 0 })
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = usize;
    fn index(&self, dim: usize) -> &usize {
        &self.0[dim]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = &self.0[..self.rank()];
        f.write_str("[")?;
        for (position, dim) in dims.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_dimensions_are_one() {
        let shape = Shape::new(&[3, 5]).unwrap();
        assert_eq!(shape.dims(), [3, 5, 1, 1]);
        assert_eq!(shape.elements(), 15);
        assert_eq!(shape.rows(), 5);
        assert_eq!(shape.rank(), 2);
        assert_eq!(shape.to_string(), "[3, 5]");
    }

    #[test]
    fn overflow_is_found_behind_a_zero_dimension() {
        assert!(Shape::new(&[0, usize::MAX, 2]).is_err());
        assert!(Shape::new(&[1 << 40, 1 << 40]).is_err());
        assert!(Shape::new(&[0, 4]).unwrap().is_empty());
        assert!(Shape::new(&[1, 1, 1, 1, 1]).is_err());
    }

    #[test]
    fn repeats() {
        let bias = Shape::new(&[8]).unwrap();
        assert!(bias.repeats_into(&Shape::new(&[8, 3, 2]).unwrap()));
        assert!(!bias.repeats_into(&Shape::new(&[12]).unwrap()));
        assert!(Shape::new(&[0]).unwrap().repeats_into(&Shape::new(&[0, 2]).unwrap()));
    }
}

//! The operands of an op as its shape rule sees them, with the checks that
//! most rules share.

use crate::{DType, Layout, OpError, OperandSpec};

/// Layouts of the operands, with their names for errors.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    specs: &'static [OperandSpec],
    layouts: &'a [Option<Layout>],
}

impl<'a> Operands<'a> {
    pub(crate) fn new(specs: &'static [OperandSpec], layouts: &'a [Option<Layout>]) -> Self {
        Self { specs, layouts }
    }

    /// Name of an operand.
    pub fn name(&self, index: usize) -> &'static str {
        self.specs.get(index).map_or("operand", |spec| spec.name)
    }

    /// An operand that may be absent.
    pub fn optional(&self, index: usize) -> Option<Layout> {
        self.layouts.get(index).copied().flatten()
    }

    /// An operand that must be there.
    ///
    /// # Errors
    /// It is absent.
    pub fn required(&self, index: usize) -> Result<Layout, OpError> {
        self.optional(index).ok_or(OpError::Parameter {
            name: self.name(index),
            value: "absent".to_owned(),
            wanted: "an operand",
        })
    }

    /// An operand that must be there and of one of the given types.
    ///
    /// # Errors
    /// It is absent, or of another type; `wanted` says which would do.
    pub fn typed(
        &self,
        index: usize,
        types: &[DType],
        wanted: &'static str,
    ) -> Result<Layout, OpError> {
        let layout = self.required(index)?;
        if types.contains(&layout.dtype()) {
            return Ok(layout);
        }
        Err(OpError::Type { operand: self.name(index), found: layout.dtype(), wanted })
    }

    /// Checks that two sizes are equal.
    ///
    /// # Errors
    /// They differ: the error names both operands and sizes.
    pub fn equal(
        &self,
        what: &'static str,
        (left_index, left): (usize, usize),
        (right_index, right): (usize, usize),
    ) -> Result<(), OpError> {
        if left == right {
            return Ok(());
        }
        Err(OpError::Sizes {
            what,
            left_name: self.name(left_index),
            left,
            right_name: self.name(right_index),
            right,
        })
    }

    /// Checks that operand `index` repeats into `large`.
    ///
    /// # Errors
    /// A dimension of `large` is no multiple of the operand's.
    pub fn repeats(&self, index: usize, large: &Layout) -> Result<(), OpError> {
        let small = self.required(index)?.shape();
        if small.repeats_into(&large.shape()) {
            return Ok(());
        }
        Err(OpError::Repeat { operand: self.name(index), small, large: large.shape() })
    }

    /// Checks that the elements within each row of operand `index` are neighbours.
    ///
    /// # Errors
    /// They are not.
    pub fn contiguous_rows(&self, index: usize) -> Result<(), OpError> {
        match self.optional(index) {
            Some(found) if !found.has_contiguous_rows() => Err(OpError::Layout {
                operand: self.name(index),
                found,
                wanted: "rows without gaps",
            }),
            Some(_) | None => Ok(()),
        }
    }
}

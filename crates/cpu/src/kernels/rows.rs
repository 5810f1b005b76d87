//! Views of the rows of a matrix, and operands of row kernels.
//!
//! A view borrows a slice and is checked once when it is made; rows may
//! overlap, as those of a convolution's input do. Nothing here computes.

use std::ops::Range;

use half::f16;

use crate::simd::Simd;
use crate::span::fits;

/// `n` rows of `k` elements, `stride` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T = f32> {
    data: &'a [T],
    stride: usize,
    n: usize,
    k: usize,
}

impl<'a, T> Rows<'a, T> {
    /// The rows at the beginning of `data`; `None` when they do not fit.
    pub fn new(data: &'a [T], stride: usize, n: usize, k: usize) -> Option<Self> {
        fits(data.len(), stride, n, k)?;
        Some(Self { data, stride, n, k })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// One row.
    #[inline]
    pub fn row(&self, index: usize) -> &'a [T] {
        assert!(index < self.n);
        if self.k == 0 {
            return &[];
        }
        &self.data[index * self.stride..][..self.k]
    }

    /// Some of the rows.
    pub fn slice(&self, rows: Range<usize>) -> Rows<'a, T> {
        assert!(rows.start <= rows.end && rows.end <= self.n);
        let first = (rows.start * self.stride).min(self.data.len());
        Rows { data: &self.data[first..], n: rows.len(), ..*self }
    }

    /// Where the first row begins.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.data.as_ptr()
    }
}

/// Rows of either float type.
#[derive(Debug, Clone, Copy)]
pub enum AnyRows<'a> {
    /// 32-bit floats.
    F32(Rows<'a, f32>),
    /// 16-bit floats.
    F16(Rows<'a, f16>),
}

impl<'a> AnyRows<'a> {
    /// Number of rows.
    pub fn n(&self) -> usize {
        match self {
            AnyRows::F32(rows) => rows.n,
            AnyRows::F16(rows) => rows.n,
        }
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        match self {
            AnyRows::F32(rows) => rows.k,
            AnyRows::F16(rows) => rows.k,
        }
    }

    /// One element.
    pub fn value(&self, row: usize, k: usize) -> f32 {
        match self {
            AnyRows::F32(rows) => rows.row(row)[k],
            AnyRows::F16(rows) => rows.row(row)[k].to_f32(),
        }
    }

    /// One row.
    pub fn row(&self, index: usize) -> AnyRow<'a> {
        match self {
            AnyRows::F32(rows) => AnyRow::F32(rows.row(index)),
            AnyRows::F16(rows) => AnyRow::F16(rows.row(index)),
        }
    }

    /// Some of the rows.
    pub fn slice(&self, range: Range<usize>) -> AnyRows<'a> {
        match self {
            AnyRows::F32(rows) => AnyRows::F32(rows.slice(range)),
            AnyRows::F16(rows) => AnyRows::F16(rows.slice(range)),
        }
    }
}

/// One row of either float type.
#[derive(Debug, Clone, Copy)]
pub enum AnyRow<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 16-bit floats.
    F16(&'a [f16]),
}

impl AnyRow<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            AnyRow::F32(row) => row.len(),
            AnyRow::F16(row) => row.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn value(&self, index: usize) -> f32 {
        match self {
            AnyRow::F32(row) => row[index],
            AnyRow::F16(row) => row[index].to_f32(),
        }
    }

    /// `len` values from `first` on, zeros behind.
    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, s: S, first: usize, len: usize) -> S::F {
        match self {
            AnyRow::F32(row) if len == S::LANES => s.load(&row[first..]),
            AnyRow::F32(row) => s.load_partial(&row[first..first + len], 0.0),
            AnyRow::F16(row) if len == S::LANES => s.load_f16(&row[first..]),
            AnyRow::F16(row) => s.load_f16_partial(&row[first..first + len], f16::ZERO),
        }
    }
}

/// An operand of an elementwise kernel.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a> {
    /// One value for each element of the result.
    Row(&'a [f32]),
    /// The same value for all elements.
    Scalar(f32),
}

/// Where a row kernel reads: an operand, or what it is about to overwrite.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Operand(Operand<'a>),
    Dst,
}

impl<'a> Source<'a> {
    pub(crate) fn row(row: &'a [f32]) -> Self {
        Source::Operand(Operand::Row(row))
    }

    pub(crate) fn check(&self, len: usize) {
        if let Source::Operand(Operand::Row(row)) = self {
            assert_eq!(row.len(), len, "rows of different lengths");
        }
    }

    pub(crate) fn value(&self, index: usize, dst: &[f32]) -> f32 {
        match self {
            Source::Operand(Operand::Row(row)) => row[index],
            Source::Operand(Operand::Scalar(value)) => *value,
            Source::Dst => dst[index],
        }
    }

    /// `len` values from `first` on.
    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, s: S, first: usize, len: usize, dst: &[f32]) -> S::F {
        let row = match self {
            Source::Operand(Operand::Scalar(value)) => return s.splat(*value),
            Source::Operand(Operand::Row(row)) => row,
            Source::Dst => dst,
        };
        load(s, row, first, len)
    }
}

/// `len` values of `row` from `first` on, zeros behind.
#[inline(always)]
pub(crate) fn load<S: Simd>(s: S, row: &[f32], first: usize, len: usize) -> S::F {
    if len == S::LANES {
        s.load(&row[first..])
    } else {
        s.load_partial(&row[first..first + len], 0.0)
    }
}

/// The first `len` lanes of `value` into `row` from `first` on.
#[inline(always)]
pub(crate) fn store<S: Simd>(s: S, value: S::F, row: &mut [f32], first: usize, len: usize) {
    if len == S::LANES {
        s.store(value, &mut row[first..]);
    } else {
        s.store_partial(value, &mut row[first..first + len]);
    }
}

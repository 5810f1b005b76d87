//! Checked windows into the memory that a program is bound to.
//!
//! A program's operands are offsets into regions. At submission every region
//! is resolved to an address and every operand's extent is checked against the
//! region's size. From then on a step reads through [`SrcView`] and writes
//! through [`DstView`], each made by one unsafe call whose contract is that of
//! the plan: a source shares no byte with the destination, or is the very same
//! memory and then is not read through a view at all; a member writes only the
//! rows that are its own. References are formed per row, never over a range
//! that another member may write.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use half::f16;
use tensoryard_graph::{DType, Layout};
use tensoryard_runtime::{Aliasing, Operand};

use crate::Isa;
use crate::kernels::convert::f16_to_f32_row;
use crate::pack::Panels;
use crate::packed::{PackedMatrix, is_packed};

/// How the elements of an operand are stored: the types that steps compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    F32,
    F16,
    I32,
}

impl Stored {
    /// `None` for a type that no step takes.
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Stored::F32),
            DType::F16 => Some(Stored::F16),
            DType::I32 => Some(Stored::I32),
            DType::Q4_0
            | DType::Q4_1
            | DType::Q5_0
            | DType::Q5_1
            | DType::Q8_0
            | DType::Q8_1
            | DType::Q2K
            | DType::Q3K
            | DType::Q4K
            | DType::Q5K
            | DType::Q6K
            | DType::Q8K
            | DType::Iq2Xxs
            | DType::Iq2Xs
            | DType::Iq3Xxs
            | DType::Iq1S
            | DType::Iq4Nl
            | DType::Iq3S
            | DType::Iq2S
            | DType::Iq4Xs
            | DType::I8
            | DType::I16
            | DType::I64
            | DType::F64
            | DType::Iq1M
            | DType::BF16
            | DType::Tq1_0
            | DType::Tq2_0
            | DType::Mxfp4
            | DType::Nvfp4
            | DType::Q1_0
            | DType::Q2_0 => None,
        }
    }
}

/// An operand of a compiled step, with what its layout says of rows.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Position in the program's list of regions.
    pub region: usize,
    pub offset_bytes: usize,
    pub layout: Layout,
    pub stored: Stored,
    pub aliasing: Aliasing,
    /// The matrix in panels, if that is what lies there.
    pub packed: Option<PackedMatrix>,
    /// Rows of all outer dimensions together.
    rows: usize,
    /// Whether the elements of a row are neighbours.
    has_contiguous_rows: bool,
    /// Bytes from one row to the next, if all rows of all dimensions are so far apart.
    even_stride: Option<usize>,
}

impl Place {
    /// Prepares a checked operand that lies in the program's region number `region`.
    pub fn new(operand: &Operand, region: usize, is_written: bool) -> Self {
        let layout = operand.layout;
        let packed = is_packed(&*operand.buffer_type).then(|| PackedMatrix::of(&layout)).flatten();
        Self {
            region,
            offset_bytes: operand.offset_bytes,
            layout,
            // Checked before: other types have no kernels.
            stored: Stored::of(layout.dtype()).unwrap_or(Stored::F32),
            aliasing: if is_written { Aliasing::Disjoint } else { operand.aliasing },
            packed,
            rows: layout.shape().rows(),
            has_contiguous_rows: layout.has_contiguous_rows(),
            even_stride: even_stride(&layout),
        }
    }

    /// Rows of all outer dimensions together.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes from the operand's first byte to behind its last.
    pub fn extent_bytes(&self) -> usize {
        match self.packed {
            Some(matrix) => matrix.bytes().unwrap_or(usize::MAX),
            None => self.layout.extent_bytes(),
        }
    }

    /// Whether the memory is also the step's destination.
    pub fn is_dst(&self) -> bool {
        self.aliasing == Aliasing::SameAsDst
    }

    /// Bytes from the first element to row `row`, counted over all outer dimensions.
    fn row_offset(&self, row: usize) -> usize {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        match self.even_stride {
            Some(stride) => row * stride,
            None => self.layout.nth_row_offset(row),
        }
    }
}

/// The distance of rows that lie at one distance throughout.
fn even_stride(layout: &Layout) -> Option<usize> {
    if layout.shape().is_empty() {
        // Its strides may be of any size.
        return Some(0);
    }
    let ([_, d1, d2, d3], [_, s1, s2, s3]) = (layout.shape().dims(), layout.strides());
    let mut rows = 1;
    let mut stride = s1;
    for (count, distance) in [(d1, s1), (d2, s2), (d3, s3)] {
        if count == 1 {
            continue;
        }
        if rows == 1 {
            stride = distance;
        } else if stride.checked_mul(rows) != Some(distance) {
            return None;
        }
        rows *= count;
    }
    Some(stride)
}

/// The address of a region during one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionBase(pub *mut u8);

// SAFETY: an address is plain data; who uses it answers for the access.
unsafe impl Send for RegionBase {}
// SAFETY: as for `Send`.
unsafe impl Sync for RegionBase {}

impl RegionBase {
    fn at(self, place: &Place) -> *mut u8 {
        // Inside the region, as the backend checked at submission.
        self.0.wrapping_add(place.offset_bytes)
    }
}

/// A tensor to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SrcView<'a> {
    base: *const u8,
    place: &'a Place,
}

impl<'a> SrcView<'a> {
    /// The tensor at `place`.
    ///
    /// # Safety
    /// `region` is the place's region in this run, large enough for the place, and while the
    /// view lives nobody writes to the tensor's elements.
    pub unsafe fn new(region: RegionBase, place: &'a Place) -> Self {
        Self { base: region.at(place), place }
    }

    pub fn layout(&self) -> &'a Layout {
        &self.place.layout
    }

    pub fn stored(&self) -> Stored {
        self.place.stored
    }

    pub fn has_contiguous_rows(&self) -> bool {
        self.place.has_contiguous_rows
    }

    /// Address of the element that begins row `row`, counted over all outer dimensions.
    fn row_base(&self, row: usize) -> *const u8 {
        self.base.wrapping_add(self.place.row_offset(row))
    }

    /// One row whose elements are neighbours.
    pub fn row<T: Pod>(&self, row: usize) -> &'a [T] {
        self.check_element::<T>();
        assert!(self.place.has_contiguous_rows);
        // SAFETY: the row lies inside the tensor, which is valid, unwritten and of this element
        // type; kernels are only given operands aligned for their elements.
        unsafe { slice(self.row_base(row), self.place.layout.shape()[0]) }
    }

    /// All rows of one matrix `[n, rows]` of the two outer dimensions, as one slice that begins
    /// at its first element and ends at its last, gaps included.
    pub fn matrix<T: Pod>(&self, outer: [usize; 2]) -> &'a [T] {
        self.check_element::<T>();
        let [n, rows, d2, d3] = self.place.layout.shape().dims();
        assert!(outer[0] < d2 && outer[1] < d3 && self.place.has_contiguous_rows);
        if n == 0 || rows == 0 {
            return &[];
        }
        let base = self.base.wrapping_add(self.place.layout.row_offset([0, outer[0], outer[1]]));
        let len = (rows - 1) * self.row_stride::<T>() + n;
        // SAFETY: the elements lie inside the tensor's extent, gaps are other elements of the
        // same region that no step writes while this one runs.
        unsafe { slice(base, len) }
    }

    /// The heads of one batch, `[n, rows, heads]`, as one slice, gaps included.
    pub fn heads<T: Pod>(&self, batch: usize) -> &'a [T] {
        self.check_element::<T>();
        let [n, rows, heads, d3] = self.place.layout.shape().dims();
        assert!(batch < d3 && self.place.has_contiguous_rows);
        if n == 0 || rows == 0 || heads == 0 {
            return &[];
        }
        let base = self.base.wrapping_add(self.place.layout.row_offset([0, 0, batch]));
        let len = (rows - 1) * self.row_stride::<T>() + (heads - 1) * self.head_stride::<T>() + n;
        // SAFETY: as in `matrix`.
        unsafe { slice(base, len) }
    }

    /// Every row of a tensor whose rows are all one stride apart, as one slice, gaps included.
    pub fn flattened<T: Pod>(&self) -> &'a [T] {
        self.check_element::<T>();
        assert!(self.place.has_contiguous_rows);
        let rows = self.place.layout.shape().rows();
        let n = self.place.layout.shape()[0];
        if n == 0 || rows == 0 {
            return &[];
        }
        let len = (rows - 1) * self.row_stride::<T>() + n;
        assert!(len * size_of::<T>() <= self.place.layout.extent_bytes());
        // SAFETY: as in `matrix`; the slice ends where the extent does.
        unsafe { slice(self.base, len) }
    }

    /// Elements from one head to the next.
    pub fn head_stride<T>(&self) -> usize {
        self.place.layout.strides()[2] / size_of::<T>()
    }

    /// Elements from one row to the next.
    pub fn row_stride<T>(&self) -> usize {
        self.place.layout.strides()[1] / size_of::<T>()
    }

    /// Every element of a tensor without gaps.
    pub fn all<T: Pod>(&self) -> &'a [T] {
        self.check_element::<T>();
        assert!(self.place.layout.is_contiguous());
        // SAFETY: as in `row`; without gaps the extent is the elements.
        unsafe { slice(self.base, self.place.layout.shape().elements()) }
    }

    /// One element of a row, whatever the stride.
    pub fn element<T: Pod>(&self, row: usize, index: usize) -> T {
        self.check_element::<T>();
        assert!(index < self.place.layout.shape()[0]);
        let at = self.row_base(row).wrapping_add(index * self.place.layout.strides()[0]);
        // SAFETY: the element lies inside the tensor; unaligned reads are allowed here.
        unsafe { at.cast::<T>().read_unaligned() }
    }

    /// One row as f32: in place when it is f32 without gaps, else converted into `scratch`.
    pub fn row_f32<'s>(&self, isa: Isa, row: usize, scratch: &'s mut [f32]) -> &'s [f32]
    where
        'a: 's,
    {
        let n = self.place.layout.shape()[0];
        match (self.place.stored, self.place.has_contiguous_rows) {
            (Stored::F32, true) => self.row(row),
            (Stored::F16, true) => {
                f16_to_f32_row(isa, self.row::<f16>(row), &mut scratch[..n]);
                &scratch[..n]
            }
            (Stored::F16, false) => {
                for (index, value) in scratch[..n].iter_mut().enumerate() {
                    *value = self.element::<f16>(row, index).to_f32();
                }
                &scratch[..n]
            }
            (Stored::F32, false) => {
                for (index, value) in scratch[..n].iter_mut().enumerate() {
                    *value = self.element::<f32>(row, index);
                }
                &scratch[..n]
            }
            (Stored::I32, _) => unreachable!("ids are not read as floats"),
        }
    }

    fn check_element<T>(&self) {
        assert_eq!(self.place.layout.dtype().block_bytes(), size_of::<T>());
    }
}

/// The panels at `place`.
///
/// # Safety
/// `region` is the place's region in this run, large enough for the place, and while the
/// panels live nobody writes to them.
pub(crate) unsafe fn panels<'a>(region: RegionBase, place: &Place) -> Option<Panels<'a>> {
    let matrix = place.packed?;
    // SAFETY: the caller vouches for the whole place, which is as large as its matrix.
    let bytes = unsafe { slice(region.at(place), matrix.bytes()?) };
    matrix.panels(bytes)
}

/// # Safety
/// `len` elements at `base` are valid for reads, aligned, and unwritten for `'a`.
unsafe fn slice<'a, T: Pod>(base: *const u8, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    debug_assert!((base as usize).is_multiple_of(align_of::<T>()));
    // SAFETY: the contract of this function.
    unsafe { std::slice::from_raw_parts(base.cast(), len) }
}

/// The rows of a tensor that one member of the team writes.
#[derive(Debug)]
pub(crate) struct DstView<'a> {
    base: *mut u8,
    place: &'a Place,
    rows: Range<usize>,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> DstView<'a> {
    /// Rows `rows` of the tensor at `place`.
    ///
    /// # Safety
    /// `region` is the place's region in this run, writable and large enough for the place, and
    /// while the view lives nobody else reads or writes these rows.
    pub unsafe fn new(region: RegionBase, place: &'a Place, rows: Range<usize>) -> Self {
        assert!(rows.end <= place.rows);
        Self { base: region.at(place), place, rows, memory: PhantomData }
    }

    pub fn has_contiguous_rows(&self) -> bool {
        self.place.has_contiguous_rows
    }

    pub fn stored(&self) -> Stored {
        self.place.stored
    }

    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    fn row_base(&self, row: usize) -> *mut u8 {
        assert!(self.rows.contains(&row));
        self.base.wrapping_add(self.place.row_offset(row))
    }

    /// One row whose elements are neighbours.
    pub fn row_mut<T: Pod>(&mut self, row: usize) -> &mut [T] {
        assert_eq!(self.place.layout.dtype().block_bytes(), size_of::<T>());
        assert!(self.place.has_contiguous_rows);
        let (base, len) = (self.row_base(row), self.place.layout.shape()[0]);
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the row is one of this view's, which only this member accesses; `&mut self`
        // lends it once at a time; destinations are aligned for their elements.
        unsafe { std::slice::from_raw_parts_mut(base.cast(), len) }
    }

    /// Writes one element of a row, whatever the stride.
    pub fn set<T: Pod>(&mut self, row: usize, index: usize, value: T) {
        assert_eq!(self.place.layout.dtype().block_bytes(), size_of::<T>());
        assert!(index < self.place.layout.shape()[0]);
        let at = self.row_base(row).wrapping_add(index * self.place.layout.strides()[0]);
        // SAFETY: as in `row_mut`; unaligned writes are allowed here.
        unsafe { at.cast::<T>().write_unaligned(value) }
    }
}

#[cfg(test)]
mod tests {
    use tensoryard_graph::Shape;

    use super::*;

    #[test]
    fn rows_at_one_distance_lie_where_the_layout_says() {
        let strided = |dims: &[usize], strides| {
            Layout::strided(DType::F32, Shape::new(dims).unwrap(), strides).unwrap()
        };
        let cases = [
            (strided(&[3, 5, 2, 2], [4, 12, 60, 120]), Some(12)),
            (strided(&[3, 5, 2, 2], [4, 16, 80, 160]), Some(16)),
            (strided(&[3, 5, 2, 2], [4, 16, 84, 168]), None),
            (strided(&[3, 5, 2, 2], [4, 16, 80, 200]), None),
            (strided(&[3, 1, 4, 1], [4, 999, 20, 7]), Some(20)),
            (strided(&[3, 1, 1, 1], [4, 999, 20, 7]), Some(999)),
            (strided(&[3, 4, 2, 1], [4, 0, 0, 0]), Some(0)),
            (strided(&[0, 4, 2, 1], [4, usize::MAX, usize::MAX, 0]), Some(0)),
        ];
        for (layout, expected) in cases {
            let found = even_stride(&layout);
            assert_eq!(found, expected, "{layout}");
            if let (Some(stride), false) = (found, layout.shape().is_empty()) {
                for row in 0..layout.shape().rows() {
                    assert_eq!(row * stride, layout.nth_row_offset(row), "{layout} row {row}");
                }
            }
        }
    }
}

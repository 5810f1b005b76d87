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
use tensoryard_runtime::Aliasing;

use crate::Isa;
use crate::kernels::convert::f16_to_f32_row;
use crate::pack::Panels;
use crate::packed::PackedMatrix;

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
            _ => None,
        }
    }
}

/// An operand of a compiled step.
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
}

impl Place {
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
    layout: &'a Layout,
    stored: Stored,
}

impl<'a> SrcView<'a> {
    /// The tensor at `place`.
    ///
    /// # Safety
    /// `region` is the place's region in this run, large enough for the place, and while the
    /// view lives nobody writes to the tensor's elements.
    pub unsafe fn new(region: RegionBase, place: &'a Place) -> Self {
        Self { base: region.at(place), layout: &place.layout, stored: place.stored }
    }

    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    pub fn stored(&self) -> Stored {
        self.stored
    }

    /// Address of the element that begins row `row`, counted over all outer dimensions.
    fn row_base(&self, row: usize) -> *const u8 {
        assert!(row < self.layout.shape().rows());
        self.base.wrapping_add(self.layout.nth_row_offset(row))
    }

    /// One row whose elements are neighbours.
    pub fn row<T: Pod>(&self, row: usize) -> &'a [T] {
        self.check_element::<T>();
        assert!(self.layout.has_contiguous_rows());
        // SAFETY: the row lies inside the tensor, which is valid, unwritten and of this element
        // type; kernels are only given operands aligned for their elements.
        unsafe { slice(self.row_base(row), self.layout.shape()[0]) }
    }

    /// All rows of one matrix `[n, rows]` of the two outer dimensions, as one slice that begins
    /// at its first element and ends at its last, gaps included.
    pub fn matrix<T: Pod>(&self, outer: [usize; 2]) -> &'a [T] {
        self.check_element::<T>();
        let [n, rows, d2, d3] = self.layout.shape().dims();
        assert!(outer[0] < d2 && outer[1] < d3 && self.layout.has_contiguous_rows());
        if n == 0 || rows == 0 {
            return &[];
        }
        let base = self.base.wrapping_add(self.layout.row_offset([0, outer[0], outer[1]]));
        let len = (rows - 1) * self.row_stride::<T>() + n;
        // SAFETY: the elements lie inside the tensor's extent, gaps are other elements of the
        // same region that no step writes while this one runs.
        unsafe { slice(base, len) }
    }

    /// The heads of one batch, `[n, rows, heads]`, as one slice, gaps included.
    pub fn heads<T: Pod>(&self, batch: usize) -> &'a [T] {
        self.check_element::<T>();
        let [n, rows, heads, d3] = self.layout.shape().dims();
        assert!(batch < d3 && self.layout.has_contiguous_rows());
        if n == 0 || rows == 0 || heads == 0 {
            return &[];
        }
        let base = self.base.wrapping_add(self.layout.row_offset([0, 0, batch]));
        let len = (rows - 1) * self.row_stride::<T>() + (heads - 1) * self.head_stride::<T>() + n;
        // SAFETY: as in `matrix`.
        unsafe { slice(base, len) }
    }

    /// Every row of a tensor whose rows are all one stride apart, as one slice, gaps included.
    pub fn flattened<T: Pod>(&self) -> &'a [T] {
        self.check_element::<T>();
        assert!(self.layout.has_contiguous_rows());
        let rows = self.layout.shape().rows();
        let n = self.layout.shape()[0];
        if n == 0 || rows == 0 {
            return &[];
        }
        let len = (rows - 1) * self.row_stride::<T>() + n;
        assert!(len * size_of::<T>() <= self.layout.extent_bytes());
        // SAFETY: as in `matrix`; the slice ends where the extent does.
        unsafe { slice(self.base, len) }
    }

    /// Elements from one head to the next.
    pub fn head_stride<T>(&self) -> usize {
        self.layout.strides()[2] / size_of::<T>()
    }

    /// Elements from one row to the next.
    pub fn row_stride<T>(&self) -> usize {
        self.layout.strides()[1] / size_of::<T>()
    }

    /// Every element of a tensor without gaps.
    pub fn all<T: Pod>(&self) -> &'a [T] {
        self.check_element::<T>();
        assert!(self.layout.is_contiguous());
        // SAFETY: as in `row`; without gaps the extent is the elements.
        unsafe { slice(self.base, self.layout.shape().elements()) }
    }

    /// One element of a row, whatever the stride.
    pub fn element<T: Pod>(&self, row: usize, index: usize) -> T {
        self.check_element::<T>();
        assert!(index < self.layout.shape()[0]);
        let at = self.row_base(row).wrapping_add(index * self.layout.strides()[0]);
        // SAFETY: the element lies inside the tensor; unaligned reads are allowed here.
        unsafe { at.cast::<T>().read_unaligned() }
    }

    /// One row as f32: in place when it is f32 without gaps, else converted into `scratch`.
    pub fn row_f32<'s>(&self, isa: Isa, row: usize, scratch: &'s mut [f32]) -> &'s [f32]
    where
        'a: 's,
    {
        let n = self.layout.shape()[0];
        match (self.stored, self.layout.has_contiguous_rows()) {
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
        assert_eq!(self.layout.dtype().block_bytes(), size_of::<T>());
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
    layout: &'a Layout,
    stored: Stored,
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
        assert!(rows.end <= place.layout.shape().rows());
        let base = region.at(place);
        Self { base, layout: &place.layout, stored: place.stored, rows, memory: PhantomData }
    }

    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    pub fn stored(&self) -> Stored {
        self.stored
    }

    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    fn row_base(&self, row: usize) -> *mut u8 {
        assert!(self.rows.contains(&row));
        self.base.wrapping_add(self.layout.nth_row_offset(row))
    }

    /// One row whose elements are neighbours.
    pub fn row_mut<T: Pod>(&mut self, row: usize) -> &mut [T] {
        assert_eq!(self.layout.dtype().block_bytes(), size_of::<T>());
        assert!(self.layout.has_contiguous_rows());
        let (base, len) = (self.row_base(row), self.layout.shape()[0]);
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the row is one of this view's, which only this member accesses; `&mut self`
        // lends it once at a time; destinations are aligned for their elements.
        unsafe { std::slice::from_raw_parts_mut(base.cast(), len) }
    }

    /// Writes one element of a row, whatever the stride.
    pub fn set<T: Pod>(&mut self, row: usize, index: usize, value: T) {
        assert_eq!(self.layout.dtype().block_bytes(), size_of::<T>());
        assert!(index < self.layout.shape()[0]);
        let at = self.row_base(row).wrapping_add(index * self.layout.strides()[0]);
        // SAFETY: as in `row_mut`; unaligned writes are allowed here.
        unsafe { at.cast::<T>().write_unaligned(value) }
    }
}

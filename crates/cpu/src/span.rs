//! Windows into memory that several threads write in parallel.
//!
//! Kernels split their result among the members of a team, and Rust's slices
//! cannot express columns of a matrix owned by one thread. A [`DstRows`] is
//! such a rectangle. Whoever makes one from a pointer vouches that nobody
//! else reads or writes the rectangle meanwhile; from then on every access is
//! checked, and references are formed only inside it. With [`SharedSlice`]
//! this is the only place where kernels meet raw memory of the caller.

use std::marker::PhantomData;
use std::ops::Range;

/// A rectangle of a row-major `f32` matrix, owned exclusively: rows
/// `0..n`, and of each the elements `columns`, numbered as in the whole row.
#[derive(Debug)]
pub struct DstRows<'a> {
    first: *mut f32,
    stride: usize,
    n: usize,
    columns: Range<usize>,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: a DstRows stands for exclusive access like `&mut [f32]`, which is Send.
unsafe impl Send for DstRows<'_> {}

impl<'a> DstRows<'a> {
    /// `n` rows of `columns` elements, `stride` elements apart, at the
    /// beginning of `data`; `None` when they do not fit or overlap.
    pub fn from_slice(
        data: &'a mut [f32],
        stride: usize,
        n: usize,
        columns: usize,
    ) -> Option<Self> {
        fits(data.len(), stride, n, columns)?;
        if n > 1 && stride < columns {
            return None;
        }
        Some(Self { first: data.as_mut_ptr(), stride, n, columns: 0..columns, memory: PhantomData })
    }

    /// The elements `columns` of `n` rows that are `stride` elements apart.
    ///
    /// # Safety
    /// `first` is where element 0 of row 0 lies or would lie. For the
    /// lifetime `'a`, the elements `columns` of all `n` rows are valid memory
    /// of one allocation, and nobody but this value accesses them.
    pub unsafe fn from_raw(
        first: *mut f32,
        stride: usize,
        n: usize,
        columns: Range<usize>,
    ) -> Self {
        Self { first, stride, n, columns, memory: PhantomData }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The elements of each row that belong to the window.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Where element `column` of row `row` lies, for hints to the cache only.
    pub(crate) fn address(&self, row: usize, column: usize) -> *const f32 {
        self.first.wrapping_add(row * self.stride + column)
    }

    /// Elements `columns` of row `row`.
    #[inline]
    pub fn row_mut(&mut self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(
            row < self.n
                && self.columns.start <= columns.start
                && columns.start <= columns.end
                && columns.end <= self.columns.end,
            "row {row}, columns {columns:?} of a window of {} rows, columns {:?}",
            self.n,
            self.columns
        );
        // SAFETY: the range is inside the window, which the maker of `self`
        // vouched to be valid and exclusive; `&mut self` lends it only once.
        unsafe {
            let first = self.first.add(row * self.stride + columns.start);
            std::slice::from_raw_parts_mut(first, columns.len())
        }
    }

    /// The rows `rows` of the window as a window of their own, borrowed from this one.
    pub fn rows_mut(&mut self, rows: Range<usize>) -> DstRows<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.n);
        DstRows {
            first: self.first.wrapping_add(rows.start * self.stride),
            stride: self.stride,
            n: rows.len(),
            columns: self.columns.clone(),
            memory: PhantomData,
        }
    }
}

/// Elements that the members of a team share, each writing its own part.
#[derive(Debug, Clone, Copy)]
pub struct SharedSlice<'a, T> {
    first: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached only through the unsafe `slice_mut`, whose
// callers keep their parts disjoint, so this is `&mut [T]` cut into parts.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}
// SAFETY: as for Send; the value itself holds only a pointer and a length.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    /// Shares `data` until the borrow ends.
    pub fn new(data: &'a mut [T]) -> Self {
        Self { first: data.as_mut_ptr(), len: data.len(), memory: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element, for building windows such as [`DstRows`].
    pub fn as_mut_ptr(&self) -> *mut T {
        self.first
    }

    /// The elements `range`.
    ///
    /// # Safety
    /// While the result lives nobody else accesses these elements.
    pub unsafe fn slice_mut(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range is inside the borrowed slice; the caller vouches
        // that it is not accessed otherwise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

/// `Some` when `n` rows of `len` elements, `stride` apart, fit into `available` elements.
pub(crate) fn fits(available: usize, stride: usize, n: usize, len: usize) -> Option<()> {
    if n == 0 || len == 0 {
        return Some(());
    }
    let end = (n - 1).checked_mul(stride)?.checked_add(len)?;
    (end <= available).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_gives_out_only_what_is_inside() {
        let mut data = vec![0.0; 23];
        assert!(DstRows::from_slice(&mut data, 8, 3, 8).is_none());
        assert!(DstRows::from_slice(&mut data, 6, 3, 7).is_none());
        assert!(DstRows::from_slice(&mut data, usize::MAX, 3, 7).is_none());
        let mut window = DstRows::from_slice(&mut data, 8, 3, 7).unwrap();
        window.row_mut(2, 3..7).fill(1.0);
        window.rows_mut(1..2).row_mut(0, 0..1).fill(2.0);
        assert_eq!((data[8], data[18], data[19], data[22]), (2.0, 0.0, 1.0, 1.0));
    }

    #[test]
    #[should_panic(expected = "columns 6..8")]
    fn leaving_the_window_panics() {
        let mut data = vec![0.0; 24];
        DstRows::from_slice(&mut data, 8, 3, 7).unwrap().row_mut(0, 6..8);
    }

    #[test]
    fn two_threads_fill_their_halves() {
        let mut data = vec![0; 10];
        let shared = SharedSlice::new(&mut data);
        std::thread::scope(|scope| {
            for part in 0..2 {
                scope.spawn(move || {
                    // SAFETY: the two ranges are disjoint.
                    unsafe { shared.slice_mut(part * 5..part * 5 + 5) }.fill(part);
                });
            }
        });
        assert_eq!(data, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    }
}

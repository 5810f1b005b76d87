//! What every byte of the run's memory holds, as far as the verifier has walked.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tensoryard_graph::{Layout, TensorId};

use crate::Region;

/// What a byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// A byte of a tensor that owns memory. `start` is where its first byte is, or would be.
    Root { root: TensorId, version: u32, start: isize },
    /// A byte of a temporary.
    Temporary { number: usize, start: isize },
    /// Destroyed: padding behind a tensor.
    Padding,
}

/// Ranges of one region by their start; they never overlap.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<usize, (usize, Tag)>);

/// The contents of all regions.
#[derive(Debug, Default)]
pub(super) struct Contents(HashMap<Region, Ranges>);

/// What stands in the way of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) byte: usize,
    pub(super) found: Option<Tag>,
}

impl Ranges {
    fn set(&mut self, range: Range<usize>, tag: Tag) {
        if range.is_empty() {
            return;
        }
        // The last range before, and all that begin inside.
        let touched: Vec<(usize, usize, Tag)> = self
            .0
            .range(..range.end)
            .rev()
            .take_while(|&(_, &(end, _))| end > range.start)
            .map(|(&start, &(end, tag))| (start, end, tag))
            .collect();
        for (start, end, old) in touched {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, old));
            }
            if end > range.end {
                self.0.insert(range.end, (end, old));
            }
        }
        self.0.insert(range.start, (range.end, tag));
    }

    fn check(&self, range: Range<usize>, wanted: Tag) -> Result<(), Mismatch> {
        let mut at = range.start;
        while at < range.end {
            let found = self.0.range(..=at).next_back().filter(|&(_, &(end, _))| end > at);
            match found {
                Some((_, &(end, tag))) if tag == wanted => at = end,
                other => {
                    return Err(Mismatch { byte: at, found: other.map(|(_, &(_, tag))| tag) });
                }
            }
        }
        Ok(())
    }
}

impl Contents {
    pub(super) fn set(&mut self, region: Region, range: Range<usize>, tag: Tag) {
        self.0.entry(region).or_default().set(range, tag);
    }

    /// Marks the bytes of a tensor's elements, gaps aside.
    pub(super) fn set_elements(
        &mut self,
        region: Region,
        offset: usize,
        layout: &Layout,
        tag: Tag,
    ) {
        for run in runs(layout) {
            self.set(region, shifted(&run, offset), tag);
        }
    }

    /// Whether every byte of the tensor's elements is `wanted`.
    pub(super) fn check_elements(
        &self,
        region: Region,
        offset: usize,
        layout: &Layout,
        wanted: Tag,
    ) -> Result<(), Mismatch> {
        let empty = Ranges::default();
        let ranges = self.0.get(&region).unwrap_or(&empty);
        runs(layout).into_iter().try_for_each(|run| ranges.check(shifted(&run, offset), wanted))
    }

    /// Whether nothing was ever written to the bytes.
    pub(super) fn is_untouched(&self, region: Region, range: Range<usize>) -> bool {
        let Some(ranges) = self.0.get(&region) else { return true };
        let before = ranges.0.range(..range.end).next_back();
        range.is_empty() || before.is_none_or(|(_, &(end, _))| end <= range.start)
    }

    /// Turns one tag of a region into another wherever it stands.
    pub(super) fn replace(&mut self, region: Region, from: Tag, to: Tag) {
        let ranges = self.0.entry(region).or_default();
        for (_, tag) in ranges.0.values_mut() {
            if *tag == from {
                *tag = to;
            }
        }
    }
}

/// Places of damaged plans may be anywhere.
fn shifted(run: &Range<usize>, offset: usize) -> Range<usize> {
    offset.saturating_add(run.start)..offset.saturating_add(run.end)
}

/// The bytes that belong to elements, as ranges from the first element on.
pub(super) fn runs(layout: &Layout) -> Vec<Range<usize>> {
    if layout.shape().is_empty() {
        return Vec::new();
    }
    let dims = layout.shape().dims();
    let strides = layout.strides();
    let mut axes: Vec<(usize, usize)> = (0..dims.len())
        .map(|dim| {
            let blocks = if dim == 0 { layout.dtype().block_len() } else { 1 };
            (strides[dim], dims[dim] / blocks)
        })
        .collect();
    axes.sort_unstable();
    let mut length = layout.dtype().block_bytes();
    let mut starts = vec![0];
    for (stride, count) in axes {
        if starts.len() == 1 && stride <= length {
            // Neighbours touch or overlap: the run grows.
            length += stride * (count - 1);
        } else {
            starts = (0..count)
                .flat_map(|index| starts.iter().map(move |start| start + index * stride))
                .collect();
        }
    }
    starts.into_iter().map(|start| start..start + length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensoryard_graph::{DType, Shape};

    fn tag(number: usize) -> Tag {
        Tag::Temporary { number, start: 0 }
    }

    #[test]
    fn later_ranges_cut_earlier_ones() {
        let region = Region::Chunk(0);
        let layout = Layout::contiguous(DType::F32, Shape::new(&[4]).unwrap()).unwrap();
        let mut contents = Contents::default();
        contents.set(region, 0..32, tag(1));
        contents.set(region, 8..12, tag(2));
        assert_eq!(contents.check_elements(region, 12, &layout, tag(1)), Ok(()));
        let mismatch = Mismatch { byte: 8, found: Some(tag(2)) };
        assert_eq!(contents.check_elements(region, 4, &layout, tag(1)), Err(mismatch));
        let mismatch = Mismatch { byte: 32, found: None };
        assert_eq!(contents.check_elements(region, 20, &layout, tag(1)), Err(mismatch));
        contents.set(region, 4..24, tag(3));
        assert_eq!(contents.check_elements(region, 4, &layout, tag(3)), Ok(()));
        contents.replace(region, tag(3), tag(1));
        assert_eq!(contents.check_elements(region, 0, &layout, tag(1)), Ok(()));
    }

    #[test]
    fn runs_cover_exactly_the_elements() {
        let runs = |layout: &Layout| -> Vec<(usize, usize)> {
            super::runs(layout).into_iter().map(|run| (run.start, run.end)).collect()
        };
        let shape = Shape::new(&[3, 4, 2]).unwrap();
        let plain = Layout::contiguous(DType::F32, shape).unwrap();
        assert_eq!(runs(&plain), [(0, 96)]);
        assert_eq!(runs(&plain.permute([2, 0, 1, 3]).unwrap()), [(0, 96)]);
        let sliced = Layout::strided(DType::F32, Shape::new(&[2, 4]).unwrap(), [4, 12, 48, 96]);
        assert_eq!(runs(&sliced.unwrap()), [(0, 8), (12, 20), (24, 32), (36, 44)]);
        let windows = Layout::strided(DType::F16, Shape::new(&[6, 3]).unwrap(), [2, 4, 0, 0]);
        assert_eq!(runs(&windows.unwrap()), [(0, 20)]);
        assert!(
            runs(&Layout::contiguous(DType::F32, Shape::new(&[0]).unwrap()).unwrap()).is_empty()
        );
    }
}

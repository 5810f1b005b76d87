//! Free memory of one kind, in chunks.
//!
//! Holes are kept twice: by offset in each chunk, so that neighbours join, and by length over
//! all chunks, so that the best fit is found without a look at each.

use crate::{BufferType, PlanError};

/// A range of a chunk, chunks counted over all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) chunk: usize,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Number among the chunks of all kinds.
    number: usize,
    size: usize,
    /// Free ranges by offset, never touching one another.
    holes: Vec<(usize, usize)>,
}

/// A free range, in the order in which the best fit is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hole {
    bytes: usize,
    chunk: usize,
    offset: usize,
}

/// Free memory of one kind.
#[derive(Debug)]
pub(super) struct FreeList {
    alignment: usize,
    /// The largest chunk.
    max: usize,
    chunks: Vec<Chunk>,
    by_length: Vec<Hole>,
}

impl FreeList {
    pub(super) fn new(buffer_type: &dyn BufferType) -> Self {
        let alignment = buffer_type.alignment();
        let max = buffer_type.max_size() / alignment * alignment;
        Self { alignment, max, chunks: Vec::new(), by_length: Vec::new() }
    }

    /// Bytes that a tensor of that padded size takes, or the largest chunk if that is smaller.
    pub(super) fn rounded(&self, bytes: usize) -> Result<Result<usize, usize>, PlanError> {
        let bytes = bytes.checked_next_multiple_of(self.alignment).ok_or(PlanError::Overflow)?;
        Ok(if bytes > self.max { Err(self.max) } else { Ok(bytes) })
    }

    /// Sizes of the chunks by their numbers.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.chunks.iter().map(|chunk| (chunk.number, chunk.size))
    }

    /// Takes rounded bytes from the smallest hole that holds them. `next_chunk` is counted up
    /// when a chunk is begun.
    pub(super) fn take(&mut self, bytes: usize, next_chunk: &mut usize) -> Block {
        if bytes == 0 {
            if self.chunks.is_empty() {
                self.begin(0, next_chunk);
            }
            return Block { chunk: self.chunks[0].number, offset: 0, bytes: 0 };
        }
        let at = self.by_length.partition_point(|hole| hole.bytes < bytes);
        if at < self.by_length.len() {
            let hole = self.by_length.remove(at);
            let chunk = &mut self.chunks[hole.chunk];
            let position = chunk.holes.partition_point(|&(start, _)| start < hole.offset);
            if hole.bytes == bytes {
                chunk.holes.remove(position);
            } else {
                let rest = (hole.offset + bytes, hole.bytes - bytes);
                chunk.holes[position] = rest;
                self.add_length(Hole { bytes: rest.1, chunk: hole.chunk, offset: rest.0 });
            }
            return Block { chunk: self.chunks[hole.chunk].number, offset: hole.offset, bytes };
        }
        self.grow(bytes).unwrap_or_else(|| {
            self.begin(bytes, next_chunk);
            let chunk = self.chunks[self.chunks.len() - 1].number;
            Block { chunk, offset: 0, bytes }
        })
    }

    /// Takes bytes behind all others, where nothing was before.
    pub(super) fn take_apart(&mut self, bytes: usize, next_chunk: &mut usize) -> Block {
        if let Some(last) = self.chunks.last_mut()
            && bytes <= self.max - last.size
        {
            let offset = last.size;
            last.size += bytes;
            return Block { chunk: last.number, offset, bytes };
        }
        self.begin(bytes, next_chunk);
        Block { chunk: self.chunks[self.chunks.len() - 1].number, offset: 0, bytes }
    }

    /// Grows the last chunk, from its last hole if that is at its end.
    fn grow(&mut self, bytes: usize) -> Option<Block> {
        let number = self.chunks.len().checked_sub(1)?;
        let last = &mut self.chunks[number];
        let tail = last.holes.last().copied().filter(|&(at, length)| at + length == last.size);
        let offset = tail.map_or(last.size, |(at, _)| at);
        if bytes > self.max - offset {
            return None;
        }
        last.size = offset + bytes;
        let chunk = last.number;
        if let Some((offset, bytes)) = tail {
            last.holes.pop();
            self.remove_length(Hole { bytes, chunk: number, offset });
        }
        Some(Block { chunk, offset, bytes })
    }

    fn begin(&mut self, size: usize, next_chunk: &mut usize) {
        self.chunks.push(Chunk { number: *next_chunk, size, holes: Vec::new() });
        *next_chunk += 1;
    }

    fn add_length(&mut self, hole: Hole) {
        let at = self.by_length.partition_point(|other| *other < hole);
        self.by_length.insert(at, hole);
    }

    fn remove_length(&mut self, hole: Hole) {
        if let Ok(at) = self.by_length.binary_search(&hole) {
            self.by_length.remove(at);
        }
    }

    /// Makes a block free.
    pub(super) fn give_back(&mut self, block: Block) {
        let Block { chunk, offset, bytes } = block;
        // Numbers grow in the order in which the chunks were begun.
        let Ok(chunk) = self.chunks.binary_search_by_key(&chunk, |chunk| chunk.number) else {
            return;
        };
        if bytes == 0 {
            return;
        }
        let holes = &self.chunks[chunk].holes;
        let at = holes.partition_point(|&(start, _)| start < offset);
        let before = at.checked_sub(1).map(|at| holes[at]).filter(|&(o, b)| o + b == offset);
        let after = holes.get(at).copied().filter(|&(start, _)| start == offset + bytes);
        let mut joined = (offset, bytes);
        if let Some((offset, bytes)) = before {
            joined = (offset, bytes + joined.1);
            self.remove_length(Hole { bytes, chunk, offset });
        }
        if let Some((offset, bytes)) = after {
            joined.1 += bytes;
            self.remove_length(Hole { bytes, chunk, offset });
        }
        let first = at - usize::from(before.is_some());
        let past = at + usize::from(after.is_some());
        self.chunks[chunk].holes.splice(first..past, [joined]);
        self.add_length(Hole { bytes: joined.1, chunk, offset: joined.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBufferType;

    #[test]
    fn holes_join_and_the_smallest_that_fits_is_taken() {
        let mut list = FreeList::new(&HostBufferType::new("test"));
        let mut next = 0;
        let blocks: Vec<Block> =
            [64, 128, 64, 256, 64].map(|bytes| list.take(bytes, &mut next)).to_vec();
        assert_eq!(blocks[4], Block { chunk: 0, offset: 512, bytes: 64 });
        list.give_back(blocks[1]);
        list.give_back(blocks[3]);
        assert_eq!(list.take(128, &mut next).offset, 64);
        assert_eq!(list.take(128, &mut next).offset, 256);
        // Two neighbours of a hole close it from both sides.
        list.give_back(blocks[0]);
        list.give_back(blocks[2]);
        list.give_back(Block { chunk: 0, offset: 64, bytes: 128 });
        assert_eq!(list.take(256, &mut next).offset, 0);
        // The end grows from the hole before it.
        list.give_back(blocks[4]);
        assert_eq!(list.take(320, &mut next).offset, 384);
        assert_eq!(list.sizes().collect::<Vec<_>>(), [(0, 704)]);
        assert_eq!(next, 1);
    }

    #[test]
    fn sizes_that_wrap_are_errors_and_those_beyond_the_largest_chunk_are_told() {
        let list = FreeList::new(&HostBufferType::new("test"));
        assert_eq!(list.rounded(65).ok(), Some(Ok(128)));
        assert!(matches!(list.rounded(usize::MAX - 62), Err(PlanError::Overflow)));
        let max = (isize::MAX as usize - 64) / 64 * 64;
        assert_eq!(list.rounded(max + 1).ok(), Some(Err(max)));
        let mut list = list;
        let mut next = 0;
        assert_eq!(list.take(max, &mut next).bytes, max);
        assert_eq!(list.take(64, &mut next), Block { chunk: 1, offset: 0, bytes: 64 });
        assert_eq!(list.take_apart(64, &mut next).offset, 64);
    }
}

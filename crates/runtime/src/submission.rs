//! What a queue is given together with a program: the memory that the program's regions stand
//! for.
//!
//! The memory lives as long as the submission does, whatever its owner drops meanwhile, and its
//! owner cannot look at it meanwhile. A device lets go of the submission when the work is done.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use tensoryard_graph::Layout;

use crate::shared::SharedMemory;
use crate::{Buffer, Memory, Region};

/// The memory of one region.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// The memory.
    pub memory: &'a dyn Memory,
    /// Where the region begins in it.
    pub offset_bytes: usize,
}

/// A tensor in the memory of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The memory.
    pub region: Region,
    /// Distance in bytes from the start of the region to the first element.
    pub offset_bytes: usize,
    /// Type, shape and strides.
    pub layout: Layout,
}

/// A region's memory, kept alive.
#[derive(Debug, Clone)]
pub(crate) struct BoundRegion {
    pub shared: Arc<SharedMemory>,
    pub offset_bytes: usize,
}

/// The memory of every region of a plan, and which of them each split touches.
#[derive(Debug)]
pub(crate) struct Bindings {
    pub weights: Vec<BoundRegion>,
    pub states: Vec<BoundRegion>,
    pub chunks: Vec<BoundRegion>,
    /// The regions besides weights that each split reads or writes.
    pub splits: Vec<Vec<Region>>,
}

impl Bindings {
    pub fn region(&self, region: Region) -> Option<&BoundRegion> {
        match region {
            Region::Weight(n) => self.weights.get(n as usize),
            Region::State(n) => self.states.get(n as usize),
            Region::Chunk(n) => self.chunks.get(n as usize),
        }
    }
}

/// The regions that a submission may touch besides weights.
#[derive(Debug, Clone, Copy)]
enum Uses {
    Split(usize),
    Pair([Region; 2]),
}

/// Finds a memory inside another one; one that is not known is returned as it is.
pub type Reveal = fn(&dyn Memory) -> &dyn Memory;

/// Memory lent to a queue. Dropping it ends the loan.
pub struct Submission {
    bindings: Arc<Bindings>,
    uses: Uses,
    reveal: Option<Reveal>,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submission({:?})", self.uses)
    }
}

impl Submission {
    /// Lends what a split touches. Only called while the owners of state and workspace are
    /// borrowed exclusively.
    pub(crate) fn split(bindings: &Arc<Bindings>, split: usize) -> Self {
        Self::lend(bindings, Uses::Split(split))
    }

    /// Lends the memory of a copy. Only called as [`Submission::split`] is.
    pub(crate) fn copy(bindings: &Arc<Bindings>, from: Region, to: Region) -> Self {
        Self::lend(bindings, Uses::Pair([from, to]))
    }

    fn lend(bindings: &Arc<Bindings>, uses: Uses) -> Self {
        let submission = Self { bindings: Arc::clone(bindings), uses, reveal: None };
        submission.for_each_shared(SharedMemory::enter);
        submission
    }

    /// Lends buffers of the caller: the n-th is the region `Chunk(n)`. For those who give work to
    /// a queue themselves, without a plan.
    ///
    /// Waits until work in flight is done with the buffers, so that two queues never have them at
    /// once. Their owner cannot look at them before this submission is dropped.
    pub fn of_chunks<'a>(buffers: impl IntoIterator<Item = &'a mut Buffer>) -> Self {
        let lend = |buffer: &'a mut Buffer| {
            buffer.shared().when_idle();
            BoundRegion { shared: Arc::clone(buffer.shared()), offset_bytes: 0 }
        };
        let chunks: Vec<BoundRegion> = buffers.into_iter().map(lend).collect();
        let regions = (0..).map(Region::Chunk).take(chunks.len()).collect();
        let bindings =
            Bindings { weights: Vec::new(), states: Vec::new(), chunks, splits: vec![regions] };
        // Counted in while the buffers are borrowed exclusively, as by the executor.
        Self::lend(&Arc::new(bindings), Uses::Split(0))
    }

    /// The same memory for a device inside the one that it was lent to: every region is what
    /// `reveal` finds in it, in place of what an earlier `reveal` would.
    #[must_use]
    pub fn revealed(mut self, reveal: Reveal) -> Self {
        self.reveal = Some(reveal);
        self
    }

    fn regions(&self) -> &[Region] {
        match &self.uses {
            Uses::Split(split) => self.bindings.splits.get(*split).map_or(&[], Vec::as_slice),
            Uses::Pair(regions) => regions,
        }
    }

    /// Weights are never written and need no counting.
    fn for_each_shared(&self, each: impl Fn(&SharedMemory)) {
        for &region in self.regions() {
            if !matches!(region, Region::Weight(_))
                && let Some(bound) = self.bindings.region(region)
            {
                each(&bound.shared);
            }
        }
    }

    /// The memory of a region, if it was lent.
    pub fn get(&self, region: Region) -> Option<Bound<'_>> {
        let is_lent = matches!(region, Region::Weight(_)) || self.regions().contains(&region);
        let bound = self.bindings.region(region).filter(|_| is_lent)?;
        // SAFETY: the region is counted in by `lend` for as long as `self` lives, or it is a
        // weight: weights hand their buffers out by shared reference only.
        let memory = unsafe { bound.shared.in_use() };
        let memory = self.reveal.map_or(memory, |reveal| reveal(memory));
        Some(Bound { memory, offset_bytes: bound.offset_bytes })
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        self.for_each_shared(SharedMemory::leave);
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{HostMemory, MemoryError, Usage, host_buffer_type};

    /// Memory that has other memory inside.
    #[derive(Debug)]
    struct Shell(HostMemory);

    // SAFETY: it has no host memory.
    unsafe impl Memory for Shell {
        fn size(&self) -> usize {
            self.0.size()
        }

        fn host(&self) -> Option<&HostMemory> {
            None
        }

        fn read_tensor(&self, _: usize, _: &Layout, _: &mut [u8]) -> Result<(), MemoryError> {
            Err(MemoryError::ReadOnly)
        }

        fn write_tensor(&mut self, _: usize, _: &Layout, _: &[u8]) -> Result<(), MemoryError> {
            Err(MemoryError::ReadOnly)
        }

        fn clear(&mut self, _: u8) -> Result<(), MemoryError> {
            Err(MemoryError::ReadOnly)
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn core(memory: &dyn Memory) -> &dyn Memory {
        memory.as_any().downcast_ref::<Shell>().map_or(memory, |shell| &shell.0)
    }

    #[test]
    fn a_device_inside_another_sees_the_memory_inside() {
        let kind = host_buffer_type();
        let shell = Shell(HostMemory::allocate(40, 64).unwrap());
        let mut shell = Buffer::from_memory(kind, Box::new(shell), Usage::Any);
        let mut plain = Buffer::allocate(kind, 24, Usage::Any).unwrap();
        let submission = Submission::of_chunks([&mut shell, &mut plain]);
        let host_bytes = |submission: &Submission, chunk| {
            let bound = submission.get(Region::Chunk(chunk)).unwrap();
            bound.memory.host().map(HostMemory::size)
        };
        assert_eq!(host_bytes(&submission, 0), None);
        assert!(submission.get(Region::Chunk(2)).is_none());
        assert!(submission.get(Region::Weight(0)).is_none());
        let submission = submission.revealed(core);
        assert_eq!(host_bytes(&submission, 0), Some(40));
        assert_eq!(host_bytes(&submission, 1), Some(24));
    }

    #[test]
    fn the_owner_of_lent_buffers_waits_for_the_end_of_the_loan() {
        let mut buffer = Buffer::allocate(host_buffer_type(), 8, Usage::Any).unwrap();
        let submission = Submission::of_chunks([&mut buffer]);
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // A second loan waits for the first.
                drop(Submission::of_chunks([&mut buffer]));
                assert!(has_ended.load(Ordering::SeqCst));
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            has_ended.store(true, Ordering::SeqCst);
            drop(submission);
        });
    }
}

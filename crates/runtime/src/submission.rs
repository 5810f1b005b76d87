//! What a queue is given together with a program: the memory that the program's regions stand
//! for.
//!
//! The memory lives as long as the submission does, whatever its owner drops meanwhile, and its
//! owner cannot look at it meanwhile. A device lets go of the submission when the work is done.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use tensoryard_graph::Layout;

use crate::identity::Identity;
use crate::shared::SharedMemory;
use crate::{Memory, Region};

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
    pub identity: Identity,
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

/// Memory lent to a queue. Dropping it ends the loan.
pub struct Submission {
    bindings: Arc<Bindings>,
    uses: Uses,
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
        let submission = Self { bindings: Arc::clone(bindings), uses };
        submission.for_each_shared(SharedMemory::enter);
        submission
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
        Some(Bound { memory, offset_bytes: bound.offset_bytes })
    }

    /// Tells sets of memory apart.
    pub fn binding(&self) -> BindingToken {
        BindingToken(self.bindings.identity.clone())
    }

    /// Whether the submission has the memory that a token stands for.
    pub fn is_bound_as(&self, token: &BindingToken) -> bool {
        self.bindings.identity == token.0
    }
}

/// Stands for the memory of a submission: equal tokens, equal memory for all regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingToken(Identity);

impl Drop for Submission {
    fn drop(&mut self) {
        self.for_each_shared(SharedMemory::leave);
    }
}

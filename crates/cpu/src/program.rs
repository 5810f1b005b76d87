//! Compiled programs and how a team runs them.
//!
//! All members walk the same steps. A step with much work is shared by all of
//! them in chunks; a small one is done by member 0 alone. Members meet between
//! two steps unless both are done by member 0, so that every step sees what
//! the steps before it wrote. A program without a shared step wakes nobody.
//!
//! What does not change between runs is found when compiling; a run takes no
//! lock, allocates nothing once its memory has grown, and looks at each region
//! once.

use std::collections::HashMap;
use std::sync::Mutex;

use tensoryard_runtime::{AbortSignal, Bound, DeviceError, Operand, Region, Step, Submission};

use crate::Isa;
use crate::check::check_step;
use crate::packed::PackedMemory;
use crate::span::SharedSlice;
use crate::steps::{CpuStep, Failure};
use crate::team::{ChunkCounter, Member, Stopped, Team, TeamError};
use crate::view::{Place, RegionBase};

/// Steps of a program, ready to run.
#[derive(Debug)]
pub(crate) struct CpuProgram {
    steps: Vec<CpuStep>,
    regions: Vec<RegionUse>,
    scratch_len: usize,
    /// Number of steps that all members share, each with a counter.
    shared_steps: usize,
}

/// A region with what the program needs of it.
#[derive(Debug)]
struct RegionUse {
    region: Region,
    /// Bytes from its start that the program reaches.
    bytes: usize,
    /// Whether some step writes there.
    is_written: bool,
    /// Alignment that the operands' elements need.
    alignment: usize,
}

impl CpuProgram {
    /// Compiles steps for a team of `members`.
    pub fn compile(
        device: &str,
        steps: &[Step],
        members: usize,
        share_all: bool,
    ) -> Result<Self, DeviceError> {
        let mut program = Self {
            steps: Vec::with_capacity(steps.len()),
            regions: Vec::new(),
            scratch_len: 0,
            shared_steps: 0,
        };
        let mut known = HashMap::new();
        for step in steps {
            let refuse = |reason| {
                let (device, step) = (device.to_owned(), step.name.clone());
                DeviceError::Compile { device, step, reason }
            };
            check_step(step).map_err(refuse)?;
            let dst = program.place(&mut known, &step.dst, true);
            let sources: Vec<Option<Place>> = step
                .sources
                .iter()
                .map(|source| {
                    source.as_ref().map(|operand| program.place(&mut known, operand, false))
                })
                .collect();
            let compiled = CpuStep::new(step, dst, sources, members, share_all);
            program.scratch_len = program.scratch_len.max(compiled.scratch_len());
            program.shared_steps += usize::from(compiled.is_shared());
            program.steps.push(compiled);
        }
        Ok(program)
    }

    fn place(
        &mut self,
        known: &mut HashMap<Region, usize>,
        operand: &Operand,
        is_written: bool,
    ) -> Place {
        let region = *known.entry(operand.region).or_insert_with(|| {
            let region = operand.region;
            self.regions.push(RegionUse { region, bytes: 0, is_written: false, alignment: 1 });
            self.regions.len() - 1
        });
        let place = Place::new(operand, region, is_written);
        let used = &mut self.regions[region];
        used.bytes = used.bytes.max(place.offset_bytes.saturating_add(place.extent_bytes()));
        used.is_written |= is_written;
        used.alignment = used.alignment.max(operand.layout.dtype().alignment());
        place
    }

    /// Addresses of all regions, after checking that each is there, large enough and writable
    /// where it is written.
    fn resolve(
        &self,
        device: &str,
        bindings: &Submission,
        bases: &mut Vec<RegionBase>,
        by_address: &mut Vec<usize>,
    ) -> Result<(), DeviceError> {
        bases.clear();
        for used in &self.regions {
            let unfit = |what: &str| DeviceError::Compile {
                device: device.to_owned(),
                step: format!("{:?}", used.region),
                reason: what.to_owned(),
            };
            let Bound { memory, offset_bytes } =
                bindings.get(used.region).ok_or_else(|| unfit("no memory is bound"))?;
            let packed = memory.as_any().downcast_ref::<PackedMemory>();
            let host = packed.map(PackedMemory::host).or_else(|| memory.host());
            let host = host.ok_or_else(|| unfit("the memory is not the host's"))?;
            let end = offset_bytes.checked_add(used.bytes);
            if end.is_none_or(|end| end > host.size()) {
                return Err(unfit("the bound memory is too small"));
            }
            if used.is_written && !host.is_writable() {
                return Err(unfit("the bound memory is read only"));
            }
            let base = host.base().wrapping_add(offset_bytes);
            if !(base as usize).is_multiple_of(used.alignment) {
                return Err(unfit("the bound memory is not aligned for its elements"));
            }
            bases.push(RegionBase(base));
        }
        let Some((a, b)) = self.overlap(bases, by_address) else { return Ok(()) };
        let (a, b) = (self.regions[a].region, self.regions[b].region);
        Err(DeviceError::Compile {
            device: device.to_owned(),
            step: format!("{a:?}"),
            reason: format!("it is bound to memory of {b:?}"),
        })
    }

    /// A region that is written and another that shares a byte with it: a forged plan could bind
    /// them so.
    fn overlap(&self, bases: &[RegionBase], by_address: &mut Vec<usize>) -> Option<(usize, usize)> {
        let start = |index: usize| bases[index].0 as usize;
        by_address.clear();
        by_address.extend((0..bases.len()).filter(|&index| self.regions[index].bytes > 0));
        by_address.sort_unstable_by_key(|&index| start(index));
        // Of the regions passed so far, those that reach furthest: of all, and of the written ones.
        let (mut furthest, mut written) = (None, None);
        for &index in by_address.iter() {
            let reaches = |found: Option<(usize, usize)>| {
                found.filter(|&(end, _)| end > start(index)).map(|(_, other)| other)
            };
            if let Some(other) = reaches(written) {
                return Some((other, index));
            }
            let own = Some((start(index) + self.regions[index].bytes, index));
            if self.regions[index].is_written {
                if let Some(other) = reaches(furthest) {
                    return Some((index, other));
                }
                written = written.max(own);
            }
            furthest = furthest.max(own);
        }
        None
    }
}

/// What a backend keeps between runs, so that running allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Runner {
    bases: Vec<RegionBase>,
    /// Regions in the order of their addresses.
    by_address: Vec<usize>,
    /// One for each shared step.
    counters: Vec<ChunkCounter>,
    scratch: Vec<f32>,
}

/// What every step of a run sees.
pub(crate) struct Context<'a> {
    pub isa: Isa,
    pub member: &'a Member<'a>,
    pub bases: &'a [RegionBase],
    pub scratch: &'a mut [f32],
    /// Hands out the chunks of the current step, if it is shared by all members.
    pub counter: Option<&'a ChunkCounter>,
    pub abort: &'a AbortSignal,
}

impl Context<'_> {
    /// Calls `work` for each chunk that falls to this member, until the run is aborted.
    pub fn for_chunks(
        &mut self,
        chunks: usize,
        mut work: impl FnMut(usize, &mut [f32]),
    ) -> Result<(), Failure> {
        let mut next = 0;
        loop {
            let chunk = match self.counter {
                Some(counter) => counter.next(chunks),
                None => {
                    next += 1;
                    (next <= chunks).then(|| next - 1)
                }
            };
            let Some(chunk) = chunk else { return Ok(()) };
            if self.abort.is_aborted() {
                return Err(Failure::Aborted);
            }
            work(chunk, self.scratch);
        }
    }
}

impl Runner {
    /// Runs the program on the team.
    pub fn run(
        &mut self,
        device: &str,
        team: &mut Team,
        isa: Isa,
        program: &CpuProgram,
        bindings: &Submission,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        program.resolve(device, bindings, &mut self.bases, &mut self.by_address)?;
        let members = if program.shared_steps > 0 { team.size() } else { 1 };
        if self.counters.len() < program.shared_steps {
            self.counters.resize_with(program.shared_steps, ChunkCounter::new);
        }
        let counters = &self.counters[..program.shared_steps];
        counters.iter().for_each(ChunkCounter::reset);
        // Each member's part begins at a cache line of its own.
        let part = program.scratch_len.next_multiple_of(16) + 16;
        if self.scratch.len() < part * members {
            self.scratch.resize(part * members, 0.0);
        }
        let scratch = SharedSlice::new(&mut self.scratch);
        let failed: Mutex<Option<(usize, Failure)>> = Mutex::new(None);
        let bases = &*self.bases;
        let walk = |member: &Member<'_>| {
            let own = member.index() * part..(member.index() + 1) * part;
            // SAFETY: each member takes the part of its own index, once a run.
            #[allow(unsafe_code, reason = "the parts of the scratch memory are disjoint")]
            let scratch = unsafe { scratch.slice_mut(own) };
            let mut context = Context { isa, member, bases, scratch, counter: None, abort };
            let Err((number, failure)) = walk(&program.steps, counters, &mut context) else {
                return Ok(());
            };
            let is_own = !matches!(failure, Failure::Elsewhere);
            if is_own && let Ok(mut first) = failed.lock() {
                first.get_or_insert((number, failure));
            }
            Err(Stopped)
        };
        let outcome = if members > 1 { team.run(walk) } else { team.run_alone(walk) };
        let Err(error) = outcome else { return Ok(()) };
        let failure = failed.into_inner().ok().flatten();
        Err(match (error, failure) {
            (_, Some((_, Failure::Aborted))) => DeviceError::Cancelled,
            (_, Some((number, Failure::Value(reason)))) => {
                let step = program.steps[number].name().to_owned();
                DeviceError::Value { device: device.to_owned(), step, reason }
            }
            (TeamError::Panicked { message, .. }, _) => {
                DeviceError::Panicked { device: device.to_owned(), message }
            }
            (other, _) => {
                DeviceError::Panicked { device: device.to_owned(), message: other.to_string() }
            }
        })
    }
}

/// Runs one member's part of all steps. The error has the number of the step.
fn walk<'a>(
    steps: &[CpuStep],
    counters: &'a [ChunkCounter],
    context: &mut Context<'a>,
) -> Result<(), (usize, Failure)> {
    let member = context.member;
    let meet = |number| member.barrier().map_err(|Stopped| (number, Failure::Elsewhere));
    let mut counters = counters.iter();
    // The first step finds everything written that it reads.
    let mut must_meet = false;
    for (number, step) in steps.iter().enumerate() {
        context.counter = if step.is_shared() { counters.next() } else { None };
        if must_meet || (step.is_shared() && number > 0) {
            meet(number)?;
        }
        must_meet = step.is_shared();
        if step.is_shared() || member.index() == 0 {
            step.run(context).map_err(|failure| (number, failure))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions of the given starts and sizes; those marked are written.
    fn program(regions: &[(usize, usize, bool)]) -> (CpuProgram, Vec<RegionBase>) {
        let uses = regions.iter().zip(0..).map(|(&(_, bytes, is_written), number)| RegionUse {
            region: Region::Chunk(number),
            bytes,
            is_written,
            alignment: 1,
        });
        let regions_used = uses.collect();
        let bases =
            regions.iter().map(|&(start, ..)| RegionBase(std::ptr::without_provenance_mut(start)));
        let bases = bases.collect();
        (
            CpuProgram {
                steps: Vec::new(),
                regions: regions_used,
                scratch_len: 0,
                shared_steps: 0,
            },
            bases,
        )
    }

    #[test]
    fn written_memory_is_bound_once() {
        let overlap = |regions: &[(usize, usize, bool)]| {
            let (program, bases) = program(regions);
            let found = program.overlap(&bases, &mut Vec::new());
            found.map(|(a, b)| (a.min(b), a.max(b)))
        };
        assert_eq!(overlap(&[]), None);
        assert_eq!(overlap(&[(100, 50, true), (150, 50, true), (50, 50, false)]), None);
        assert_eq!(overlap(&[(100, 50, true), (149, 50, false)]), Some((0, 1)));
        assert_eq!(overlap(&[(100, 51, false), (150, 50, true)]), Some((0, 1)));
        // Shared by readers only.
        assert_eq!(overlap(&[(100, 50, false), (100, 50, false), (200, 8, true)]), None);
        // A large region before smaller ones that end earlier.
        assert_eq!(overlap(&[(0, 1000, true), (10, 5, false)]), Some((0, 1)));
        assert_eq!(overlap(&[(0, 1000, false), (10, 5, false), (900, 5, true)]), Some((0, 2)));
        assert_eq!(overlap(&[(0, 10, true), (10, 5, true), (5, 0, true)]), None);
        assert_eq!(overlap(&[(7, 3, true), (7, 3, true)]), Some((0, 1)));
    }

    #[test]
    fn overlaps_are_found_as_by_comparing_every_pair() {
        let seed = 7_u64;
        let mut state = seed;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for round in 0..2000 {
            let regions: Vec<(usize, usize, bool)> = (0..below(7))
                .map(|_| (below(60) as usize, below(20) as usize, below(3) == 0))
                .collect();
            let pairs = (0..regions.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
            let expected = pairs.clone().any(|(a, b)| {
                let ((a, a_bytes, a_written), (b, b_bytes, b_written)) = (regions[a], regions[b]);
                let apart = a_bytes == 0 || b_bytes == 0 || a + a_bytes <= b || b + b_bytes <= a;
                !apart && (a_written || b_written)
            });
            let (program, bases) = program(&regions);
            let found = program.overlap(&bases, &mut Vec::new());
            assert_eq!(found.is_some(), expected, "seed {seed} round {round}: {regions:?}");
        }
    }
}

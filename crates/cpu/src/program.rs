//! Compiled programs and how a team runs them.
//!
//! All members walk the same steps. A step with much work is shared by all of
//! them in chunks; a small one is done by member 0 alone. Members meet between
//! two steps unless both are done by member 0, so that every step sees what
//! the steps before it wrote.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use tensoryard_runtime::{
    AbortSignal, Aliasing, Bindings, Bound, DeviceError, Operand, Program, Region, Step,
};

use crate::Isa;
use crate::check::check_step;
use crate::packed::{PackedMatrix, PackedMemory, is_packed};
use crate::span::SharedSlice;
use crate::steps::{CpuStep, Failure};
use crate::team::{ChunkCounter, Member, Stopped, Team, TeamError};
use crate::view::{Place, RegionBase, Stored};

/// Steps of a program, ready to run.
#[derive(Debug)]
pub(crate) struct CpuProgram {
    steps: Vec<CpuStep>,
    regions: Vec<RegionUse>,
    scratch_len: usize,
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

impl Program for CpuProgram {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CpuProgram {
    /// Compiles steps for a team of `members`.
    pub fn compile(
        device: &str,
        steps: &[Step],
        members: usize,
        share_all: bool,
    ) -> Result<Self, DeviceError> {
        let mut program = Self { steps: Vec::new(), regions: Vec::new(), scratch_len: 0 };
        for step in steps {
            let refuse = |reason| {
                let (device, step) = (device.to_owned(), step.name.clone());
                DeviceError::Compile { device, step, reason }
            };
            check_step(step).map_err(refuse)?;
            let dst = program.place(&step.dst, true);
            let sources: Vec<Option<Place>> = step
                .sources
                .iter()
                .map(|source| source.as_ref().map(|operand| program.place(operand, false)))
                .collect();
            let compiled = CpuStep::new(step, dst, sources, members, share_all);
            program.scratch_len = program.scratch_len.max(compiled.scratch_len());
            program.steps.push(compiled);
        }
        Ok(program)
    }

    fn place(&mut self, operand: &Operand, is_written: bool) -> Place {
        let packed =
            is_packed(&*operand.buffer_type).then(|| PackedMatrix::of(&operand.layout)).flatten();
        let known = self.regions.iter().position(|used| used.region == operand.region);
        let region = known.unwrap_or_else(|| {
            let region = operand.region;
            self.regions.push(RegionUse { region, bytes: 0, is_written: false, alignment: 1 });
            self.regions.len() - 1
        });
        let place = Place {
            region,
            offset_bytes: operand.offset_bytes,
            layout: operand.layout,
            // Checked before: other types have no kernels.
            stored: Stored::of(operand.layout.dtype()).unwrap_or(Stored::F32),
            aliasing: if is_written { Aliasing::Disjoint } else { operand.aliasing },
            packed,
        };
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
        bindings: &Bindings<'_>,
        bases: &mut Vec<RegionBase>,
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
        self.check_apart(device, bases)
    }

    /// What is written shares no byte with any other region: a forged plan could say otherwise.
    fn check_apart(&self, device: &str, bases: &[RegionBase]) -> Result<(), DeviceError> {
        let range = |index: usize| {
            let start = bases[index].0 as usize;
            start..start + self.regions[index].bytes
        };
        for written in (0..bases.len()).filter(|&index| self.regions[index].is_written) {
            let own = range(written);
            let overlapping = (0..bases.len()).find(|&other| {
                let other_range = range(other);
                let both = !own.is_empty() && !other_range.is_empty();
                both && other != written
                    && other_range.start < own.end
                    && own.start < other_range.end
            });
            if let Some(other) = overlapping {
                let (a, b) = (self.regions[written].region, self.regions[other].region);
                return Err(DeviceError::Compile {
                    device: device.to_owned(),
                    step: format!("{a:?}"),
                    reason: format!("it is bound to memory of {b:?}"),
                });
            }
        }
        Ok(())
    }
}

/// What a backend keeps between runs, so that running allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Runner {
    bases: Vec<RegionBase>,
    counters: Vec<ChunkCounter>,
    scratch: Vec<f32>,
}

/// What every step of a run sees.
pub(crate) struct Context<'a> {
    pub isa: Isa,
    pub member: &'a Member<'a>,
    pub bases: &'a [RegionBase],
    pub scratch: &'a mut [f32],
    /// Hands out the chunks of the current step.
    pub counter: &'a ChunkCounter,
    /// Whether this step is shared by all members.
    pub is_shared: bool,
    abort: &'a AbortSignal,
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
            let chunk = if self.is_shared {
                self.counter.next(chunks)
            } else {
                next += 1;
                (next <= chunks).then(|| next - 1)
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
        bindings: &mut Bindings<'_>,
        abort: &AbortSignal,
    ) -> Result<(), DeviceError> {
        program.resolve(device, bindings, &mut self.bases)?;
        let members = team.size();
        if self.counters.len() < program.steps.len() {
            self.counters.resize_with(program.steps.len(), ChunkCounter::new);
        }
        self.counters.iter().for_each(ChunkCounter::reset);
        // Each member's part begins at a cache line of its own.
        let part = program.scratch_len.next_multiple_of(16) + 16;
        if self.scratch.len() < part * members {
            self.scratch.resize(part * members, 0.0);
        }
        let scratch = SharedSlice::new(&mut self.scratch);
        let failed: Mutex<Option<(usize, Failure)>> = Mutex::new(None);
        let any_failed = AtomicBool::new(false);
        let (bases, counters) = (&self.bases, &self.counters);
        let outcome = team.run(|member| {
            let own = member.index() * part..(member.index() + 1) * part;
            // SAFETY: each member takes the part of its own index, once a run.
            #[allow(unsafe_code, reason = "the parts of the scratch memory are disjoint")]
            let scratch = unsafe { scratch.slice_mut(own) };
            let mut was_shared = false;
            for (number, step) in program.steps.iter().enumerate() {
                let is_shared = step.is_shared() && members > 1;
                if number > 0 && (is_shared || was_shared) {
                    member.barrier()?;
                }
                was_shared = is_shared;
                if !is_shared && member.index() != 0 {
                    continue;
                }
                let counter = &counters[number];
                let mut context =
                    Context { isa, member, bases, scratch, counter, is_shared, abort };
                if let Err(failure) = step.run(&mut context) {
                    if !matches!(failure, Failure::Elsewhere)
                        && !any_failed.swap(true, std::sync::atomic::Ordering::Relaxed)
                        && let Ok(mut slot) = failed.lock()
                    {
                        *slot = Some((number, failure));
                    }
                    return Err(Stopped);
                }
            }
            Ok(())
        });
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

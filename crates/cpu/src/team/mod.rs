//! The fork-join thread team of one opened CPU device.
//!
//! [`Team::run`] wakes all members once for a whole program; inside, the
//! members walk the same steps and meet at [`Member::barrier`]. The caller is
//! member 0. Nothing here allocates or locks while the members keep up with
//! each other: a waiting member spins for a bounded time, yields a few times,
//! and only then sleeps. A member that panics or stops poisons the run, so
//! that everybody returns and `run` says what happened; nobody waits forever.
//! The team knows nothing of steps, tensors or kernels.

mod meeting;
mod sync;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use meeting::Meeting;
use sync::{AtomicUsize, Ordering};

/// Why a team could not be made or a run did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// A team without members was asked for.
    #[error("a thread team needs at least one member")]
    Empty,
    /// The operating system refused a thread.
    #[error("thread {index} of {size} could not be started: {source}")]
    Spawn {
        /// Number of the member.
        index: usize,
        /// Members asked for.
        size: usize,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// The closure of a member panicked.
    #[error("member {member} of the thread team panicked: {message}")]
    Panicked {
        /// Number of the member.
        member: usize,
        /// What it said.
        message: String,
    },
    /// A member returned [`Stopped`] of its own accord.
    #[error("the run was stopped")]
    Stopped,
    /// A member finished while others waited for it at a barrier.
    #[error("the members of the thread team disagree on the number of barriers")]
    BarrierMismatch,
}

/// The run is over for every member: return at once.
///
/// Barriers return it once a run is poisoned; a closure that returns it of
/// its own accord stops the whole run, which then ends with
/// [`TeamError::Stopped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// What one member sees of a run.
#[derive(Debug)]
pub struct Member<'a> {
    index: usize,
    size: usize,
    meeting: &'a Meeting,
}

impl Member<'_> {
    /// Number of this member; the caller of [`Team::run`] is 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Waits until all members are here. What any of them wrote before is
    /// visible to all of them afterwards.
    ///
    /// # Errors
    /// [`Stopped`] when a member panicked, stopped, or finished too early.
    pub fn barrier(&self) -> Result<(), Stopped> {
        if self.size == 1 { Ok(()) } else { self.meeting.barrier() }
    }

    /// This member's share of `0..total`: equal parts of whole multiples of
    /// `granularity`, in order of the members.
    pub fn share(&self, total: usize, granularity: usize) -> Range<usize> {
        split_even(total, granularity, self.size, self.index)
    }
}

/// Part `index` of `parts` equal parts of `0..total`, cut at multiples of `granularity`.
pub fn split_even(total: usize, granularity: usize, parts: usize, index: usize) -> Range<usize> {
    let granularity = granularity.max(1);
    let units = total.div_ceil(granularity);
    let (each, more) = (units / parts.max(1), units % parts.max(1));
    let first = index * each + index.min(more);
    let end = first + each + usize::from(index < more);
    (first * granularity).min(total)..(end * granularity).min(total)
}

/// Hands out chunk numbers. One counter serves one step; reset it where all
/// members have passed a barrier after its last use.
#[derive(Debug, Default)]
pub struct ChunkCounter(AtomicUsize);

impl ChunkCounter {
    /// A counter at zero.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The next number below `chunks`, each given out once.
    #[inline]
    pub fn next(&self, chunks: usize) -> Option<usize> {
        let chunk = self.0.fetch_add(1, Ordering::Relaxed);
        (chunk < chunks).then_some(chunk)
    }

    /// Begins again at zero.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

type Job<'a> = dyn Fn(&Member<'_>) -> Result<(), Stopped> + Sync + 'a;

/// Threads that run one closure together, again and again.
///
/// Dropping the team ends its threads.
#[derive(Debug)]
pub struct Team {
    meeting: Arc<Meeting>,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    /// A team of `size` members: the caller and `size - 1` new threads.
    ///
    /// # Errors
    /// No members, or a thread that the operating system refuses.
    pub fn new(size: usize) -> Result<Self, TeamError> {
        if size == 0 {
            return Err(TeamError::Empty);
        }
        let mut team =
            Self { meeting: Arc::new(Meeting::new(size)), threads: Vec::with_capacity(size - 1) };
        for index in 1..size {
            let meeting = Arc::clone(&team.meeting);
            let thread = std::thread::Builder::new()
                .name(format!("tensoryard-cpu-{index}"))
                .spawn(move || work(index, size, &meeting))
                .map_err(|source| TeamError::Spawn { index, size, source })?;
            team.threads.push(thread);
        }
        Ok(team)
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `closure` once on every member and waits for all of them.
    ///
    /// All members must pass the same number of barriers.
    ///
    /// # Errors
    /// A member that panicked or returned [`Stopped`], or barriers that do
    /// not match. The team can be used again afterwards.
    pub fn run<F>(&mut self, closure: F) -> Result<(), TeamError>
    where
        F: Fn(&Member<'_>) -> Result<(), Stopped> + Sync,
    {
        if self.threads.is_empty() {
            return self.run_alone(closure);
        }
        lead(&Member { index: 0, size: self.size(), meeting: &self.meeting }, &closure)
    }

    /// Calls `closure` on the caller's thread only, as the one member of a team of one.
    ///
    /// # Errors
    /// As [`Team::run`].
    pub fn run_alone<F>(&mut self, closure: F) -> Result<(), TeamError>
    where
        F: Fn(&Member<'_>) -> Result<(), Stopped> + Sync,
    {
        self.meeting.begin_alone();
        call(&closure, &Member { index: 0, size: 1, meeting: &self.meeting });
        self.meeting.outcome()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.meeting.close();
        for thread in self.threads.drain(..) {
            // A worker catches the panics of its jobs, so there is nothing to report.
            let _ = thread.join();
        }
    }
}

/// Runs a job as member 0, with the workers of its meeting.
fn lead(member: &Member<'_>, job: &Job<'_>) -> Result<(), TeamError> {
    let meeting = member.meeting;
    // SAFETY: only the lifetime is changed. The workers use the job
    // between `begin` and their `finish`; `join` below returns only after
    // every one of them has finished, and nothing between can unwind.
    let job: &'static Job<'static> = unsafe { std::mem::transmute(job) };
    meeting.begin(job);
    call(job, member);
    meeting.join();
    meeting.outcome()
}

fn work(index: usize, size: usize, meeting: &Meeting) {
    let member = Member { index, size, meeting };
    let mut runs_seen = 0;
    while let Some(job) = meeting.next_job(&mut runs_seen) {
        call(job, &member);
        meeting.finish();
    }
}

fn call(job: &Job<'_>, member: &Member<'_>) {
    match catch_unwind(AssertUnwindSafe(|| job(member))) {
        Ok(Ok(())) => member.meeting.leave(),
        Ok(Err(Stopped)) => member.meeting.poison(TeamError::Stopped),
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            member.meeting.poison(TeamError::Panicked { member: member.index, message });
            // Dropping what was thrown may panic, too, and must not unwind out of here.
            if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(panic))) {
                std::mem::forget(again);
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

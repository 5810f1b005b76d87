//! Where the members of a team wait for one another.
//!
//! All synchronisation of the team is in this file: the hand-over of a job,
//! the barrier, the join and the poison. Each is a counter or a flag that
//! someone advances and others wait for with [`Door::wait_until`]: spin, then
//! yield, then sleep. Whoever advances one calls [`Door::open`], which costs
//! one load while nobody sleeps.
//!
//! Whoever advances releases what it wrote, whoever saw it acquires that.
//! Sleeping is safe because a sleeper first counts itself and then looks at
//! the condition again, while an opener first advances and then reads the
//! count, each with a `SeqCst` fence between: one of them sees the other.

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::sync::{
    AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, UnsafeCell, fence, spin_loop,
    yield_now,
};
use super::{Job, Stopped, TeamError};

/// How long a member spins before it yields. A member that shares its
/// processor with the one it waits for loses as much at every barrier.
const SPIN_TIME: Duration = Duration::from_micros(4);

/// How often it yields before it sleeps. Two members on one processor get on
/// by yielding; one that has a processor to itself goes on looking.
const YIELDS: usize = if cfg!(loom) { 0 } else { 200 };

/// How often a member of a team of `size` looks before it yields.
fn spins(size: usize) -> usize {
    if cfg!(loom) {
        return 1;
    }
    // More members than processors: whoever is waited for may need this one's.
    let crowded = std::thread::available_parallelism().is_ok_and(|n| n.get() < size);
    if crowded { 20 } else { pauses_within(SPIN_TIME) }
}

/// Number of pauses that take about `time`; a pause is 10 to 140 cycles.
fn pauses_within(time: Duration) -> usize {
    const PROBE: u32 = 64;
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        for _ in 0..PROBE {
            spin_loop();
        }
        fastest = fastest.min(start.elapsed());
    }
    let pauses = time.as_nanos() * u128::from(PROBE) / fastest.as_nanos().max(1);
    usize::try_from(pauses).map_or(MOST_SPINS, |pauses| pauses.clamp(20, MOST_SPINS))
}

const MOST_SPINS: usize = 2000;

/// A place to wait at.
#[derive(Debug, Default)]
struct Door {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    opened: Condvar,
}

impl Door {
    fn guard(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once `condition` holds. It acquires what it reads.
    fn wait_until(&self, spins: usize, condition: impl Fn() -> bool) {
        for _ in 0..spins {
            if condition() {
                return;
            }
            spin_loop();
        }
        for _ in 0..YIELDS {
            if condition() {
                return;
            }
            yield_now();
        }
        let mut guard = self.guard();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !condition() {
            guard = self.opened.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes those who wait, after their condition was made true.
    fn open(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.guard());
            self.opened.notify_all();
        }
    }
}

/// A value alone on its cache lines; two, because they are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// The shared state of a team.
pub(super) struct Meeting {
    size: usize,
    spins: usize,
    /// Number of jobs begun; a worker waits for it to grow.
    runs: Alone<AtomicUsize>,
    /// Written by the caller of `run` before it advances `runs`, read by
    /// workers afterwards, not written again before all of them finished.
    job: UnsafeCell<Option<&'static Job<'static>>>,
    closed: AtomicBool,
    start: Door,
    arrived: Alone<AtomicUsize>,
    /// Number of barriers passed in all runs.
    phase: Alone<AtomicUsize>,
    /// Members whose closure returned in this run.
    left: AtomicUsize,
    /// Workers that will not touch this run's job any more.
    finished: Alone<AtomicUsize>,
    poisoned: AtomicBool,
    /// The first failure of the run.
    failure: Mutex<Option<TeamError>>,
    inside: Door,
}

// SAFETY: `job` is the only member that is not Sync by itself; its comment
// says why writes and reads never overlap. The closure it refers to is Sync.
unsafe impl Sync for Meeting {}
// SAFETY: the referenced closure is Sync, so its reference may move to other threads.
unsafe impl Send for Meeting {}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Meeting {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            spins: spins(size),
            runs: Alone::default(),
            job: UnsafeCell::new(None),
            closed: AtomicBool::new(false),
            start: Door::default(),
            arrived: Alone::default(),
            phase: Alone::default(),
            left: AtomicUsize::new(0),
            finished: Alone::default(),
            poisoned: AtomicBool::new(false),
            failure: Mutex::new(None),
            inside: Door::default(),
        }
    }

    /// Hands `job` to the workers. Called by member 0 while no run is going on.
    pub(super) fn begin(&self, job: &'static Job<'static>) {
        self.arrived.0.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        self.finished.0.store(0, Ordering::Relaxed);
        self.poisoned.store(false, Ordering::Relaxed);
        // SAFETY: all workers have finished the last run (or none was begun),
        // and none reads the job before `runs` grows below.
        self.job.with_mut(|slot| unsafe { *slot = Some(job) });
        self.runs.0.fetch_add(1, Ordering::Release);
        self.start.open();
    }

    /// Prepares a run of member 0 alone, which the workers do not notice.
    pub(super) fn begin_alone(&self) {
        self.poisoned.store(false, Ordering::Relaxed);
    }

    /// Waits for a run after the first `runs_seen`; `None` once the team is closed.
    pub(super) fn next_job(&self, runs_seen: &mut usize) -> Option<&'static Job<'static>> {
        let seen = *runs_seen;
        self.start.wait_until(self.spins, || {
            self.runs.0.load(Ordering::Acquire) != seen || self.closed.load(Ordering::Acquire)
        });
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        *runs_seen = seen.wrapping_add(1);
        // SAFETY: `runs` grew, so the job was written before; member 0 writes
        // it again only after this worker has called `finish`.
        self.job.with(|slot| unsafe { *slot })
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.start.open();
    }

    pub(super) fn barrier(&self) -> Result<(), Stopped> {
        let phase = self.phase.0.load(Ordering::Relaxed);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.phase.0.store(phase.wrapping_add(1), Ordering::Release);
            self.inside.open();
        } else {
            let passed = || self.phase.0.load(Ordering::Acquire) != phase;
            self.inside.wait_until(self.spins, || {
                passed()
                    || self.poisoned.load(Ordering::Acquire)
                    || self.left.load(Ordering::Acquire) > 0
            });
            // A member leaves only after this barrier was passed, unless it left it out.
            if !passed() && !self.poisoned.load(Ordering::Acquire) {
                self.poison(TeamError::BarrierMismatch);
            }
        }
        if self.poisoned.load(Ordering::Acquire) { Err(Stopped) } else { Ok(()) }
    }

    /// The closure of a member returned well.
    pub(super) fn leave(&self) {
        self.left.fetch_add(1, Ordering::Release);
        self.inside.open();
    }

    /// The run has failed; all members return at their next barrier.
    pub(super) fn poison(&self, error: TeamError) {
        {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            // Members that a poisoned barrier sent home report Stopped, too; the first cause counts.
            failure.get_or_insert(error);
        }
        self.poisoned.store(true, Ordering::Release);
        self.inside.open();
    }

    /// A worker is done with the job of this run.
    pub(super) fn finish(&self) {
        self.finished.0.fetch_add(1, Ordering::Release);
        self.inside.open();
    }

    /// Waits until all workers have finished.
    pub(super) fn join(&self) {
        let workers = self.size - 1;
        self.inside.wait_until(self.spins, || self.finished.0.load(Ordering::Acquire) == workers);
    }

    /// What became of the run. Called by member 0 after `join`.
    pub(super) fn outcome(&self) -> Result<(), TeamError> {
        if !self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        Err(failure.take().unwrap_or(TeamError::Stopped))
    }
}

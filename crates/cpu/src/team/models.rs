//! The team under loom: every order of its threads, up to a bound, within a model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tensoryard-cpu --release --lib team::`
//! The models make workers of loom's threads and use nothing else of their own.
//! What a member writes lies in loom's cells, which report accesses that are
//! not ordered; a wake-up that gets lost is reported as a deadlock.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::meeting::Meeting;
use super::*;

/// A value that members of a run write and read without locks.
struct Cell(UnsafeCell<usize>);

// SAFETY: loom reports accesses that nothing orders.
unsafe impl Sync for Cell {}
// SAFETY: as for `Sync`.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn get(&self) -> usize {
        // SAFETY: loom reports it if somebody writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&self, new: usize) {
        // SAFETY: loom reports it if somebody accesses the value meanwhile.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

/// Tries `body` with a meeting of `size` and its workers in all orders with at most so many
/// switches away from a thread that could go on.
fn model(size: usize, preemptions: usize, body: fn(&Member<'_>)) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let meeting = Arc::new(Meeting::new(size));
        let workers: Vec<_> = (1..size)
            .map(|index| {
                let meeting = Arc::clone(&meeting);
                thread::spawn(move || work(index, size, &meeting))
            })
            .collect();
        body(&Member { index: 0, size, meeting: &meeting });
        meeting.close();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

/// Every member writes a cell of its own, and the caller reads them all after the run.
fn hand_over(caller: &Member<'_>) {
    let cells: Vec<Cell> = (0..caller.size()).map(|_| Cell::new()).collect();
    let job = |member: &Member<'_>| {
        cells[member.index()].set(member.index() + 1);
        Ok(())
    };
    lead(caller, &job).unwrap();
    for (index, cell) in cells.iter().enumerate() {
        assert_eq!(cell.get(), index + 1);
    }
}

#[test]
fn what_workers_write_is_seen_after_the_run() {
    model(2, 3, hand_over);
    model(3, 2, hand_over);
}

/// Members read before and after a barrier what another one writes.
fn exchange(caller: &Member<'_>) {
    let size = caller.size();
    let cells: Vec<Cell> = (0..size).map(|_| Cell::new()).collect();
    let job = |member: &Member<'_>| {
        let next = &cells[(member.index() + 1) % size];
        cells[member.index()].set(member.index() + 1);
        member.barrier()?;
        assert_eq!(next.get(), (member.index() + 1) % size + 1);
        member.barrier()?;
        next.set(7);
        Ok(())
    };
    lead(caller, &job).unwrap();
    assert!(cells.iter().all(|cell| cell.get() == 7));
}

#[test]
fn barriers_order_writes_and_reads() {
    model(2, 3, exchange);
    model(3, 1, exchange);
}

#[test]
fn a_second_run_has_its_own_job_and_sees_the_first() {
    model(2, 3, |caller| {
        let (first, second) = (Cell::new(), Cell::new());
        let write = |member: &Member<'_>| {
            if member.index() == 1 {
                first.set(5);
            }
            Ok(())
        };
        lead(caller, &write).unwrap();
        let add = |member: &Member<'_>| {
            if member.index() == 1 {
                second.set(first.get() + 1);
            }
            member.barrier()
        };
        lead(caller, &add).unwrap();
        assert_eq!(second.get(), 6);
    });
}

/// The last member stops while the others wait for it; the next run is well.
fn stop_one(caller: &Member<'_>) {
    let last = caller.size() - 1;
    let stop = |member: &Member<'_>| {
        if member.index() == last { Err(Stopped) } else { member.barrier() }
    };
    assert!(matches!(lead(caller, &stop), Err(TeamError::Stopped)));
    lead(caller, &|member: &Member<'_>| member.barrier()).unwrap();
}

#[test]
fn a_member_that_stops_frees_those_at_the_barrier() {
    model(2, 3, stop_one);
    model(3, 1, stop_one);
}

#[test]
fn a_caller_that_stops_frees_the_workers() {
    model(2, 3, |caller| {
        let stop = |member: &Member<'_>| {
            if member.index() == 0 { Err(Stopped) } else { member.barrier() }
        };
        assert!(matches!(lead(caller, &stop), Err(TeamError::Stopped)));
    });
}

#[test]
fn a_left_out_barrier_ends_the_run() {
    model(2, 3, |caller| {
        let uneven = |member: &Member<'_>| {
            if member.index() == 0 { Ok(()) } else { member.barrier() }
        };
        assert!(matches!(lead(caller, &uneven), Err(TeamError::BarrierMismatch)));
    });
}

#[test]
fn closing_ends_workers_wherever_they_wait() {
    model(2, 4, |_| {});
    model(3, 2, |_| {});
}

#[test]
fn chunks_are_given_out_once_also_after_a_reset_between_barriers() {
    model(2, 2, |caller| {
        let counter = ChunkCounter::new();
        let cells = [Cell::new(), Cell::new()];
        let job = |member: &Member<'_>| {
            while let Some(chunk) = counter.next(2) {
                cells[chunk].set(cells[chunk].get() + 1);
            }
            member.barrier()?;
            if member.index() == 0 {
                counter.reset();
            }
            member.barrier()?;
            while let Some(chunk) = counter.next(2) {
                cells[chunk].set(cells[chunk].get() + 10);
            }
            Ok(())
        };
        lead(caller, &job).unwrap();
        assert!(cells.iter().all(|cell| cell.get() == 11));
    });
}

//! Behaviour of the team with 1 to 9 members, also more than processors.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::span::SharedSlice;

#[test]
fn every_member_runs_once_and_the_caller_is_the_first() {
    for size in [1, 2, 3, 9] {
        let mut team = Team::new(size).unwrap();
        let caller = std::thread::current().id();
        for _ in 0..50 {
            let seen = AtomicU64::new(0);
            team.run(|member| {
                assert_eq!(member.size(), size);
                assert_eq!(member.index() == 0, std::thread::current().id() == caller);
                seen.fetch_add(1 << (4 * member.index()), Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert_eq!(seen.into_inner(), (0..size).map(|index| 1 << (4 * index)).sum());
        }
    }
}

#[test]
fn the_caller_runs_alone_and_the_team_goes_on() {
    let mut team = Team::new(3).unwrap();
    let caller = std::thread::current().id();
    for _ in 0..20 {
        let calls = AtomicUsize::new(0);
        team.run_alone(|member| {
            assert_eq!((member.index(), member.size()), (0, 1));
            assert_eq!(std::thread::current().id(), caller);
            calls.fetch_add(1, Ordering::Relaxed);
            member.barrier()
        })
        .unwrap();
        assert_eq!(calls.into_inner(), 1);
        assert!(matches!(team.run_alone(|_| Err(Stopped)), Err(TeamError::Stopped)));
        let thrown = team.run_alone(|_| std::panic::resume_unwind(Box::new("alone")));
        assert!(matches!(thrown, Err(TeamError::Panicked { member: 0, .. })), "{thrown:?}");
        let calls = AtomicUsize::new(0);
        team.run(|member| {
            calls.fetch_add(1, Ordering::Relaxed);
            member.barrier()
        })
        .unwrap();
        assert_eq!(calls.into_inner(), 3);
    }
}

#[test]
fn barriers_order_the_writes_of_all_members() {
    for size in [2, 3, 5] {
        let mut team = Team::new(size).unwrap();
        let mut cells = vec![0_u64; size];
        let shared = SharedSlice::new(&mut cells);
        team.run(|member| {
            let me = member.index();
            for round in 0..2000_u64 {
                // SAFETY: between two barriers each member writes only its own cell.
                let mine = unsafe { shared.slice_mut(me..me + 1) };
                mine[0] = round + me as u64;
                member.barrier()?;
                let next = (me + 1) % size;
                // SAFETY: between these two barriers nobody writes.
                let value = unsafe { shared.slice_mut(next..next + 1) }[0];
                assert_eq!(value, round + next as u64);
                member.barrier()?;
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn sleeping_members_are_woken() {
    let mut team = Team::new(3).unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        team.run(|member| {
            if member.index() == 1 {
                std::thread::sleep(Duration::from_millis(20));
            }
            member.barrier()?;
            if member.index() == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
            member.barrier()
        })
        .unwrap();
    }
}

#[test]
fn a_panic_ends_the_run_for_all_and_the_team_lives_on() {
    for culprit in 0..3 {
        let mut team = Team::new(3).unwrap();
        let result = team.run(|member| {
            member.barrier()?;
            // `resume_unwind` unwinds like a panic without the printed report.
            if member.index() == culprit {
                std::panic::resume_unwind(Box::new("kernel fault"));
            }
            loop {
                member.barrier()?;
            }
        });
        match result {
            Err(TeamError::Panicked { member, message }) => {
                assert_eq!((member, message.as_str()), (culprit, "kernel fault"));
            }
            other => panic!("{other:?}"),
        }
        let count = AtomicUsize::new(0);
        team.run(|member| {
            member.barrier()?;
            count.fetch_add(1, Ordering::Relaxed);
            member.barrier()
        })
        .unwrap();
        assert_eq!(count.into_inner(), 3);
    }
}

#[test]
fn a_member_that_stops_stops_the_others() {
    let mut team = Team::new(2).unwrap();
    let result = team.run(|member| {
        if member.index() == 1 {
            return Err(Stopped);
        }
        loop {
            member.barrier()?;
        }
    });
    assert!(matches!(result, Err(TeamError::Stopped)));
}

#[test]
fn a_left_out_barrier_is_an_error_not_a_deadlock() {
    let mut team = Team::new(2).unwrap();
    let result = team.run(|member| if member.index() == 0 { Ok(()) } else { member.barrier() });
    assert!(matches!(result, Err(TeamError::BarrierMismatch)));
    team.run(|member| member.barrier()).unwrap();
}

#[test]
fn chunks_are_given_out_once_each() {
    let mut team = Team::new(2).unwrap();
    let counters = [ChunkCounter::new(), ChunkCounter::new()];
    let sums = [AtomicUsize::new(0), AtomicUsize::new(0)];
    team.run(|member| {
        for (counter, sum) in counters.iter().zip(&sums) {
            while let Some(chunk) = counter.next(100) {
                sum.fetch_add(chunk + 1, Ordering::Relaxed);
            }
            member.barrier()?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(sums.map(AtomicUsize::into_inner), [5050, 5050]);
}

#[test]
fn shares_cover_everything_once_in_whole_units() {
    for total in [0, 1, 11, 12, 13, 100, 1500] {
        for granularity in [1, 12, 32] {
            for parts in [1, 2, 3, 7] {
                let mut next = 0;
                for index in 0..parts {
                    let share = split_even(total, granularity, parts, index);
                    assert_eq!(share.start, next);
                    assert!(share.end == total || share.end.is_multiple_of(granularity));
                    next = share.end;
                }
                assert_eq!(next, total);
            }
        }
    }
}

#[test]
fn an_empty_team_is_an_error() {
    assert!(matches!(Team::new(0), Err(TeamError::Empty)));
}

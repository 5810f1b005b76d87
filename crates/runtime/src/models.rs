//! Shared memory, events and runs under loom: every order of threads within a model of memory.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tensoryard-runtime --release --lib models::`
//! Threads take the part of devices. What they write lies in loom's cells, which report accesses
//! that are not ordered; a wake-up that gets lost is reported as a deadlock.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use tensoryard_graph::Layout;

use crate::exec::Flight;
use crate::shared::SharedMemory;
use crate::{
    Buffer, DeviceError, Event, HostMemory, Memory, MemoryError, Region, Submission, Usage,
    host_buffer_type,
};

/// Memory of one number, which devices write through shared references.
#[derive(Debug)]
struct Cell(UnsafeCell<usize>);

// SAFETY: loom reports accesses that nothing orders.
unsafe impl Sync for Cell {}

impl Cell {
    fn boxed() -> Box<dyn Memory> {
        Box::new(Self(UnsafeCell::new(0)))
    }

    fn of(memory: &dyn Memory) -> &Self {
        memory.as_any().downcast_ref().unwrap()
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

// SAFETY: it has no host memory.
unsafe impl Memory for Cell {
    fn size(&self) -> usize {
        8
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

    fn clear(&mut self, byte: u8) -> Result<(), MemoryError> {
        self.set(byte.into());
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn shared() -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new(Cell::boxed()))
}

/// Counts a user in, and lets it do something on a thread of its own.
fn lend(
    memory: &Arc<SharedMemory>,
    work: impl FnOnce(&Cell) + Send + 'static,
) -> thread::JoinHandle<()> {
    memory.enter();
    let memory = Arc::clone(memory);
    thread::spawn(move || {
        // SAFETY: counted in.
        work(Cell::of(unsafe { memory.in_use() }));
        memory.leave();
    })
}

/// Tries all orders with at most so many switches away from a thread that could go on.
fn model(preemptions: usize, body: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn the_owner_sees_what_each_user_wrote_before_it_left() {
    loom::model(|| {
        let memory = shared();
        for round in 1..3 {
            let user = lend(&memory, move |cell| cell.set(round));
            assert_eq!(Cell::of(memory.when_idle()).get(), round);
            user.join().unwrap();
        }
    });
}

#[test]
fn the_owner_writes_once_all_users_have_read() {
    model(6, || {
        let memory = shared();
        let users = [(); 2].map(|()| lend(&memory, |cell| assert_eq!(cell.get(), 0)));
        // SAFETY: this is the only owner, and counts nobody in meanwhile.
        unsafe { memory.get_mut() }.clear(5).unwrap();
        let last = lend(&memory, |cell| assert_eq!(cell.get(), 5));
        assert_eq!(Cell::of(memory.when_idle()).get(), 5);
        for user in users.into_iter().chain([last]) {
            user.join().unwrap();
        }
    });
}

#[test]
fn all_who_wait_for_the_last_user_go_on() {
    model(6, || {
        let memory = shared();
        let user = lend(&memory, |cell| cell.set(3));
        let reader = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || assert_eq!(Cell::of(memory.when_idle()).get(), 3))
        };
        assert_eq!(Cell::of(memory.when_idle()).get(), 3);
        reader.join().unwrap();
        user.join().unwrap();
        // Nobody is left to be woken.
        lend(&memory, |cell| cell.set(4)).join().unwrap();
        assert_eq!(Cell::of(memory.when_idle()).get(), 4);
    });
}

#[test]
fn buffers_are_their_owners_again_when_the_submission_is_dropped() {
    model(5, || {
        let buffer = || Buffer::from_memory(host_buffer_type(), Cell::boxed(), Usage::Any);
        let (mut first, mut second) = (buffer(), buffer());
        let lent = Submission::of_chunks([&mut first, &mut second]);
        let queue = thread::spawn(move || {
            for chunk in 0..2 {
                Cell::of(lent.get(Region::Chunk(chunk)).unwrap().memory).set(7);
            }
        });
        first.memory_mut().clear(8).unwrap();
        assert_eq!(Cell::of(second.memory()).get(), 7);
        assert_eq!(Cell::of(first.memory()).get(), 8);
        queue.join().unwrap();
    });
}

#[test]
fn an_event_shows_what_was_done_before_it_to_all_who_wait() {
    model(6, || {
        let memory = shared();
        let (signal, event) = Event::pending("A");
        let wait = |memory: Arc<SharedMemory>, event: Event| {
            move || {
                event.wait().unwrap();
                assert_eq!(event.simulated_ns(), Some(7));
                // SAFETY: nobody writes after the event.
                assert_eq!(Cell::of(unsafe { memory.in_use() }).get(), 2);
            }
        };
        let waiter = thread::spawn(wait(Arc::clone(&memory), event.clone()));
        let queue = lend(&memory, |cell| {
            cell.set(2);
            signal.complete_at(Ok(()), Some(7));
        });
        wait(Arc::clone(&memory), event)();
        waiter.join().unwrap();
        queue.join().unwrap();
    });
}

#[test]
fn whoever_finds_an_event_done_sees_what_was_done() {
    loom::model(|| {
        let memory = shared();
        let (signal, event) = Event::pending("A");
        memory.set_last(Some(event.clone()));
        let queue = lend(&memory, |cell| {
            cell.set(2);
            signal.complete(Ok(()));
        });
        // SAFETY: nobody writes after the event, and nobody looks before.
        let value = || Cell::of(unsafe { memory.in_use() }).get();
        if event.is_done() {
            assert_eq!(value(), 2);
        }
        match memory.last() {
            None => assert_eq!(value(), 2),
            Some(last) => {
                last.wait().unwrap();
                assert!(memory.last().is_none());
            }
        }
        queue.join().unwrap();
    });
}

#[test]
fn a_dropped_signal_wakes_all_who_wait() {
    model(6, || {
        let (signal, event) = Event::pending("A");
        let wait =
            |event: Event| move || assert!(matches!(event.wait(), Err(DeviceError::Lost { .. })));
        let waiter = thread::spawn(wait(event.clone()));
        let queue = thread::spawn(move || drop(signal));
        wait(event)();
        waiter.join().unwrap();
        queue.join().unwrap();
    });
}

#[test]
fn a_failure_is_forgotten_only_once_it_is_known() {
    loom::model(|| {
        let memory = shared();
        let (signal, event) = Event::pending("A");
        memory.set_last(Some(event));
        let queue = thread::spawn(move || signal.complete(Err(DeviceError::Cancelled)));
        memory.forget_failure();
        if let Some(last) = memory.last() {
            assert!(matches!(last.wait(), Err(DeviceError::Cancelled)));
            memory.forget_failure();
        }
        assert!(memory.last().is_none());
        queue.join().unwrap();
    });
}

#[test]
fn all_who_wait_for_a_run_learn_its_gravest_error() {
    model(4, || {
        let (lost, first) = Event::pending("A");
        let (cancelled, second) = Event::pending("B");
        let flight = Flight::new(vec![second, first]);
        let queues = thread::spawn(move || {
            cancelled.complete(Err(DeviceError::Cancelled));
            drop(lost);
        });
        let wait = |flight: Arc<Flight>| {
            move || {
                assert!(matches!(flight.wait(), Err(DeviceError::Lost { .. })));
                assert!(flight.is_done());
            }
        };
        let waiter = thread::spawn(wait(Arc::clone(&flight)));
        wait(flight)();
        waiter.join().unwrap();
        queues.join().unwrap();
    });
}

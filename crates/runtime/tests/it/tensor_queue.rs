//! The movement of tensor data in the order of queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_runtime::tensors::{CopyPath, Strided, TensorDataError, TensorKey, Tensors};
use tensoryard_runtime::{
    Backend, BackendOptions, BufferType, DeviceError, Usage, host_buffer_type,
};

use crate::queue::{DeviceKind, Queue};
use crate::support::full;

const DELAY: Duration = Duration::from_millis(3);

fn bytes(n: usize) -> Layout {
    Layout::contiguous(DType::I8, Shape::new(&[n]).unwrap()).unwrap()
}

fn far(name: &str) -> Arc<dyn BufferType> {
    Arc::new(DeviceKind::new(name))
}

fn filled(kind: &Arc<dyn BufferType>, byte: u8) -> (Tensors, TensorKey) {
    let mut tensors = Tensors::new();
    let t = tensors.add("t", bytes(16));
    tensors.place_all(kind, Usage::Any).unwrap();
    tensors.fill(t, 0, 16, byte).unwrap();
    (tensors, t)
}

fn whole(tensors: &Tensors, tensor: TensorKey) -> Vec<u8> {
    tensors.read(tensor).unwrap()
}

#[test]
fn queued_writes_and_reads_happen_in_order() {
    let (mut tensors, t) = filled(&far("far"), 1);
    let mut queue = Queue::new(DELAY);
    let mut host = vec![2; 4];
    tensors.set_async(&mut queue, t, 0, &host).unwrap();
    // The bytes were copied: the host may do with them what it likes.
    host.fill(99);
    let first = tensors.get_async(&mut queue, t, 0, 6).unwrap();
    tensors.fill_async(&mut queue, t, 1, 2, 3).unwrap();
    let rows = Strided { offset_bytes: 8, row_bytes: 1, rows: 2, tensor_stride: 4, host_stride: 2 };
    tensors.set_2d_async(&mut queue, t, &rows, &[5, 0, 6]).unwrap();
    let second = tensors.get_async(&mut queue, t, 0, 4).unwrap();
    let third = tensors.get_2d_async(&mut queue, t, &rows).unwrap();
    assert_eq!(first.wait().unwrap(), [2, 2, 2, 2, 1, 1]);
    assert_eq!(second.wait().unwrap(), [2, 3, 3, 2]);
    assert_eq!(third.wait().unwrap(), [5, 6]);
    // Reading at once waits for what is queued.
    tensors.fill_async(&mut queue, t, 0, 16, 8).unwrap();
    assert_eq!(whole(&tensors, t), [8; 16]);
    tensors.fill_async(&mut queue, t, 0, 16, 9).unwrap();
    tensors.set(t, 0, &[1]).unwrap();
    assert_eq!(tensors.get_async(&mut queue, t, 0, 2).unwrap().wait().unwrap(), [1, 9]);
}

#[test]
fn ranges_are_checked_before_anything_is_queued() {
    let (mut tensors, t) = filled(&far("far"), 1);
    let unplaced = tensors.add("unplaced", bytes(4));
    let mut queue = Queue::new(Duration::ZERO);
    let wanted = "4 bytes at offset 13 reach beyond \"t\", which has 16";
    let error = tensors.set_async(&mut queue, t, 13, &[0; 4]).unwrap_err();
    assert_eq!(error.to_string(), wanted);
    assert_eq!(tensors.get_async(&mut queue, t, 13, 4).unwrap_err().to_string(), wanted);
    assert!(tensors.fill_async(&mut queue, t, usize::MAX, 4, 0).is_err());
    let error = tensors.set_async(&mut queue, unplaced, 0, &[0; 4]).unwrap_err();
    assert!(matches!(error, TensorDataError::Unplaced { .. }), "{error}");
    tensors.set_async(&mut queue, unplaced, 9, &[]).unwrap();
    assert_eq!(tensors.get_async(&mut queue, unplaced, 9, 0).unwrap().wait().unwrap(), []);
}

#[test]
fn a_queue_without_transfers_is_waited_for() {
    let device = full("A").build();
    let mut backend = device.open(&BackendOptions::default()).unwrap();
    assert!(backend.transfers().is_none());
    let (mut tensors, t) = filled(&device.buffer_types()[0], 1);
    tensors.set_async(&mut *backend, t, 2, &[5, 6]).unwrap();
    tensors.fill_async(&mut *backend, t, 6, 1, 7).unwrap();
    assert_eq!(whole(&tensors, t)[..8], [1, 1, 5, 6, 1, 1, 7, 1]);
    let rows = Strided { offset_bytes: 2, row_bytes: 1, rows: 2, tensor_stride: 4, host_stride: 1 };
    let read = tensors.get_2d_async(&mut *backend, t, &rows).unwrap();
    assert!(read.event().is_done());
    assert_eq!(read.wait().unwrap(), [5, 7]);
    tensors.set_2d_async(&mut *backend, t, &rows, &[8, 9]).unwrap();
    assert_eq!(tensors.get_async(&mut *backend, t, 2, 5).unwrap().wait().unwrap(), [8, 6, 1, 1, 9]);
}

#[test]
fn a_copy_between_queues_comes_after_and_before() {
    for (copies_src, copies_dst) in [(true, false), (false, true), (false, false)] {
        let (mut source, src) = filled(&far("one"), 1);
        let (mut target, dst) = filled(&far("two"), 2);
        let (mut a, mut b) = (Queue::new(DELAY), Queue::new(DELAY));
        for (queue, copies) in [(&mut a, copies_src), (&mut b, copies_dst)] {
            if copies {
                queue.copies = vec!["one".to_owned(), "two".to_owned()];
            }
        }
        for round in 0..5 {
            source.fill_async(&mut a, src, 0, 16, round).unwrap();
            let before = target.get_async(&mut b, dst, 0, 1).unwrap();
            let path = target.copy_from_async(&mut source, &mut a, Some(&mut b), src, dst).unwrap();
            let queued = copies_src || copies_dst;
            let wanted = if queued { CopyPath::OnDevice } else { CopyPath::ThroughHost };
            assert_eq!(path, wanted);
            // The source changes at once, the destination is read at once.
            source.fill_async(&mut a, src, 0, 16, 200).unwrap();
            let after = target.get_async(&mut b, dst, 0, 16).unwrap();
            target.fill_async(&mut b, dst, 0, 16, 201).unwrap();
            let was = if round == 0 { 2 } else { 201 };
            assert_eq!(before.wait().unwrap(), [was], "round {round}");
            assert_eq!(after.wait().unwrap(), [round; 16], "round {round}");
        }
        let slow = if copies_src || copies_dst { 0 } else { 5 };
        assert_eq!((target.counters().copies, target.counters().slow_copies), (5, slow));
    }
}

#[test]
fn copies_in_one_queue_and_within_one_set() {
    let mut queue = Queue::new(DELAY);
    queue.copies = vec!["one".to_owned()];
    let one = far("one");
    let (mut tensors, t) = filled(&one, 1);
    let other = tensors.add("other", bytes(16));
    tensors.place_all(&one, Usage::Any).unwrap();
    tensors.fill_async(&mut queue, t, 0, 16, 5).unwrap();
    assert_eq!(tensors.copy_async(&mut queue, None, t, other).unwrap(), CopyPath::OnDevice);
    tensors.fill_async(&mut queue, t, 0, 16, 6).unwrap();
    assert_eq!((whole(&tensors, other), whole(&tensors, t)), (vec![5; 16], vec![6; 16]));
    assert_eq!(tensors.copy_async(&mut queue, None, t, t).unwrap(), CopyPath::Nothing);
    // Two places in one buffer: the queue is waited for, then it is done at once.
    let front = tensors.add_view("front", t, 0, bytes(8)).unwrap();
    let back = tensors.add_view("back", t, 8, bytes(8)).unwrap();
    tensors.init_view(front).unwrap();
    tensors.init_view(back).unwrap();
    tensors.fill_async(&mut queue, front, 0, 8, 7).unwrap();
    tensors.copy_async(&mut queue, None, front, back).unwrap();
    assert_eq!(whole(&tensors, t), [7; 16]);
    // Into host memory, which the queue does not reach.
    let near = tensors.add("near", bytes(16));
    tensors.place_all(host_buffer_type(), Usage::Any).unwrap();
    tensors.fill_async(&mut queue, t, 0, 16, 4).unwrap();
    assert_eq!(tensors.copy_async(&mut queue, None, t, near).unwrap(), CopyPath::ToHost);
    assert_eq!(whole(&tensors, near), [4; 16]);
    let other_layout = tensors.add("short", bytes(3));
    assert!(tensors.copy_async(&mut queue, None, t, other_layout).is_err());
}

#[test]
fn what_goes_wrong_in_a_queue_is_told_with_the_tensor() {
    let (mut tensors, t) = filled(&far("far"), 1);
    let mut queue = Queue::new(Duration::ZERO);
    queue.broken.store(true, Ordering::SeqCst);
    tensors.set_async(&mut queue, t, 0, &[1, 2]).unwrap();
    let error = tensors.get(t, 4, &mut [0; 2]).unwrap_err();
    assert!(error.to_string().starts_with("\"t\", 2 bytes at offset 4: queue is lost"), "{error}");
    let pending = tensors.get_async(&mut queue, t, 0, 2).unwrap();
    assert!(matches!(pending.wait(), Err(DeviceError::Lost { .. })));
    // What was not written is not copied elsewhere either.
    let near = tensors.add("near", bytes(16));
    tensors.place_all(host_buffer_type(), Usage::Any).unwrap();
    let wanted = "\"t\", 16 bytes at offset 0: queue is lost";
    let error = tensors.copy(t, near).unwrap_err();
    assert!(error.to_string().starts_with(wanted), "{error}");
    let (mut others, other) = filled(host_buffer_type(), 7);
    let error = others.copy_from(&tensors, t, other).unwrap_err();
    assert!(error.to_string().starts_with(wanted), "{error}");
    assert_eq!(whole(&others, other), [7; 16]);
    // What is written over is whole again after a reset.
    queue.broken.store(false, Ordering::SeqCst);
    assert!(queue.synchronize().is_err());
    let buffer = tensors.slot(t).unwrap().place().unwrap().buffer;
    tensors.reset_buffer(buffer).unwrap();
    tensors.place(t, buffer, 0).unwrap();
    tensors.fill(t, 0, 16, 3).unwrap();
    assert_eq!(whole(&tensors, t), [3; 16]);
}

#[test]
fn buffers_live_until_their_queued_work_is_done() {
    let kind = DeviceKind::new("far");
    let alive = Arc::clone(&kind.alive);
    let kind: Arc<dyn BufferType> = Arc::new(kind);
    let mut queue = Queue::new(DELAY);
    let (mut tensors, t) = filled(&kind, 1);
    let read = tensors.get_async(&mut queue, t, 0, 16).unwrap();
    drop(tensors);
    assert_eq!(read.wait().unwrap(), [1; 16]);
    queue.synchronize().unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

//! Tensors in buffers: places, views, and the movement of their data at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_runtime::tensors::{
    CopyPath, LinearPlacer, Strided, TensorDataError, TensorKey, Tensors,
};
use tensoryard_runtime::{
    Buffer, BufferType, HostMemory, MemoryError, SharedBytes, Usage, host_buffer_type,
};

use crate::queue::DeviceKind;

fn layout(dtype: DType, dims: &[usize]) -> Layout {
    Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
}

fn f32s(dims: &[usize]) -> Layout {
    layout(DType::F32, dims)
}

fn far(name: &str) -> Arc<dyn BufferType> {
    Arc::new(DeviceKind::new(name))
}

fn kinds() -> [Arc<dyn BufferType>; 2] {
    [Arc::clone(host_buffer_type()), far("far")]
}

/// A set with the tensor "t" of `bytes` bytes in memory of that kind, counting up from 0.
fn counting(kind: &Arc<dyn BufferType>, bytes: usize) -> (Tensors, TensorKey) {
    let mut tensors = Tensors::new();
    let t = tensors.add("t", layout(DType::I8, &[bytes]));
    tensors.place_all(kind, Usage::Any).unwrap();
    let values: Vec<u8> = (0..bytes).map(|value| value as u8).collect();
    tensors.set(t, 0, &values).unwrap();
    (tensors, t)
}

fn get(tensors: &Tensors, tensor: TensorKey, offset: usize, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    tensors.get(tensor, offset, &mut read).unwrap();
    read
}

#[test]
fn bytes_are_set_got_and_filled_within_a_tensor() {
    for kind in kinds() {
        let (mut tensors, t) = counting(&kind, 10);
        tensors.set(t, 3, &[100, 101]).unwrap();
        tensors.fill(t, 8, 2, 7).unwrap();
        assert_eq!(get(&tensors, t, 0, 10), [0, 1, 2, 100, 101, 5, 6, 7, 7, 7]);
        assert_eq!(get(&tensors, t, 9, 1), [7]);
    }
}

#[test]
fn a_range_beyond_the_tensor_is_named() {
    for kind in kinds() {
        let (mut tensors, t) = counting(&kind, 10);
        let wanted = "4 bytes at offset 7 reach beyond \"t\", which has 10";
        assert_eq!(tensors.set(t, 7, &[0; 4]).unwrap_err().to_string(), wanted);
        assert_eq!(tensors.get(t, 7, &mut [0; 4]).unwrap_err().to_string(), wanted);
        assert_eq!(tensors.fill(t, 7, 4, 0).unwrap_err().to_string(), wanted);
        // An end that does not fit the address space is no end before the beginning.
        let error = tensors.set(t, usize::MAX - 1, &[0; 4]).unwrap_err();
        assert!(matches!(error, TensorDataError::OutOfRange { .. }), "{error}");
        assert_eq!(get(&tensors, t, 6, 4), [6, 7, 8, 9]);
    }
}

#[test]
fn moving_nothing_is_legal_even_without_memory() {
    let mut tensors = Tensors::new();
    let t = tensors.add("t", f32s(&[4]));
    tensors.set(t, 99, &[]).unwrap();
    tensors.get(t, usize::MAX, &mut []).unwrap();
    tensors.fill(t, 99, 0, 1).unwrap();
    let none = Strided { offset_bytes: 9, row_bytes: 0, rows: 3, tensor_stride: 1, host_stride: 1 };
    tensors.set_2d(t, &none, &[]).unwrap();
    tensors.get_2d(t, &Strided { rows: 0, row_bytes: 4, ..none }, &mut []).unwrap();
    let (a, b) = (tensors.add("a", f32s(&[0])), tensors.add("b", f32s(&[0])));
    assert_eq!(tensors.copy(a, b).unwrap(), CopyPath::Nothing);
    assert_eq!(tensors.read(a).unwrap(), []);
    tensors.write(a, &[]).unwrap();
}

#[test]
fn a_tensor_without_memory_is_named_with_offset_and_size() {
    let mut tensors = Tensors::new();
    let t = tensors.add("t", f32s(&[4]));
    let other = tensors.add("other", f32s(&[4]));
    let wanted = "8 bytes at offset 4 of \"t\", which has no memory";
    assert_eq!(tensors.set(t, 4, &[0; 8]).unwrap_err().to_string(), wanted);
    assert_eq!(tensors.get(t, 4, &mut [0; 8]).unwrap_err().to_string(), wanted);
    assert_eq!(tensors.fill(t, 4, 8, 0).unwrap_err().to_string(), wanted);
    assert!(matches!(tensors.copy(t, other), Err(TensorDataError::Unplaced { .. })));
    assert!(matches!(tensors.read(t), Err(TensorDataError::Unplaced { .. })));
}

#[test]
fn a_view_uses_the_buffer_of_its_base() {
    for kind in kinds() {
        let (mut tensors, t) = counting(&kind, 12);
        let view = tensors.add_view("view", t, 4, layout(DType::I8, &[6])).unwrap();
        let inner = tensors.add_view("inner", view, 2, layout(DType::I8, &[3])).unwrap();
        tensors.init_view(view).unwrap();
        tensors.init_view(inner).unwrap();
        assert_eq!(get(&tensors, view, 1, 2), [5, 6]);
        assert_eq!(get(&tensors, inner, 0, 3), [6, 7, 8]);
        tensors.set(inner, 1, &[99]).unwrap();
        assert_eq!(get(&tensors, t, 6, 3), [6, 99, 8]);
        let error = tensors.get(inner, 2, &mut [0; 2]).unwrap_err();
        assert!(error.to_string().contains("\"inner\""), "{error}");
    }
}

#[test]
fn rows_at_distances_go_both_ways() {
    for kind in kinds() {
        let (mut tensors, t) = counting(&kind, 16);
        // Two bytes of each row of four, from rows of three on the host.
        let rows =
            Strided { offset_bytes: 1, row_bytes: 2, rows: 3, tensor_stride: 4, host_stride: 3 };
        tensors.set_2d(t, &rows, &[50, 51, 0, 60, 61, 0, 70, 71]).unwrap();
        assert_eq!(
            get(&tensors, t, 0, 16),
            [0, 50, 51, 3, 4, 60, 61, 7, 8, 70, 71, 11, 12, 13, 14, 15]
        );
        let mut host = [1; 8];
        tensors.get_2d(t, &rows, &mut host).unwrap();
        assert_eq!(host, [50, 51, 1, 60, 61, 1, 70, 71]);
        // The same bytes may go to several rows.
        let same = Strided { offset_bytes: 0, row_bytes: 1, host_stride: 0, ..rows };
        tensors.set_2d(t, &same, &[8]).unwrap();
        assert_eq!(get(&tensors, t, 0, 9), [8, 50, 51, 3, 8, 60, 61, 7, 8]);

        let error = tensors.set_2d(t, &rows, &[0; 7]).unwrap_err();
        assert_eq!(error.to_string(), "\"t\", offset 1: 7 bytes given, wanted 8");
        assert!(tensors.get_2d(t, &rows, &mut [0; 7]).is_err());
        let overlapping = Strided { tensor_stride: 1, ..rows };
        let error = tensors.set_2d(t, &overlapping, &[0; 8]).unwrap_err();
        assert!(matches!(error, TensorDataError::OverlappingRows { stride: 1, .. }), "{error}");
        let error = tensors.get_2d(t, &Strided { host_stride: 0, ..rows }, &mut [0; 8]);
        assert!(matches!(error, Err(TensorDataError::OverlappingRows { .. })));
        let beyond = Strided { offset_bytes: 7, ..rows };
        let error = tensors.set_2d(t, &beyond, &[0; 8]).unwrap_err();
        assert_eq!(error.to_string(), "10 bytes at offset 7 reach beyond \"t\", which has 16");
        for (rows, tensor_stride) in [(usize::MAX, 4), (3, usize::MAX), (usize::MAX, usize::MAX)] {
            let huge = Strided { rows, tensor_stride, host_stride: 0, ..overlapping };
            assert!(tensors.set_2d(t, &huge, &[0; 8]).is_err());
        }
    }
}

#[test]
fn elements_are_read_and_written_in_order_whatever_the_strides() {
    for kind in kinds() {
        let (mut tensors, t) = counting(&kind, 6);
        let turned = layout(DType::I8, &[3, 2]).permute([1, 0, 2, 3]).unwrap();
        let turned = tensors.add_view("turned", t, 0, turned).unwrap();
        tensors.init_view(turned).unwrap();
        assert_eq!(tensors.read(turned).unwrap(), [0, 3, 1, 4, 2, 5]);
        tensors.write(turned, &[10, 11, 12, 13, 14, 15]).unwrap();
        assert_eq!(get(&tensors, t, 0, 6), [10, 12, 14, 11, 13, 15]);
        let error = tensors.write(turned, &[0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "\"turned\", offset 0: 5 bytes given, wanted 6");
    }
}

#[test]
fn read_only_memory_is_not_written() {
    let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![5u8; 8]);
    let bytes = SharedBytes::new(owner, 0..8).unwrap();
    let mut tensors = Tensors::new();
    let mapped = Buffer::from_host(HostMemory::from_shared(bytes), Usage::Weights);
    let mapped = tensors.add_buffer(mapped);
    let t = tensors.add("t", layout(DType::I8, &[8]));
    tensors.place(t, mapped, 0).unwrap();
    let (other, _) = counting(host_buffer_type(), 8);
    let source = other.find("t").unwrap();
    let errors = [
        tensors.set(t, 2, &[1, 2]).unwrap_err(),
        tensors.fill(t, 2, 2, 0).unwrap_err(),
        tensors.write(t, &[0; 8]).unwrap_err(),
        tensors.copy_from(&other, source, t).unwrap_err(),
    ];
    for error in errors {
        let read_only = MemoryError::ReadOnly;
        assert!(matches!(&error, TensorDataError::Access { error, .. } if *error == read_only));
        assert!(error.to_string().contains("\"t\""), "{error}");
    }
    assert!(tensors.clear_buffer(mapped, 0).is_err());
    assert_eq!(get(&tensors, t, 0, 8), [5; 8]);
}

#[test]
fn the_four_ways_of_a_copy() {
    let capable = |name: &str| -> Arc<dyn BufferType> {
        Arc::new(DeviceKind { copies: true, ..DeviceKind::new(name) })
    };
    let (near, capable_a, capable_b, plain) =
        (Arc::clone(host_buffer_type()), capable("a"), capable("b"), far("plain"));
    let cases = [
        (&near, &plain, CopyPath::FromHost),
        (&near, &near, CopyPath::FromHost),
        (&plain, &near, CopyPath::ToHost),
        (&capable_a, &capable_b, CopyPath::OnDevice),
        (&capable_a, &plain, CopyPath::ThroughHost),
        (&plain, &plain, CopyPath::ThroughHost),
    ];
    for (from, to, wanted) in cases {
        let (source, src) = counting(from, 20);
        let mut tensors = Tensors::new();
        let dst = tensors.add("dst", layout(DType::I8, &[20]));
        tensors.place_all(to, Usage::Any).unwrap();
        assert_eq!(tensors.copy_from(&source, src, dst).unwrap(), wanted);
        assert_eq!(get(&tensors, dst, 0, 20), get(&source, src, 0, 20));
        let slow = u64::from(wanted == CopyPath::ThroughHost);
        let counters = tensors.counters();
        assert_eq!((counters.copies, counters.copied_bytes, counters.slow_copies), (1, 20, slow));
    }
}

#[test]
fn copies_within_one_buffer_and_between_two_of_a_set() {
    for kind in kinds() {
        let (mut tensors, t) = counting(&kind, 8);
        let front = tensors.add_view("front", t, 0, layout(DType::I8, &[5])).unwrap();
        let back = tensors.add_view("back", t, 2, layout(DType::I8, &[5])).unwrap();
        tensors.init_view(front).unwrap();
        tensors.init_view(back).unwrap();
        // They overlap; the source is read first.
        tensors.copy(front, back).unwrap();
        assert_eq!(get(&tensors, t, 0, 8), [0, 1, 0, 1, 2, 3, 4, 7]);
        let other = tensors.add("other", layout(DType::I8, &[8]));
        tensors.place_all(&kind, Usage::Any).unwrap();
        tensors.copy(t, other).unwrap();
        assert_eq!(get(&tensors, other, 0, 8), [0, 1, 0, 1, 2, 3, 4, 7]);
        // The same tensor, and another name for the same place.
        let same = tensors.add_view("same", t, 0, layout(DType::I8, &[8])).unwrap();
        tensors.init_view(same).unwrap();
        assert_eq!(tensors.copy(t, t).unwrap(), CopyPath::Nothing);
        assert_eq!(tensors.copy(t, same).unwrap(), CopyPath::Nothing);
    }
}

#[test]
fn a_strided_copy_leaves_the_gaps_alone() {
    for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let kinds = kinds();
        let (mut source, src) = counting(&kinds[from], 8);
        let (mut target, dst) = counting(&kinds[to], 8);
        target.fill(dst, 0, 8, 77).unwrap();
        let shape = Shape::new(&[2, 2]).unwrap();
        let gaps = Layout::strided(DType::I8, shape, [1, 5, 0, 0]).unwrap();
        let a = source.add_view("a", src, 0, gaps).unwrap();
        let b = target.add_view("b", dst, 1, gaps).unwrap();
        source.init_view(a).unwrap();
        target.init_view(b).unwrap();
        target.copy_from(&source, a, b).unwrap();
        assert_eq!(get(&target, dst, 0, 8), [77, 0, 1, 77, 77, 77, 5, 6]);
    }
}

#[test]
fn copies_want_equal_types_shapes_and_strides() {
    let mut tensors = Tensors::new();
    let a = tensors.add("a", f32s(&[4, 2]));
    let others = [
        tensors.add("shape", f32s(&[2, 4])),
        tensors.add("type", layout(DType::I32, &[4, 2])),
        tensors.add("strides", f32s(&[2, 4]).permute([1, 0, 2, 3]).unwrap()),
    ];
    tensors.place_all(host_buffer_type(), Usage::Any).unwrap();
    for other in others {
        let error = tensors.copy(a, other).unwrap_err();
        assert!(matches!(error, TensorDataError::LayoutMismatch { .. }), "{error}");
        assert!(error.to_string().contains("\"a\" is f32 [4, 2]"), "{error}");
    }
}

#[test]
fn placing_checks_everything() {
    let kind: Arc<dyn BufferType> =
        Arc::new(DeviceKind { padding: 10, ..DeviceKind::new("padded") });
    let mut tensors = Tensors::new();
    let buffer = tensors.add_buffer(Buffer::allocate(&kind, 100, Usage::Any).unwrap());
    let t = tensors.add("t", f32s(&[4]));
    let view = tensors.add_view("view", t, 8, f32s(&[2])).unwrap();
    let message = |result: Result<(), TensorDataError>| result.unwrap_err().to_string();

    assert_eq!(
        message(tensors.place(view, buffer, 0)),
        "\"view\" is a view of \"t\" and cannot be placed on its own"
    );
    assert_eq!(
        message(tensors.init_view(view)),
        "\"view\" is a view of \"t\", which has no memory"
    );
    assert_eq!(message(tensors.init_view(t)), "\"t\" is no view");
    assert_eq!(
        message(tensors.place(t, buffer, 16)),
        "\"t\" at offset 16 of padded is not aligned to 32"
    );
    // 96 + 16 + 10 is beyond 100; so is 64 + 16 + 26, which would be the size without a check
    // of the padding.
    assert_eq!(
        message(tensors.place(t, buffer, 96)),
        "\"t\" takes 26 bytes with padding at offset 96 of padded, which has 100"
    );
    let tight = tensors.add("tight", f32s(&[7]));
    assert!(matches!(tensors.place(tight, buffer, 64), Err(TensorDataError::BeyondBuffer { .. })));
    assert!(tensors.place(t, buffer, usize::MAX - 31).is_err());
    assert!(tensors.slot(t).unwrap().place().is_none());

    tensors.place(t, buffer, 64).unwrap();
    assert_eq!(message(tensors.place(t, buffer, 0)), "\"t\" is placed already");
    tensors.init_view(view).unwrap();
    assert_eq!(message(tensors.init_view(view)), "\"view\" is placed already");
    assert_eq!(tensors.slot(view).unwrap().place().unwrap().offset_bytes, 72);

    let beyond = tensors.add_view("beyond", view, 4, f32s(&[2])).unwrap();
    assert_eq!(
        message(tensors.init_view(beyond)),
        "\"beyond\" takes 8 bytes at offset 12 of \"t\", which has 16"
    );
    let far_off = tensors.add_view("far", t, usize::MAX, f32s(&[1])).unwrap();
    assert!(matches!(tensors.init_view(far_off), Err(TensorDataError::BeyondBase { .. })));
    let odd = tensors.add_view("odd", t, 2, f32s(&[1])).unwrap();
    assert!(matches!(
        tensors.init_view(odd),
        Err(TensorDataError::Misaligned { alignment: 4, .. })
    ));
}

#[test]
fn host_memory_that_is_not_aligned_is_placed_in_by_its_address() {
    let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0u8; 64]);
    let address = (*owner).as_ref().as_ptr().addr();
    let start = 1 + (address + 1) % 2;
    let bytes = SharedBytes::new(owner, start..64).unwrap();
    let mut tensors = Tensors::new();
    let buffer = Buffer::from_host(HostMemory::from_shared(bytes), Usage::Any);
    let (base, alignment) = (buffer.base().unwrap(), buffer.alignment());
    let buffer = tensors.add_buffer(buffer);
    let aligned = base.next_multiple_of(alignment.max(4)) - base;
    let t = tensors.add("t", f32s(&[2]));
    if !(base + 1).is_multiple_of(4) {
        let error = tensors.place(t, buffer, 1).unwrap_err();
        assert!(matches!(error, TensorDataError::Misaligned { .. }), "{error}");
    }
    tensors.place(t, buffer, aligned).unwrap();
}

#[test]
fn a_set_is_measured_then_placed() {
    let kind: Arc<dyn BufferType> =
        Arc::new(DeviceKind { padding: 4, max_size: 100, ..DeviceKind::new("small") });
    let mut tensors = Tensors::new();
    let keys: Vec<TensorKey> = [4, 10, 8, 1, 22]
        .iter()
        .enumerate()
        .map(|(number, &len)| tensors.add(format!("t{number}"), f32s(&[len])))
        .collect();
    let view = tensors.add_view("view", keys[1], 4, f32s(&[3])).unwrap();
    // 20, then 44 at 32; 36 at 96 is too far: 36, then 8 at 64; 92 alone.
    assert_eq!(tensors.measure(&kind).unwrap(), [76, 72, 92]);
    assert!(tensors.buffers().is_empty());
    let buffers = tensors.place_all(&kind, Usage::Weights).unwrap();
    let place = |key: TensorKey| tensors.slot(key).unwrap().place().unwrap();
    let places: Vec<_> =
        keys.iter().map(|&key| (place(key).buffer, place(key).offset_bytes)).collect();
    assert_eq!(
        places,
        [(buffers[0], 0), (buffers[0], 32), (buffers[1], 0), (buffers[1], 64), (buffers[2], 0)]
    );
    assert_eq!((place(view).buffer, place(view).offset_bytes), (buffers[0], 36));
    for (&buffer, size) in buffers.iter().zip([76, 72, 92]) {
        let buffer = tensors.buffer(buffer).unwrap();
        assert_eq!((buffer.size(), buffer.usage()), (size, Usage::Weights));
    }
    // Nothing is left: the set is empty now, and gets a buffer of no bytes.
    let more = tensors.place_all(&kind, Usage::Any).unwrap();
    assert_eq!(more.len(), 1);
    assert_eq!(tensors.buffer(more[0]).unwrap().size(), 0);
}

#[test]
fn a_set_that_cannot_be_placed_leaves_nothing_behind() {
    let small = DeviceKind { max_size: 64, fail_at: 1, ..DeviceKind::new("small") };
    let alive = Arc::clone(&small.alive);
    let small: Arc<dyn BufferType> = Arc::new(small);
    let mut tensors = Tensors::new();
    let a = tensors.add("a", f32s(&[16]));
    let b = tensors.add("b", f32s(&[12]));
    let error = tensors.place_all(&small, Usage::Any).unwrap_err();
    assert_eq!(error.to_string(), "a buffer of 48 bytes of small: 48 bytes could not be allocated");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(tensors.slot(a).unwrap().place().is_none() && tensors.buffers().is_empty());
    let large = tensors.add("large", f32s(&[17]));
    let error = tensors.measure(&small).unwrap_err();
    assert!(error.to_string().contains("\"large\", 68 bytes"), "{error}");
    assert!(error.to_string().contains("largest buffer of small, 64 bytes"), "{error}");

    // A view that the memory refuses takes the whole set back.
    let mut tensors = Tensors::new();
    let picky = DeviceKind { refuses_views: true, ..DeviceKind::new("picky") };
    let alive = Arc::clone(&picky.alive);
    let base = tensors.add("base", f32s(&[16]));
    let view = tensors.add_view("view", base, 0, f32s(&[2])).unwrap();
    let error = tensors.place_all(&(Arc::new(picky) as _), Usage::Any).unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"view\", 8 bytes at offset 0: picky refuses the tensor: it takes no views"
    );
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(tensors.slot(base).unwrap().place().is_none());
    assert!(tensors.slot(view).unwrap().place().is_none());
    _ = (b, large);
}

#[test]
fn the_memory_is_told_of_each_tensor_and_view_base_first_until_reset() {
    let kind = DeviceKind::new("told");
    let told = Arc::clone(&kind.told);
    let mut tensors = Tensors::new();
    // The views come first in the set.
    let base = tensors.add("base", f32s(&[8]));
    let view = tensors.add_view("view", base, 8, f32s(&[2])).unwrap();
    let inner = tensors.add_view("inner", view, 4, f32s(&[1])).unwrap();
    let second = tensors.add("second", f32s(&[3]));
    let buffer = tensors.place_all(&(Arc::new(kind) as _), Usage::Any).unwrap()[0];
    let heard: Vec<_> =
        told.lock().unwrap().iter().map(|t| (t.offset_bytes, t.base.map(|base| base.0))).collect();
    assert_eq!(heard, [(0, None), (32, None), (8, Some(0)), (12, Some(0))]);
    tensors.reset_buffer(buffer).unwrap();
    assert!(told.lock().unwrap().is_empty());
    for key in [base, view, inner, second] {
        assert!(tensors.slot(key).unwrap().place().is_none());
    }
    tensors.place(second, buffer, 0).unwrap();
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn a_linear_placer_fills_a_buffer() {
    for kind in kinds() {
        let mut tensors = Tensors::new();
        let alignment = kind.alignment();
        let size = 2 * alignment + 20;
        let buffer = tensors.add_buffer(Buffer::allocate(&kind, size, Usage::Any).unwrap());
        let mut placer = LinearPlacer::new(buffer);
        let keys: Vec<_> = [3, 1, 5].map(|len| tensors.add("t", f32s(&[len]))).into();
        for &key in &keys {
            placer.place(&mut tensors, key).unwrap();
        }
        let offset = |key| tensors.slot(key).unwrap().place().unwrap().offset_bytes;
        assert_eq!(
            [offset(keys[0]), offset(keys[1]), offset(keys[2])],
            [0, alignment, 2 * alignment]
        );
        assert_eq!(placer.used_bytes(), size);
        let full = tensors.add("full", f32s(&[1]));
        let error = placer.place(&mut tensors, full).unwrap_err();
        assert!(matches!(&error, TensorDataError::BeyondBuffer { tensor, .. } if tensor == "full"));
        assert_eq!(placer.used_bytes(), size);
        // No bytes fit anywhere.
        let empty = tensors.add("empty", f32s(&[0]));
        assert_eq!(
            placer.place(&mut tensors, empty).is_ok(),
            size.next_multiple_of(alignment) <= size
        );
    }
}

#[test]
fn keys_of_another_set_are_errors() {
    let mut small = Tensors::new();
    let (mut large, _) = counting(host_buffer_type(), 4);
    let key = large.add("second", f32s(&[1]));
    assert_eq!(small.set(key, 0, &[0]).unwrap_err().to_string(), "there is no tensor 1 among 0");
    assert!(small.add_view("view", key, 0, f32s(&[1])).is_err());
    let buffer = large.place_all(host_buffer_type(), Usage::Any).unwrap()[0];
    assert_eq!(small.reset_buffer(buffer).unwrap_err().to_string(), "there is no buffer 1 among 0");
}

//! Buffer types, buffers, and several buffers as one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tensoryard_graph::{DType, Layout, Shape};
use tensoryard_runtime::{
    BackendOptions, Buffer, BufferType, HostMemory, MemoryError, MultiBuffer, SharedBytes, Usage,
    host_buffer_type,
};

use crate::queue::DeviceKind;
use crate::support::full;

fn layout(dims: &[usize]) -> Layout {
    Layout::contiguous(DType::F32, Shape::new(dims).unwrap()).unwrap()
}

fn kind(kind: DeviceKind) -> Arc<dyn BufferType> {
    Arc::new(kind)
}

#[test]
fn the_host_type_says_what_it_is() {
    let host = host_buffer_type();
    assert_eq!((host.name(), host.alignment(), host.is_host()), ("CPU", 64, true));
    assert!(host.takes_views());
    assert_eq!(host.tensor_bytes(&layout(&[3, 5])), 60);
    for bytes in [1, 63, 64, 65, 1000] {
        let buffer = Buffer::allocate(host, bytes, Usage::Any).unwrap();
        assert_eq!((buffer.size(), buffer.base().unwrap() % 64), (bytes, 0));
        assert!(buffer.alignment() >= 64 || buffer.alignment() == host.alignment());
    }
    let error = Buffer::allocate(host, usize::MAX / 4, Usage::Any).unwrap_err();
    assert!(error.to_string().contains(&(usize::MAX / 4).to_string()), "{error}");
}

#[test]
fn padded_sizes_are_never_below_the_tensors_own() {
    let padded = DeviceKind { padding: 12, ..DeviceKind::new("padded") };
    for dims in [&[0, 4][..], &[1], &[7, 3], &[2, 3, 4, 5]] {
        let tensor = layout(dims);
        assert_eq!(padded.tensor_bytes(&tensor), tensor.data_bytes() + 12);
        assert!(host_buffer_type().tensor_bytes(&tensor) >= tensor.data_bytes());
    }
}

#[test]
fn a_new_buffer_has_the_size_asked_for_and_the_usage_given() {
    // The memory behind it is a multiple of 256 bytes.
    let kind = kind(DeviceKind { padding: 8, ..DeviceKind::new("far") });
    let mut buffer = Buffer::allocate(&kind, 100, Usage::default()).unwrap();
    assert_eq!((buffer.size(), buffer.name(), buffer.usage()), (100, "far", Usage::Any));
    assert_eq!((buffer.alignment(), buffer.max_size()), (32, 1 << 20));
    assert_eq!((buffer.base(), buffer.is_host(), buffer.is_writable()), (None, false, true));
    assert_eq!(buffer.tensor_bytes(&layout(&[2])), 16);
    assert!(Arc::ptr_eq(buffer.buffer_type(), &kind));
    for usage in [Usage::Weights, Usage::Compute, Usage::Any] {
        buffer.set_usage(usage);
        assert_eq!(buffer.usage(), usage);
    }
    let error = Buffer::allocate(&kind, (1 << 20) + 1, Usage::Any).unwrap_err();
    assert_eq!(error.to_string(), "1048577 bytes exceed the largest buffer of far, 1048576 bytes");
}

#[test]
fn clearing_sets_every_byte() {
    for kind in [Arc::clone(host_buffer_type()), kind(DeviceKind::new("far"))] {
        let mut buffer = Buffer::allocate(&kind, 70, Usage::Any).unwrap();
        buffer.clear(0xa5).unwrap();
        let mut bytes = [0; 70];
        buffer.memory().read_bytes(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0xa5; 70]);
    }
}

#[test]
fn byte_ranges_are_read_written_and_filled_within_the_buffer() {
    for kind in [Arc::clone(host_buffer_type()), kind(DeviceKind::new("far"))] {
        let mut buffer = Buffer::allocate(&kind, 256, Usage::Any).unwrap();
        let memory = buffer.memory_mut();
        memory.write_bytes(250, &[1, 2, 3, 4, 5, 6]).unwrap();
        memory.fill(252, 2, 9).unwrap();
        let mut bytes = [0; 6];
        memory.read_bytes(250, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 9, 9, 5, 6]);
        assert!(memory.write_bytes(251, &[0; 6]).is_err());
        assert!(memory.read_bytes(usize::MAX, &mut bytes).is_err());
        assert!(memory.fill(usize::MAX, 2, 0).is_err());
        memory.fill(256, 0, 0).unwrap();
    }
}

#[test]
fn buffers_of_no_bytes_are_legal() {
    for kind in [Arc::clone(host_buffer_type()), kind(DeviceKind::new("far"))] {
        let mut buffer = Buffer::allocate(&kind, 0, Usage::Any).unwrap();
        assert_eq!(buffer.size(), 0);
        buffer.clear(1).unwrap();
        buffer.reset();
    }
    let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(Vec::new());
    let empty = HostMemory::from_shared(SharedBytes::new(owner, 0..0).unwrap());
    Buffer::from_host(empty, Usage::Any).clear(1).unwrap();
}

#[test]
fn memory_of_the_caller_is_used_as_it_is_and_outlives_its_name() {
    let bytes: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new((0..64).collect::<Vec<u8>>());
    let address = (*bytes).as_ref().as_ptr().addr();
    let part = SharedBytes::new(Arc::clone(&bytes), 4..20).unwrap();
    let mut buffer = Buffer::from_host(HostMemory::from_shared(part), Usage::Weights);
    assert_eq!(Arc::strong_count(&bytes), 2);
    drop(bytes);
    assert_eq!((buffer.base(), buffer.size()), (Some(address + 4), 16));
    // The alignment is that of the address, and no more than the type's.
    assert_eq!(buffer.alignment(), (1 << (address + 4).trailing_zeros()).min(64));
    let mut read = [0; 2];
    buffer.memory().read_bytes(1, &mut read).unwrap();
    assert_eq!(read, [5, 6]);
    // It is shared, so nothing writes it.
    assert!(!buffer.is_writable());
    let memory = buffer.memory_mut();
    assert_eq!(memory.write_bytes(0, &[1]).unwrap_err(), MemoryError::ReadOnly);
    assert_eq!(memory.fill(0, 1, 1).unwrap_err(), MemoryError::ReadOnly);
    assert_eq!(memory.write_tensor(0, &layout(&[1]), &[0; 4]), Err(MemoryError::ReadOnly));
    assert_eq!(buffer.clear(0).unwrap_err(), MemoryError::ReadOnly);
}

#[test]
fn memory_that_is_given_away_is_written() {
    let given: Box<[u8]> = vec![7; 40].into();
    let address = given.as_ptr().addr();
    let mut buffer = Buffer::from_host(HostMemory::from_owned(Box::new(given)), Usage::Any);
    assert_eq!((buffer.base(), buffer.size(), buffer.is_writable()), (Some(address), 40, true));
    buffer.clear(1).unwrap();
    buffer.memory_mut().write_bytes(39, &[2]).unwrap();
    let mut read = [0; 2];
    buffer.memory().read_bytes(38, &mut read).unwrap();
    assert_eq!(read, [1, 2]);
}

#[test]
fn a_buffer_outlives_device_and_queue() {
    let device = full("A").build();
    let buffer_type = Arc::clone(&device.buffer_types()[0]);
    let backend = device.open(&BackendOptions::default()).unwrap();
    let mut buffer = Buffer::allocate(&buffer_type, 64, Usage::Any).unwrap();
    drop((backend, device, buffer_type));
    buffer.clear(3).unwrap();
    let mut bytes = [0; 64];
    buffer.memory().read_bytes(0, &mut bytes).unwrap();
    assert_eq!((bytes, buffer.name()), ([3; 64], "A memory"));
}

#[test]
fn several_buffers_are_handled_as_one() {
    let far = DeviceKind { max_size: 100, ..DeviceKind::new("far") };
    let alive = Arc::clone(&far.alive);
    let far = kind(far);
    let mut all = MultiBuffer::allocate(&far, &[100, 60, 0], Usage::Weights).unwrap();
    assert_eq!((all.size(), all.usage(), all.buffer_type().name()), (160, Usage::Weights, "far"));
    all.set_usage(Usage::Compute);
    assert!(all.buffers().iter().all(|buffer| buffer.usage() == Usage::Compute));
    all.clear(9).unwrap();
    all.reset();
    for buffer in all.buffers() {
        let mut bytes = vec![0; buffer.size()];
        buffer.memory().read_bytes(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 9));
    }
    assert_eq!(alive.load(Ordering::SeqCst), 3);
    let mixed = Buffer::allocate(host_buffer_type(), 8, Usage::Any).unwrap();
    let mut buffers = all.into_buffers();
    buffers.push(mixed);
    let error = MultiBuffer::new(&far, buffers).unwrap_err();
    assert_eq!(error.to_string(), "a CPU buffer among buffers of far");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert_eq!(MultiBuffer::new(&far, Vec::new()).unwrap().size(), 0);
}

#[test]
fn a_failed_allocation_of_several_buffers_frees_the_others() {
    let far = DeviceKind { fail_at: 2, ..DeviceKind::new("far") };
    let alive = Arc::clone(&far.alive);
    let error = MultiBuffer::allocate(&kind(far), &[10, 20, 30, 40], Usage::Any).unwrap_err();
    assert_eq!(error, MemoryError::Allocation { bytes: 30 });
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

//! Plain host memory, allocated by us or owned by somebody else.
//!
//! Safe code reads and writes through checked copies that need `&self` or `&mut self`; devices
//! that compute in host memory take the base address and answer for their own accesses, while a
//! [`Submission`](crate::Submission) lends them the memory.
#![allow(unsafe_code)]

use std::alloc::{Layout as AllocLayout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use tensoryard_graph::Layout;

use crate::MemoryError;
use crate::memory::{check_bytes, scatter};

/// A range of bytes kept alive by whoever owns them, such as a mapped file.
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// The bytes `range` of `owner`.
    ///
    /// # Errors
    /// A range outside the owner's bytes.
    pub fn new(
        owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
        range: Range<usize>,
    ) -> Result<Self, MemoryError> {
        let size = (*owner).as_ref().len();
        if range.start > range.end || range.end > size {
            return Err(MemoryError::OutOfRange {
                offset: range.start,
                bytes: range.end.saturating_sub(range.start),
                size,
            });
        }
        Ok(Self { owner, range })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}

/// Bytes that somebody gives away to be written and read, such as a `Vec<u8>` or a private
/// mapping. They are dropped with the memory that they are given to.
pub type OwnedBytes = Box<dyn AsMut<[u8]> + Send + Sync>;

enum Owner {
    Allocated(AllocLayout),
    Shared {
        _keep_alive: SharedBytes,
    },
    /// From `Box::into_raw`, dropped with the memory. A raw pointer, since moving a box would
    /// claim that nobody else points into it.
    Given(NonNull<dyn AsMut<[u8]> + Send + Sync>),
}

/// Host memory at a fixed address.
pub struct HostMemory {
    base: NonNull<u8>,
    size: usize,
    owner: Owner,
}

// SAFETY: the memory is plain bytes at a fixed address. Shared references only read it
// through this type; writes need `&mut self`, or happen in a device under the exclusive
// borrow of the state or workspace that owns the buffer.
unsafe impl Send for HostMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Zeroed memory of `size` bytes at an address that is a multiple of `alignment`.
    ///
    /// # Errors
    /// An impossible size or alignment, or no memory: the error names the size.
    pub fn allocate(size: usize, alignment: usize) -> Result<Self, MemoryError> {
        let impossible = MemoryError::Allocation { bytes: size };
        // Zero-size buffers are legal; the allocator is never asked for zero bytes.
        let Ok(layout) = AllocLayout::from_size_align(size.max(1), alignment) else {
            return Err(impossible);
        };
        // SAFETY: the layout has a size of at least one byte.
        let base = unsafe { alloc_zeroed(layout) };
        match NonNull::new(base) {
            Some(base) => Ok(Self { base, size, owner: Owner::Allocated(layout) }),
            None => Err(impossible),
        }
    }

    /// Read-only memory that somebody else owns.
    pub fn from_shared(bytes: SharedBytes) -> Self {
        let slice = bytes.as_slice();
        let (base, size) = (NonNull::from(slice).cast::<u8>(), slice.len());
        Self { base, size, owner: Owner::Shared { _keep_alive: bytes } }
    }

    /// Memory that its owner gives away. What belongs to the caller by borrow cannot be given:
    /// work in flight may use a buffer beyond any borrow.
    pub fn from_owned(owner: OwnedBytes) -> Self {
        let owner = Box::into_raw(owner);
        // SAFETY: `owner` comes from a box and is not null; nobody else has it.
        let (owner, bytes) = unsafe { (NonNull::new_unchecked(owner), (*owner).as_mut()) };
        // The slice was reached through the only reference to the owner, which nobody touches
        // again before it is dropped.
        let (base, size) = (NonNull::from(&mut *bytes).cast::<u8>(), bytes.len());
        Self { base, size, owner: Owner::Given(owner) }
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether the memory may be written.
    pub fn is_writable(&self) -> bool {
        match self.owner {
            Owner::Allocated(_) | Owner::Given(_) => true,
            Owner::Shared { .. } => false,
        }
    }

    /// Address of the first byte as a number.
    pub fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// The largest power of two that divides the address of the first byte; of memory allocated
    /// here, the alignment that was asked for at least.
    pub fn alignment(&self) -> usize {
        1 << self.address().trailing_zeros().min(usize::BITS - 1)
    }

    /// Address of the first byte. Writing through it is sound only under an exclusive borrow
    /// of the buffer, and only where [`HostMemory::is_writable`] says so.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size => Ok(()),
            Some(_) | None => Err(MemoryError::OutOfRange { offset, bytes, size: self.size }),
        }
    }

    /// The bytes from `offset` on.
    ///
    /// # Errors
    /// A range beyond the memory.
    pub fn slice(&self, offset: usize, bytes: usize) -> Result<&[u8], MemoryError> {
        self.check(offset, bytes)?;
        // SAFETY: `check` found the range inside the memory, which is initialised (zeroed or
        // somebody's slice) and lives as long as `self`; `&self` excludes writers.
        Ok(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), bytes) })
    }

    /// The bytes from `offset` on, to be written.
    ///
    /// # Errors
    /// A range beyond the memory; read-only memory.
    pub fn slice_mut(&mut self, offset: usize, bytes: usize) -> Result<&mut [u8], MemoryError> {
        self.check(offset, bytes)?;
        if !self.is_writable() {
            return Err(MemoryError::ReadOnly);
        }
        // SAFETY: as in `slice`; the memory was allocated by us or given to us by an owner that
        // nobody else reaches, and `&mut self` excludes others.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), bytes) })
    }

    /// Writes a tensor as [`Memory::write_tensor`](crate::Memory::write_tensor) does, through a
    /// shared reference: for queues, which get memory lent by a [`Submission`](crate::Submission).
    ///
    /// # Errors
    /// A tensor beyond the memory; read-only memory; a byte count that is not the tensor's.
    ///
    /// # Safety
    /// Nobody else reads or writes the tensor's extent meanwhile, its gaps included.
    pub unsafe fn write_tensor_shared(
        &self,
        offset: usize,
        layout: &Layout,
        src: &[u8],
    ) -> Result<(), MemoryError> {
        check_bytes(layout, src.len())?;
        let bytes = layout.extent_bytes();
        self.check(offset, bytes)?;
        if !self.is_writable() {
            return Err(MemoryError::ReadOnly);
        }
        // SAFETY: `check` found the range inside the memory, which was allocated by us and lives
        // as long as `self`; the caller excludes everybody else.
        let dst = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), bytes) };
        scatter(layout, dst, src);
        Ok(())
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        match &self.owner {
            // SAFETY: `base` came from `alloc_zeroed` with this very layout and is freed once.
            Owner::Allocated(layout) => unsafe { dealloc(self.base.as_ptr(), *layout) },
            Owner::Shared { .. } => {}
            // SAFETY: the pointer came from `Box::into_raw` and is made a box again once.
            Owner::Given(owner) => drop(unsafe { Box::from_raw(owner.as_ptr()) }),
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} bytes, writable {})", self.size, self.is_writable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_zeroed_and_sized() {
        let mut memory = HostMemory::allocate(100, 64).unwrap();
        assert_eq!(memory.base() as usize % 64, 0);
        assert_eq!(memory.size(), 100);
        assert!(memory.slice(0, 100).unwrap().iter().all(|&byte| byte == 0));
        memory.slice_mut(98, 2).unwrap().copy_from_slice(&[7, 8]);
        assert_eq!(memory.slice(97, 3).unwrap(), [0, 7, 8]);
        assert!(memory.slice(99, 2).is_err());
        assert!(memory.slice(usize::MAX, 2).is_err());
    }

    #[test]
    fn zero_bytes_are_legal_and_too_many_are_an_error() {
        let mut empty = HostMemory::allocate(0, 64).unwrap();
        assert_eq!(empty.slice_mut(0, 0).unwrap().len(), 0);
        let error = HostMemory::allocate(usize::MAX / 2, 64).unwrap_err();
        assert!(error.to_string().contains(&(usize::MAX / 2).to_string()));
    }

    #[test]
    fn bytes_that_are_given_away_are_written_and_dropped_once() {
        struct Counted {
            bytes: Vec<u8>,
            _alive: Arc<()>,
        }
        impl AsMut<[u8]> for Counted {
            fn as_mut(&mut self) -> &mut [u8] {
                &mut self.bytes[1..]
            }
        }
        let alive = Arc::new(());
        let owner = Counted { bytes: vec![1, 2, 3, 4], _alive: Arc::clone(&alive) };
        let address = owner.bytes.as_ptr().addr() + 1;
        let mut memory = HostMemory::from_owned(Box::new(owner));
        assert_eq!((memory.size(), memory.address(), memory.alignment()), (3, address, 1));
        memory.slice_mut(1, 1).unwrap()[0] = 9;
        assert_eq!(memory.slice(0, 3).unwrap(), [2, 9, 4]);
        assert!(memory.slice_mut(1, 3).is_err());
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(memory);
        assert_eq!(Arc::strong_count(&alive), 1);
        // Bytes inside the box itself stay where they are when the memory moves.
        let inside = HostMemory::from_owned(Box::new([5u8; 3]));
        let moved = Box::new(inside);
        assert_eq!(moved.slice(0, 3).unwrap(), [5; 3]);
    }

    #[test]
    fn tensors_are_written_through_shared_references() {
        let shape = tensoryard_graph::Shape::new(&[2, 2]).unwrap();
        let plain = Layout::contiguous(tensoryard_graph::DType::F16, shape).unwrap();
        let turned = plain.permute([1, 0, 2, 3]).unwrap();
        let memory = HostMemory::allocate(12, 64).unwrap();
        // SAFETY: nobody else knows the memory.
        let write =
            |offset, bytes: &[u8]| unsafe { memory.write_tensor_shared(offset, &turned, bytes) };
        write(4, &[1, 2, 5, 6, 3, 4, 7, 8]).unwrap();
        assert_eq!(memory.slice(0, 12).unwrap(), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(matches!(write(5, &[0; 8]), Err(MemoryError::OutOfRange { .. })));
        assert!(matches!(write(0, &[0; 7]), Err(MemoryError::ByteCount { .. })));
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0u8; 8]);
        let mapped = HostMemory::from_shared(SharedBytes::new(owner, 0..8).unwrap());
        // SAFETY: as above; it is not written.
        let refused = unsafe { mapped.write_tensor_shared(0, &plain, &[0; 8]) };
        assert!(matches!(refused, Err(MemoryError::ReadOnly)));
    }

    #[test]
    fn shared_bytes_are_read_only() {
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![1u8, 2, 3, 4]);
        assert!(SharedBytes::new(owner.clone(), 2..5).is_err());
        let mut memory = HostMemory::from_shared(SharedBytes::new(owner, 1..4).unwrap());
        assert_eq!(memory.slice(0, 3).unwrap(), [2, 3, 4]);
        assert!(matches!(memory.slice_mut(0, 1), Err(MemoryError::ReadOnly)));
    }
}

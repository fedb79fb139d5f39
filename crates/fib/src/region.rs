//! Memory that engines read while one writer changes it.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

#[cfg(not(target_endian = "little"))]
compile_error!("the image's u16 cells inside u64 words are laid out for little-endian hosts");

/// A zeroed, 64-byte aligned block of memory of fixed length, shared between one writer and any
/// number of readers (threads of this process, or XDP programs where the block is a BPF map).
///
/// All access is through atomics, so sharing is sound; which store publishes what is the business
/// of the structure that lives inside.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is owned by `_owner`, which is Send and Sync itself, and is only ever reached
// through atomic types.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A zeroed block of `len` bytes (rounded up to a multiple of 64) on this process's heap.
    ///
    /// Pages are not touched before they are written, so capacity that is not used costs no memory.
    pub fn heap(len: usize) -> Region {
        let len = len.next_multiple_of(64);
        // One line more than asked for, so that the block can start on a cache line without an
        // over-aligned allocation, which the allocator would have to clear by hand.
        let mut block = vec![0u8; len + 64].into_boxed_slice();
        let skip = block.as_ptr().align_offset(64);
        let base = NonNull::from(&mut block[skip]);
        Region {
            base,
            len,
            _owner: Box::new(block),
        }
    }

    /// A block that somebody else owns, such as a memory-mapped BPF array.
    ///
    /// # Safety
    /// `base` must point to `len` readable and writable bytes, aligned to 64, that stay valid until
    /// `owner` is dropped, and that no one in this process reaches except through atomics.
    pub unsafe fn from_raw(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Region {
        assert!(
            base.as_ptr().addr().is_multiple_of(64) && len.is_multiple_of(8),
            "a region is a run of words"
        );
        Region {
            base,
            len,
            _owner: owner,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the block has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The block as 64-bit words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is aligned to 64 and holds `len` bytes for as long as `self` lives; all
        // bit patterns are valid and all access is atomic.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }

    /// The block as 32-bit cells; cell `2 * i` is the low half of word `i`.
    #[inline]
    pub fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 4) }
    }

    /// The block as 16-bit cells; cell `4 * i` is the lowest quarter of word `i`.
    #[inline]
    pub fn quarters(&self) -> &[AtomicU16] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 2) }
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

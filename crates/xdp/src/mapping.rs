//! BPF arrays as memory of this process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;

use raddle_fib::Region;
use raddle_image::Memory;

use crate::sys;
use crate::{Error, Result};

/// The image's maps, in the order of [`Memory`]'s members.
pub(crate) const IMAGE: [&str; 18] = [
    "config",
    "links",
    "local4",
    "roots4",
    "nodes4",
    "leaves4",
    "roots6",
    "words6",
    "groups",
    "members",
    "adjacencies",
    "segments",
    "segment_targets",
    "templates",
    "ways4",
    "firewall",
    "steps",
    "learnt",
];
/// Maps that are not part of the image.
pub(crate) const COUNTERS: &str = "counters";
pub(crate) const SEGMENT_COUNTERS: &str = "segment_counters";
pub(crate) const SEGMENT_FAILURES: &str = "segment_failures";
/// What the program keeps for itself.
pub(crate) const STATE: [&str; 4] = ["scratch", "turns", "flowlets", "activity"];
pub(crate) const OUT_LINKS: &str = "out_links";
/// Programs that the main one calls: an array that is emptied when nobody holds or pins it any more.
pub(crate) const PROGRAMS: &str = "programs";

/// A mapped file, unmapped when dropped. The mapping keeps the map alive by itself.
struct Mapping {
    base: NonNull<libc::c_void>,
    len: usize,
}

// SAFETY: the mapping is plain memory, owned here, and not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: nothing is reached through a shared `Mapping`.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are what mmap returned, and the Region that used them is gone
        // or going.
        unsafe { libc::munmap(self.base.as_ptr(), self.len) };
    }
}

/// Maps an array with `BPF_F_MMAPABLE`.
///
/// # Minimum kernel version
/// 5.5
pub(crate) fn region(map: BorrowedFd<'_>) -> io::Result<Region> {
    let info = sys::map_info(map)?;
    let stride = (info.value_size as usize).next_multiple_of(8);
    let bytes = stride * info.max_entries as usize;
    let len = bytes.next_multiple_of(4096);
    // SAFETY: a new shared mapping at an address that the kernel chooses disturbs nothing.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            map.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let base = NonNull::new(base).ok_or_else(|| io::Error::other("mmap returned null"))?;
    let owner = Box::new(Mapping { base, len });
    // SAFETY: the mapping is page-aligned, at least `bytes` long, readable, writable, and lives
    // as long as `owner`; this process reaches it only through the Region.
    Ok(unsafe { Region::from_raw(base.cast(), bytes, owner) })
}

/// The image's memory over its maps.
pub(crate) fn memory(maps: &[OwnedFd; IMAGE.len()]) -> Result<Memory> {
    let map = |i: usize| {
        region(maps[i].as_fd()).map_err(|source| Error::Map {
            name: IMAGE[i].to_owned(),
            source,
        })
    };
    Ok(Memory {
        config: map(0)?,
        links: map(1)?,
        local4: map(2)?,
        roots4: map(3)?,
        nodes4: map(4)?,
        leaves4: map(5)?,
        roots6: map(6)?,
        words6: map(7)?,
        groups: map(8)?,
        members: map(9)?,
        adjacencies: map(10)?,
        segments: map(11)?,
        segment_targets: map(12)?,
        templates: map(13)?,
        ways4: map(14)?,
        firewall: map(15)?,
        steps: map(16)?,
        learnt: map(17)?,
        adjacencies_used: AtomicUsize::new(0),
        dx2_used: AtomicUsize::new(0),
    })
}

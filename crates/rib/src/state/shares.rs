//! Links of which it is not known what the kernel last made of them when it gave nexthops their shares, or whether routes
//! went with them.

use std::collections::HashSet;

/// What has happened to links since.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Without carrier since before `ignore_routes_with_linkdown` changed.
    stale: HashSet<u32>,
    /// Changed since IPv4 routes were last read.
    unread: HashSet<u32>,
    /// Of these, those that had changed when the running dump began.
    reading: HashSet<u32>,
    /// Down, or gone, at some time since IPv4 routes were last read.
    flushed: HashSet<u32>,
    /// Of these, those that were when the running dump began.
    reading_flushed: HashSet<u32>,
    /// Nexthops over these links live again, whatever mark they were read with.
    revived: HashSet<u32>,
    /// Of these, those that did when the running dump began.
    reading_revived: HashSet<u32>,
}

impl Shares {
    /// A link went up or down, or its carrier came or went: shares are cut anew.
    pub(super) fn link_changed(&mut self, index: u32) {
        self.stale.remove(&index);
        self.reading.remove(&index);
        self.unread.insert(index);
    }

    /// A link went down, or lost its last IPv4 address. The kernel has taken the IPv4 routes away that had no other link,
    /// without a word (`fib_sync_down_dev`), and marks other routes' nexthops over it as dead. The routes stay away when
    /// the link comes back.
    pub(super) fn link_down(&mut self, index: u32) {
        self.reading_flushed.remove(&index);
        self.flushed.insert(index);
        self.reading_revived.remove(&index);
        self.revived.remove(&index);
    }

    /// A link came up, or got an IPv4 address: the kernel takes its mark from IPv4 nexthops over it, without a word
    /// (`fib_sync_up`).
    pub(super) fn link_up(&mut self, index: u32) {
        self.reading_revived.remove(&index);
        self.revived.insert(index);
    }

    /// Whether IPv4 nexthops over this link live though they were read as dead.
    pub(crate) fn is_revived(&self, index: u32) -> bool {
        self.revived.contains(&index)
    }

    pub(super) fn link_gone(&mut self, index: u32) {
        self.link_down(index);
        self.stale.remove(&index);
        self.reading.remove(&index);
        self.unread.remove(&index);
    }

    /// `ignore_routes_with_linkdown` of a link without carrier has changed.
    pub(super) fn setting_changed(&mut self, index: u32) {
        self.stale.insert(index);
    }

    /// A dump of IPv4 routes begins.
    pub(super) fn sweep_begin(&mut self) {
        self.reading.clone_from(&self.unread);
        self.reading_flushed.clone_from(&self.flushed);
        self.reading_revived.clone_from(&self.revived);
    }

    /// A dump of IPv4 routes is complete. The links that it settles: those of which the marks are known now, and those
    /// of which it is known which routes are left.
    pub(super) fn sweep_end(&mut self) -> [HashSet<u32>; 2] {
        let read = std::mem::take(&mut self.reading);
        self.unread.retain(|index| !read.contains(index));
        let flushed = std::mem::take(&mut self.reading_flushed);
        self.flushed.retain(|index| !flushed.contains(index));
        let revived = std::mem::take(&mut self.reading_revived);
        self.revived.retain(|index| !revived.contains(index));
        [read, flushed]
    }

    /// Whether the kernel may have taken IPv4 routes over this link away without our knowing.
    pub(crate) fn is_flushed(&self, index: u32) -> bool {
        self.flushed.contains(&index)
    }

    pub(crate) fn is_stale(&self, index: u32) -> bool {
        self.stale.contains(&index)
    }

    pub(crate) fn is_unread(&self, index: u32) -> bool {
        self.unread.contains(&index)
    }
}

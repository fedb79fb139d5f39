//! Links of which it is not known what the kernel last made of them when it gave nexthops their shares.

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
}

impl Shares {
    /// A link went up or down, or its carrier came or went: shares are cut anew.
    pub(super) fn link_changed(&mut self, index: u32) {
        self.stale.remove(&index);
        self.reading.remove(&index);
        self.unread.insert(index);
    }

    pub(super) fn link_gone(&mut self, index: u32) {
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
    }

    /// A dump of IPv4 routes is complete. The links that it settles.
    pub(super) fn sweep_end(&mut self) -> HashSet<u32> {
        let read = std::mem::take(&mut self.reading);
        self.unread.retain(|index| !read.contains(index));
        read
    }

    pub(crate) fn is_stale(&self, index: u32) -> bool {
        self.stale.contains(&index)
    }

    pub(crate) fn is_unread(&self, index: u32) -> bool {
        self.unread.contains(&index)
    }
}

//! What choices of this machine's own packets need beside the groups that forwarded ones take: the source addresses that paths give.

use std::sync::atomic::Ordering;

use super::Memory;
use crate::numbers::numbers;

/// By which look-up a connection's path in a group is decided while its socket has no IPv4 source address. The kernel looks it up
/// twice: without a source, and with the one that the first path gives (`ip_route_connect`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalWay {
    /// It cannot be told.
    #[default]
    Unknown,
    /// By the second one: all paths give this source.
    Source([u8; 4]),
    /// By the first one, as the source of its path holds the second one to that path.
    First,
    /// By the second one, with the source that the first one's path gives: [`Memory::local_source`].
    Both,
}

numbers! {
    /// Numbers of [`LocalWay`] in the image.
    pub mod local_way: u32, "LOCAL" {
        /// [`super::LocalWay::Unknown`].
        UNKNOWN = 0,
        /// [`super::LocalWay::Source`].
        SOURCE = 1,
        /// [`super::LocalWay::First`].
        FIRST = 2,
        /// [`super::LocalWay::Both`].
        BOTH = 3,
    }
}

/// Added to a [`LocalWay`] where the source that a socket has already does not matter but for the hash: the kernel prefers no path
/// for it.
pub const LOCAL_ANY_SOURCE: u32 = 1 << 8;

impl LocalWay {
    /// The word in the image: the number and [`LOCAL_ANY_SOURCE`] in the lower half, the source as the packet has it in the upper one.
    pub fn to_word(self, any_source: bool) -> u64 {
        let (way, source) = match self {
            LocalWay::Unknown => (local_way::UNKNOWN, [0; 4]),
            LocalWay::Source(source) => (local_way::SOURCE, source),
            LocalWay::First => (local_way::FIRST, [0; 4]),
            LocalWay::Both => (local_way::BOTH, [0; 4]),
        };
        let flag = if any_source { LOCAL_ANY_SOURCE } else { 0 };
        u64::from(way | flag) | u64::from(u32::from_ne_bytes(source)) << 32
    }
}

impl Memory {
    /// How connections choose in the group with this number; 0 (unknown) where the image does not tell.
    pub fn local_way(&self, group: u32) -> u64 {
        let word = self.local_ways.words().get(group as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores how connections choose in the group with this number, which must be inside the capacity. Nothing happens where the image
    /// has no room for that.
    pub fn store_local_way(&self, group: u32, way: LocalWay, any_source: bool) {
        if let Some(word) = self.local_ways.words().get(group as usize) {
            word.store(way.to_word(any_source), Ordering::Release);
        }
    }

    /// Stores the source that the path of an adjacency gives (`nh_saddr`), likewise; zeros for none.
    pub fn store_local_source(&self, adjacency: u32, source: [u8; 4]) {
        if let Some(word) = self.local_sources.words().get(adjacency as usize) {
            let source = u64::from(u32::from_ne_bytes(source));
            word.store(source, Ordering::Release);
        }
    }

    /// That source; none where there is none.
    pub fn local_source(&self, adjacency: u32) -> Option<[u8; 4]> {
        let word = self.local_sources.words().get(adjacency as usize)?;
        let source = word.load(Ordering::Acquire) as u32;
        (source != 0).then(|| source.to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_source_as_the_packet_does() {
        let word = LocalWay::Source([10, 0, 1, 2]).to_word(true);
        assert_eq!(word as u32, local_way::SOURCE | LOCAL_ANY_SOURCE);
        assert_eq!(((word >> 32) as u32).to_ne_bytes(), [10, 0, 1, 2]);
        assert_eq!(LocalWay::Unknown.to_word(false), 0);
    }
}

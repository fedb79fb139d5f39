//! What both families do to the frame itself.

use raddle_image::Adjacency;

/// Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Shortest Ethernet frame, without its check sequence (`ETH_ZLEN`).
const SHORTEST: usize = 60;

/// Writes the adjacency's MAC addresses.
#[inline]
pub(crate) fn set_macs(frame: &mut [u8], adjacency: &Adjacency) {
    frame[..6].copy_from_slice(&adjacency.dst_mac);
    frame[6..12].copy_from_slice(&adjacency.src_mac);
}

/// Length of the frame as sent: what follows the IP packet is trimmed, but not below Ethernet's
/// minimum, which a wire needs.
#[inline]
pub(crate) fn sent_len(frame_len: usize, l3_len: usize) -> usize {
    frame_len.min((ETHERNET + l3_len).max(SHORTEST))
}

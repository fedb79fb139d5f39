//! Members of bonds that frames with tags leave by.

use raddle_image::{Adjacency, TAG};
use raddle_packet::Family;
use raddle_packet::protocol::ethertype;
use raddle_select::{BondPolicy, bond_hash_of_packet};

use crate::upon::MACS;

/// The link that a frame leaves by which was forwarded to this adjacency, as an engine has written it: the adjacency's own, the one below
/// it, or of a bond there the member that [`raddle_image::Bonded`] says, by the hash of the packet behind the tags.
///
/// Cost: some nanoseconds.
pub fn leaves_by(adjacency: &Adjacency, frame: &[u8]) -> u32 {
    let by = || {
        let bonded = adjacency.bonded()?;
        let policy = BondPolicy::from_number(bonded.policy)?;
        let (destination, rest) = frame.split_first_chunk::<6>()?;
        let source = rest.first_chunk::<6>()?;
        let behind = frame.get(MACS + adjacency.put_tags().len() * TAG..)?;
        let (ether_type, packet) = behind.split_first_chunk::<2>()?;
        let (family, length) = match u16::from_be_bytes(*ether_type) {
            ethertype::IPV4 => (Family::V4, be16(packet, 2)),
            ethertype::IPV6 => (Family::V6, be16(packet, 4).map(|payload| payload + 40)),
            _ => return None,
        };
        let packet = packet.get(..length?).unwrap_or(packet);
        let hash = bond_hash_of_packet(policy, (*destination, *source), family, packet)?;
        Some(bonded.member(hash))
    };
    by().unwrap_or(adjacency.leaves_by())
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*bytes).into())
}

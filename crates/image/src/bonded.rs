//! Members of a bond that an adjacency leaves by, where engines choose among them.

use std::mem::size_of;

use raddle_select::BondPolicy;

use super::Tunnel;

/// So many members an engine chooses among at most.
pub const MAX_BONDED: usize = 11;

/// The members of a bond that frames with a tag leave by: what is behind the tags of an [`ADJ_TAGGED`](crate::ADJ_TAGGED) adjacency,
/// where [`Adjacency::lower`](crate::Adjacency::lower) is a bond that does not look behind tags itself. With a `count` of 0 frames leave
/// by `lower`.
///
/// It lies where others have their [`Tunnel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Bonded {
    /// `u32::MAX / count`, by which the rest is found without a division.
    pub reciprocal: u32,
    /// Interface indices, in the order in which the kernel numbers the members; zero behind the last.
    pub members: [u16; MAX_BONDED],
    /// What is hashed: [`BondPolicy::Layer2`], [`BondPolicy::Layer23`] or [`BondPolicy::Layer34`].
    pub policy: u8,
    /// How many members.
    pub count: u8,
}

impl Bonded {
    /// Of these members, from 1 to [`MAX_BONDED`]; none where they are others, or one has an index that is not below
    /// [`MAX_LINKS`](crate::MAX_LINKS).
    pub fn new(policy: BondPolicy, indices: &[u32]) -> Option<Bonded> {
        let mut members = [0; MAX_BONDED];
        let known = |index: &u32| (*index as usize) < crate::MAX_LINKS;
        if indices.is_empty() || indices.len() > MAX_BONDED || !indices.iter().all(known) {
            return None;
        }
        for (to, index) in members.iter_mut().zip(indices) {
            *to = *index as u16;
        }
        let count = indices.len() as u8;
        Some(Bonded {
            reciprocal: u32::MAX / u32::from(count),
            members,
            policy: policy.number(),
            count,
        })
    }

    /// The interface index of the member that a frame with this hash leaves by: the one whose number is the rest of the hash divided by
    /// how many there are ([`raddle_select::bond_member`]).
    ///
    /// The quotient by the reciprocal is right or one too small, as the reciprocal is at most 1 below `2^32 / count`.
    #[inline]
    pub fn member(&self, hash: u32) -> u32 {
        let count = u32::from(self.count);
        let quotient = ((u64::from(hash) * u64::from(self.reciprocal)) >> 32) as u32;
        let rest = hash.wrapping_sub(quotient.wrapping_mul(count));
        let rest = if rest >= count { rest - count } else { rest };
        self.members
            .get(rest as usize)
            .map_or(0, |member| u32::from(*member))
    }

    /// The interface indices of the members.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        let members = self.members.iter().take(usize::from(self.count));
        members.map(|member| u32::from(*member))
    }

    /// The bytes of it, as an adjacency has them.
    pub(crate) fn to_tunnel(self) -> Tunnel {
        let mut bytes = [0; size_of::<Tunnel>()];
        bytes[..4].copy_from_slice(&self.reciprocal.to_ne_bytes());
        let (places, _) = bytes[4..26].as_chunks_mut::<2>();
        for (to, member) in places.iter_mut().zip(self.members) {
            *to = member.to_ne_bytes();
        }
        (bytes[26], bytes[27]) = (self.policy, self.count);
        Tunnel::from_bytes(bytes)
    }

    /// What these bytes of an adjacency are.
    pub(crate) fn of_tunnel(tunnel: &Tunnel) -> Bonded {
        let bytes = tunnel.to_bytes();
        let [a, b, c, d, ref rest @ .., policy, count] = bytes;
        let mut members = [0; MAX_BONDED];
        let (places, _) = rest.as_chunks::<2>();
        for (member, from) in members.iter_mut().zip(places) {
            *member = u16::from_ne_bytes(*from);
        }
        Bonded {
            reciprocal: u32::from_ne_bytes([a, b, c, d]),
            members,
            policy,
            count,
        }
    }
}

const _: () = assert!(size_of::<Bonded>() == size_of::<Tunnel>());

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use raddle_select::bond_member;

    use super::*;
    use crate::{ADJ_TAGGED, Adjacency, Capacity, Memory};

    proptest! {
        #[test]
        fn the_rest_is_exact(hash in any::<u32>(), near in 0..4u32, count in 1..=MAX_BONDED) {
            let indices: Vec<u32> = (100..).take(count).collect();
            let bonded = Bonded::new(BondPolicy::Layer34, &indices).unwrap();
            // What is around multiples, and at both ends, is where a quotient would be wrong.
            let multiple = hash - hash % count as u32;
            for hash in [hash, multiple.wrapping_add(near), multiple.wrapping_sub(near), near, u32::MAX - near] {
                let member = bond_member(hash, count).unwrap();
                prop_assert_eq!(bonded.member(hash), indices[member]);
            }
        }

        #[test]
        fn members_survive_the_image(indices in proptest::collection::vec(0..16384u32, 1..=MAX_BONDED)) {
            let bonded = Bonded::new(BondPolicy::Layer23, &indices).unwrap();
            let adjacency = Adjacency {
                index: 9,
                state: ADJ_TAGGED,
                tags: 1,
                lower: 7,
                tag: [0x8100_0005, 0],
                ..Adjacency::default()
            };
            let adjacency = adjacency.by_members(bonded);
            let memory = Memory::heap(&Capacity { adjacencies: 8, ..Capacity::SMALL });
            memory.store_adjacency(1, &adjacency);
            let read = memory.adjacency(1);
            prop_assert_eq!(read, adjacency);
            prop_assert_eq!(read.bonded(), Some(bonded));
            prop_assert!(bonded.indices().eq(indices));
        }
    }

    #[test]
    fn what_has_no_members_is_none() {
        let many = [1; MAX_BONDED + 1];
        assert_eq!(Bonded::new(BondPolicy::Layer2, &[]), None);
        assert_eq!(Bonded::new(BondPolicy::Layer2, &many), None);
        assert_eq!(Bonded::new(BondPolicy::Layer2, &[1, 16384]), None);
        assert_eq!(Adjacency::default().bonded(), None);
    }
}

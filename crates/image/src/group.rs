//! What routes point to, and what groups of several members hold.

use raddle_select::Policy;

use crate::numbers::numbers;

/// Values of IPv6 tables from here on name a segment themselves, and no group: see [`segment_value`].
///
/// Below 2^26 they still fit where tables keep the answer for all that is not found.
pub const SEGMENT_VALUE: u32 = 1 << 25;

/// The value that leads to this segment, of which the number is below [`SEGMENT_VALUE`]. Engines read no group on
/// the way, so what becomes of it is said by the segment alone.
#[inline]
pub fn segment_value(number: u32) -> u32 {
    SEGMENT_VALUE + number
}

/// The segment that a value names.
#[inline]
pub fn segment_of_value(value: u32) -> Option<u32> {
    value.checked_sub(SEGMENT_VALUE)
}

/// What a route points to, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// To the kernel, or dropped where the reason is [`crate::Reason::Blackhole`].
    Kernel(crate::Reason),
    /// One adjacency.
    Single(u32),
    /// As [`Group::Single`], of a neighbour on a connected prefix, and not of a gateway: `nh4` of
    /// End.DX4 may not be one.
    Neighbour(u32),
    /// One [`super::Segment`].
    Segment(u32),
    /// Hash-threshold over members `first .. first + count`, ordered by upper bound; the last
    /// bound is `0x7fff_ffff`.
    Threshold {
        /// Index of the first member.
        first: u32,
        /// Number of members, at least 2.
        count: u16,
        /// What is hashed.
        how: How,
    },
    /// A resilient group: a [`BucketsHead`] at `first`, behind it a [`Member`] for each bucket. In the
    /// place of its bound is a stamp, never 0, that no table had at this place before: a bucket of
    /// which no packet was shown to the kernel under this stamp is to be shown.
    Resilient {
        /// Index of the head.
        first: u32,
        /// Number of buckets, at least 1.
        count: u16,
        /// What is hashed.
        how: How,
    },
    /// Packets go round robin, by weight: a [`RoundRobinHead`] at `first`, behind it the members.
    RoundRobin {
        /// Index of the head.
        first: u32,
        /// Number of members behind the head.
        count: u16,
    },
    /// So do flowlets (`mp-algo` flowlet). As [`Group::RoundRobin`].
    Flowlet {
        /// Index of the head.
        first: u32,
        /// Number of members behind the head.
        count: u16,
    },
}

/// What the packets of a group are hashed by: 0 for the namespace's policy, otherwise one more than
/// the policy, and [`How::FOLLOWS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How(u8);

impl How {
    /// Under policy 1: ICMP errors are hashed by the packet that they are about.
    pub const FOLLOWS: u8 = 0x80;

    /// By this policy.
    pub fn by(policy: Policy, icmp_follows_flow: bool) -> How {
        let follows = if icmp_follows_flow { How::FOLLOWS } else { 0 };
        How((policy as u8 + 1) | follows)
    }

    /// The number of the policy, where it is not the namespace's.
    #[inline]
    pub fn policy(self) -> Option<u8> {
        (self.0 & !How::FOLLOWS).checked_sub(1)
    }

    /// Whether ICMP errors follow their flow.
    #[inline]
    pub fn follows(self) -> bool {
        self.0 & How::FOLLOWS != 0
    }
}

numbers! {
    /// Group kinds in the low byte of a group word.
    pub mod group_kind: u8, "GROUP" {
        /// [`super::Group::Kernel`]; the reason is in the second byte.
        KERNEL = 0,
        /// [`super::Group::Single`]; the adjacency is in the upper half. [`super::Group::Neighbour`] has a 1
        /// in the second byte.
        SINGLE = 1,
        /// [`super::Group::Threshold`]; [`super::How`] in the second byte, count in bits 16..32, first
        /// member in the upper half.
        THRESHOLD = 2,
        /// [`super::Group::Resilient`]; likewise.
        RESILIENT = 3,
        /// [`super::Group::RoundRobin`]; likewise.
        ROUND_ROBIN = 4,
        /// [`super::Group::Flowlet`]; likewise.
        FLOWLET = 5,
        /// [`super::Group::Segment`]; its number is in the upper half.
        SEGMENT = 6,
    }
}

/// The second byte of [`Group::Neighbour`].
pub(crate) const SINGLE_NEIGHBOUR: u8 = 1;

/// Added to the word of a group whose members, or the members it would have, are raddle's own segments: the
/// kernel does not have them, so what is not forwarded by it is dropped for the same reason. Engines ask
/// where they would hand a packet over, and nowhere else.
pub const GROUP_NO_PUNT: u64 = 1 << 14;
/// [`GROUP_NO_PUNT`] in the second byte, where reasons and [`How`] leave it free.
const NO_PUNT: u8 = (GROUP_NO_PUNT >> 8) as u8;
const _: () = assert!(crate::Reason::SLOTS <= NO_PUNT as usize);

impl Group {
    /// The word in the image.
    pub fn to_word(self) -> u64 {
        let many = |kind: u8, how: How, count: u16, first: u32| {
            u64::from(kind)
                | u64::from(how.0) << 8
                | u64::from(count) << 16
                | u64::from(first) << 32
        };
        match self {
            Group::Kernel(reason) => u64::from(group_kind::KERNEL) | u64::from(reason as u8) << 8,
            Group::Single(adj) => u64::from(group_kind::SINGLE) | u64::from(adj) << 32,
            Group::Neighbour(adj) => {
                u64::from(group_kind::SINGLE)
                    | u64::from(SINGLE_NEIGHBOUR) << 8
                    | u64::from(adj) << 32
            }
            Group::Segment(number) => u64::from(group_kind::SEGMENT) | u64::from(number) << 32,
            Group::Threshold { first, count, how } => {
                many(group_kind::THRESHOLD, how, count, first)
            }
            Group::Resilient { first, count, how } => {
                many(group_kind::RESILIENT, how, count, first)
            }
            Group::RoundRobin { first, count } => {
                many(group_kind::ROUND_ROBIN, How::default(), count, first)
            }
            Group::Flowlet { first, count } => {
                many(group_kind::FLOWLET, How::default(), count, first)
            }
        }
    }

    /// Reads a word of the image; a word that no writer makes is answered with the kernel.
    #[inline]
    pub fn from_word(word: u64) -> Group {
        let first = (word >> 32) as u32;
        let count = (word >> 16) as u16;
        let how = How((word >> 8) as u8 & !NO_PUNT);
        match word as u8 {
            group_kind::SINGLE if how.0 == SINGLE_NEIGHBOUR => Group::Neighbour(first),
            group_kind::SINGLE => Group::Single(first),
            group_kind::SEGMENT => Group::Segment(first),
            group_kind::THRESHOLD => Group::Threshold { first, count, how },
            group_kind::RESILIENT => Group::Resilient { first, count, how },
            group_kind::ROUND_ROBIN => Group::RoundRobin { first, count },
            group_kind::FLOWLET => Group::Flowlet { first, count },
            _ => {
                let reason = crate::Reason::from_number(how.0);
                Group::Kernel(reason.unwrap_or(crate::Reason::NoRoute))
            }
        }
    }
}

/// What stands before the buckets of a resilient group, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketsHead {
    /// 2^32 divided by the number of buckets, rounded down, at most 2^32 - 1: a hash is divided by
    /// multiplying with it.
    pub reciprocal: u32,
    /// A bucket that packets use is shown to the kernel this often, in units of 2^20 ns; at most
    /// [`BucketsHead::LONGEST`].
    pub interval: u32,
}

impl BucketsHead {
    /// A quarter of what the clock of engines counts (13 days): an interval must be over before the
    /// clock is back where it was.
    pub const LONGEST: u32 = 1 << 30;

    /// The word in the image.
    pub fn to_word(self) -> u64 {
        u64::from(self.reciprocal) | u64::from(self.interval) << 32
    }

    /// Reads a word of the image.
    #[inline]
    pub fn from_word(word: u64) -> BucketsHead {
        BucketsHead {
            reciprocal: word as u32,
            interval: (word >> 32) as u32,
        }
    }

    /// The bucket of a 31-bit hash among `count`: the remainder, without a division.
    #[inline]
    pub fn bucket(self, hash31: u32, count: u16) -> u32 {
        // The quotient is right or one too small, since the hash is below 2^31.
        let quotient = (u64::from(hash31) * u64::from(self.reciprocal)) >> 32;
        let rest = hash31.wrapping_sub((quotient as u32).wrapping_mul(count.into()));
        if rest >= count.into() {
            rest.wrapping_sub(count.into())
        } else {
            rest
        }
    }
}

/// What stands before members that are taken round robin, in two words. The members are a table with an entry
/// for each turn, or have upper bounds below `total`; see [`raddle_select::round_robin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRobinHead {
    /// Turns until the order repeats.
    pub total: u32,
    /// From turn to turn; 0 where the members are a table.
    pub stride: u32,
    /// Where each core counts, below [`ROUND_ROBIN_SLOTS`].
    pub slot: u32,
    /// Idle time after which a flow takes a new turn, in units of 2^10 ns.
    pub gap: u32,
}

impl RoundRobinHead {
    /// The words in the image.
    pub fn to_words(self) -> [u64; 2] {
        [
            u64::from(self.total) | u64::from(self.stride) << 32,
            u64::from(self.slot) | u64::from(self.gap) << 32,
        ]
    }

    /// Reads words of the image.
    #[inline]
    pub fn from_words([turns, state]: [u64; 2]) -> RoundRobinHead {
        RoundRobinHead {
            total: turns as u32,
            stride: (turns >> 32) as u32,
            slot: state as u32,
            gap: (state >> 32) as u32,
        }
    }
}

/// Groups whose members can be taken round robin at a time; each core keeps a number for each.
pub const ROUND_ROBIN_SLOTS: usize = 1024;
/// Flows that each core remembers for [`Group::Flowlet`]; a power of two.
pub const FLOWLETS: usize = 4096;

/// One member of a group: upper bound in the low half, adjacency in the upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Largest 31-bit hash that chooses this member.
    pub upper: u32,
    /// Its adjacency.
    pub adjacency: u32,
}

impl Member {
    /// The word in the image.
    pub fn to_word(self) -> u64 {
        u64::from(self.upper) | u64::from(self.adjacency) << 32
    }

    /// Reads a word of the image.
    #[inline]
    pub fn from_word(word: u64) -> Member {
        Member {
            upper: word as u32,
            adjacency: (word >> 32) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    #[test]
    fn groups_survive_their_word() {
        for group in [
            Group::Kernel(Reason::Unresolved),
            Group::Single(7),
            Group::Neighbour(7),
            Group::Segment(9),
            Group::Threshold {
                first: 0x1234_5678,
                count: 0xfffe,
                how: How::default(),
            },
            Group::Resilient {
                first: 7,
                count: 9,
                how: How::by(Policy::L4, true),
            },
            Group::RoundRobin { first: 1, count: 2 },
            Group::Flowlet { first: 1, count: 2 },
        ] {
            assert_eq!(Group::from_word(group.to_word()), group);
            assert_eq!(group.to_word() & GROUP_NO_PUNT, 0);
            assert_eq!(Group::from_word(group.to_word() | GROUP_NO_PUNT), group);
        }
        assert_eq!(Group::from_word(0), Group::Kernel(Reason::None));
    }

    #[test]
    fn buckets_are_remainders() {
        for count in [1u16, 2, 3, 7, 8, 32, 1000, 4093, 65535] {
            let reciprocal = (1u64 << 32) / u64::from(count);
            let head = BucketsHead {
                reciprocal: u32::try_from(reciprocal).unwrap_or(u32::MAX),
                interval: 0,
            };
            assert_eq!(BucketsHead::from_word(head.to_word()), head);
            let edges = (0..70_000u32).chain((0..70_000).map(|n| 0x7fff_ffff - n));
            for hash in edges.chain((0..70_000u32).map(|n| n.wrapping_mul(0x9e37_79b1) >> 1)) {
                assert_eq!(
                    head.bucket(hash, count),
                    hash % u32::from(count),
                    "{hash} {count}"
                );
            }
        }
    }
}

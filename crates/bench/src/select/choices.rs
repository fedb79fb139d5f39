//! From a packet to a member, by policy and width of the group: hash and search, beside hash and scan.

use std::hint::black_box;

use raddle_packet::Family;
use raddle_select::{Fields, HashConfig, Hasher, KeyBatch, Policy, Seed, search, upper_bounds};

use super::packets::{self, Dice, ETHERNET, Frame};
use super::{nanoseconds, progress};
use raddle_exit::Failure;

/// Members of the groups.
pub(super) const WIDTHS: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Packets, each of a flow of its own.
const PACKETS: usize = 4096;
/// Packets of a batch.
const BATCH: usize = KeyBatch::ROOM;
/// Times that the packets are gone through in a round: few, so that rounds end within a time slice where
/// others use the CPU as well.
const TIMES: usize = 2;

/// How the member of a packet is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// raddle, a packet after the other.
    Single,
    /// raddle, all hashes of a batch at once before all searches.
    Batch,
    /// The kernel's way behind the same hash: bound after bound.
    Scan,
}

impl How {
    pub(super) const ALL: [How; 3] = [How::Single, How::Batch, How::Scan];

    pub(super) fn name(self) -> &'static str {
        match self {
            How::Single => "single",
            How::Batch => "batch",
            How::Scan => "linear scan",
        }
    }
}

/// Nanoseconds a choice of one family, policy and width.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) v6: bool,
    pub(super) policy: u8,
    pub(super) width: usize,
    /// By [`How::ALL`], then by round.
    pub(super) ns: [Vec<f64>; 3],
}

/// What a choice needs beside the packet.
struct Choice {
    hasher: Hasher,
    config: HashConfig,
    family: Family,
    uppers: Vec<u32>,
}

/// Measures all families, policies and widths; within a round, everything in turn.
pub(super) fn measure(rounds: u32) -> Result<Vec<Cell>, Failure> {
    let mut cells = Vec::new();
    for v6 in [false, true] {
        for policy in 0..4 {
            cells.extend(WIDTHS.map(|width| Cell {
                v6,
                policy,
                width,
                ns: Default::default(),
            }));
        }
    }
    let mut dice = Dice(1);
    let packets4: Vec<Frame> = (0..PACKETS)
        .map(|_| packets::ipv4(&mut dice, [198, 51, 100, 9].into()))
        .collect();
    let packets6: Vec<Frame> = (0..PACKETS)
        .map(|_| packets::ipv6(&mut dice, [0x2001, 0xdb8, 1, 0, 0, 0, 0, 9].into()))
        .collect();
    for round in 0..rounds {
        progress(&format!("choices, round {}", round + 1));
        for cell in &mut cells {
            let packets = if cell.v6 { &packets6 } else { &packets4 };
            let choice = Choice::new(cell.v6, cell.policy, cell.width)?;
            let mut members = vec![0; PACKETS];
            for (how, ns) in How::ALL.into_iter().zip(&mut cell.ns) {
                choice.all(how, packets, &mut members);
                ns.push(nanoseconds(PACKETS * TIMES, || {
                    for _ in 0..TIMES {
                        choice.all(how, black_box(packets), black_box(&mut members));
                    }
                }));
            }
        }
    }
    Ok(cells)
}

impl Choice {
    fn new(v6: bool, policy: u8, width: usize) -> Result<Choice, Failure> {
        let broken = || Failure::system(format!("no policy {policy}, or no seed"));
        let seed = Seed::new(12345).ok_or_else(broken)?;
        let policy = Policy::from_number(policy).ok_or_else(broken)?;
        let config = HashConfig {
            // What L4 hashes, by policy 3.
            fields: Fields::new(0x37),
            ..policy.into()
        };
        Ok(Choice {
            hasher: Hasher::new(seed),
            config,
            family: if v6 { Family::V6 } else { Family::V4 },
            uppers: upper_bounds(&vec![Some(1); width])
                .into_iter()
                .flatten()
                .collect(),
        })
    }

    /// The member of each packet.
    fn all(&self, how: How, packets: &[Frame], members: &mut [u32]) {
        match how {
            How::Single => {
                for (member, packet) in members.iter_mut().zip(packets) {
                    *member = search(&self.uppers, self.hash(packet)) as u32;
                }
            }
            How::Batch => {
                let mut keys = KeyBatch::new();
                for (members, packets) in members.chunks_mut(BATCH).zip(packets.chunks(BATCH)) {
                    let mut hashes = [0; BATCH];
                    for (at, packet) in packets.iter().enumerate() {
                        let l3 = &packet[ETHERNET..];
                        let hash =
                            self.hasher
                                .collect(&mut keys, &self.config, self.family, l3, at as u8);
                        hashes[at] = hash.ok().flatten().unwrap_or(0);
                    }
                    self.hasher.hash31_all(&mut keys, &mut hashes);
                    for (member, hash) in members.iter_mut().zip(hashes) {
                        *member = search(&self.uppers, hash) as u32;
                    }
                }
            }
            How::Scan => {
                for (member, packet) in members.iter_mut().zip(packets) {
                    *member = scan(&self.uppers, self.hash(packet)) as u32;
                }
            }
        }
    }

    #[inline]
    fn hash(&self, packet: &Frame) -> u32 {
        let hash = self
            .hasher
            .hash31_of_packet(&self.config, self.family, &packet[ETHERNET..]);
        hash.unwrap_or(0)
    }
}

/// The kernel's search, plainly: the first member whose bound is not below the hash. Kinder than the
/// kernel's, which looks at each member's neighbour on the way and has its bounds further apart.
#[inline(never)]
fn scan(uppers: &[u32], hash31: u32) -> usize {
    for (member, upper) in uppers.iter().enumerate() {
        if hash31 <= *upper {
            return member;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's way to fail")]

    use super::*;

    #[test]
    fn all_ways_choose_alike_and_everybody() {
        let mut dice = Dice(1);
        let frames4: Vec<Frame> = (0..PACKETS)
            .map(|_| packets::ipv4(&mut dice, [198, 51, 100, 9].into()))
            .collect();
        let frames6: Vec<Frame> = (0..PACKETS)
            .map(|_| packets::ipv6(&mut dice, [0x2001, 0xdb8, 1, 0, 0, 0, 0, 9].into()))
            .collect();
        for (v6, frames) in [(false, &frames4), (true, &frames6)] {
            for policy in 0..4 {
                let choice = Choice::new(v6, policy, 64).unwrap();
                let chosen = How::ALL.map(|how| {
                    let mut members = vec![u32::MAX; PACKETS];
                    choice.all(how, frames, &mut members);
                    members
                });
                assert_eq!(chosen[0], chosen[1]);
                assert_eq!(chosen[0], chosen[2]);
                let used: std::collections::HashSet<u32> = chosen[0].iter().copied().collect();
                assert_eq!(used.len(), 64, "IPv6 {v6}, policy {policy}");
            }
        }
    }
}

//! The whole decision for IPv4, from a packet to an adjacency, in batch: route look-up, group, turn or
//! hash, member. The rows are those of the patch series of 2015 for Linux.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use raddle_fib::lookup4_batch;
use raddle_image::{Capacity, Group, Memory, ROUND_ROBIN_SLOTS, RoundRobinHead};
use raddle_packet::Family;
use raddle_rib::event::{
    DeviceSettings, Event, Link, Neighbour, Route, RouteNexthop, RouteOp, RouteTarget, Settings,
};
use raddle_rib::{AlgoRules, MpAlgo, Ports, Rib};
use raddle_select::{HashConfig, Hasher, KeyBatch, Policy, Seed, next_turn, search_by};

use super::packets::{self, Dice, ETHERNET, Frame};
use super::{nanoseconds, progress};
use raddle_exit::Failure;

/// Members of the groups that the routes lead to.
pub(super) const WIDTHS: [usize; 2] = [2, 64];
/// Routes of each width.
pub(super) const ROUTES: u32 = 2048;
/// Packets, each of a flow of its own, to routes without order.
const PACKETS: usize = 4096;
/// Packets of a batch.
const BATCH: usize = KeyBatch::ROOM;
/// Times that the packets are gone through in a round.
const TIMES: usize = 4;
const SEED: u32 = 12345;
const INGRESS: u32 = 1;
const OUT: [u32; 2] = [2, 3];

/// How packets are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    RoundRobin,
    L3,
    L4,
}

impl Selection {
    pub(super) const ALL: [Selection; 3] = [Selection::RoundRobin, Selection::L3, Selection::L4];

    pub(super) fn name(self) -> &'static str {
        match self {
            Selection::RoundRobin => "round-robin",
            Selection::L3 => "L3",
            Selection::L4 => "L4",
        }
    }

    /// Cycles of the whole input route decision in the patch series of 2015, on its machine.
    pub(super) fn in_2015(self) -> u32 {
        match self {
            Selection::RoundRobin => 75,
            Selection::L3 => 108,
            Selection::L4 => 129,
        }
    }

    fn algo(self) -> MpAlgo {
        let hash = |policy| MpAlgo::Hash {
            policy,
            icmp_follows_flow: false,
        };
        match self {
            Selection::RoundRobin => MpAlgo::RoundRobin,
            Selection::L3 => hash(Policy::L3),
            Selection::L4 => hash(Policy::L4),
        }
    }
}

/// One selection over groups of one width.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) selection: Selection,
    pub(super) width: usize,
    /// Nanoseconds a decision, by round.
    pub(super) ns: Vec<f64>,
    /// Cycles of the time stamp counter a decision, by round; none where there is no such counter.
    pub(super) cycles: Vec<f64>,
}

/// Measures all of them; within a round, each in turn.
pub(super) fn measure(rounds: u32) -> Result<Vec<Cell>, Failure> {
    let mut machines: Vec<(Cell, Decider, Vec<Frame>)> = Vec::new();
    for selection in Selection::ALL {
        for width in WIDTHS {
            let cell = Cell {
                selection,
                width,
                ns: Vec::new(),
                cycles: Vec::new(),
            };
            machines.push((cell, Decider::new(selection)?, frames(width)));
        }
    }
    let mut adjacencies = vec![0; PACKETS];
    for round in 0..rounds {
        progress(&format!("decisions, round {}", round + 1));
        for (cell, decider, frames) in &mut machines {
            decider.all(frames, &mut adjacencies);
            let before = time_stamp();
            cell.ns.push(nanoseconds(PACKETS * TIMES, || {
                for _ in 0..TIMES {
                    decider.all(black_box(frames), black_box(&mut adjacencies));
                }
            }));
            if let (Some(before), Some(after)) = (before, time_stamp()) {
                let cycles = after.wrapping_sub(before) as f64;
                cell.cycles.push(cycles / (PACKETS * TIMES) as f64);
            }
        }
    }
    Ok(machines.into_iter().map(|(cell, ..)| cell).collect())
}

/// The processor's time stamp counter.
fn time_stamp() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    return Some(unsafe { std::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Decides for batches, over an image as a daemon would publish it.
struct Decider {
    memory: Arc<Memory>,
    hasher: Hasher,
    keys: KeyBatch,
    table: u32,
    /// Numbers of turns, as each core has them.
    turns: Vec<u32>,
}

impl Decider {
    fn new(selection: Selection) -> Result<Decider, Failure> {
        let rib = rib(selection);
        let memory = Arc::clone(rib.memory());
        let seed = Seed::new(SEED).ok_or_else(|| Failure::system("no seed"))?;
        Ok(Decider {
            table: memory.link(INGRESS).table4,
            hasher: Hasher::new(seed),
            keys: KeyBatch::new(),
            turns: vec![0; ROUND_ROBIN_SLOTS],
            memory,
        })
    }

    /// The adjacency of each frame; `u32::MAX` for what raddle would not forward.
    fn all(&mut self, frames: &[Frame], adjacencies: &mut [u32]) {
        for (frames, adjacencies) in frames.chunks(BATCH).zip(adjacencies.chunks_mut(BATCH)) {
            self.batch(frames, adjacencies);
        }
    }

    fn batch(&mut self, frames: &[Frame], adjacencies: &mut [u32]) {
        let (mut addresses, mut values) = ([0; BATCH], [0; BATCH]);
        for (address, frame) in addresses.iter_mut().zip(frames) {
            let at = ETHERNET + 16;
            *address = u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        }
        let n = frames.len().min(BATCH);
        lookup4_batch(&*self.memory, self.table, &addresses[..n], &mut values);
        // First everything that is hashed, then all hashes at once, then all members.
        let (mut picks, mut numbers) = ([(0, 0); BATCH], [0; BATCH]);
        for (at, frame) in frames.iter().enumerate() {
            let group = self.memory.group(values[at]);
            (picks[at], numbers[at]) = self.pick(group, frame, at as u8);
        }
        self.hasher.hash31_all(&mut self.keys, &mut numbers);
        for ((adjacency, (first, count)), number) in adjacencies.iter_mut().zip(picks).zip(numbers)
        {
            let upper = |i: usize| self.memory.member(first + i as u32).upper;
            let place = first + search_by(count, number, upper) as u32;
            *adjacency = self.memory.member(place).adjacency;
        }
    }

    /// Where the group's members are, how many come into question, and the number that is searched
    /// among their bounds, unless it is the hash of a key that waits with the others.
    #[inline]
    fn pick(&mut self, group: Group, frame: &Frame, at: u8) -> ((u32, usize), u32) {
        match group {
            Group::Threshold { first, count, how } => {
                let policy = how.policy().and_then(Policy::from_number);
                let config = HashConfig::from(policy.unwrap_or(Policy::L4));
                let l3 = &frame[ETHERNET..];
                let hash = self
                    .hasher
                    .collect(&mut self.keys, &config, Family::V4, l3, at);
                (
                    (first, usize::from(count)),
                    hash.ok().flatten().unwrap_or(0),
                )
            }
            Group::RoundRobin { first, count } => {
                let word = |i| self.memory.member_word(first + i);
                let head = RoundRobinHead::from_words([word(0), word(1)]);
                let total = NonZeroU32::new(head.total).unwrap_or(NonZeroU32::MIN);
                let slot = (head.slot as usize).min(ROUND_ROBIN_SLOTS - 1);
                let turn = next_turn(self.turns[slot], total, head.stride.max(1));
                self.turns[slot] = turn;
                let first = first + 2;
                match head.stride {
                    // A table with a member for each turn: there is nothing to search.
                    0 => {
                        let turn = turn.min(u32::from(count).saturating_sub(1));
                        ((first + turn, 1), 0)
                    }
                    _ => ((first, usize::from(count)), turn),
                }
            }
            // No measurement leads here; no member has this place.
            _ => ((u32::MAX, 1), 0),
        }
    }
}

fn gateway(n: usize) -> (IpAddr, u32) {
    (
        Ipv4Addr::new(10, 0, 1, 1 + n as u8).into(),
        OUT[n % OUT.len()],
    )
}

/// Route number `n` of a width: mostly /24s, some longer, as tables have them.
fn prefix(width: usize, n: u32) -> Ipv4Net {
    let block = if width == WIDTHS[0] { 20 } else { 120 } << 24;
    // An odd factor permutes, so that none comes twice.
    let net = block | (n.wrapping_mul(0x9e37_79b1) & 0xffff) << 8;
    let len = if n.is_multiple_of(16) { 28 } else { 24 };
    Ipv4Net::new_assert(net.into(), len)
}

/// Routes of both widths, each width in 16 groups.
fn rib(selection: Selection) -> Rib {
    let capacity = Capacity {
        nodes4: 3 << 17,
        leaves4: 1 << 20,
        words6: 1 << 12,
        groups: 1 << 10,
        members: 1 << 14,
        adjacencies: 1 << 8,
        segments: 64,
        templates: 1 << 10,
    };
    let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
    rib.set_ports(Ports {
        enabled: [INGRESS].into(),
        out: OUT.into(),
    });
    rib.set_algos(AlgoRules {
        prefixes: vec![(IpNet::V4(Ipv4Net::default()), selection.algo())],
        ..AlgoRules::default()
    });
    rib.apply(Event::Settings(Settings {
        hash_seed: SEED,
        ..Settings::default()
    }));
    for index in [INGRESS, OUT[0], OUT[1]] {
        rib.apply(Event::Link(Link::ethernet(
            index,
            format!("l{index}"),
            [2, 0, 0, 0, 0, index as u8],
        )));
        let forwarding = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, forwarding));
    }
    for n in 0..WIDTHS[1] {
        let (dst, index) = gateway(n);
        rib.apply(Event::Neighbour(Neighbour {
            index,
            dst,
            mac: Some([4, 0, 0, 0, 0, n as u8]),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
    }
    for width in WIDTHS {
        for n in 0..ROUTES {
            rib.apply(Event::Route(route(width, n), RouteOp::Add));
        }
    }
    rib.commit();
    rib
}

fn route(width: usize, n: u32) -> Route {
    let hop = |i: usize| {
        let (gateway, index) = gateway((i + n as usize % 16) % WIDTHS[1]);
        RouteNexthop {
            gateway: Some(gateway),
            index,
            weight: 1,
            ..RouteNexthop::default()
        }
    };
    Route {
        dst: prefix(width, n).into(),
        protocol: 186,
        metric: 20,
        target: RouteTarget::Multipath((0..width).map(hop).collect()),
        ..Route::default()
    }
}

/// Packets to the routes of this width.
fn frames(width: usize) -> Vec<Frame> {
    let mut dice = Dice(width as u64);
    (0..PACKETS)
        .map(|_| {
            let net = prefix(width, dice.bits() % ROUTES).network();
            packets::ipv4(&mut dice, Ipv4Addr::from_bits(net.to_bits() | 9))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's way to fail")]

    use std::collections::HashMap;

    use raddle_forward::{Engine, Verdict};

    use super::*;

    #[test]
    fn decides_as_the_engine_does() {
        for selection in Selection::ALL {
            let mut decider = Decider::new(selection).unwrap();
            let mut engine = Engine::new(Arc::clone(&decider.memory));
            for width in WIDTHS {
                let frames = frames(width);
                let mut adjacencies = vec![0; PACKETS];
                decider.all(&frames, &mut adjacencies);
                let mut shares = HashMap::new();
                for (frame, chosen) in frames.iter().zip(&adjacencies) {
                    *shares.entry(*chosen).or_insert(0) += 1;
                    let verdict = engine.forward(&mut { *frame }, INGRESS, 0);
                    let Verdict::Forward { adjacency, .. } = verdict else {
                        panic!("not forwarded: {verdict:?}");
                    };
                    assert_eq!(adjacency, *chosen, "{selection:?} over {width}");
                }
                // 16 groups of two start at 16 of 64 nexthops.
                let used = if width == 2 { 17 } else { 64 };
                assert_eq!(shares.len(), used, "{selection:?} over {width}");
            }
        }
    }
}

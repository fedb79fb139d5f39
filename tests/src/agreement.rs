//! What a router did with many packets: all that came out of it, and what its SIDs counted. Two
//! accounts of the same packets have to be the same.

use std::collections::{BTreeMap, HashMap};

use raddle_rib::event::Event;

use crate::frame::ip_end;
use crate::srv6::TAGGED;
use crate::{Arrival, Crafted, World};

/// Bytes of the shortest frame: those that are shorter are padded, the kernel's by zeros, an engine's by
/// what stood behind.
const SHORTEST: usize = 60;

/// Packets, bytes, errors.
pub type Counted = [u64; 3];

/// What became of packets.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// How many times a frame left by a link.
    pub sent: BTreeMap<(String, Vec<u8>), i64>,
    /// By SID, as `ip route` names it.
    pub counted: BTreeMap<String, Counted>,
}

/// Where two accounts differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What differs, for people.
    pub text: String,
    /// The number of the packet that it is about, where that can be told.
    pub packet: Option<usize>,
}

impl Account {
    /// Adds what came out. Noise (ARP, neighbour discovery) is left out; what nobody can foretell is
    /// blanked: see `blank`; also the link, and with it the MAC addresses, of frames of which `any_link`
    /// says that they may leave by any.
    pub fn add(
        &mut self,
        arrivals: impl IntoIterator<Item = Arrival>,
        any_link: fn(&[u8]) -> bool,
    ) {
        for Arrival {
            mut link,
            mut frame,
        } in arrivals
        {
            if is_noise(&frame) {
                continue;
            }
            if any_link(&frame) {
                link = "any".into();
                frame[..12].fill(0);
            }
            *self.sent.entry((link, blank(frame))).or_default() += 1;
        }
    }

    /// Adds what SIDs counted between two readings.
    pub fn add_counted(
        &mut self,
        before: &BTreeMap<String, Counted>,
        after: &BTreeMap<String, Counted>,
    ) {
        for (sid, after) in after {
            let before = before.get(sid).copied().unwrap_or_default();
            let sum = self.counted.entry(sid.clone()).or_default();
            for n in 0..3 {
                sum[n] += after[n] - before[n];
            }
        }
    }

    /// Where this account and another differ.
    pub fn differences(&self, other: &Account, frames: &[Crafted], tag: usize) -> Vec<Difference> {
        let known = Tags::of(frames, tag);
        let mut found = Vec::new();
        let mut all = self.sent.clone();
        for (key, count) in &other.sent {
            *all.entry(key.clone()).or_default() -= count;
        }
        all.retain(|_, count| *count != 0);
        forgive_padding(&mut all);
        for ((link, frame), count) in all.into_iter().filter(|(_, count)| *count != 0) {
            let who = if count > 0 {
                "only the first"
            } else {
                "only the second"
            };
            let times = count.abs();
            found.push(Difference {
                text: format!("{who} ({times}): by {link}: {}", hex(&frame)),
                packet: known.find(&frame),
            });
        }
        for (sid, one) in &self.counted {
            let two = other.counted.get(sid).copied().unwrap_or_default();
            if *one != two {
                let text = format!("{sid} [packets, bytes, errors]: {one:?} and {two:?}");
                found.push(Difference { text, packet: None });
            }
        }
        found
    }
}

/// Short frames whose IP header lies about their length: where padding begins cannot be told, so what
/// differs behind the Ethernet header is no difference. Nor are those that end in the middle of a VLAN
/// tag: whoever receives them, drops them.
fn forgive_padding(all: &mut BTreeMap<(String, Vec<u8>), i64>) {
    let mut sums = BTreeMap::<(String, Vec<u8>), i64>::new();
    let start = |frame: &[u8]| frame[..frame.len().min(14)].to_vec();
    all.retain(|(_, frame), _| frame.len() > SHORTEST || frame[6] != TAGGED);
    let short = |frame: &[u8]| frame.len() <= SHORTEST;
    for ((link, frame), count) in all.iter().filter(|((_, frame), _)| short(frame)) {
        *sums.entry((link.clone(), start(frame))).or_default() += count;
    }
    all.retain(|(link, frame), _| {
        !short(frame) || sums.get(&(link.clone(), start(frame))) != Some(&0)
    });
}

/// Finds packets again by their tags.
struct Tags {
    length: usize,
    known: HashMap<Vec<u8>, usize>,
}

impl Tags {
    fn of(frames: &[Crafted], length: usize) -> Tags {
        let mut known = HashMap::new();
        for (n, frame) in frames.iter().enumerate() {
            for window in frame.bytes.windows(length) {
                // A tag is in one frame only; anything else that is in one only serves as well.
                known
                    .entry(window.to_vec())
                    .and_modify(|at| {
                        if *at != n {
                            *at = usize::MAX;
                        }
                    })
                    .or_insert(n);
            }
        }
        Tags { length, known }
    }

    fn find(&self, frame: &[u8]) -> Option<usize> {
        let at = frame.get(14..)?.windows(self.length);
        at.rev()
            .find_map(|w| self.known.get(w).copied().filter(|n| *n != usize::MAX))
    }
}

/// Two hexadecimal digits for each byte; a long run of one byte as `[3c*500]`.
pub fn hex(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b);
    runs.map(|run| match run.len() {
        n if n > 32 => format!("[{:02x}*{n}]", run[0]),
        n => format!("{:02x}", run[0]).repeat(n),
    })
    .collect()
}

/// Questions and answers between neighbours, news of those that do not answer (ICMP 3/1, ICMPv6 1/3),
/// and what the kernel rations by more than the sysctls for it (ICMP 3/0 and 12): these depend on
/// what happened before.
pub(crate) fn is_noise(frame: &[u8]) -> bool {
    let discovery = |kind: &u8| (130..=137).contains(kind) || *kind == 143;
    match frame.get(12..14) {
        Some([0x08, 0x06]) => true,
        Some([0x08, 0x00]) if frame.get(23) == Some(&1) => {
            matches!(frame.get(34..36), Some([3, 0 | 1] | [12, _]))
        }
        Some([0x86, 0xdd]) => match frame.get(20) {
            Some(58) if frame.get(54..56) == Some(&[1, 3]) => true,
            Some(58) => frame.get(54).is_some_and(discovery),
            Some(0) => frame.get(54) == Some(&58) && frame.get(62).is_some_and(discovery),
            _ => false,
        },
        _ => false,
    }
}

/// The frame without what the kernel draws at random in its own ICMP messages (the IPv4 identification
/// and, since it is summed, the header checksum; the flow label), without its VLAN tag, which a socket
/// is told beside the frame; short ones without what pads them, as far as their IP header tells.
fn blank(mut frame: Vec<u8>) -> Vec<u8> {
    if frame.get(12..14) == Some(&[0x81, 0]) && frame.len() >= 18 {
        frame.drain(12..16);
    }
    if frame.len() <= SHORTEST {
        frame.resize(SHORTEST, 0);
        frame.truncate(ip_end(&frame));
    }
    match frame.get(12..14) {
        Some([0x08, 0x00]) if frame.get(23) == Some(&1) => {
            frame[18..20].fill(0);
            frame[24..26].fill(0);
        }
        Some([0x86, 0xdd]) if frame.get(20) == Some(&58) => frame[15..18].fill(0),
        _ => {}
    }
    frame
}

/// The counters of the router's SIDs, by SID.
pub fn counters(world: &World) -> BTreeMap<String, Counted> {
    shown(&world.ip("-6 -s route show table all"))
}

/// The counters of the router's SIDs, what the kernel and the daemon have counted added up.
///
/// # Panics
/// When raddle does not tell.
pub fn all_counters(world: &World) -> BTreeMap<String, Counted> {
    let told = world.raddle(&["-6", "-s", "-o", "sr", "show"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    shown(&told.stdout)
}

/// Counters in the form of `ip route`.
fn shown(shown: &str) -> BTreeMap<String, Counted> {
    let sids = shown.lines().filter(|line| line.contains("seg6local"));
    sids.filter_map(|line| {
        let mut words = line.split_whitespace();
        let sid = words.next()?.to_owned();
        let mut after = |name| {
            words.find(|word| *word == name)?;
            words.next()?.parse().ok()
        };
        Some((sid, [after("packets")?, after("bytes")?, after("errors")?]))
    })
    .collect()
}

/// All that the router's kernel says of its state.
pub fn state(world: &World) -> Vec<Event> {
    let snapshot = world
        .lab()
        .within("router", raddle_netlink::mirror::snapshot);
    snapshot.unwrap_or_else(|e| panic!("{e}")).unwrap()
}

//! Entries and when they are noted; and a model in which processes end at any moment: what their clients repeat is
//! run once.

use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::prelude::*;

use super::notes::AGAIN;
use super::*;
use crate::replay::{Resume, resumed};

fn place(transport: u16, port: u16, xid: u32) -> Place {
    Place {
        transport,
        local: SocketAddr::from(([10, 0, 0, 1], port)),
        peer: SocketAddr::from(([10, 0, 0, 2], 2049)),
        xid,
    }
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let four = any::<([u8; 4], u16)>().prop_map(SocketAddr::from);
    // Mapped addresses are those of IPv4.
    let six = any::<([u8; 14], u16)>().prop_map(|(rest, port)| {
        let mut bytes = [0xfd; 16];
        bytes[2..].copy_from_slice(&rest);
        SocketAddr::from((bytes, port))
    });
    prop_oneof![four, six]
}

proptest! {
    #[test]
    fn entries_are_read_as_they_were_written(
        (number, second, tag) in any::<(u32, u32, u64)>(),
        (transport, xid) in any::<(u16, u32)>(),
        (local, peer) in (address(), address()),
    ) {
        let place = Place { transport, local, peer, xid };
        let entry = Entry { number, second, tag, place };
        prop_assert_eq!(Entry::parse(&entry.to_bytes()), Some(entry));
    }

    #[test]
    fn any_bytes_are_an_entry_or_none(bytes in any::<[[u8; 32]; 2]>()) {
        let mut whole = [0; 64];
        whole[..32].copy_from_slice(&bytes[0]);
        whole[32..].copy_from_slice(&bytes[1]);
        let _ = Entry::parse(&whole);
        whole[62..].copy_from_slice(&WRITTEN.to_be_bytes());
        let _ = Entry::parse(&whole);
    }
}

#[test]
fn link_local_addresses_keep_their_link() {
    let of = |port| SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, 7));
    let place = Place {
        local: of(700),
        peer: of(2049),
        ..place(1, 1, 1)
    };
    let entry = Entry {
        number: 1,
        second: 2,
        tag: 3,
        place,
    };
    assert_eq!(Entry::parse(&entry.to_bytes()), Some(entry));
}

#[test]
fn numbers_wrap_and_what_is_old_does_not_count() {
    let entry = |number, second, tag, xid| Entry {
        number,
        second,
        tag,
        place: place(0, 900, xid),
    };
    let entries = vec![
        entry(1, 1000, 7, 3),
        entry(u32::MAX, 1000, 7, 1),
        entry(0, 1000, 7, 2),
        entry(2, 1000 - RETURN.as_secs() as u32, 8, 4),
    ];
    let left = Left::of(entries, 1000, |_, _| true);
    assert_eq!(left.calls.len(), 1);
    assert_eq!(left.calls[&7].place.xid, 3);
}

#[test]
fn what_has_no_reply_is_noted_again_by_number_and_age() {
    let (mut notes, _) = Notes::of_file(Keys(1, 2), [&[]; 2], 0);
    let at = 1000;
    let first = notes.note(true, 1, place(0, 900, 5), at);
    assert!(!notes.is_due(true, Some(first), at));
    assert!(notes.is_due(true, None, at));
    let later = at + AGAIN.1.as_secs() as u32;
    assert!(!notes.is_due(true, Some(first), later - 1));
    assert!(notes.is_due(true, Some(first), later));
    let step = notes.step(at);
    for n in 0..AGAIN.0 {
        notes.note(false, 10, place(0, 900, n), at);
    }
    assert!(!notes.is_due(true, Some(first), at));
    for n in 0..AGAIN.0 {
        notes.note(true, 10, place(0, 900, n), at);
    }
    assert!(notes.is_due(true, Some(first), at));
    assert!(notes.step(at) != step);
    // As if it had been noted first now.
    let again = notes.note_again(true, 1, place(0, 900, 5), at);
    assert!(!notes.is_due(true, Some(again), at));
    assert!(!Notes::none(Keys(1, 2)).is_due(true, None, at));
}

/// A file in memory.
#[derive(Default)]
struct Rings([Vec<u8>; 2]);

impl Rings {
    fn open(&self, now: u32) -> (Notes, Left) {
        let (notes, entries) =
            Notes::of_file(Keys(1, 2), self.0.each_ref().map(Vec::as_slice), now);
        (notes, Left::of(entries, now, |_, _| true))
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let ring = usize::from(at >= ring_at(1));
        let at = (at - ring_at(ring)) as usize;
        let ring = &mut self.0[ring];
        ring.resize(ring.len().max(at + bytes.len()), 0);
        ring[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes all that waits; where.
    fn flush(&mut self, notes: &mut Notes) -> Vec<u64> {
        let mut places = Vec::new();
        while let Some((at, bytes)) = notes.unwritten() {
            places.push(at);
            self.write(at, bytes);
            notes.wrote();
        }
        assert!(notes.is_empty());
        places
    }
}

/// Entries of one ring that are more than half of all numbers older than others.
#[test]
fn old_entries_say_nothing_of_where_a_ring_goes_on() {
    let mut file = Rings::default();
    let now = 1_000_000;
    let mut write = |ring: usize, slot: u32, number, second, tag: u32| {
        let entry = Entry {
            number,
            second,
            tag: tag.into(),
            place: place(0, 900, slot),
        };
        let at = ring_at(ring) + u64::from(slot) * ENTRY as u64;
        file.write(at, &entry.to_bytes());
    };
    let old = now - 2 * RETURN.as_secs() as u32;
    (0..10).for_each(|slot| write(0, slot, slot + 5, old, slot));
    // Since then more than 2^31 calls have been noted in the other ring, and three in this one.
    let number = (1 << 31) + 100;
    (0..3).for_each(|slot| write(0, slot, number + slot, now, 100 + slot));
    (0..3).for_each(|slot| write(1, slot, number + 3 + slot, now, 200 + slot));
    let (mut notes, left) = file.open(now);
    assert_eq!(left.calls.len(), 6);
    notes.note(false, 300, place(0, 900, 9), now);
    notes.note(true, 301, place(0, 900, 10), now);
    let next = [0, 1].map(|ring| ring_at(ring) + 3 * ENTRY as u64);
    assert_eq!(file.flush(&mut notes), next);
    let left = file.open(now).1;
    assert_eq!(left.calls.len(), 8);
    assert_eq!(left.calls[&300].number, number + 6);
}

/// More than a ring has room for at once, from anywhere on: all of the last round is there, in order.
#[test]
fn a_ring_goes_round() {
    let mut file = Rings::default();
    let (mut notes, _) = file.open(0);
    let end = ring_at(0) + RING as u64;
    for (count, places) in [
        (3, vec![ring_at(0)]),
        (SLOTS, vec![ring_at(0) + 192, ring_at(0)]),
    ] {
        for n in 0..count {
            notes.note(false, n.into(), place(0, 900, n), 0);
        }
        assert_eq!(file.flush(&mut notes), places);
    }
    assert!(file.0[0].len() as u64 <= end - ring_at(0) && file.0[1].is_empty());
    let (notes, left) = file.open(0);
    assert_eq!(left.calls.len(), SLOTS as usize);
    let tags = left
        .calls
        .iter()
        .all(|(tag, entry)| entry.number == *tag as u32 + 3);
    assert!(tags);
    assert!(notes.unwritten().is_none());
}

#[test]
fn a_head_is_read_as_it_was_written_and_no_other_is() {
    let head = Head {
        keys: Keys(u64::MAX - 1, 7),
        boot: u128::MAX / 3,
    };
    let bytes = head.to_bytes();
    assert_eq!(Head::parse(&bytes), Some(head));
    for i in 0..8 {
        let mut other = bytes;
        other[i] ^= 1;
        assert_eq!(Head::parse(&other), None);
    }
}

/// What happens next in the model.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client without a call under way makes one; one with a call under way repeats it, if the proxy does not know it.
    Call(u8),
    /// The proxy sends the next of its calls.
    Send,
    /// The server runs, or answers from its cache, one of the copies that are on their way.
    Run(u8),
    /// The proxy passes the next reply on; its client has it.
    Reply,
    /// The process ends: what was sent is on its way still. Another one starts.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Call),
        4 => Just(Step::Send),
        4 => any::<u8>().prop_map(Step::Run),
        3 => Just(Step::Reply),
        1 => Just(Step::Crash),
    ]
}

/// A copy of a call: from which port, under which XID, what.
type Copy = (u16, u32, u64);

/// A proxy with one connection for each of two ports, before a server that knows calls by port and XID.
struct Model {
    /// What the file has.
    entries: Vec<Entry>,
    left: Left,
    /// The ports, of connections 0 and 1.
    ports: [u16; 2],
    xid: u32,
    /// Calls that the process knows and has not sent.
    queue: VecDeque<(u64, Place)>,
    /// Those that it knows.
    known: HashMap<u64, Place>,
    flying: Vec<Copy>,
    replies: VecDeque<(u16, u32)>,
    cache: BTreeMap<(u16, u32), u64>,
    runs: BTreeMap<u64, u32>,
    /// Calls of clients that have no reply.
    open: BTreeMap<u8, u64>,
    calls: u64,
}

impl Model {
    fn step(&mut self, step: Step) {
        match step {
            Step::Call(client) => {
                let client = client % 4;
                let tag = *self.open.entry(client).or_insert_with(|| {
                    self.calls += 1;
                    self.calls
                });
                if self.known.contains_key(&tag) {
                    return;
                }
                let left = self.left.calls.get(&tag);
                let again = left.filter(|entry| {
                    let decided = resumed(&crate::replay::Left {
                        age: Duration::ZERO,
                        same_port: self.ports.contains(&entry.place.local.port()),
                        taken: false,
                    });
                    decided.0 == Resume::SamePlace
                });
                let place = again.map(|entry| entry.place).unwrap_or_else(|| {
                    let reserved = |xid| self.left.calls.values().any(|e| e.place.xid == xid);
                    while reserved(self.xid) {
                        self.xid += 1;
                    }
                    self.xid += 1;
                    let number = (tag % 2) as u16;
                    place(number, self.ports[usize::from(number)], self.xid - 1)
                });
                self.known.insert(tag, place);
                self.queue.push_back((tag, place));
            }
            Step::Send => {
                let Some((tag, place)) = self.queue.pop_front() else {
                    return;
                };
                let number = self.entries.len() as u32;
                self.entries.push(Entry {
                    number,
                    second: 0,
                    tag,
                    place,
                });
                self.flying.push((place.local.port(), place.xid, tag));
            }
            Step::Run(which) => {
                if self.flying.is_empty() {
                    return;
                }
                let at = usize::from(which) % self.flying.len();
                let (port, xid, tag) = self.flying.swap_remove(at);
                if self.cache.insert((port, xid), tag) != Some(tag) {
                    *self.runs.entry(tag).or_default() += 1;
                }
                self.replies.push_back((port, xid));
            }
            Step::Reply => {
                let Some((port, xid)) = self.replies.pop_front() else {
                    return;
                };
                let of = |place: &Place| (place.local.port(), place.xid) == (port, xid);
                let tag = self.known.iter().find(|(_, place)| of(place));
                if let Some(tag) = tag.map(|(tag, _)| *tag) {
                    self.known.remove(&tag);
                    self.open.retain(|_, open| *open != tag);
                }
            }
            // XIDs begin anew, the worst that can be drawn.
            Step::Crash => {
                self.left = Left::of(self.entries.clone(), 0, |_, _| true);
                self.xid = 0;
                self.queue.clear();
                self.known.clear();
                // Replies come to a connection that is no more.
                self.replies.clear();
            }
        }
    }
}

proptest! {
    #[test]
    fn no_call_is_run_twice_wherever_processes_end(
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut model = Model {
            entries: Vec::new(),
            left: Left::default(),
            ports: [900, 901],
            xid: 0,
            queue: VecDeque::new(),
            known: HashMap::new(),
            flying: Vec::new(),
            replies: VecDeque::new(),
            cache: BTreeMap::new(),
            runs: BTreeMap::new(),
            open: BTreeMap::new(),
            calls: 0,
        };
        for step in steps {
            model.step(step);
            prop_assert!(model.runs.values().all(|runs| *runs == 1), "{:?}", model.runs);
        }
        // Who repeats until there is a reply gets one.
        for _ in 0..200 {
            for client in model.open.keys().copied().collect::<Vec<_>>() {
                model.step(Step::Call(client));
            }
            for step in [Step::Send, Step::Run(0), Step::Reply] {
                model.step(step);
            }
        }
        prop_assert!(model.runs.values().all(|runs| *runs == 1));
        prop_assert!(model.open.is_empty(), "{:?}", model.open);
    }
}

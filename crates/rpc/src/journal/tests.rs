//! Entries and the file; and a model in which processes end at any moment: what their clients repeat is run once.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;

use proptest::prelude::*;

use super::notes::{AGAIN, PAUSE};
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

/// Now, and the file at once.
impl Journal {
    fn note(&mut self, writes: bool, tag: u64, place: Place) -> Noted {
        self.notes.note(writes, tag, place, second())
    }

    fn note_again(&mut self, writes: bool, tag: u64, place: Place) -> Noted {
        self.notes.note_again(writes, tag, place, second())
    }

    fn is_due(&self, writes: bool, noted: Option<Noted>) -> bool {
        self.notes.is_due(writes, noted, second())
    }

    fn is_kept(&self) -> bool {
        self.notes.is_kept(second())
    }

    fn step(&self) -> [u32; 4] {
        self.notes.step(second())
    }

    fn flush(&mut self) -> io::Result<bool> {
        let book = self.book.as_ref().unwrap();
        book.write(&mut self.notes, second())
    }
}

/// A file of its own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("raddle-journal-{}-{name}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn open(&self) -> (Journal, Left) {
        Journal::open(&self.0, Keys(1, 2), |_, _| true).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
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
fn what_was_noted_is_there_for_the_next_process_and_only_one_has_it() {
    let scratch = Scratch::new("next");
    let (mut journal, left) = scratch.open();
    assert!(left.calls.is_empty());
    let busy = Journal::open(&scratch.0, Keys(1, 2), |_, _| true).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
    journal.note(false, 1, place(0, 900, 5));
    journal.note(true, 2, place(1, 901, 6));
    journal.note(false, 1, place(1, 901, 7));
    journal.flush().unwrap();
    // Not in the file, as it was not sent.
    journal.note(false, 3, place(1, 902, 8));
    drop(journal);
    // The first one's keys hold.
    let (mut journal, left) = Journal::open(&scratch.0, Keys(8, 9), |_, _| true).unwrap();
    assert_eq!(journal.keys(), Keys(1, 2));
    assert_eq!(left.calls.len(), 2);
    assert_eq!(left.calls[&1].place, place(1, 901, 7));
    assert_eq!(left.calls[&2].place, place(1, 901, 6));
    assert_eq!(left.ends[&1].0.port(), 901);
    // It goes on where the other one has ended.
    journal.note(false, 4, place(0, 903, 9));
    journal.flush().unwrap();
    drop(journal);
    let (_, left) = Journal::open(&scratch.0, Keys(1, 2), |number, _| number == 0).unwrap();
    // Calls of connections that there are no more are known, so that what is repeated of them is reported.
    assert_eq!((left.calls.len(), left.ends.len()), (3, 1), "{left:?}");
    assert_eq!(left.ends[&0].0.port(), 903);
    assert_eq!(left.peer, Some(place(0, 0, 0).peer));
}

#[test]
fn many_writes_push_out_no_other_call_and_old_ones_go() {
    let scratch = Scratch::new("many");
    let (mut journal, _) = scratch.open();
    journal.note(false, 1, place(0, 900, 5));
    for n in 0..3 * SLOTS / 2 {
        journal.note(true, 10 + u64::from(n), place(0, 900, 10 + n));
        if n % 1000 == 0 {
            journal.flush().unwrap();
        }
    }
    journal.flush().unwrap();
    drop(journal);
    let (_, left) = scratch.open();
    assert_eq!(left.calls.len(), 1 + SLOTS as usize);
    assert!(left.calls.contains_key(&1));
    assert!(!left.calls.contains_key(&(9 + u64::from(SLOTS / 2))));
    assert!(left.calls.contains_key(&(10 + u64::from(SLOTS / 2))));
    let length = std::fs::metadata(&scratch.0).unwrap().len();
    assert!(length <= PAGE + 2 * u64::from(SLOTS) * ENTRY as u64);
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
    let scratch = Scratch::new("again");
    let (mut journal, _) = scratch.open();
    let first = journal.note(true, 1, place(0, 900, 5));
    assert!(!journal.is_due(true, Some(first)));
    assert!(journal.is_due(true, None));
    let older = Noted {
        second: first.second.wrapping_sub(AGAIN.1.as_secs() as u32),
        ..first
    };
    assert!(journal.is_due(true, Some(older)));
    let step = journal.step();
    for n in 0..AGAIN.0 {
        journal.note(false, 10, place(0, 900, n));
    }
    assert!(!journal.is_due(true, Some(first)));
    for n in 0..AGAIN.0 {
        journal.note(true, 10, place(0, 900, n));
    }
    assert!(journal.is_due(true, Some(first)));
    assert!(journal.step() != step);
    // As if it had been noted first now.
    let again = journal.note_again(true, 1, place(0, 900, 5));
    assert!(!journal.is_due(true, Some(again)));
    assert!(!Journal::none(Keys(1, 2)).is_due(true, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// As many calls as there is room for wait while others come and are answered: none is lost.
    #[test]
    fn no_call_without_a_reply_is_lost(
        waiting in 1..=PENDING, batches in prop::collection::vec(1..3000_u32, 10..60),
    ) {
        let scratch = Scratch::new("lost");
        let (mut journal, _) = scratch.open();
        let mut pending: Vec<Noted> = Vec::new();
        let mut step = journal.step();
        for batch in batches {
            for n in 0..batch {
                // They come among the others.
                if pending.len() < waiting && n % 2 == 0 {
                    let tag = pending.len() as u64;
                    pending.push(journal.note(true, tag, place(0, 900, n)));
                } else {
                    journal.note(true, u64::MAX, place(0, 900, n));
                }
            }
            if journal.step() != step {
                step = journal.step();
                for (tag, noted) in (0..).zip(&mut pending) {
                    if journal.is_due(true, Some(*noted)) {
                        *noted = journal.note_again(true, tag, place(0, 900, 0));
                    }
                }
            }
            journal.flush().unwrap();
        }
        drop(journal);
        let left = scratch.open().1;
        prop_assert!((0..pending.len() as u64).all(|tag| left.calls.contains_key(&tag)));
    }
}

/// A file on a disk outlives the machine's run, whose seconds begin anew.
#[test]
fn what_was_noted_before_the_machine_started_is_nothing() {
    let scratch = Scratch::new("boot");
    let open = |boot| Journal::open_in(&scratch.0, Keys(1, 2), (boot, second()), |_, _| true);
    let (mut journal, _) = open(1).unwrap();
    journal.note(false, 1, place(0, 900, 5));
    journal.flush().unwrap();
    drop(journal);
    assert_eq!(open(1).unwrap().1.calls.len(), 1);
    assert_eq!(open(2).unwrap().1.calls.len(), 0);
    assert_eq!(open(1).unwrap().1.calls.len(), 0);
    assert_ne!(boot(), 0);
}

/// Entries of one ring that are more than half of all numbers older than others.
#[test]
fn old_entries_say_nothing_of_where_a_ring_goes_on() {
    let scratch = Scratch::new("half");
    let (journal, _) = scratch.open();
    let now = second();
    let write = |ring: usize, slot: u32, number, second, tag: u32| {
        let entry = Entry {
            number,
            second,
            tag: tag.into(),
            place: place(0, 900, slot),
        };
        let at = start(ring) + u64::from(slot) * ENTRY as u64;
        let Book(file) = journal.book.as_ref().unwrap();
        file.write_all_at(&entry.to_bytes(), at).unwrap();
    };
    let old = now.wrapping_sub(2 * RETURN.as_secs() as u32);
    (0..10).for_each(|slot| write(0, slot, slot + 5, old, slot));
    // Since then more than 2^31 calls have been noted in the other ring, and three in this one.
    let number = (1 << 31) + 100;
    (0..3).for_each(|slot| write(0, slot, number + slot, now, 100 + slot));
    (0..3).for_each(|slot| write(1, slot, number + 3 + slot, now, 200 + slot));
    drop(journal);
    let (mut journal, left) = scratch.open();
    let next = journal.notes.rings.each_ref().map(|ring| ring.next);
    assert_eq!((left.calls.len(), next), (6, [3, 3]));
    journal.note(false, 300, place(0, 900, 9));
    journal.flush().unwrap();
    drop(journal);
    let left = scratch.open().1;
    assert_eq!(left.calls.len(), 7);
    assert_eq!(left.calls[&300].number, number + 6);
}

/// A disk that is full for a while.
#[test]
fn what_could_not_be_written_is_noted_when_it_can() {
    let scratch = Scratch::new("full");
    let (mut journal, _) = scratch.open();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let noted = journal.note(true, 1, place(0, 900, 5));
    let good = journal.book.replace(Book(full));
    let step = journal.step();
    journal.flush().unwrap_err();
    assert!(!journal.is_kept() && !journal.is_due(true, None) && journal.step() != step);
    journal.note(true, 2, place(0, 900, 6));
    assert!(!journal.flush().unwrap());
    // A minute later there is room again.
    journal.book = good;
    let (at, works) = journal.notes.failed.unwrap();
    let ago = |second: u32| second.wrapping_sub(PAUSE.as_secs() as u32);
    journal.notes.failed = Some((ago(at), works));
    assert!(journal.is_kept() && journal.step() == step);
    let before = Noted {
        second: ago(noted.second),
        ..noted
    };
    assert!(journal.is_due(true, Some(before)) && !journal.is_due(true, Some(noted)));
    journal.note_again(true, 1, place(0, 900, 5));
    assert!(journal.flush().unwrap());
    assert!(!journal.flush().unwrap());
    drop(journal);
    let left = scratch.open().1;
    assert_eq!(left.calls.keys().collect::<Vec<_>>(), [&1]);
}

/// A file that is none, or somebody else's.
#[test]
fn any_file_is_begun_anew() {
    let scratch = Scratch::new("any");
    for bytes in [&b""[..], b"raddle", &[0x5a; 9000]] {
        std::fs::write(&scratch.0, bytes).unwrap();
        let (mut journal, left) = scratch.open();
        assert!(left.calls.is_empty() && left.ends.is_empty());
        journal.note(false, 1, place(0, 900, 5));
        journal.flush().unwrap();
        drop(journal);
        assert_eq!(scratch.open().1.calls.len(), 1);
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

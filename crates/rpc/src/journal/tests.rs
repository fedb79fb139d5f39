//! The file: what one process writes, the next one has.

use std::path::PathBuf;

use proptest::prelude::*;
use raddle_rpc_core::journal::SLOTS;

use super::*;

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
    assert!(length <= ring_at(2));
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

/// A disk that is full for a while.
#[test]
fn what_could_not_be_written_is_noted_when_it_can() {
    let scratch = Scratch::new("full");
    let (mut journal, _) = scratch.open();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (notes, book) = (&mut journal.notes, journal.book.as_ref().unwrap());
    let later = second();
    let at = later.wrapping_sub(60);
    let place = |xid| place(0, 900, xid);
    let noted = notes.note(true, 1, place(5), at);
    let step = notes.step(at);
    Book(full).write(notes, at).unwrap_err();
    assert!(!notes.is_kept(at) && !notes.is_due(true, None, at) && notes.step(at) != step);
    notes.note(true, 2, place(6), at + 1);
    assert!(!book.write(notes, at + 1).unwrap());
    // A minute later there is room again.
    assert!(!notes.is_kept(later - 1));
    assert!(notes.is_kept(later) && notes.step(later)[3] == step[3]);
    assert!(notes.is_due(true, Some(noted), later));
    let noted = notes.note_again(true, 1, place(5), later);
    assert!(!notes.is_due(true, Some(noted), later));
    assert!(book.write(notes, later).unwrap());
    assert!(!book.write(notes, later).unwrap());
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

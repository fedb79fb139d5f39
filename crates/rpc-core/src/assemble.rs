//! From a stream to messages: small ones whole, large ones as they come.
//!
//! Large messages are passed on in the fragments that they came in, with two exceptions. The first holds at
//! least the head: the part with the header, which is looked at before anything is passed on. And small ones are
//! joined: each piece that is kept costs some 100 bytes, so that a message of fragments of one byte would take a
//! hundred times the memory that it is counted with.
//!
//! A piece that is passed on without a copy keeps all of the buffer that it was read into. So there are none below
//! [`PIECE`]: what has come of a larger fragment stays in the buffer until it is as much, and the rest is copied.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::record::{Marks, RecordError, Step};

/// Messages up to this size are collected before they are passed on, so that a peer that stalls within
/// one holds nobody up. In bytes.
pub const WHOLE: usize = 64 << 10;
/// Bytes of a larger message that are collected first. Holds every RPC header (at most 848 bytes) and
/// the arguments that decide how a call is treated.
pub const HEAD: usize = 2 << 10;
/// Fragments of large messages up to this size are joined, until they have [`WHOLE`] bytes together.
pub const JOINED: u32 = 4 << 10;
/// Bytes of a large message's fragment that are passed on without a copy, at least.
pub const PIECE: usize = 16 << 10;

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of a small message, without marks.
    Whole(Bytes),
    /// The head of a large one: its first fragment's first bytes.
    Start {
        /// [`HEAD`] bytes or more.
        head: Bytes,
        /// Bytes of the first fragment behind the head.
        rest: u32,
        /// Whether that fragment is the only one.
        last: bool,
    },
    /// Another fragment of a large message begins.
    Fragment {
        /// Bytes in it.
        length: u32,
        /// Whether it is the last.
        last: bool,
    },
    /// More of a large message.
    Data(Bytes),
    /// The large message is complete.
    End,
}

/// Where in a message the stream stands.
#[derive(Clone, Debug)]
enum State {
    /// Collecting; how many bytes of the present fragment are to come, whether it is the last.
    Collecting(u32, bool),
    /// Passing on.
    Passing,
    /// Joining fragments; how many bytes of the present one are to come, whether it is the last.
    Joining(u32, bool),
}

/// Makes messages of a stream. Holds at most [`WHOLE`] bytes itself.
#[derive(Clone, Debug)]
pub struct Assembler {
    marks: Marks,
    state: State,
    /// What is collected, or joined.
    head: BytesMut,
    /// Parts that come next.
    next: VecDeque<Part>,
}

impl Assembler {
    /// For messages of at most `most` bytes.
    pub fn new(most: u32) -> Assembler {
        Assembler {
            marks: Marks::new(most),
            state: State::Collecting(0, false),
            head: BytesMut::new(),
            next: VecDeque::new(),
        }
    }

    /// Whether a message has begun and not ended.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.marks.is_inside()
    }

    /// Bytes that are to come of the present fragment, if it is of a large message whose head has been given: parts of
    /// it may have been taken from `input` without a copy, and more will be.
    #[inline]
    pub fn passes(&self) -> Option<usize> {
        let passes = !matches!(self.state, State::Collecting(..));
        passes.then(|| self.marks.left() as usize)
    }

    /// The next part, taken from the front of `input`; none until there is more input, of which less than [`PIECE`]
    /// bytes are left then. Heads, small messages, small fragments and ends of fragments are copied, the rest is not.
    ///
    /// # Errors
    /// [`RecordError`], after which the stream makes no sense any more.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Part>, RecordError> {
        if let Some(part) = self.next.pop_front() {
            return Ok(Some(part));
        }
        loop {
            if let State::Passing = self.state
                && input.len() < PIECE.min(self.marks.left() as usize)
            {
                return Ok(None);
            }
            let (taken, step) = self.marks.step(&input[..input.len().min(self.wanted())])?;
            match (step, &mut self.state) {
                (Step::More, _) => {
                    input.advance(taken);
                    return Ok(None);
                }
                (Step::Fragment { length, last }, State::Collecting(left, is_last)) => {
                    input.advance(taken);
                    (*left, *is_last) = (length, last);
                    if let Some(start) = self.start() {
                        return Ok(Some(start));
                    }
                }
                (Step::Fragment { length, last }, State::Passing | State::Joining(..)) => {
                    input.advance(taken);
                    if length <= JOINED {
                        self.state = State::Joining(length, last);
                    } else {
                        self.state = State::Passing;
                        self.give_joined(false);
                        self.next.push_back(Part::Fragment { length, last });
                    }
                    if let Some(part) = self.joined() {
                        return Ok(Some(part));
                    }
                }
                (Step::Payload(_), State::Collecting(left, _)) => {
                    self.head.extend_from_slice(&input[..taken]);
                    input.advance(taken);
                    *left -= taken as u32;
                    if let Some(start) = self.start() {
                        return Ok(Some(start));
                    }
                }
                (Step::Payload(_), State::Joining(left, _)) => {
                    self.head.extend_from_slice(&input[..taken]);
                    input.advance(taken);
                    *left -= taken as u32;
                    if let Some(part) = self.joined() {
                        return Ok(Some(part));
                    }
                }
                (Step::Payload(_), State::Passing) => {
                    let piece = input.split_to(taken);
                    return Ok(Some(Part::Data(match taken < PIECE {
                        true => Bytes::copy_from_slice(&piece),
                        false => piece.freeze(),
                    })));
                }
                (Step::End, State::Collecting(..)) => {
                    self.state = State::Collecting(0, false);
                    return Ok(Some(Part::Whole(self.collected())));
                }
                (Step::End, State::Passing | State::Joining(..)) => {
                    self.state = State::Collecting(0, false);
                    return Ok(Some(Part::End));
                }
            }
        }
    }

    /// How many bytes may be taken at once: of a large message no more than its head is copied.
    fn wanted(&self) -> usize {
        match self.state {
            State::Collecting(rest, _) if self.head.len() + rest as usize > WHOLE => {
                HEAD.saturating_sub(self.head.len()).max(1)
            }
            _ => usize::MAX,
        }
    }

    /// The next part, with the fragments that have been joined if they are enough, or the last.
    fn joined(&mut self) -> Option<Part> {
        if let State::Joining(0, last) = self.state
            && (last || self.head.len() >= WHOLE)
        {
            self.state = State::Passing;
            self.give_joined(last);
        }
        self.next.pop_front()
    }

    /// What is collected, in memory of its own: what comes next shares none of it.
    fn collected(&mut self) -> Bytes {
        std::mem::take(&mut self.head).freeze()
    }

    /// Has what was joined come next; where nothing was, only if that is the last.
    fn give_joined(&mut self, last: bool) {
        let joined = self.collected();
        if !joined.is_empty() || last {
            let length = joined.len() as u32;
            self.next.push_back(Part::Fragment { length, last });
        }
        if !joined.is_empty() {
            self.next.push_back(Part::Data(joined));
        }
    }

    /// The start of a large message, as soon as it is known to be one and its head is there.
    fn start(&mut self) -> Option<Part> {
        let State::Collecting(rest, last) = self.state else {
            return None;
        };
        let known = self.head.len() + rest as usize;
        if known <= WHOLE || self.head.len() < HEAD {
            return None;
        }
        self.state = State::Passing;
        Some(Part::Start {
            head: self.collected(),
            rest,
            last,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::mark;

    /// Sends the parts on as a proxy does, and gives the stream that comes out.
    fn passed_on(stream: &[u8], cut: usize) -> Vec<u8> {
        let (mut assembler, mut out) = (Assembler::new(16 << 20), Vec::new());
        let mut input = BytesMut::new();
        for piece in stream.chunks(cut) {
            input.extend_from_slice(piece);
            while let Some(part) = assembler.next(&mut input).unwrap() {
                match part {
                    Part::Whole(whole) => {
                        assert!(whole.len() <= WHOLE);
                        out.extend(mark(whole.len() as u32, true));
                        out.extend(whole);
                    }
                    Part::Start { head, rest, last } => {
                        assert!(head.len() >= HEAD && head.len() <= WHOLE);
                        out.extend(mark(head.len() as u32 + rest, last));
                        out.extend(head);
                    }
                    Part::Fragment { length, last } => out.extend(mark(length, last)),
                    Part::Data(data) => out.extend(data),
                    Part::End => {}
                }
            }
            assert!(
                input.len()
                    < if assembler.passes().is_some() {
                        PIECE
                    } else {
                        1
                    }
            );
        }
        assert!(input.is_empty() && !assembler.is_inside());
        out
    }

    fn records(mut stream: &[u8]) -> Vec<Vec<u8>> {
        let (mut records, mut record) = (Vec::new(), Vec::new());
        while let Some((word, rest)) = stream.split_first_chunk::<4>() {
            let word = u32::from_be_bytes(*word);
            let (data, rest) = rest.split_at((word & 0x7fff_ffff) as usize);
            record.extend_from_slice(data);
            stream = rest;
            if word >> 31 == 1 {
                records.push(std::mem::take(&mut record));
            }
        }
        records
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn messages_come_out_as_they_went_in(
            sizes in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![0..9_usize, 0..9000_usize, 0..150_000_usize], 1..9), 1..5),
            cut in prop_oneof![1..9_usize, 1..200_000_usize],
        ) {
            let mut stream = Vec::new();
            for (n, fragments) in sizes.iter().enumerate() {
                for (i, size) in fragments.iter().enumerate() {
                    stream.extend(mark(*size as u32, i + 1 == fragments.len()));
                    stream.extend((0..*size).map(|k| (k * 7 + i + n) as u8));
                }
            }
            prop_assert_eq!(records(&passed_on(&stream, cut)), records(&stream));
        }
    }

    #[test]
    fn small_fragments_are_joined() {
        let count = 300_000_u32;
        let mut stream = mark(100_000, false).to_vec();
        stream.extend(vec![1; 100_000]);
        for i in 0..count {
            stream.extend(mark(1, false));
            stream.push(i as u8);
        }
        stream.extend(mark(5000, false));
        stream.extend(vec![2; 5000]);
        stream.extend(mark(0, true));
        let out = passed_on(&stream, 100_000);
        assert!(out.len() < 500_000, "{}", out.len());
        assert_eq!(records(&out), records(&stream));
    }

    #[test]
    fn a_large_message_starts_before_it_has_come() {
        let mut assembler = Assembler::new(16 << 20);
        let mut input = BytesMut::from(&mark(1 << 20, true)[..]);
        input.extend_from_slice(&[7; HEAD]);
        let part = assembler.next(&mut input).unwrap().unwrap();
        let rest = (1 << 20) - HEAD as u32;
        let head = Bytes::from(vec![7; HEAD]);
        assert_eq!(
            part,
            Part::Start {
                head,
                rest,
                last: true
            }
        );
    }
}

//! Record marking (RFC 5531, section 11): a stream of fragments, each behind a four-byte mark of its
//! length, the last one of a record with the top bit set.

use thiserror::Error;

/// The bit of a mark that says that the fragment is its record's last.
const LAST: u32 = 1 << 31;
/// Fragments are shorter than this: the mark has 31 bits for their length.
pub const LONGEST: u32 = LAST;
/// Fragments of a record that may be empty. They are legal and of no use; without a limit a peer could
/// send them for ever and never end a record.
pub const EMPTY_FRAGMENTS: u32 = 64;

/// The mark of a fragment.
///
/// # Panics
/// The length is [`LONGEST`] or more: another mark would have the other side read calls out of the midst of data.
/// No input leads there: lengths are those of fragments that came, or of records below a limit that is less.
#[inline]
pub fn mark(length: u32, last: bool) -> [u8; 4] {
    assert!(length < LONGEST, "a fragment of {length} bytes");
    (length | if last { LAST } else { 0 }).to_be_bytes()
}

/// Why a stream is no sequence of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A record says that it is longer than may be.
    #[error("a record of {length} bytes or more, {most} are allowed")]
    TooLong {
        /// Bytes, so far.
        length: u64,
        /// The maximum.
        most: u32,
    },
    /// A record has too many empty fragments.
    #[error("a record with more than {EMPTY_FRAGMENTS} empty fragments")]
    EmptyFragments,
}

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until there are more bytes.
    More,
    /// A fragment begins.
    Fragment {
        /// Bytes in it.
        length: u32,
        /// Whether it is the record's last.
        last: bool,
    },
    /// So many bytes of the record.
    Payload(usize),
    /// The record is complete.
    End,
}

/// Takes a stream apart into records, wherever it is cut.
#[derive(Clone, Debug)]
pub struct Marks {
    most: u32,
    /// Bytes of a mark that has not fully come, in order.
    partial: [u8; 4],
    have: usize,
    /// Bytes of this fragment that are still to come.
    left: u32,
    last: bool,
    /// Bytes of this record's fragments.
    length: u64,
    empty: u32,
    inside: bool,
}

impl Marks {
    /// For records of at most `most` bytes.
    pub fn new(most: u32) -> Marks {
        Marks {
            most,
            partial: [0; 4],
            have: 0,
            left: 0,
            last: false,
            length: 0,
            empty: 0,
            inside: false,
        }
    }

    /// Whether a record, or a mark, has begun and not ended.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside || self.have > 0
    }

    /// Bytes that are to come of the present fragment.
    #[inline]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The next step, and how many bytes at the front of `input` it takes. O(1).
    ///
    /// # Errors
    /// [`RecordError`], after which the stream makes no sense any more.
    pub fn step(&mut self, input: &[u8]) -> Result<(usize, Step), RecordError> {
        if self.left > 0 {
            let count = input.len().min(self.left as usize);
            self.left -= count as u32;
            let step = if count == 0 {
                Step::More
            } else {
                Step::Payload(count)
            };
            return Ok((count, step));
        }
        if self.inside && self.last {
            *self = Marks::new(self.most);
            return Ok((0, Step::End));
        }
        let count = input.len().min(4 - self.have);
        self.partial[self.have..self.have + count].copy_from_slice(&input[..count]);
        self.have += count;
        if self.have < 4 {
            return Ok((count, Step::More));
        }
        self.have = 0;
        let word = u32::from_be_bytes(self.partial);
        let (length, last) = (word & !LAST, word & LAST != 0);
        self.length += u64::from(length);
        if self.length > u64::from(self.most) {
            return Err(RecordError::TooLong {
                length: self.length,
                most: self.most,
            });
        }
        self.empty += u32::from(length == 0);
        if self.empty > EMPTY_FRAGMENTS {
            return Err(RecordError::EmptyFragments);
        }
        (self.inside, self.left, self.last) = (true, length, last);
        Ok((count, Step::Fragment { length, last }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_have_31_bits() {
        assert_eq!(mark(LONGEST - 1, false), [0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(mark(1, true), [0x80, 0, 0, 1]);
        let too_long = std::panic::catch_unwind(|| mark(LONGEST, false));
        assert!(too_long.is_err(), "and not a mark of 0 bytes");
    }

    /// Records and what is wrong, by the slow and obvious way: all bytes at once.
    fn reference(mut bytes: &[u8], most: u32) -> (Vec<Vec<u8>>, bool) {
        let mut records = Vec::new();
        'record: loop {
            let (mut record, mut length, mut empty) = (Vec::new(), 0_u64, 0);
            loop {
                let Some((word, rest)) = bytes.split_first_chunk::<4>() else {
                    return (records, false);
                };
                let word = u32::from_be_bytes(*word);
                let size = (word & 0x7fff_ffff) as usize;
                length += size as u64;
                empty += u32::from(size == 0);
                if length > u64::from(most) || empty > 64 {
                    return (records, true);
                }
                let Some(data) = rest.get(..size) else {
                    return (records, false);
                };
                record.extend_from_slice(data);
                bytes = &rest[size..];
                if word >> 31 == 1 {
                    records.push(record);
                    continue 'record;
                }
            }
        }
    }

    fn records(stream: &[u8], cuts: &[usize], most: u32) -> (Vec<Vec<u8>>, bool) {
        let (mut marks, mut records, mut record) = (Marks::new(most), Vec::new(), Vec::new());
        let mut rest = stream;
        let mut cuts = cuts.iter().copied().cycle();
        while !rest.is_empty() {
            let (mut piece, after) = rest.split_at(cuts.next().unwrap_or(1).clamp(1, rest.len()));
            rest = after;
            loop {
                let Ok((taken, step)) = marks.step(piece) else {
                    return (records, true);
                };
                match step {
                    Step::More => break,
                    Step::Fragment { .. } => {}
                    Step::Payload(count) => {
                        assert_eq!(count, taken);
                        record.extend_from_slice(&piece[..count]);
                    }
                    Step::End => records.push(std::mem::take(&mut record)),
                }
                piece = &piece[taken..];
            }
        }
        (records, false)
    }

    fn stream(records: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for fragments in records {
            for (i, fragment) in fragments.iter().enumerate() {
                bytes.extend(mark(fragment.len() as u32, i + 1 == fragments.len()));
                bytes.extend(fragment);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn records_survive_any_fragments_and_any_cuts(
            sent in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..6), 0..8),
            cuts in proptest::collection::vec(1..70_usize, 1..10),
        ) {
            let whole: Vec<Vec<u8>> = sent.iter().map(|fragments| fragments.concat()).collect();
            prop_assert_eq!(records(&stream(&sent), &cuts, 1 << 20), (whole, false));
        }

        #[test]
        fn any_bytes_are_what_the_reference_says(
            bytes in proptest::collection::vec(prop_oneof![Just(0_u8), Just(0x80), 0..9_u8], 0..900),
            cuts in proptest::collection::vec(1..70_usize, 1..10), most in 0..300_u32,
        ) {
            prop_assert_eq!(records(&bytes, &cuts, most), reference(&bytes, most));
        }
    }

    #[test]
    fn lies_about_the_length_end_the_stream_at_once() {
        let mut marks = Marks::new(16 << 20);
        let error = marks.step(&mark(0x7fff_ffff, true)).unwrap_err();
        assert!(matches!(
            error,
            RecordError::TooLong {
                length: 0x7fff_ffff,
                ..
            }
        ));
        let (records, failed) = records(&[0; 4 * 65], &[7], 100);
        assert!(records.is_empty() && failed);
    }
}

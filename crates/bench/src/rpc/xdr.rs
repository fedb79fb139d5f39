//! The calls of NFSv3 and MOUNT that the load is made of (RFC 1813, RFC 5531).

/// Program numbers.
pub(super) const NFS: u32 = 100_003;
pub(super) const MOUNT: u32 = 100_005;

/// Procedures of NFSv3, and MNT of MOUNT.
pub(super) const GETATTR: u32 = 1;
pub(super) const LOOKUP: u32 = 3;
pub(super) const READ: u32 = 6;
pub(super) const WRITE: u32 = 7;
pub(super) const MNT: u32 = 1;

/// Bytes of a successful reply to READ before the data: header, status, attributes, count, end, length.
pub(super) const READ_HEAD: usize = 24 + 4 + 4 + 84 + 4 + 4 + 4;

/// A call under construction: its record mark, to be filled in, and what follows.
#[derive(Clone, Debug)]
pub(super) struct Call(Vec<u8>);

impl Call {
    /// A call of version 3 of a program, as root by AUTH_SYS.
    pub(super) fn new(xid: u32, program: u32, procedure: u32) -> Call {
        let mut call = Call(vec![0; 4]);
        for word in [xid, 0, 2, program, 3, procedure] {
            call = call.word(word);
        }
        // The credential: stamp, an empty machine name, user, group, one group more; no verifier.
        for word in [1, 24, 0, 0, 0, 0, 1, 0, 0, 0] {
            call = call.word(word);
        }
        call
    }

    /// A reply that is accepted, up to its status, which is the next word.
    pub(super) fn reply(xid: u32) -> Call {
        let reply = Call(vec![0; 4]).word(xid);
        [1, 0, 0, 0].into_iter().fold(reply, Call::word)
    }

    pub(super) fn word(mut self, word: u32) -> Call {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, long: u64) -> Call {
        self.0.extend(long.to_be_bytes());
        self
    }

    pub(super) fn opaque(self, bytes: &[u8]) -> Call {
        let mut call = self.word(bytes.len() as u32);
        call.0.extend(bytes);
        call.0.resize(call.0.len().next_multiple_of(4), 0);
        call
    }

    /// The record, if `more` bytes follow it.
    pub(super) fn record(mut self, more: usize) -> Vec<u8> {
        let length = (self.0.len() - 4 + more) as u32;
        self.0[..4].copy_from_slice(&(0x8000_0000 | length).to_be_bytes());
        self.0
    }
}

/// The word at an offset.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*word))
}

/// The variable opaque at an offset, and where what follows it begins.
pub(super) fn opaque(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = word(bytes, at)? as usize;
    let start = at + 4;
    let found = bytes.get(start..start.checked_add(length)?)?;
    Some((found, start + length.next_multiple_of(4)))
}

/// The results of a reply (its first bytes are enough): what is behind its header, if it was accepted and
/// done.
pub(super) fn results(reply: &[u8]) -> Option<&[u8]> {
    // XID, REPLY, accepted.
    let [1, 0] = [word(reply, 4)?, word(reply, 8)?] else {
        return None;
    };
    let (_, at) = opaque(reply, 16)?;
    (word(reply, at)? == 0).then(|| &reply[at + 4..])
}

/// Where a call's arguments begin: behind its credential and its verifier.
pub(super) fn arguments(call: &[u8]) -> Option<&[u8]> {
    let (_, at) = opaque(call, 28)?;
    let (_, at) = opaque(call, at + 4)?;
    call.get(at..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let call = Call::new(7, NFS, READ)
            .opaque(b"handle")
            .long(1 << 40)
            .word(9);
        let record = call.record(0);
        assert_eq!(
            word(&record, 0),
            Some(0x8000_0000 | (record.len() - 4) as u32)
        );
        let message = &record[4..];
        assert_eq!((word(message, 0), word(message, 20)), (Some(7), Some(READ)));
        let arguments = arguments(message).unwrap();
        let (handle, at) = opaque(arguments, 0).unwrap();
        assert_eq!((handle, at), (&b"handle"[..], 12));
        let words = [at, at + 4, at + 8].map(|at| word(arguments, at));
        assert_eq!(words, [Some(1 << 8), Some(0), Some(9)]);
        assert_eq!(arguments.len(), at + 12);
    }

    #[test]
    fn only_what_was_done_has_results() {
        let reply = |words: [u32; 7]| {
            words
                .iter()
                .flat_map(|w| w.to_be_bytes())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            results(&reply([7, 1, 0, 0, 0, 0, 5])),
            Some(&5_u32.to_be_bytes()[..])
        );
        for refused in [
            [7, 1, 1, 0, 0, 0, 5],
            [7, 1, 0, 0, 0, 3, 5],
            [7, 1, 0, 0, u32::MAX, 0, 5],
        ] {
            assert_eq!(results(&reply(refused)), None);
        }
        assert_eq!(results(&[0; 9]), None);
    }
}

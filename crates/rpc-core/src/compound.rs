//! NFSv4 COMPOUNDs (RFC 7530, section 16; RFC 8881, section 18), read as far as needed.

use crate::program::{Class, Nature, hash};
use crate::wire::Cursor;

/// Operations that may be in one COMPOUND before it is no longer read. Clients send some ten.
const MOST: u32 = 64;

/// What a COMPOUND does, by its arguments, of which there may be only the first.
///
/// 1. It begins with SEQUENCE: it is under that session's slot, whatever follows.
/// 2. It has an operation that is not named below, such as CREATE, REMOVE, SETATTR, OPEN or LOCK: it is non-idempotent.
/// 3. It cannot be read to its end, and what could be read is by rules 4 and 5: unknown, unless it ends within the data
///    of a WRITE. That is a write: what may follow the data is no worse for who waits for a reply, as both count, and
///    a WRITE is remembered among WRITEs.
/// 4. It has a WRITE: a write.
/// 5. All its operations only look (ACCESS, GETATTR, GETFH, LOOKUP, LOOKUPP, NVERIFY, PUTFH, PUTPUBFH, PUTROOTFH, READ,
///    READDIR, READLINK, RESTOREFH, SAVEFH, SECINFO, VERIFY), are COMMIT, or renew a lease (RENEW): read-only.
///
/// The reply's size is foreseen where all operations could be read, and none has one that no argument bounds, such as
/// GETXATTR and the access list of GETATTR.
pub fn nature(arguments: &[u8]) -> Nature {
    let mut nature = Nature {
        class: Class::ReadOnly,
        expected: 0,
        foreseen: true,
        file: None,
    };
    let class = read(&mut Cursor::new(arguments), &mut nature);
    nature.foreseen &= class.is_some();
    nature.class = class.unwrap_or(Class::Unknown);
    nature
}

/// None when it ends too soon. A session's slot is found at the first operation, and what is non-idempotent at its own, but the
/// walk goes on for the file and the size.
fn read(cursor: &mut Cursor<'_>, nature: &mut Nature) -> Option<Class> {
    cursor.opaque()?;
    cursor.u32()?;
    let count = cursor.u32()?;
    if count > MOST {
        return None;
    }
    // What it is, whatever follows.
    let mut known = None;
    let mut class = Class::ReadOnly;
    for n in 0..count {
        match operation(cursor, nature, n == 0) {
            Operation::Looks => {}
            Operation::Writes => class = Class::Write,
            Operation::Writing => {
                nature.foreseen = false;
                return known.or(Some(Class::Write));
            }
            Operation::Sequence => known = Some(Class::Slot),
            Operation::Counts => known = known.or(Some(Class::Once)),
            Operation::Endless => {
                nature.foreseen = false;
                return known.or(Some(Class::Once));
            }
            Operation::Unread => {
                nature.foreseen = false;
                return known;
            }
        }
    }
    known.or(Some(class))
}

/// What one operation is.
enum Operation {
    /// Changes nothing that another call could notice.
    Looks,
    /// Overwrites.
    Writes,
    /// The same, and it ends within the data.
    Writing,
    /// The slot of a session.
    Sequence,
    /// It is non-idempotent.
    Counts,
    /// The same, and nobody knows where it ends.
    Endless,
    /// It ends too soon.
    Unread,
}

fn operation(cursor: &mut Cursor<'_>, nature: &mut Nature, first: bool) -> Operation {
    let Some(number) = cursor.u32() else {
        return Operation::Unread;
    };
    let read = match number {
        // ACCESS.
        3 => cursor.skip(4),
        // COMMIT.
        5 => cursor.skip(12),
        // GETATTR.
        9 => attributes(cursor, nature),
        // GETFH, LOOKUPP, PUTPUBFH, PUTROOTFH, READLINK, RESTOREFH, SAVEFH.
        10 | 16 | 23 | 24 | 27 | 31 | 32 => Some(()),
        // LOOKUP, SECINFO.
        15 | 33 => cursor.opaque().map(drop),
        // NVERIFY, VERIFY: attributes, by a bitmap.
        17 | 37 => cursor.words().and_then(|()| cursor.opaque()).map(drop),
        // PUTFH.
        22 => cursor.opaque().map(|handle| {
            nature.file.get_or_insert(hash(handle));
        }),
        // READ: state, offset, count.
        25 => cursor.skip(24).and_then(|()| expect(cursor, nature)),
        // READDIR: cookie, verifier, the count of names, of all, attributes.
        26 => cursor
            .skip(20)
            .and_then(|()| expect(cursor, nature))
            .and_then(|()| cursor.words()),
        // RENEW.
        30 => cursor.u64().map(drop),
        // WRITE: state, offset, how stable, data.
        38 => {
            let read = cursor.skip(28).and_then(|()| {
                let mut length = *cursor;
                length.u32()?;
                Some(cursor.opaque())
            });
            return match read {
                Some(Some(_)) => Operation::Writes,
                Some(None) => Operation::Writing,
                None => Operation::Unread,
            };
        }
        // SEQUENCE: session, sequence, slot, highest slot, whether to keep the reply.
        53 if first => {
            return match cursor.skip(32) {
                Some(()) => Operation::Sequence,
                None => Operation::Unread,
            };
        }
        _ => {
            return match counted(number, cursor, nature) {
                Some(()) => Operation::Counts,
                None => Operation::Endless,
            };
        }
    };
    match read {
        Some(()) => Operation::Looks,
        None => Operation::Unread,
    }
}

/// Skips a non-idempotent operation; none where its length is not known, or it ends too soon.
fn counted(number: u32, cursor: &mut Cursor<'_>, nature: &mut Nature) -> Option<()> {
    match number {
        // OPENATTR, SECINFO_NO_NAME, RECLAIM_COMPLETE.
        19 | 52 | 58 => cursor.skip(4),
        // DELEGPURGE, DESTROY_CLIENTID.
        7 | 57 => cursor.skip(8),
        // DELEGRETURN, SETCLIENTID_CONFIRM, DESTROY_SESSION, FREE_STATEID.
        8 | 36 | 44 | 45 => cursor.skip(16),
        // CLOSE, OPEN_CONFIRM.
        4 | 20 => cursor.skip(20),
        // OPEN_DOWNGRADE, SEEK.
        21 | 69 => cursor.skip(28),
        // ALLOCATE, DEALLOCATE.
        59 | 62 => cursor.skip(32),
        // CLONE.
        71 => cursor.skip(56),
        // LINK, REMOVE, REMOVEXATTR.
        11 | 28 | 75 => cursor.opaque().map(drop),
        // RENAME.
        29 => cursor.opaque().and_then(|_| cursor.opaque()).map(drop),
        // SETATTR: state, attributes.
        34 => cursor
            .skip(16)
            .and_then(|()| cursor.words())
            .and_then(|()| cursor.opaque())
            .map(drop),
        // RELEASE_LOCKOWNER: client, owner.
        39 => cursor.skip(8).and_then(|()| cursor.opaque()).map(drop),
        // TEST_STATEID.
        55 => {
            let count = cursor.u32()? as usize;
            cursor.skip(count.checked_mul(16)?)
        }
        // READ_PLUS: state, offset, count.
        68 => cursor.skip(24).and_then(|()| expect(cursor, nature)),
        // GETXATTR: nobody says how large it may be.
        72 => {
            nature.foreseen = false;
            cursor.opaque().map(drop)
        }
        // SETXATTR: how, name, value.
        73 => {
            cursor.skip(4)?;
            cursor.opaque()?;
            cursor.opaque().map(drop)
        }
        // LISTXATTRS: cookie, count.
        74 => cursor.skip(8).and_then(|()| expect(cursor, nature)),
        _ => None,
    }
}

/// Attributes that are of any size: `acl`, `fs_locations`, `dacl`, `sacl`, by the words of the bitmap.
const LARGE: [u32; 2] = [1 << 12 | 1 << 24, 1 << (58 - 32) | 1 << (59 - 32)];

/// A bitmap of attributes that are asked for.
fn attributes(cursor: &mut Cursor<'_>, nature: &mut Nature) -> Option<()> {
    let mut words = *cursor;
    cursor.words()?;
    let count = words.u32()? as usize;
    for large in LARGE.into_iter().take(count) {
        nature.foreseen &= words.u32()? & large == 0;
    }
    Some(())
}

fn expect(cursor: &mut Cursor<'_>, nature: &mut Nature) -> Option<()> {
    nature.expected = nature.expected.saturating_add(cursor.u32()?);
    Some(())
}

/// The name of a session (RFC 8881, section 2.10).
pub type SessionId = [u8; 16];

/// The session that a reply, from its XID on, gives a backchannel by the connection that it came by.
///
/// 1. CREATE_SESSION succeeded, and the server took the connection for that (`CREATE_SESSION4_FLAG_CONN_BACK_CHAN`).
/// 2. BIND_CONN_TO_SESSION succeeded, for the backchannel or both (`CDFS4_BACK`, `CDFS4_BOTH`).
/// 3. Anything else gives none; nor does what RPCSEC_GSS has wrapped, which cannot be read.
pub fn bound(reply: &[u8]) -> Option<SessionId> {
    let mut cursor = Cursor::new(reply);
    // XID, a reply, accepted; the verifier; success; no error; the tag; how many results.
    cursor.skip(12)?;
    cursor.u32()?;
    cursor.opaque()?;
    let fine = (cursor.u32()?, cursor.u32()?) == (0, 0);
    cursor.opaque()?;
    let (count, operation, status) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    if !fine || count == 0 || status != 0 {
        return None;
    }
    let session = session(&mut cursor)?;
    let back = match operation {
        41 => cursor.u32()? & 2 != 0,
        43 => {
            cursor.u32()?;
            cursor.u32()? & 2 != 0
        }
        _ => false,
    };
    back.then_some(session)
}

/// The session of a CB_COMPOUND's arguments, which begin with CB_SEQUENCE.
pub fn called(arguments: &[u8]) -> Option<SessionId> {
    let mut cursor = Cursor::new(arguments);
    cursor.opaque()?;
    // Minor version, and an identifier that is not used.
    cursor.skip(8)?;
    let (count, operation) = (cursor.u32()?, cursor.u32()?);
    if count == 0 || operation != 11 {
        return None;
    }
    session(&mut cursor)
}

fn session(cursor: &mut Cursor<'_>) -> Option<SessionId> {
    let mut session = SessionId::default();
    for word in session.chunks_exact_mut(4) {
        word.copy_from_slice(&cursor.u32()?.to_be_bytes());
    }
    Some(session)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compound(operations: &[&[u32]]) -> Vec<u8> {
        let head = [0, 1, operations.len() as u32];
        let words = head.iter().chain(operations.iter().copied().flatten());
        words.flat_map(|word| word.to_be_bytes()).collect()
    }

    const PUTFH: &[u32] = &[22, 4, 7];
    const GETATTR: &[u32] = &[9, 1, 0xffff];
    const READ: &[u32] = &[25, 0, 0, 0, 0, 0, 0, 65536];
    const REMOVE: &[u32] = &[28, 1, 0x6100_0000];
    const SEQUENCE: &[u32] = &[53, 1, 2, 3, 4, 5, 6, 7, 0];
    /// A WRITE of 8 bytes.
    const WRITE: &[u32] = &[38, 0, 0, 0, 0, 0, 0, 2, 8, 1, 2];

    #[test]
    fn operations_decide() {
        for (operations, class) in [
            (&[PUTFH, GETATTR][..], Class::ReadOnly),
            (&[PUTFH, READ, GETATTR], Class::ReadOnly),
            (&[PUTFH, WRITE, GETATTR], Class::Write),
            (&[PUTFH, WRITE, REMOVE], Class::Once),
            (&[PUTFH, REMOVE, WRITE], Class::Once),
            (&[PUTFH, REMOVE, &[25, 0]], Class::Once),
            (&[PUTFH, WRITE, &[18, 0]], Class::Once),
            (&[SEQUENCE, PUTFH, WRITE], Class::Slot),
            (&[PUTFH, REMOVE, GETATTR], Class::Once),
            (&[SEQUENCE, PUTFH, REMOVE], Class::Slot),
            (&[SEQUENCE, PUTFH, READ], Class::Slot),
            // A SEQUENCE in the middle is an error (RFC 8881, section 18.46.3).
            (&[PUTFH, SEQUENCE], Class::Once),
        ] {
            assert_eq!(nature(&compound(operations)).class, class, "{operations:?}");
        }
        let read = nature(&compound(&[SEQUENCE, PUTFH, READ]));
        assert_eq!(read.expected, 65536);
        assert!(read.file.is_some());
    }

    /// A READ behind a non-idempotent operation brings as much as one without.
    #[test]
    fn what_comes_back_is_foreseen_behind_whatever_can_be_read() {
        const STATE: [u32; 4] = [1, 2, 3, 4];
        let with_state = |number: u32, rest: &[u32]| [&[number][..], &STATE, rest].concat();
        let close = [&[4, 7][..], &STATE].concat();
        let setattr = with_state(34, &[1, 2, 4, 9]);
        let read_plus = with_state(68, &[0, 0, 65536]);
        for (operation, expected) in [
            (REMOVE, 65536),
            (&close, 65536),
            (&setattr, 65536),
            (&[29, 1, 0x6100_0000, 1, 0x6200_0000], 65536),
            (&[55, 1, 1, 2, 3, 4], 65536),
            (&with_state(8, &[]), 65536),
            (&with_state(69, &[0, 7, 0]), 65536),
            (&with_state(62, &[0, 7, 0, 9]), 65536),
            (&with_state(71, &[1, 2, 3, 4, 0, 7, 0, 8, 0, 9]), 65536),
            (&[73, 0, 1, 0x6100_0000, 1, 0x6200_0000], 65536),
            (&[74, 0, 0, 4096], 65536 + 4096),
            (&[39, 1, 2, 1, 0x6100_0000], 65536),
            (&read_plus, 2 * 65536),
        ] {
            for slot in [true, false] {
                let all: Vec<&[u32]> = [SEQUENCE, PUTFH, operation, READ].into();
                let whole = nature(&compound(&all[usize::from(!slot)..]));
                let class = if slot { Class::Slot } else { Class::Once };
                assert_eq!(whole.class, class, "{operation:?}");
                assert!(whole.foreseen, "{operation:?}");
                assert_eq!(whole.expected, expected, "{operation:?}");
            }
        }
        // OPEN and LOCK are of many forms; nobody says how large an attribute is, or what is cut off.
        let acl: &[u32] = &[9, 1, 1 << 12];
        let xattr: &[u32] = &[72, 1, 0x6100_0000];
        for operation in [&[18, 0, 0][..], &[12, 1], acl, xattr, &[9, 5]] {
            let all = nature(&compound(&[SEQUENCE, PUTFH, operation]));
            assert_eq!(
                (all.class, all.foreseen),
                (Class::Slot, false),
                "{operation:?}"
            );
        }
        let few: &[u32] = &[9, 2, 0xfff, 7];
        assert!(nature(&compound(&[SEQUENCE, PUTFH, few])).foreseen);
        assert!(!nature(&[]).foreseen);
    }

    #[test]
    fn what_is_cut_off_is_unknown_unless_a_slot_keeps_it() {
        let whole = compound(&[PUTFH, WRITE, GETATTR]);
        let slot = compound(&[SEQUENCE, PUTFH, WRITE]);
        // Within the data, of 8 bytes and behind 4 words of a COMPOUND's and PUTFH's and 9 of the WRITE.
        let data = 4 * (3 + 3 + 9);
        for cut in 0..whole.len() {
            let class = match cut.checked_sub(data) {
                Some(0..8) => Class::Write,
                _ => Class::Unknown,
            };
            assert_eq!(nature(&whole[..cut]).class, class, "{cut}");
        }
        assert_eq!(nature(&slot[..slot.len() - 4]).class, Class::Slot);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(
            words in proptest::collection::vec(prop_oneof![0..60_u32, any::<u32>()], 0..60), cut in 0..4_usize,
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            nature(&bytes[..bytes.len().saturating_sub(cut)]);
            bound(&bytes);
            called(&bytes);
        }
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn sessions_are_bound_by_two_operations() {
        let id = *b"\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04";
        // A tag of one byte, a verifier of four.
        let head = [9, 1, 0, 6, 4, 7, 0, 0, 1, 0x6100_0000, 1];
        let reply = |rest: &[u32]| bytes(&[&head, rest].concat());
        for (rest, found) in [
            (&[43, 0, 1, 2, 3, 4, 1, 3][..], Some(id)),
            (&[43, 0, 1, 2, 3, 4, 1, 1], None),
            (&[43, 10008], None),
            (&[41, 0, 1, 2, 3, 4, 3, 0], Some(id)),
            (&[41, 0, 1, 2, 3, 4, 1, 0], None),
            (&[53, 0, 1, 2, 3, 4, 3, 3], None),
        ] {
            assert_eq!(bound(&reply(rest)), found, "{rest:?}");
        }
        let whole = reply(&[43, 0, 1, 2, 3, 4, 1, 3]);
        for cut in 0..whole.len() {
            assert_eq!(bound(&whole[..cut]), None);
        }
        assert_eq!(called(&bytes(&[0, 1, 0, 2, 11, 1, 2, 3, 4])), Some(id));
        assert_eq!(called(&bytes(&[0, 1, 0, 2, 4, 1, 2, 3, 4])), None);
        assert_eq!(called(&bytes(&[0, 1, 0, 2, 11, 1, 2, 3])), None);
    }
}

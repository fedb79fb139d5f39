//! What calls do: whether they may be run twice, how much moves, and which file they are about.

use crate::compound;
use crate::message::Call;
use crate::wire::Cursor;

/// Program numbers that are known.
pub mod number {
    /// The portmapper, rpcbind (RFC 1833).
    pub const PORTMAP: u32 = 100_000;
    /// NFS (RFC 1813, RFC 7530, RFC 8881).
    pub const NFS: u32 = 100_003;
    /// MOUNT (RFC 1813, appendix I).
    pub const MOUNT: u32 = 100_005;
    /// POSIX access lists beside NFSv3.
    pub const NFS_ACL: u32 = 100_227;
}

/// What a call does when it is run twice, at any two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nothing that another call could notice: it may be sent again anywhere.
    ReadOnly,
    /// Nothing, as it is an NFSv4.1 request under a session's slot: the server runs it once, whichever connection it
    /// comes by (RFC 8881, section 2.10.6.1).
    Slot,
    /// It is idempotent, as WRITE is: twice in a row is as once. But a copy that is run late undoes what was
    /// written since.
    Write,
    /// Something else than once, such as to remove a file.
    Once,
    /// Nobody knows: the program is not known, or the call could not be read.
    Unknown,
}

impl Class {
    /// Whether it is taken for non-idempotent, and may not be sent by two ways: all but [`Class::ReadOnly`] and
    /// [`Class::Slot`], a write as well, for its late copies. The argument is in [`crate::replay`].
    pub fn is_non_idempotent(self) -> bool {
        !matches!(self, Class::ReadOnly | Class::Slot)
    }
}

/// What dispatch and replay want to know about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// Whether it may be run twice.
    pub class: Class,
    /// Bytes that the reply probably has beside its header: what a READ or READDIR asks for.
    pub expected: u32,
    /// Whether it has no more, but for some KiB: the call could be read, and says how much may come back.
    pub foreseen: bool,
    /// A hash of the file handle that it is about.
    pub file: Option<u64>,
}

impl Nature {
    const fn of(class: Class) -> Nature {
        Nature {
            class,
            expected: 0,
            foreseen: true,
            file: None,
        }
    }

    /// One whose reply may be of any size.
    const fn unforeseen(class: Class) -> Nature {
        Nature {
            foreseen: false,
            ..Nature::of(class)
        }
    }
}

/// Bytes that a reply is taken for whose size nobody can foresee.
pub const GUESS: u32 = 64 << 10;

/// Looks at a call, of which `bytes` are the first or all from the XID on.
///
/// 1. Procedure 0 of every program does nothing (RFC 5531, section 12.1): read-only.
/// 2. NFSv3: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK count once, and so does SETATTR with a
///    guard, or one that cannot be read. WRITE, however stable, and SETATTR without a guard are writes. All
///    others are read-only, COMMIT included.
/// 3. NFSv4: by the operations of the COMPOUND ([`compound::nature`]).
/// 4. MOUNT: MNT, DUMP and EXPORT are read-only; the list that MNT adds to is for people. UMNT and UMNTALL count
///    once: a late one takes a newer mount off that list.
/// 5. The portmapper's GETPORT and DUMP, and GETACL of NFS_ACL version 3, are read-only.
/// 6. Everything else is unknown, NLM and NSM among it.
///
/// Arguments that RPCSEC_GSS protects (krb5i, krb5p) are not read: by rule 2 the procedure decides alone, and by rule 3
/// a COMPOUND is unknown.
pub fn nature(call: &Call, bytes: &[u8]) -> Nature {
    let arguments = bytes.get(call.arguments..).unwrap_or(&[]);
    let arguments = if is_wrapped(call, bytes) {
        &[]
    } else {
        arguments
    };
    match (call.program, call.version, call.procedure) {
        (.., 0) => Nature::of(Class::ReadOnly),
        (number::NFS, 3, procedure) => nfs3(procedure, arguments),
        (number::NFS, 4, 1) => compound::nature(arguments),
        (number::MOUNT, 1..=3, 1) => Nature::of(Class::ReadOnly),
        (number::MOUNT, 1..=3, 2 | 5) => Nature::unforeseen(Class::ReadOnly),
        (number::MOUNT, 1..=3, 3 | 4) => Nature::of(Class::Once),
        (number::PORTMAP, 2, 3 | 4) | (number::PORTMAP, 3 | 4, 3 | 4) => {
            Nature::of(Class::ReadOnly)
        }
        (number::NFS_ACL, 3, 1) => Nature::unforeseen(Class::ReadOnly),
        _ => Nature::unforeseen(Class::Unknown),
    }
}

/// Whether RPCSEC_GSS has arguments signed or encrypted, or the call is about the context itself (RFC 2203, section 5):
/// its credentials are version, procedure, sequence number and service.
fn is_wrapped(call: &Call, bytes: &[u8]) -> bool {
    /// Where credentials begin, and how far it is to the service.
    const CREDENTIALS: usize = 32;
    const SERVICE: usize = 12;
    let plain = |bytes| {
        let mut cursor = Cursor::new(bytes);
        cursor.skip(CREDENTIALS + SERVICE)?;
        Some(cursor.u32()? == 1)
    };
    call.is_signed() && plain(bytes) != Some(true)
}

fn nfs3(procedure: u32, arguments: &[u8]) -> Nature {
    let mut cursor = Cursor::new(arguments);
    let file = cursor.opaque().map(hash);
    let class = match procedure {
        2 => match guarded(&mut cursor) {
            Some(false) => Class::Write,
            Some(true) | None => Class::Once,
        },
        7 => Class::Write,
        8..=15 => Class::Once,
        1..=21 => Class::ReadOnly,
        _ => Class::Unknown,
    };
    let mut words = |skip: usize| cursor.skip(skip).and_then(|()| cursor.u32());
    let (expected, foreseen) = match procedure {
        // READ: offset, count. READDIR: cookie, verifier, count. READDIRPLUS: also the other count.
        6 => words(8),
        16 => words(16),
        17 => words(20),
        _ => Some(0),
    }
    .map_or((GUESS, false), |count| (count, true));
    Nature {
        class,
        expected,
        foreseen: foreseen && class != Class::Unknown,
        file,
    }
}

/// Whether a SETATTR, from behind its handle, has a guard.
fn guarded(cursor: &mut Cursor<'_>) -> Option<bool> {
    // Mode, owner, group: a word each if set; size: two.
    for length in [4, 4, 4, 8] {
        if cursor.u32()? != 0 {
            cursor.skip(length)?;
        }
    }
    // Times: 2 is "the client's", with the time.
    for _ in 0..2 {
        if cursor.u32()? == 2 {
            cursor.skip(8)?;
        }
    }
    Some(cursor.u32()? != 0)
}

/// FNV-1a: spreads handles, which differ in few bytes; it guards against nothing.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes.iter().fold(start, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The name of a procedure, for people; none for one that is not known.
pub fn name(program: u32, version: u32, procedure: u32) -> Option<&'static str> {
    const NFS3: [&str; 22] = [
        "NULL",
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "ACCESS",
        "READLINK",
        "READ",
        "WRITE",
        "CREATE",
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "REMOVE",
        "RMDIR",
        "RENAME",
        "LINK",
        "READDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
        "COMMIT",
    ];
    match (program, version, procedure) {
        (number::NFS, 3, procedure) => NFS3.get(procedure as usize).copied(),
        (number::NFS, 4, 1) => Some("COMPOUND"),
        (.., 0) => Some("NULL"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(program: u32, version: u32, procedure: u32) -> Call {
        Call {
            xid: 1,
            program,
            version,
            procedure,
            flavour: 0,
            arguments: 0,
        }
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn what_nfs3_changes_once_is_known() {
        let once: Vec<&str> = (0..22)
            .filter(|p| nature(&call(number::NFS, 3, *p), &[]).class == Class::Once)
            .filter_map(|p| name(number::NFS, 3, p))
            .collect();
        let listed = "SETATTR CREATE MKDIR SYMLINK MKNOD REMOVE RMDIR RENAME LINK";
        assert_eq!(once.join(" "), listed);
        assert_eq!(nature(&call(number::NFS, 3, 22), &[]).class, Class::Unknown);
        assert_eq!(nature(&call(100_021, 4, 2), &[]).class, Class::Unknown);
        assert_eq!(nature(&call(100_021, 4, 0), &[]).class, Class::ReadOnly);
        let writes: Vec<u32> = (0..22)
            .filter(|p| nature(&call(number::NFS, 3, *p), &[]).class == Class::Write)
            .collect();
        assert_eq!(writes, [7]);
    }

    #[test]
    fn of_mount_only_the_end_counts() {
        let once: Vec<u32> = (0..6)
            .filter(|p| nature(&call(number::MOUNT, 3, *p), &[]).class == Class::Once)
            .collect();
        assert_eq!(once, [3, 4]);
    }

    #[test]
    fn a_guard_makes_the_difference() {
        // A handle of 4 bytes; a mode, no owner, no group, a size; times: the server's, the client's.
        let mut setattr = vec![4, 7, 1, 0o644, 0, 0, 1, 0, 99, 1, 2, 5, 6];
        setattr.push(0);
        let class = |words_: &[u32]| nature(&call(number::NFS, 3, 2), &words(words_)).class;
        assert_eq!(class(&setattr), Class::Write);
        *setattr.last_mut().unwrap() = 1;
        assert_eq!(class(&setattr), Class::Once);
        assert_eq!(class(&setattr[..9]), Class::Once);
    }

    /// What Kerberos has signed or encrypted says nothing but its procedure.
    #[test]
    fn what_is_wrapped_is_not_read() {
        let of = |procedure, (version, gss), service| {
            let header = Call {
                flavour: 6,
                arguments: 60,
                version,
                ..call(number::NFS, version, procedure)
            };
            // A handle of 4 bytes, an offset, a count; or all of that in what is signed.
            let credentials = [1, gss, 7, service, 0, 0, 0];
            let arguments = [4, 7, 0, 0, 1 << 20];
            let all = [
                &[1, 0, 2, number::NFS, version, procedure, 6, 20][..],
                &credentials,
                &arguments,
            ];
            nature(&header, &words(&all.concat()))
        };
        let plain = of(6, (3, 0), 1);
        assert_eq!((plain.expected, plain.foreseen), (1 << 20, true));
        for (gss, service) in [(0, 2), (0, 3), (0, 77)] {
            let read = of(6, (3, gss), service);
            assert_eq!(read.class, Class::ReadOnly);
            assert_eq!(
                (read.expected, read.foreseen, read.file),
                (GUESS, false, None)
            );
            let write = of(7, (3, gss), service);
            assert_eq!((write.class, write.foreseen), (Class::Write, true));
            assert_eq!(of(2, (3, gss), service).class, Class::Once);
            let compound = of(1, (4, gss), service);
            assert_eq!((compound.class, compound.foreseen), (Class::Unknown, false));
        }
    }

    #[test]
    fn reads_say_how_much_comes_back() {
        let read = nature(&call(number::NFS, 3, 6), &words(&[4, 7, 0, 0, 1 << 20]));
        assert_eq!((read.class, read.expected), (Class::ReadOnly, 1 << 20));
        let other = nature(&call(number::NFS, 3, 1), &words(&[4, 7]));
        assert_eq!(read.file, other.file);
        let list = words(&[4, 7, 0, 0, 0, 0, 512, 8192]);
        assert_eq!(nature(&call(number::NFS, 3, 17), &list).expected, 8192);
        assert_eq!(nature(&call(number::NFS, 3, 16), &list).expected, 512);
    }
}

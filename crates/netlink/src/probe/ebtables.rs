//! Legacy ebtables: what its built-in chains hold. (ebtables-nft is nftables, see [`super::nft`].)
//!
//! Nothing lists its tables. One that no kernel module is there for does not exist; asking for another one creates it where it does
//! not exist yet, and that is then empty, and lets everything pass.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{Error, has_module};
use crate::codec::DecodeError;

/// `EBT_SO_GET_INFO`.
const GET_INFO: libc::c_int = 128;
/// `EBT_SO_GET_ENTRIES`.
const GET_ENTRIES: libc::c_int = 129;
/// Bytes in a pointer, and in `struct ebt_replace`: name, three numbers, six pointers, a number, two pointers.
const POINTER: usize = size_of::<usize>();
const REPLACE: usize = 44usize.next_multiple_of(POINTER) + 9 * POINTER;
/// Bytes before the chain's rules in `struct ebt_entries`: a zero, name, counter, policy, how many rules.
const CHAIN: usize = 48;
/// Where `struct ebt_entry` says how far it is to the next.
const NEXT: usize = 108;
/// `EBT_DROP`.
const DROP: u32 = -2i32 as u32;
/// A table larger than this is not read.
const MOST: usize = 64 << 20;

/// Its tables.
const TABLES: [&str; 3] = ["broute", "nat", "filter"];
/// Its built-in chains.
const HOOKS: [&str; 6] = [
    "PREROUTING",
    "INPUT",
    "FORWARD",
    "OUTPUT",
    "POSTROUTING",
    "BROUTING",
];

/// A built-in chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its table: `broute`, `nat` or `filter`.
    pub table: &'static str,
    /// Its name, as ebtables has it: `INPUT`, ...
    pub hook: &'static str,
    /// How many rules it has.
    pub rules: u32,
    /// Its policy is to drop.
    pub policy_drop: bool,
}

/// The built-in chains of all tables of the namespace. None without legacy ebtables.
///
/// Reads the tables, rules and all.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`; [`Error::Decode`] for an answer that makes no sense.
pub fn chains() -> Result<Vec<Chain>, Error> {
    let mut chains = Vec::new();
    for table in TABLES {
        if has_module(&format!("ebtable_{table}"))? {
            chains.extend(read(table)?);
        }
    }
    Ok(chains)
}

fn read(table: &'static str) -> Result<Vec<Chain>, Error> {
    let what = "read an ebtables table";
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|e| Error::io(what, e.into()))?;
    // The table may be replaced between the two questions, which the second one notices.
    for _ in 0..8 {
        let mut replace = [0; REPLACE];
        replace[..table.len()].copy_from_slice(table.as_bytes());
        match get(&socket, GET_INFO, &mut replace) {
            Ok(()) => {}
            // No such table, or none at all.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOPROTOOPT)) => {
                return Ok(Vec::new());
            }
            Err(e) => return Err(Error::io(what, e)),
        }
        let size = word(&replace, 40).unwrap_or(0) as usize;
        if size > MOST {
            return Err(Error::io(what, std::io::ErrorKind::FileTooLarge.into()));
        }
        let mut entries = vec![0u8; size];
        let at = REPLACE - POINTER;
        replace[at..].copy_from_slice(&(entries.as_mut_ptr() as usize).to_ne_bytes());
        match get(&socket, GET_ENTRIES, &mut replace) {
            Ok(()) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINVAL)) => continue,
            Err(e) => return Err(Error::io(what, e)),
        }
        return decode(table, &entries).map_err(|source| Error::Decode { what, source });
    }
    Err(Error::io(
        what,
        std::io::Error::from_raw_os_error(libc::EAGAIN),
    ))
}

/// Asks with `struct ebt_replace`. With [`GET_ENTRIES`] its last pointer is to a live buffer of as many bytes as it says.
fn get(socket: &OwnedFd, option: libc::c_int, replace: &mut [u8; REPLACE]) -> std::io::Result<()> {
    let mut length = REPLACE as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into the live structure of that length, and the entries where this points to,
    // which are as many bytes as it says or the kernel refuses (`copy_everything_to_user`).
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            option,
            replace.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Decodes a table's entries: chains (`struct ebt_entries`), and behind each its rules (`struct ebt_entry`).
pub(super) fn decode(table: &'static str, entries: &[u8]) -> Result<Vec<Chain>, DecodeError> {
    let bad = |length, at: usize| DecodeError::BadLength {
        what: "an ebtables entry",
        length,
        have: entries.len().saturating_sub(at),
    };
    let mut chains = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let entry = &entries[at..];
        let number = |offset| word(entry, offset).ok_or_else(|| bad(offset, at));
        // A rule has a bit set there.
        let is_chain = number(0)? == 0;
        let (length, least) = match is_chain {
            true => (CHAIN, CHAIN),
            false => (number(NEXT)? as usize, NEXT + 4),
        };
        if length < least || length > entry.len() {
            return Err(bad(length, at));
        }
        if is_chain {
            let name = entry[4..36].split(|byte| *byte == 0).next();
            let hook = HOOKS.into_iter().find(|hook| name == Some(hook.as_bytes()));
            // Others are chains that are jumped to.
            if let Some(hook) = hook {
                chains.push(Chain {
                    table,
                    hook,
                    rules: number(44)?,
                    policy_drop: number(40)? == DROP,
                });
            }
        }
        at += length;
    }
    Ok(chains)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(name: &str, policy: i32, rules: u32) -> Vec<u8> {
        let mut bytes = vec![0; CHAIN];
        bytes[4..4 + name.len()].copy_from_slice(name.as_bytes());
        bytes[40..44].copy_from_slice(&policy.to_ne_bytes());
        bytes[44..].copy_from_slice(&rules.to_ne_bytes());
        bytes
    }

    fn rule(length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        bytes[..4].copy_from_slice(&1u32.to_ne_bytes());
        bytes[NEXT..NEXT + 4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    #[test]
    fn chains_and_their_rules_are_told_apart() {
        let parts = [
            chain("INPUT", -1, 0),
            chain("FORWARD", -1, 2),
            rule(160),
            rule(200),
            chain("OUTPUT", -2, 0),
            chain("own", -4, 1),
            rule(112),
        ];
        let bytes = parts.concat();
        let of = |hook, rules, policy_drop| Chain {
            table: "filter",
            hook,
            rules,
            policy_drop,
        };
        let expected = [
            of("INPUT", 0, false),
            of("FORWARD", 2, false),
            of("OUTPUT", 0, true),
        ];
        assert_eq!(decode("filter", &bytes).unwrap(), expected);
        assert_eq!(decode("filter", &[]).unwrap(), []);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let whole = [chain("INPUT", -1, 1), rule(160)].concat();
        for end in (1..whole.len()).filter(|end| *end != CHAIN) {
            assert!(decode("filter", &whole[..end]).is_err(), "{end}");
        }
        for length in [0, 48, 100, 161, u32::MAX] {
            let mut bytes = rule(160);
            bytes[NEXT..NEXT + 4].copy_from_slice(&u32::to_ne_bytes(length));
            assert!(decode("nat", &bytes).is_err(), "{length}");
        }
    }

    #[test]
    fn the_structures_are_the_kernels() {
        if POINTER == 8 {
            assert_eq!(REPLACE, 120);
        }
    }
}

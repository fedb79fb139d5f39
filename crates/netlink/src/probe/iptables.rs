//! Legacy iptables and ip6tables: what their built-in chains hold.
//!
//! Only tables that exist already are asked for (`/proc/net/ip_tables_names`): asking for another
//! one would create it, and hook it in. That file is for root alone, so others ask for the tables
//! whose kernel modules are there; one that is created by that is empty, and lets everything pass.

mod rules;

pub use self::rules::{Extension, Masked, Rule, Target};

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{Error, has_module};
use crate::codec::DecodeError;

/// `IPT_SO_GET_INFO`, `IP6T_SO_GET_INFO`.
const GET_INFO: libc::c_int = 64;
/// `IPT_SO_GET_ENTRIES`, `IP6T_SO_GET_ENTRIES`.
const GET_ENTRIES: libc::c_int = 65;
/// Bytes in `struct ipt_getinfo`.
const INFO: usize = 84;
/// Bytes before the entries in `struct ipt_get_entries`: name and size, aligned as the 64-bit
/// counters in the entries are.
const BEFORE_ENTRIES: usize = if align_of::<u64>() == 8 { 40 } else { 36 };
/// A table larger than this is not read for the sake of its wording.
const MOST: usize = 64 << 20;
/// Bytes in `struct xt_entry_target` and `xt_entry_match`: size, name, revision.
const EXTENSION: usize = 32;
const NAME: usize = 29;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// iptables.
    Ipv4,
    /// ip6tables.
    Ipv6,
}

impl Family {
    /// The command that shows its tables.
    pub fn command(self) -> &'static str {
        match self {
            Family::Ipv4 => "iptables-legacy",
            Family::Ipv6 => "ip6tables-legacy",
        }
    }

    /// What the kernel modules of its tables are called, without the table's name.
    fn modules(self) -> &'static str {
        match self {
            Family::Ipv4 => "iptable_",
            Family::Ipv6 => "ip6table_",
        }
    }

    fn names(self) -> &'static str {
        match self {
            Family::Ipv4 => "/proc/thread-self/net/ip_tables_names",
            Family::Ipv6 => "/proc/thread-self/net/ip6_tables_names",
        }
    }

    fn level(self) -> libc::c_int {
        match self {
            Family::Ipv4 => libc::IPPROTO_IP,
            Family::Ipv6 => libc::IPPROTO_IPV6,
        }
    }

    /// Bytes of the selector at the front of an entry (`struct ipt_ip`, `struct ip6t_ip6`), and
    /// of the whole fixed part (`struct ipt_entry`, `struct ip6t_entry`).
    fn layout(self) -> (usize, usize) {
        match self {
            Family::Ipv4 => (84, 112),
            Family::Ipv6 => (136, if align_of::<u64>() == 8 { 168 } else { 164 }),
        }
    }
}

/// The built-in chains, in the order of `NF_INET_*`.
pub const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// A built-in chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// iptables or ip6tables.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name, one of [`HOOKS`].
    pub hook: &'static str,
    /// Whether it has rules.
    pub has_rules: bool,
    /// Its policy is to drop.
    pub policy_drop: bool,
    /// Offsets in the table of its first rule and of its policy.
    pub span: (usize, usize),
    /// Its first rule as `-s 10.0.0.0/8 -i eth0 -m conntrack -j DROP`: the matches by name only.
    pub first: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its built-in chains.
    pub chains: Vec<Chain>,
    /// All its rules.
    pub rules: Vec<Rule>,
    /// Offsets of the first rules of user chains, or of what follows an empty one; ascending.
    pub user_chains: Vec<usize>,
    /// The matches and targets that any of its rules uses, as `-m conntrack` and `-j MASQUERADE`.
    pub extensions: BTreeSet<String>,
}

/// The built-in chains of all tables of the namespace. None without legacy iptables.
///
/// # Errors
/// As [`tables`].
pub fn chains() -> Result<Vec<Chain>, Error> {
    Ok(tables()?
        .into_iter()
        .flat_map(|table| table.chains)
        .collect())
}

/// All tables of the namespace. None without legacy iptables.
///
/// Reads them, rules and all.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`; [`Error::Decode`] for an answer that makes no sense.
pub fn tables() -> Result<Vec<Table>, Error> {
    let mut tables = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        match std::fs::read_to_string(family.names()) {
            Ok(names) => {
                for table in names.lines() {
                    tables.push(read(family, table)?);
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                for table in TABLES {
                    if !has_module(&format!("{}{table}", family.modules()))? {
                        continue;
                    }
                    match read(family, table) {
                        Err(e) if e.errno() == Some(libc::ENOENT) => {}
                        table => tables.push(table?),
                    }
                }
            }
            Err(e) => return Err(Error::io("list iptables tables", e)),
        }
    }
    Ok(tables)
}

/// The tables that there are modules for.
const TABLES: [&str; 5] = ["filter", "nat", "mangle", "raw", "security"];

fn read(family: Family, table: &str) -> Result<Table, Error> {
    let what = "read an iptables table";
    let address = match family {
        Family::Ipv4 => AddressFamily::Inet,
        Family::Ipv6 => AddressFamily::Inet6,
    };
    let socket = socket(address, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|e| Error::io(what, e.into()))?;
    // The table may be replaced between the two questions, which the second one notices.
    for _ in 0..8 {
        let mut answer = vec![0; INFO];
        put_name(&mut answer, table);
        get(&socket, family, GET_INFO, &mut answer).map_err(|e| Error::io(what, e))?;
        let size = word(&answer, 80).unwrap_or(0) as usize;
        if size > MOST {
            return Err(Error::io(what, std::io::ErrorKind::FileTooLarge.into()));
        }
        let mut entries = vec![0; BEFORE_ENTRIES + size];
        put_name(&mut entries, table);
        entries[32..36].copy_from_slice(&(size as u32).to_ne_bytes());
        match get(&socket, family, GET_ENTRIES, &mut entries) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => continue,
            Err(e) => return Err(Error::io(what, e)),
        }
        answer.extend_from_slice(&entries[BEFORE_ENTRIES..]);
        return decode(family, table, &answer).map_err(|source| Error::Decode { what, source });
    }
    Err(Error::io(
        what,
        std::io::Error::from_raw_os_error(libc::EAGAIN),
    ))
}

fn put_name(buffer: &mut [u8], table: &str) {
    let name = table.as_bytes();
    let length = name.len().min(31);
    buffer[..length].copy_from_slice(&name[..length]);
}

fn get(
    socket: &OwnedFd,
    family: Family,
    option: libc::c_int,
    buffer: &mut [u8],
) -> std::io::Result<()> {
    let mut length = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into the live buffer of that length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            family.level(),
            option,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Decodes `struct ipt_getinfo` followed by the table's entries.
pub(super) fn decode(family: Family, table: &str, bytes: &[u8]) -> Result<Table, DecodeError> {
    let Some((info, entries)) = bytes.split_at_checked(INFO) else {
        return Err(DecodeError::Truncated {
            what: "ipt_getinfo",
            need: INFO,
            have: bytes.len(),
        });
    };
    let number = |at| word(info, at).unwrap_or_default();
    let valid = number(32);
    let mut chains = Vec::new();
    for (i, hook) in HOOKS.into_iter().enumerate() {
        if valid & (1 << i) == 0 {
            continue;
        }
        // A built-in chain is its rules and then its policy; it has none when it starts there.
        let (start, policy) = (number(36 + 4 * i) as usize, number(56 + 4 * i) as usize);
        let policy_drop = match entry(family, entries, policy)?.verdict() {
            Some(verdict) => verdict == -1,
            None => {
                return Err(DecodeError::BadValue {
                    what: "the policy of an iptables chain",
                    value: policy as u64,
                });
            }
        };
        let has_rules = start != policy;
        let first = has_rules
            .then(|| entry(family, entries, start))
            .transpose()?;
        chains.push(Chain {
            family,
            table: table.to_owned(),
            hook,
            has_rules,
            policy_drop,
            span: (start, policy),
            first: first.map(|e| e.text(family)),
        });
    }
    let (rules, user_chains) = rules::rules(family, entries)?;
    Ok(Table {
        chains,
        rules,
        user_chains,
        extensions: extensions(family, entries)?,
    })
}

/// What all rules of a table use.
fn extensions(family: Family, entries: &[u8]) -> Result<BTreeSet<String>, DecodeError> {
    let mut used = BTreeSet::new();
    let mut at = 0;
    while at < entries.len() {
        let rule = entry(family, entries, at)?;
        used.extend(rule.matches().map(|name| format!("-m {name}")));
        let target = extension_name(rule.target).filter(|name| !name.is_empty());
        used.extend(target.map(|name| format!("-j {name}")));
        // Never 0: the fixed part lies in between.
        at += rule.length;
    }
    Ok(used)
}

/// One rule: its selector, its matches and its target.
struct Entry<'a> {
    /// To the next one.
    length: usize,
    selector: &'a [u8],
    matches: &'a [u8],
    target: &'a [u8],
}

fn entry(family: Family, entries: &[u8], at: usize) -> Result<Entry<'_>, DecodeError> {
    let (selector_len, fixed) = family.layout();
    let bad = |length| DecodeError::BadLength {
        what: "an iptables entry",
        length,
        have: entries.len().saturating_sub(at),
    };
    let bytes = entries.get(at..).ok_or_else(|| bad(at))?;
    let offset = |at| half(bytes, at).map(usize::from).ok_or_else(|| bad(fixed));
    // Behind the selector: nfcache, target_offset, next_offset.
    let (target, next) = (offset(selector_len + 4)?, offset(selector_len + 6)?);
    Ok(Entry {
        length: next,
        selector: bytes.get(..selector_len).ok_or_else(|| bad(fixed))?,
        matches: bytes.get(fixed..target).ok_or_else(|| bad(target))?,
        target: bytes.get(target..next).ok_or_else(|| bad(next))?,
    })
}

impl<'a> Entry<'a> {
    /// The names of its matches.
    fn matches(&self) -> impl Iterator<Item = String> + use<'a> {
        let mut rest = self.matches;
        std::iter::from_fn(move || {
            let (size, name) = (half(rest, 0)?, extension_name(rest)?);
            let next = rest.get(usize::from(size)..).filter(|_| size > 0);
            rest = next.unwrap_or_default();
            Some(name)
        })
    }

    /// The verdict of a standard target: -1 drop, -2 accept, others below 0, a jump from 0 on.
    fn verdict(&self) -> Option<i32> {
        let standard = extension_name(self.target)?.is_empty();
        let verdict = word(self.target, EXTENSION)?;
        standard.then_some(verdict as i32)
    }

    /// About as `iptables -S` would put it.
    fn text(&self, family: Family) -> String {
        let mut text = selector(family, self.selector);
        for name in self.matches() {
            text += &format!("-m {name} ");
        }
        let target = match self.verdict() {
            Some(-1) => "DROP".to_owned(),
            Some(-2) => "ACCEPT".to_owned(),
            Some(-4) => "QUEUE".to_owned(),
            Some(-5) => "RETURN".to_owned(),
            Some(_) => "(a chain)".to_owned(),
            None => extension_name(self.target).unwrap_or_default(),
        };
        text + "-j " + &target
    }
}

/// Addresses, links and protocol, where they are not "any".
fn selector(family: Family, bytes: &[u8]) -> String {
    let mut text = String::new();
    let (addresses, masks, links, protocol, inverted) = match family {
        Family::Ipv4 => ([0, 4], [8, 12], [16, 32], 80, 83),
        Family::Ipv6 => ([0, 16], [32, 48], [64, 80], 128, 132),
    };
    let not = |bit: u8| match bytes.get(inverted) {
        Some(flags) if flags & bit != 0 => "! ",
        _ => "",
    };
    // The bits of invflags: 1 in-link, 2 out-link, 8 source, 16 destination, 64 protocol.
    for (i, (option, bit)) in [("-s", 8), ("-d", 16)].into_iter().enumerate() {
        if let Some((address, length)) = prefix(family, bytes, addresses[i], masks[i])
            && length > 0
        {
            text += &format!("{}{option} {address}/{length} ", not(bit));
        }
    }
    for (i, (option, bit)) in [("-i", 1), ("-o", 2)].into_iter().enumerate() {
        let name = string(bytes.get(links[i]..links[i] + 16).unwrap_or_default());
        if !name.is_empty() {
            text += &format!("{}{option} {name} ", not(bit));
        }
    }
    match half(bytes, protocol) {
        None | Some(0) => {}
        Some(1) => text += &format!("{}-p icmp ", not(64)),
        Some(6) => text += &format!("{}-p tcp ", not(64)),
        Some(17) => text += &format!("{}-p udp ", not(64)),
        Some(n) => text += &format!("{}-p {n} ", not(64)),
    }
    text
}

/// An address and how many ones its mask begins with.
fn prefix(family: Family, bytes: &[u8], address: usize, mask: usize) -> Option<(String, u32)> {
    match family {
        Family::Ipv4 => {
            let a = *bytes.get(address..)?.first_chunk::<4>()?;
            let m = u32::from_be_bytes(*bytes.get(mask..)?.first_chunk::<4>()?);
            Some((Ipv4Addr::from(a).to_string(), m.leading_ones()))
        }
        Family::Ipv6 => {
            let a = *bytes.get(address..)?.first_chunk::<16>()?;
            let m = u128::from_be_bytes(*bytes.get(mask..)?.first_chunk::<16>()?);
            Some((Ipv6Addr::from(a).to_string(), m.leading_ones()))
        }
    }
}

fn extension_name(bytes: &[u8]) -> Option<String> {
    bytes.get(2..2 + NAME).map(string)
}

fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk::<4>()
        .map(|b| u32::from_ne_bytes(*b))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk::<2>()
        .map(|b| u16::from_ne_bytes(*b))
}

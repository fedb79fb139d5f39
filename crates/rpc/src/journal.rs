//! Calls that must not be run twice and that were sent to a server, in a file that outlives the process: the next
//! one sends what clients repeat from the same port and with the same XID, so that the server's cache knows it.
//! What becomes of a repetition is decided in [`crate::replay::resumed`].
//!
//! The file has a page with the hash's keys and the boot that its times count from, and two rings of entries of 64 bytes: one for what writes, one for all
//! else, so that many WRITEs push out no MKDIR. An entry is in the file before the first byte of its call is sent.
//! Nothing is synchronised to a disk: it is the process that may end, not the machine. None of 64 bytes crosses a
//! page, and the kernel ends no process within one, so that every entry is whole.
//!
//! A ring goes round, and entries grow old. So calls that have no reply yet are noted again ([`Notes::is_due`])
//! before theirs are written over, or are as old as nobody would come back for.

mod notes;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::replay::RETURN;
pub use notes::{Noted, Notes, PENDING};

/// What the file begins with; another number for another layout.
const MAGIC: [u8; 8] = *b"raddlej2";
/// Bytes before the rings.
const PAGE: u64 = 4096;
/// Of these, those that are used: the magic number, the keys, which boot of the machine it is.
const HEAD: usize = 40;
/// Bytes of an entry.
const ENTRY: usize = 64;
/// Entries of a ring.
const SLOTS: u32 = 1 << 15;
/// What an entry ends with, so that bytes that were never written are none.
const WRITTEN: u16 = 0x5a1d;

/// Keys of the hash that calls are known by; every process that uses the file has the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys(pub u64, pub u64);

impl BuildHasher for Keys {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// Where a call was sent: by which connection, and with which XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The connection's number among all.
    pub transport: u16,
    /// Its own address and port.
    pub local: SocketAddr,
    /// The server's.
    pub peer: SocketAddr,
    /// The XID to the server.
    pub xid: u32,
}

/// A call that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which one of all, counted from anywhere.
    pub number: u32,
    /// When, in seconds since the machine started.
    pub second: u32,
    /// What it is known by ([`crate::duplicate::Key::tag`]).
    pub tag: u64,
    /// Where it was sent.
    pub place: Place,
}

impl Entry {
    /// As it is written.
    pub fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let Place {
            transport,
            local,
            peer,
            xid,
        } = self.place;
        let scope = match (local, peer) {
            (SocketAddr::V6(local), SocketAddr::V6(peer)) => local.scope_id().max(peer.scope_id()),
            _ => 0,
        };
        let parts: [&[u8]; 11] = [
            &self.number.to_be_bytes(),
            &self.second.to_be_bytes(),
            &self.tag.to_be_bytes(),
            &octets(local),
            &octets(peer),
            &xid.to_be_bytes(),
            &scope.to_be_bytes(),
            &transport.to_be_bytes(),
            &local.port().to_be_bytes(),
            &peer.port().to_be_bytes(),
            &WRITTEN.to_be_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes
    }

    /// Reads one; none where none was written.
    pub fn parse(bytes: &[u8; ENTRY]) -> Option<Entry> {
        fn part<const N: usize>(bytes: &[u8; ENTRY], at: usize) -> [u8; N] {
            std::array::from_fn(|i| bytes[at + i])
        }
        if u16::from_be_bytes(part(bytes, 62)) != WRITTEN {
            return None;
        }
        let scope = u32::from_be_bytes(part(bytes, 52));
        let address = |at: usize, port: usize| {
            let port = u16::from_be_bytes(part(bytes, port));
            match Ipv6Addr::from(part::<16>(bytes, at)).to_canonical() {
                IpAddr::V4(ip) => SocketAddr::from((ip, port)),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            }
        };
        Some(Entry {
            number: u32::from_be_bytes(part(bytes, 0)),
            second: u32::from_be_bytes(part(bytes, 4)),
            tag: u64::from_be_bytes(part(bytes, 8)),
            place: Place {
                local: address(16, 58),
                peer: address(32, 60),
                xid: u32::from_be_bytes(part(bytes, 48)),
                transport: u16::from_be_bytes(part(bytes, 56)),
            },
        })
    }
}

fn octets(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// What an earlier process has left.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// The last entry of each call, by tag.
    pub calls: HashMap<u64, Entry>,
    /// The address and port of each connection that called last, and the server's, by number.
    pub ends: HashMap<u16, (SocketAddr, SocketAddr)>,
    /// The server's address that was called last.
    pub peer: Option<SocketAddr>,
}

impl Left {
    /// Of these entries; what is as old as [`RETURN`] at this second counts as not there. Connections have to be
    /// `wanted`, by their numbers and servers; calls of others are known, and cannot be sent from where they were.
    pub fn of(mut entries: Vec<Entry>, now: u32, wanted: impl Fn(u16, SocketAddr) -> bool) -> Left {
        entries.retain(|entry| age(entry, now) < RETURN);
        // Numbers wrap, and are near each other.
        let base = entries.first().map_or(0, |entry| entry.number);
        entries.sort_by_key(|entry| entry.number.wrapping_sub(base) as i32);
        let mut left = Left::default();
        for entry in entries {
            let place = entry.place;
            if wanted(place.transport, place.peer) {
                left.ends.insert(place.transport, (place.local, place.peer));
                left.peer = Some(place.peer);
            }
            left.calls.insert(entry.tag, entry);
        }
        left
    }
}

/// How long ago a call was sent, as far as seconds tell.
pub fn age(entry: &Entry, now: u32) -> Duration {
    Duration::from_secs(now.wrapping_sub(entry.second).into())
}

/// Seconds since the machine started.
pub fn second() -> u32 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes a value of this type, which lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u32
}

/// Which boot of the machine this is; 0 where that cannot be read.
fn boot() -> u128 {
    let said = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let digits = said.unwrap_or_default().trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// A file in which calls that are sent are noted ([`Notes`]).
#[derive(Debug)]
pub struct Journal {
    notes: Notes,
    book: Option<Book>,
}

/// The file.
#[derive(Debug)]
pub struct Book(File);

impl Journal {
    /// One without a file: nothing outlives the process. Draw the keys.
    pub fn none(keys: Keys) -> Journal {
        Journal {
            notes: Notes::none(keys),
            book: None,
        }
    }

    /// Opens the file, or makes it with these keys, and gives what an earlier process has left in it since the machine
    /// started, as by [`Left::of`].
    ///
    /// # Errors
    /// It cannot be used, or is used by another process (`WouldBlock`).
    pub fn open(
        path: &Path,
        keys: Keys,
        wanted: impl Fn(u16, SocketAddr) -> bool,
    ) -> io::Result<(Journal, Left)> {
        Journal::open_in(path, keys, (boot(), second()), wanted)
    }

    /// The same in this boot, at this second.
    fn open_in(
        path: &Path,
        keys: Keys,
        (boot, now): (u128, u32),
        wanted: impl Fn(u16, SocketAddr) -> bool,
    ) -> io::Result<(Journal, Left)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        file.try_lock()?;
        let mut journal = Journal::none(keys);
        let mut head = [0; HEAD];
        let whole = file.read_exact_at(&mut head, 0);
        let word = |i: usize| u64::from_be_bytes(std::array::from_fn(|byte| head[8 * i + byte]));
        let known = whole.is_ok() && head[..8] == MAGIC && head[24..] == boot.to_be_bytes();
        let mut entries = Vec::new();
        if known {
            journal.notes.keys = Keys(word(1), word(2));
            entries = read(&mut journal.notes, &file, now)?;
        } else {
            file.set_len(0)?;
            head[..8].copy_from_slice(&MAGIC);
            head[8..16].copy_from_slice(&keys.0.to_be_bytes());
            head[16..24].copy_from_slice(&keys.1.to_be_bytes());
            head[24..].copy_from_slice(&boot.to_be_bytes());
            file.write_all_at(&head, 0)?;
        }
        journal.notes.kept = true;
        journal.book = Some(Book(file));
        Ok((journal, Left::of(entries, now, wanted)))
    }

    /// The keys of the hash that calls are known by.
    pub fn keys(&self) -> Keys {
        self.notes.keys()
    }

    /// What is noted, and the file that it goes to, if there is one.
    pub fn into_parts(self) -> (Notes, Option<Book>) {
        (self.notes, self.book)
    }
}

impl Book {
    /// Writes what was noted, at this second; to be called before any of it is sent. Whether it can be written again,
    /// after it could not.
    ///
    /// # Errors
    /// It cannot be written. Nothing is noted for a minute from then on, and then it is tried again.
    pub fn write(&self, notes: &mut Notes, second: u32) -> io::Result<bool> {
        let mut wrote = false;
        for (i, ring) in notes.rings.iter_mut().enumerate() {
            let mut bytes = ring.waiting.as_slice();
            while !bytes.is_empty() {
                let room = (SLOTS - ring.next) as usize * ENTRY;
                let (now, later) = bytes.split_at(bytes.len().min(room));
                let at = start(i) + u64::from(ring.next) * ENTRY as u64;
                if let Err(e) = self.0.write_all_at(now, at) {
                    notes.failed(second);
                    return Err(e);
                }
                ring.next = (ring.next + (now.len() / ENTRY) as u32) % SLOTS;
                bytes = later;
                wrote = true;
            }
            ring.waiting.clear();
        }
        Ok(wrote && notes.works())
    }
}

/// All entries that are not too old at this second; where the rings go on is known from then on. Numbers of old
/// ones say nothing: they wrap.
fn read(notes: &mut Notes, file: &File, now: u32) -> io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    let mut newest: Option<Entry> = None;
    for (i, ring) in notes.rings.iter_mut().enumerate() {
        let mut last: Option<(u32, Entry)> = None;
        let mut bytes = vec![0; SLOTS as usize * ENTRY];
        let read = read_up_to(file, &mut bytes, start(i))?;
        let entries = bytes[..read].as_chunks::<ENTRY>().0.iter();
        for (slot, bytes) in (0..).zip(entries) {
            let entry = Entry::parse(bytes).filter(|entry| age(entry, now) < RETURN);
            let Some(entry) = entry else {
                continue;
            };
            all.push(entry);
            let later = |before: &Entry| entry.number.wrapping_sub(before.number) as i32 > 0;
            if last.as_ref().is_none_or(|(_, before)| later(before)) {
                last = Some((slot, entry));
            }
            if newest.as_ref().is_none_or(later) {
                newest = Some(entry);
            }
        }
        ring.next = last.map_or(0, |(slot, _)| (slot + 1) % SLOTS);
    }
    notes.number = newest.map_or(0, |entry| entry.number.wrapping_add(1));
    Ok(all)
}

/// Where a ring begins.
fn start(ring: usize) -> u64 {
    PAGE + ring as u64 * u64::from(SLOTS) * ENTRY as u64
}

/// Reads as much as there is.
fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests;

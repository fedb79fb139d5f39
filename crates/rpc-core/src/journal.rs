//! Calls that must not be run twice and that were sent to a server, in a file that outlives the process: the next
//! one sends what clients repeat from the same port and with the same XID, so that the server's cache knows it.
//! What becomes of a repetition is decided in [`crate::replay::resumed`]. Here are the file's format and what is
//! noted in it when; the file itself is the driver's.
//!
//! The file has a page with a [`Head`], and two rings of entries of 64 bytes: one for what writes, one for all
//! else, so that many WRITEs push out no MKDIR. An entry is in the file before the first byte of its call is sent.
//! Nothing is synchronised to a disk: it is the process that may end, not the machine. None of 64 bytes crosses a
//! page, and the kernel ends no process within one, so that every entry is whole.
//!
//! A ring goes round, and entries grow old. So calls that have no reply yet are noted again ([`Notes::is_due`])
//! before theirs are written over, or are as old as nobody would come back for.

mod notes;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use siphasher::sip::SipHasher13;

use crate::replay::RETURN;
pub use notes::{Noted, Notes, PENDING};

/// What the file begins with; another number for another layout.
const MAGIC: [u8; 8] = *b"raddlej2";
/// Bytes before the rings.
const PAGE: u64 = 4096;
/// Of these, those that are used: a [`Head`].
pub const HEAD: usize = 40;
/// Bytes of an entry.
pub const ENTRY: usize = 64;
/// Entries of a ring.
pub const SLOTS: u32 = 1 << 15;
/// Bytes of a ring.
pub const RING: usize = SLOTS as usize * ENTRY;
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

/// What the file begins with, after its magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What calls are known by in it.
    pub keys: Keys,
    /// The boot of the machine that its times count from.
    pub boot: u128,
}

impl Head {
    /// As it is written.
    pub fn to_bytes(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&self.keys.0.to_be_bytes());
        head[16..24].copy_from_slice(&self.keys.1.to_be_bytes());
        head[24..].copy_from_slice(&self.boot.to_be_bytes());
        head
    }

    /// Reads it; none where the file is something else, or of another layout.
    pub fn parse(bytes: &[u8; HEAD]) -> Option<Head> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |i: usize| u64::from_be_bytes(words[i]);
        (words[0] == MAGIC).then(|| Head {
            keys: Keys(word(1), word(2)),
            boot: u128::from(word(3)) << 64 | u128::from(word(4)),
        })
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

/// Where a ring begins in the file.
pub fn ring_at(ring: usize) -> u64 {
    PAGE + (ring * RING) as u64
}

#[cfg(test)]
mod tests;

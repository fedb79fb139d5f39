//! Non-idempotent calls, and what they were answered: a client that comes back by a new connection from the same port and
//! repeats them is to have them run once. What becomes of a repetition is decided in [`crate::replay::repeated`]; this tells which
//! call is one, and remembers within bounds.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::assemble::HEAD;
use crate::message::Call;
use crate::wire::Cursor;

/// What a call is known by when it is repeated: what Linux's server and nfs-ganesha know it by. Its client's port is
/// of it: a kernel's client connects again from the port that it had, and who calls from another one is somebody
/// else, whose calls are other calls, as for those servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    client: SocketAddr,
    xid: u32,
    /// Program, version, procedure.
    target: [u32; 3],
    /// Length of the first fragment, and whether it is the last; 0 of a signed call.
    length: u64,
    /// Over the first bytes, credentials included; of a signed call over the handle of its context.
    check: u64,
}

impl Key {
    /// The key of a call of the client at this address and port, whose `head` are the first bytes or all, from the XID on, of which the
    /// first 2 KiB count; its first fragment has `length` bytes, and may be the `last`. `hasher` is the same for
    /// all calls, and best drawn, so that nobody finds two calls with one key. O(1).
    ///
    /// None for a signed call that carries no arguments of its program (RPCSEC_GSS_INIT and so on), or whose
    /// credentials cannot be read. A repetition is signed anew, and its arguments may be wrapped anew, so that
    /// of these nothing counts but the context that it is signed in.
    pub fn new(
        client: SocketAddr,
        call: &Call,
        head: &[u8],
        (length, last): (u64, bool),
        hasher: &impl BuildHasher,
    ) -> Option<Key> {
        let mut state = hasher.build_hasher();
        let length = match call.is_signed() {
            true => {
                state.write(context(head)?);
                0
            }
            false => {
                state.write(&head[..head.len().min(HEAD)]);
                2 * length + u64::from(last)
            }
        };
        Some(Key {
            client: SocketAddr::new(client.ip().to_canonical(), client.port()),
            xid: call.xid,
            target: [call.program, call.version, call.procedure],
            length,
            check: state.finish(),
        })
    }

    /// The same in a number that other processes come to as well, with the same keys ([`crate::journal`]).
    pub fn tag(&self, hasher: &impl BuildHasher) -> u64 {
        let mut state = hasher.build_hasher();
        let ip = match self.client.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        state.write(&ip.octets());
        state.write(&self.client.port().to_be_bytes());
        for word in [self.xid].iter().chain(&self.target) {
            state.write(&word.to_be_bytes());
        }
        state.write(&self.length.to_be_bytes());
        state.write(&self.check.to_be_bytes());
        state.finish()
    }
}

/// The handle of the context that a call of RPCSEC_GSS is signed in, if it is one with data (RFC 2203, section 5).
fn context(call: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor::new(call);
    // XID, a call, RPC's version, program, version, procedure, the flavour.
    cursor.skip(28)?;
    let mut credentials = Cursor::new(cursor.opaque()?);
    let (version, kind) = (credentials.u32()?, credentials.u32()?);
    // The sequence number, and whether arguments are wrapped.
    credentials.skip(8)?;
    let handle = credentials.opaque()?;
    ((version, kind) == (1, 0)).then_some(handle)
}

/// An earlier call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known<W, A> {
    /// It has no reply yet.
    UnderWay(W),
    /// It was answered.
    Answered(A),
}

struct Entry<W, A> {
    known: Known<W, A>,
    serial: u64,
    /// When it was answered, and what is kept of it, in bytes.
    answered: Option<(Instant, usize)>,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Calls that were answered.
    pub entries: usize,
    /// Bytes of their replies.
    pub bytes: usize,
    /// For how long.
    pub time: Duration,
}

/// Non-idempotent calls: those under way (`W`), which whoever has them bounds, and the last that were answered (`A`), the
/// oldest of which are forgotten first. All is O(1), spread over calls.
pub struct Cache<W, A> {
    bounds: Bounds,
    all: HashMap<Key, Entry<W, A>>,
    /// Answered ones, oldest first; some are there no more, or under another serial.
    order: VecDeque<(Key, u64)>,
    answered: usize,
    bytes: usize,
    serial: u64,
}

impl<W, A> Cache<W, A> {
    /// One that remembers nothing yet.
    pub fn new(bounds: Bounds) -> Cache<W, A> {
        Cache {
            bounds,
            all: HashMap::new(),
            order: VecDeque::new(),
            answered: 0,
            bytes: 0,
            serial: 0,
        }
    }

    /// Answered calls that are remembered, and bytes of their replies.
    pub fn kept(&self) -> (usize, usize) {
        (self.answered, self.bytes)
    }

    /// The earlier call with this key.
    pub fn find(&self, key: &Key, now: Instant) -> Option<&Known<W, A>> {
        let entry = self.all.get(key)?;
        let old = entry
            .answered
            .is_some_and(|(at, _)| now.saturating_duration_since(at) >= self.bounds.time);
        (!old).then_some(&entry.known)
    }

    /// A call begins, in place of any other with its key. Gives the number that tells it from these.
    pub fn begin(&mut self, key: Key, call: W) -> u64 {
        self.serial += 1;
        let entry = Entry {
            known: Known::UnderWay(call),
            serial: self.serial,
            answered: None,
        };
        let before = self.all.insert(key, entry);
        self.subtract(before.as_ref());
        self.serial
    }

    /// A call has its reply, of which `bytes` are kept. Gives what is forgotten for it, as by [`Cache::expire`].
    pub fn answered(
        &mut self,
        (key, serial): (Key, u64),
        kept: A,
        bytes: usize,
        now: Instant,
    ) -> Vec<(Key, A)> {
        let Some(entry) = self.all.get_mut(&key) else {
            return Vec::new();
        };
        if entry.serial != serial || entry.answered.is_some() {
            return Vec::new();
        }
        entry.known = Known::Answered(kept);
        entry.answered = Some((now, bytes));
        self.order.push_back((key, serial));
        self.answered += 1;
        self.bytes += bytes;
        self.expire(now)
    }

    /// A call that is under way will have no reply any more.
    pub fn ended(&mut self, key: &Key, serial: u64) {
        let of = self.all.get(key);
        if of.is_some_and(|entry| entry.serial == serial && entry.answered.is_none()) {
            self.all.remove(key);
        }
    }

    /// Forgets what is too old, and the oldest of what is too much. Gives what is not too old.
    pub fn expire(&mut self, now: Instant) -> Vec<(Key, A)> {
        let mut forgotten = Vec::new();
        while let Some((key, serial)) = self.order.front() {
            let entry = self.all.get(key).filter(|entry| entry.serial == *serial);
            if let Some((at, _)) = entry.and_then(|entry| entry.answered) {
                let old = now.saturating_duration_since(at) >= self.bounds.time;
                let fits =
                    self.order.len() <= self.bounds.entries && self.bytes <= self.bounds.bytes;
                if fits && !old {
                    break;
                }
                let key = *key;
                let before = self.all.remove(&key);
                self.subtract(before.as_ref());
                if let (false, Some(Known::Answered(kept))) = (old, before.map(|of| of.known)) {
                    forgotten.push((key, kept));
                }
            }
            self.order.pop_front();
        }
        forgotten
    }

    fn subtract(&mut self, entry: Option<&Entry<W, A>>) {
        if let Some((_, bytes)) = entry.and_then(|entry| entry.answered) {
            self.answered -= 1;
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests;

//! Calls that an earlier process has sent: their port is looked for first, and kept until their clients have had time
//! to repeat them.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Transport;
use crate::journal::{self, Entry, age, second};
use crate::proxy::call::Call;
use crate::replay::{Left, Resume, resumed};

/// How long the port is looked for. A connection from any other is better than none after that.
const SEEK: Duration = Duration::from_secs(15);

impl Transport {
    /// Takes in what an earlier process has left.
    pub(in crate::proxy) fn expect(&self, left: &journal::Left) {
        let ends = u16::try_from(self.index).ok();
        let Some(ends) = ends.and_then(|index| left.ends.get(&index)) else {
            return;
        };
        self.identity.set(Some(*ends));
        self.expects.set(true);
        let places = left.calls.values().map(|entry| entry.place);
        let mine = places.filter(|place| usize::from(place.transport) == self.index);
        self.reserved.replace(mine.map(|place| place.xid).collect());
    }

    /// None of them comes back any more.
    pub(in crate::proxy) fn expect_no_more(&self) {
        self.expects.set(false);
        self.reserved.take();
    }

    /// Whether calls of an earlier process may come back to it.
    pub(in crate::proxy) fn expects(&self) -> bool {
        self.expects.get()
    }

    /// Its own address and port and the server's, of the connection that stands or stood last.
    pub(in crate::proxy) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.identity.get()
    }

    /// Whether their port is looked for; not for ever.
    pub(super) fn seeks(&self) -> bool {
        if !self.expects() {
            return false;
        }
        let since = self.seeks.get().unwrap_or_else(Instant::now);
        self.seeks.set(Some(since));
        if since.elapsed() >= SEEK {
            self.expect_no_more();
        }
        self.expects()
    }

    /// It is connected.
    pub(super) fn found(&self, ends: (SocketAddr, SocketAddr)) {
        if self.identity.replace(Some(ends)) != Some(ends) {
            self.expect_no_more();
        }
        self.seeks.set(None);
    }

    /// It is not. Where the port is somebody else's, or the address gone, it is looked for no longer.
    pub(super) fn not_found(&self, error: &io::Error) {
        use io::ErrorKind::{AddrInUse, AddrNotAvailable, Other};
        if matches!(error.kind(), AddrInUse | AddrNotAvailable | Other) {
            self.expect_no_more();
        }
    }

    /// Takes a call that an earlier process has sent from here, if this is possible; by which rule of [`resumed`].
    pub(in crate::proxy) fn resume(&self, call: &Rc<Call>, entry: &Entry) -> (Resume, u8) {
        let place = &entry.place;
        let stands = self.watched().is_some();
        let looks = self.expects() || !self.held.borrow().is_empty();
        let decided = resumed(&Left {
            age: age(entry, second()),
            same_port: self.identity.get() == Some((place.local, place.peer)) && (stands || looks),
            taken: self.has(place.xid),
        });
        if decided.0 == Resume::SamePlace {
            call.xid.set(place.xid);
            // The server may be running the first copy, and drop this one.
            call.replayed();
            match stands {
                false => self.hold(Rc::clone(call), usize::MAX),
                true => {
                    self.charge(call);
                    let mut pending = self.pending.borrow_mut();
                    pending.insert(place.xid, Rc::clone(call));
                    self.queue.borrow_mut().push_back(Rc::clone(call));
                    self.wake();
                }
            }
        }
        decided
    }

    /// Keeps a call until the connection stands again from the same port, before this one of others or last.
    pub(super) fn hold(&self, call: Rc<Call>, before: usize) {
        self.charge(&call);
        let mut held = self.held.borrow_mut();
        let before = before.min(held.len());
        held.insert(before, Rc::clone(&call));
        self.pending.borrow_mut().insert(call.xid.get(), call);
    }
}

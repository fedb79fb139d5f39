//! Calls that an earlier process has sent: their port is looked for first, and kept until their clients have had time
//! to repeat them. And the end of what is held for a port that is not to be had any more.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Transport;
use crate::journal::{self, Entry, age, second};
use crate::proxy::call::Call;
use crate::replay::{Left, RETURN, Resume, resumed};

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

    /// Calls that count, that the server may have run or may yet, and whose replies somebody may want.
    pub(in crate::proxy) fn under_way(&self) -> Vec<Rc<Call>> {
        let answering = self.answering.borrow();
        let pending = self.pending.borrow();
        let all = pending
            .values()
            .chain(answering.as_ref().map(|of| &of.call));
        let counts =
            |call: &&Rc<Call>| call.ticket.get().is_some() && call.may_be_run() && call.is_wanted();
        all.filter(counts).cloned().collect()
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
        self.lacks.set(None);
    }

    /// It is not. Where its address is gone, or the server is another one, the port is looked for no longer.
    pub(super) fn not_found(&self, error: &io::Error) {
        use io::ErrorKind::{AddrInUse, AddrNotAvailable, Other};
        let gone = error.kind() == Other;
        if gone {
            self.expect_no_more();
        }
        let lacks = gone || matches!(error.kind(), AddrInUse | AddrNotAvailable);
        let since = self.lacks.get().map_or_else(Instant::now, |(at, _)| at);
        self.lacks.set(lacks.then_some((since, gone)));
    }

    /// Takes out the held calls that are held no longer, as their port is not to be had.
    ///
    /// 1. Their server does not answer, or nobody knows yet: they wait.
    /// 2. An earlier process has sent them, and the address is gone, or the server another one: they go at once.
    /// 3. An earlier process has sent them, and the port has been somebody else's for [`SEEK`]: they go.
    /// 4. This process has sent them, and the port has not been to be had for [`RETURN`]: they go. The server has
    ///    forgotten them, too.
    pub(super) fn give_up(&self) -> Vec<Rc<Call>> {
        let Some((since, gone)) = self.lacks.get() else {
            return Vec::new();
        };
        let lacks = since.elapsed();
        let goes = |call: &Rc<Call>| match call.place.get() {
            Some(_) => gone || lacks >= SEEK,
            None => lacks >= RETURN,
        };
        let held = self.held.take();
        let (go, stay): (Vec<Rc<Call>>, Vec<Rc<Call>>) = held.into_iter().partition(goes);
        self.held.replace(stay);
        go.iter().for_each(|call| self.forget(call));
        go
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

//! A connection to a server: which calls it has, and whether it stands.

mod drive;
mod left;
mod read;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;

use super::call::{Call, Reply};
use super::client::Client;
use super::duplicates::Way;
use super::shared::count;
use super::watch::Watched;
use crate::dispatch::{Load, Rate};
use crate::histogram::Histogram;
use crate::message::null;
use crate::program::number::NFS;
use crate::replay::{Sent, repeat_after};
use crate::xid::Segment;
pub(super) use drive::drive;

/// Questions without an answer, at most: a server that does not know the program may give none.
const PINGS: usize = 8;

/// Messages of the proxy's own that wait to be written, at most: a server may call and read no answers.
const OWN: usize = 1024;

/// Where a connection is.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Not connected, and why.
    Down(String),
    /// Connected.
    Up(Up),
}

/// A connection that stands.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub out: Option<String>,
    pub back: Option<String>,
    pub attempts: u32,
    /// Whether it goes another way than routing would have it.
    pub detour: bool,
    pub since: Instant,
    watched: Watched,
}

/// Counts of a transport.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub calls: Cell<u64>,
    pub replies: Cell<u64>,
    pub bytes_out: Cell<u64>,
    pub bytes_in: Cell<u64>,
    pub connections: Cell<u64>,
    /// Time from a call's coming to its reply's end, smoothed, in microseconds.
    pub latency: Cell<f64>,
    /// Times from a call's being written to its reply's end, of small calls and of large ones.
    pub trips: [RefCell<Histogram>; 2],
    /// Calls of failed connections that went elsewhere.
    pub resent: Cell<u64>,
    /// Calls sent again from the same port.
    pub replayed: Cell<u64>,
}

impl Tallies {
    /// A call has its whole reply.
    fn done(&self, call: &Call) {
        count(&self.replies);
        let took = call.since.elapsed().as_secs_f64() * 1e6;
        self.latency.set(match self.latency.get() {
            0.0 => took,
            before => before + (took - before) / 8.0,
        });
        if let Some(written) = call.written.get() {
            let trips = &self.trips[usize::from(call.want.is_large())];
            trips.borrow_mut().add(written.elapsed());
        }
    }
}

/// A large reply that comes.
struct Answering {
    call: Rc<Call>,
    reply: Rc<Reply>,
    /// Bytes of the present fragment that are to come, and whether it is the last.
    left: (u64, bool),
}

/// A transport: one connection at a time, which is made anew when it fails.
pub(super) struct Transport {
    /// Its number among all.
    pub index: usize,
    pub service: usize,
    pub number: usize,
    pub lane: bool,
    segment: RefCell<Segment>,
    pub state: RefCell<State>,
    /// Calls without a complete reply, by the XIDs to the server.
    pub pending: RefCell<HashMap<u32, Rc<Call>>>,
    queue: RefCell<VecDeque<Rc<Call>>>,
    /// Messages of the proxy's own, without marks.
    own: RefCell<VecDeque<Bytes>>,
    /// XIDs of questions whether the server is there.
    pings: RefCell<HashSet<u32>>,
    /// The program that was called last, and its version.
    program: Cell<(u32, u32)>,
    /// Whether it takes no more calls, and ends when those that it has are done.
    pub drains: Cell<bool>,
    /// When it was asked last.
    asked: Cell<Option<Instant>>,
    /// Calls that go out again from the same port, or nowhere; they are pending, too.
    pub held: RefCell<Vec<Rc<Call>>>,
    /// Where they were sent from, and to.
    identity: Cell<Option<(SocketAddr, SocketAddr)>>,
    /// Whether calls of an earlier process may come back to it, and which XIDs they have.
    expects: Cell<bool>,
    reserved: RefCell<HashSet<u32>>,
    /// Since when it has looked for their port.
    seeks: Cell<Option<Instant>>,
    /// Since when this port is not to be had, and whether it is no port of this machine and server any more.
    lacks: Cell<Option<(Instant, bool)>>,
    /// Whether the last connection failed by saying nothing.
    silent: Cell<bool>,
    /// The call that is being answered.
    answering: RefCell<Option<Answering>>,
    pub outstanding: Cell<u64>,
    /// How many of its calls are large.
    large: Cell<usize>,
    pub rate: RefCell<Rate>,
    wake: Notify,
    failed: Notify,
    why: Cell<Option<&'static str>>,
    pub tallies: Tallies,
}

fn add(counter: &Cell<u64>, bytes: usize) {
    counter.set(counter.get() + bytes as u64);
}

impl Transport {
    pub(super) fn new(
        (service, number, lane): (usize, usize, bool),
        (segment, of, start): (usize, usize, u32),
    ) -> Transport {
        Transport {
            index: segment,
            service,
            number,
            lane,
            segment: RefCell::new(Segment::new(segment, of, start)),
            state: RefCell::new(State::Down("connecting".into())),
            pending: RefCell::default(),
            queue: RefCell::default(),
            own: RefCell::default(),
            pings: RefCell::default(),
            program: Cell::new((NFS, 3)),
            drains: Cell::new(false),
            asked: Cell::new(None),
            held: RefCell::default(),
            identity: Cell::new(None),
            expects: Cell::new(false),
            reserved: RefCell::default(),
            seeks: Cell::new(None),
            lacks: Cell::new(None),
            silent: Cell::new(false),
            answering: RefCell::default(),
            outstanding: Cell::new(0),
            large: Cell::new(0),
            rate: RefCell::default(),
            wake: Notify::new(),
            failed: Notify::new(),
            why: Cell::new(None),
            tallies: Tallies::default(),
        }
    }

    /// As dispatch sees it.
    pub(super) fn load(&self) -> Load {
        let rate = self.rate.borrow();
        Load {
            up: matches!(*self.state.borrow(), State::Up(_)) && !self.drains.get(),
            lane: self.lane,
            outstanding: self.outstanding.get(),
            large: self.large.get() > 0,
            window: rate.window(),
            rate: rate.per_second(Instant::now()),
        }
    }

    /// A call waits for its reply here from now on.
    fn charge(&self, call: &Call) {
        let outstanding = self.outstanding.get() + call.want.bytes;
        self.outstanding.set(outstanding);
        let large = usize::from(call.want.is_large());
        self.large.set(self.large.get() + large);
    }

    /// It no longer does; bytes that are left outstanding.
    fn discharge(&self, call: &Call) -> u64 {
        let left = self.outstanding.get().saturating_sub(call.want.bytes);
        self.outstanding.set(left);
        let large = usize::from(call.want.is_large());
        self.large.set(self.large.get().saturating_sub(large));
        left
    }

    /// Whether an XID is in use.
    pub(super) fn has(&self, xid: u32) -> bool {
        self.pending.borrow().contains_key(&xid) || self.pings.borrow().contains(&xid)
    }

    /// Whether this call waits for its reply.
    fn is_pending(&self, call: &Rc<Call>) -> bool {
        let pending = self.pending.borrow();
        let under = pending.get(&call.xid.get());
        under.is_some_and(|other| Rc::ptr_eq(other, call))
    }

    /// Queues a call under an XID of its own; false where there is none.
    pub(super) fn take(&self, call: &Rc<Call>) -> bool {
        let mut pending = self.pending.borrow_mut();
        let pings = self.pings.borrow();
        let used = |xid: u32| pending.contains_key(&xid) || pings.contains(&xid);
        let xid = match call.header.is_signed() {
            true => Some(call.header.xid).filter(|xid| !used(*xid)),
            false => {
                let reserved = self.reserved.borrow();
                let used = |xid| used(xid) || reserved.contains(&xid);
                self.segment.borrow_mut().take(used)
            }
        };
        let Some(xid) = xid else {
            return false;
        };
        self.program.set((call.header.program, call.header.version));
        call.xid.set(xid);
        pending.insert(xid, Rc::clone(call));
        self.charge(call);
        self.queue.borrow_mut().push_back(Rc::clone(call));
        self.wake();
        true
    }

    /// Takes a signed call in place of the one that its client repeats by it, under a new signature: by the same
    /// connection, so that the server knows it. False where there is none.
    pub(super) fn replace(&self, call: &Rc<Call>) -> bool {
        let mut pending = self.pending.borrow_mut();
        let mine = call.ticket.get().filter(|_| call.way.get().is_some());
        // By another connection of its client.
        let repeats_earlier = |before: &Call| {
            let both = mine.zip(before.ticket.get());
            both.is_some_and(|(mine, of)| mine.is_of(of))
        };
        let repeats = |before: &&mut Rc<Call>| {
            (repeats_earlier(before) || Rc::ptr_eq(&before.client(), &call.client()))
                && before.header.is_signed()
                && (call.header.program, call.header.procedure)
                    == (before.header.program, before.header.procedure)
        };
        let Some(before) = pending.get_mut(&call.header.xid).filter(repeats) else {
            return false;
        };
        self.discharge(before);
        self.charge(call);
        call.xid.set(call.header.xid);
        // What has been sent once stays sent, by an earlier process, too: the server may have run it then.
        call.sent.set(before.sent.get());
        call.place.set(before.place.get());
        call.noted.set(before.noted.get());
        let before = std::mem::replace(before, Rc::clone(call));
        let mut held = self.held.borrow_mut();
        match held.iter_mut().find(|of| Rc::ptr_eq(of, &before)) {
            Some(of) => *of = Rc::clone(call),
            None => self.queue.borrow_mut().push_back(Rc::clone(call)),
        }
        self.wake();
        true
    }

    /// Takes the repetition of a signed call that it has, or had.
    pub(super) fn take_again(&self, call: &Rc<Call>) -> bool {
        self.replace(call) || (self.watched().is_some() && self.take(call))
    }

    /// Its connection, or the one that its held calls wait for.
    pub(super) fn way(&self) -> Option<Way> {
        let stands = self.watched().is_some() || !self.held.borrow().is_empty();
        let (local, peer) = self.identity.get().filter(|_| stands)?;
        Some((self.index, local, peer))
    }

    /// Whether a call has a reply that comes, some of which is gone: with another client, or nowhere.
    pub(super) fn is_spoilt(&self, call: &Rc<Call>) -> bool {
        let answering = self.answering.borrow();
        let of = answering.as_ref().filter(|of| Rc::ptr_eq(&of.call, call));
        of.is_some_and(|of| of.reply.started.get() || of.reply.forgotten.get())
    }

    /// Takes a reply that comes back from a client that it was given to.
    pub(super) fn retract(&self, call: &Rc<Call>, client: &Client) {
        if let Some(of) = &*self.answering.borrow()
            && Rc::ptr_eq(&of.call, call)
        {
            client.retract(&of.reply);
        }
    }

    /// There is something to write.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Has a message of the proxy's own written, ahead of calls. Gives up a connection that takes none.
    pub(super) fn say(&self, message: Bytes) {
        let mut own = self.own.borrow_mut();
        if own.len() >= OWN {
            return self.fail("the server calls, and takes no answers");
        }
        own.push_back(message);
        self.wake();
    }

    /// The socket, while it is connected.
    pub(super) fn watched(&self) -> Option<Watched> {
        match &*self.state.borrow() {
            State::Up(up) => Some(up.watched),
            State::Down(_) => None,
        }
    }

    /// Whether replies are to come.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.borrow().is_empty() || self.answering.borrow().is_some()
    }

    /// How long ago it was asked whether it is there.
    pub(super) fn asked(&self, now: Instant) -> Option<Duration> {
        let asked = self.asked.get()?;
        Some(now.saturating_duration_since(asked))
    }

    /// Asks whether the server is there, unless it is being asked.
    pub(super) fn ask(&self, now: Instant) {
        self.asked.set(Some(now));
        let mut pings = self.pings.borrow_mut();
        if pings.len() >= PINGS {
            return;
        }
        let pending = self.pending.borrow();
        let reserved = self.reserved.borrow();
        let used =
            |xid| pending.contains_key(&xid) || pings.contains(&xid) || reserved.contains(&xid);
        let taken = self.segment.borrow_mut().take(used);
        if let Some(xid) = taken {
            let (program, version) = self.program.get();
            self.say(null(xid, program, version));
            pings.insert(xid);
        }
    }

    /// Gives a connection up that says nothing, while others are heard, or new ones are answered.
    pub(super) fn is_silent(&self, others: bool) {
        self.silent.set(true);
        self.fail(match others {
            true => "nothing is heard by it, while others are heard: its link may be silent",
            false => {
                "nothing is heard by it, while a new connection is answered: a firewall may have forgotten it"
            }
        });
    }

    /// Gives the connection up.
    pub(super) fn fail(&self, why: &'static str) {
        self.why.set(Some(why));
        self.failed.notify_one();
    }

    /// Sends calls again that were replayed and have had no reply for long.
    pub(super) fn repeat(&self) {
        if self.watched().is_none() {
            return;
        }
        let pending = self.pending.borrow();
        let due = pending.values().filter(|call| {
            let replay = call.replay.get();
            replay.is_some_and(|(times, at)| {
                call.sent.get() == Sent::All
                    && !call.header.is_signed()
                    && at.elapsed() >= repeat_after(times)
            })
        });
        for call in due {
            call.replayed();
            self.queue.borrow_mut().push_back(Rc::clone(call));
            self.wake();
        }
    }

    /// Forgets the held calls that nobody waits for any more.
    fn forget_unwanted(&self) {
        let (wanted, gone) = self.held.take().into_iter().partition(|c| c.is_wanted());
        self.held.replace(wanted);
        let gone: Vec<Rc<Call>> = gone;
        gone.iter().for_each(|call| self.forget(call));
    }

    /// Forgets a call.
    fn forget(&self, call: &Call) {
        if self.pending.borrow_mut().remove(&call.xid.get()).is_some() {
            let left = self.discharge(call);
            self.rate.borrow_mut().left(left);
        }
    }
}

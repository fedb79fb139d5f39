//! Calls that clients repeat by another connection: they wait for the first one's reply, or have the one that is kept.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Instant;

use bytes::Bytes;

use super::call::{Call, Reply};
use super::client::Client;
use super::places::Places;
use super::shared::{Shared, count};
use crate::duplicate::{Bounds, Cache, Key, Known};
use crate::journal::{Entry, Keys, Place};
use crate::message;
use crate::program::{Class, Nature};
use crate::replay::{Meant, Progress, REMEMBER, Repeated, repeated};

/// What is remembered of calls that were answered. Replies up to 16 KiB are kept, as they are written.
const BOUNDS: Bounds = Bounds {
    entries: 16 << 10,
    bytes: 8 << 20,
    time: REMEMBER,
};

/// A call's way to the server: the transport's number, its own address and port, and the server's.
pub(super) type Way = (usize, SocketAddr, SocketAddr);

/// What is remembered of a call that was answered.
struct Answered {
    /// The stream, as the client gets it.
    reply: Option<Bytes>,
    way: Option<Way>,
    /// The XID to the server.
    xid: u32,
}

/// Calls under way and answered.
type Calls = RefCell<Cache<Weak<Call>, Answered>>;

/// Calls that count, under way and answered.
pub(super) struct Duplicates {
    /// What writes, and all else: many WRITEs push out no MKDIR. A call's bytes decide which it is in.
    writes: Calls,
    others: Calls,
    /// Where those went that are answered and remembered no more.
    places: RefCell<Places>,
    keys: Keys,
}

/// A call's place among them; it is given up with the call, unless that was answered.
pub(super) struct Ticket {
    of: Rc<Duplicates>,
    class: Class,
    key: Key,
    serial: u64,
}

/// What a call that has come is.
pub(super) enum Met {
    /// One to be sent; with the key under which it is remembered, and the way that it has to take.
    Other(Option<Key>, Option<Way>),
    /// A repetition that is taken care of.
    Repeated,
}

impl Duplicates {
    /// Calls are known by a hash with these keys.
    pub(super) fn new(keys: Keys) -> Rc<Duplicates> {
        Rc::new(Duplicates {
            writes: RefCell::new(Cache::new(BOUNDS)),
            others: RefCell::new(Cache::new(BOUNDS)),
            places: RefCell::default(),
            keys,
        })
    }

    /// Those that a call of this class is among.
    fn of(&self, class: Class) -> &Calls {
        match class {
            Class::Write => &self.writes,
            _ => &self.others,
        }
    }

    /// Answered calls that are remembered, and bytes of their replies.
    pub(super) fn kept(&self) -> (usize, usize) {
        let (writes, others) = (self.writes.borrow().kept(), self.others.borrow().kept());
        (writes.0 + others.0, writes.1 + others.1)
    }

    /// Forgets what is too old.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        for calls in [&self.writes, &self.others] {
            let forgotten = calls.borrow_mut().expire(now);
            self.remember_places(forgotten);
        }
    }

    /// Of these calls no more is remembered than where they went.
    fn remember_places(&self, calls: Vec<(Key, Answered)>) {
        for (key, answered) in calls {
            if let Some((transport, local, peer)) = answered.way {
                let place = Place {
                    transport: transport as u16,
                    local,
                    peer,
                    xid: answered.xid,
                };
                self.places.borrow_mut().add(key.tag(&self.keys), place);
            }
        }
    }

    /// Where a call went that was answered and is remembered no more.
    pub(super) fn place(&self, ticket: &Ticket) -> Option<Entry> {
        let places = self.places.borrow();
        if places.is_empty() {
            return None;
        }
        places.find(ticket.tag())
    }

    /// Remembers a call.
    pub(super) fn begin(self: &Rc<Self>, key: Key, call: &Rc<Call>) -> Ticket {
        let class = call.nature.class;
        let mut calls = self.of(class).borrow_mut();
        let serial = calls.begin(key, Rc::downgrade(call));
        Ticket {
            of: Rc::clone(self),
            class,
            key,
            serial,
        }
    }
}

impl Ticket {
    /// What the call is known by to other processes.
    pub(super) fn tag(&self) -> u64 {
        self.key.tag(&self.of.keys)
    }

    /// Whether both are of one call and its repetition.
    pub(super) fn is_of(&self, other: &Ticket) -> bool {
        self.key == other.key
    }

    /// The call has its reply, which is kept if it is given.
    pub(super) fn answered(&self, call: &Call, reply: Option<&Reply>, way: Option<Way>) {
        // A signed one would not be accepted a second time.
        let reply = reply.filter(|_| !call.header.is_signed());
        let reply = reply.and_then(Reply::small);
        let bytes = reply.as_ref().map_or(0, Bytes::len);
        let xid = call.xid.get();
        let answered = Answered { reply, way, xid };
        let place = (self.key, self.serial);
        let mut cache = self.of.of(self.class).borrow_mut();
        let forgotten = cache.answered(place, answered, bytes, Instant::now());
        self.of.remember_places(forgotten);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut calls = self.of.of(self.class).borrow_mut();
        calls.ended(&self.key, self.serial);
    }
}

/// Looks whether a call repeats an earlier one, and deals with it then.
pub(super) fn meet(
    shared: &Shared,
    client: &Rc<Client>,
    (header, nature): (&message::Call, &Nature),
    head: &[u8],
    fragment: (u64, bool),
) -> Met {
    if !nature.class.counts() {
        return Met::Other(None, None);
    }
    let duplicates = &shared.duplicates;
    let Some(key) = Key::new(client.peer, header, head, fragment, &duplicates.keys) else {
        return Met::Other(None, None);
    };
    let cache = duplicates.of(nature.class).borrow();
    let other = Met::Other(Some(key), None);
    let (call, progress, reply, way) = match cache.find(&key, Instant::now()) {
        None => return other,
        Some(Known::UnderWay(call)) => {
            let Some(call) = call.upgrade() else {
                return other;
            };
            let progress = progress(shared, &call);
            let way = call.transport.get();
            let way = way.and_then(|number| shared.transports[number].way());
            (Some(call), progress, None, way)
        }
        Some(Known::Answered(Answered { reply, way, .. })) => {
            let progress = Progress::Answered(reply.is_some());
            (None, progress, reply.clone(), *way)
        }
    };
    drop(cache);
    let (meant, rule) = repeated(&Repeated {
        progress,
        signed: header.is_signed(),
    });
    tracing::debug!(client = %client.peer, xid = header.xid, ?meant, rule, "repeated");
    match (meant, call, reply) {
        (Meant::Wait, Some(call), _) => {
            count(&shared.counts.repeated);
            attach(shared, &call, client);
            Met::Repeated
        }
        (Meant::Answer, _, Some(reply)) => {
            count(&shared.counts.answered_again);
            let charge = client.of_replies.charge(0);
            client.reply(Rc::new(Reply::again(reply, charge)));
            Met::Repeated
        }
        (Meant::Server, ..) => Met::Other(Some(key), way),
        _ => {
            if rule == 5 {
                let why = "the client repeats it, and its reply was too large to be kept";
                shared.runs_again(client.peer, header, why);
            }
            other
        }
    }
}

fn progress(shared: &Shared, call: &Rc<Call>) -> Progress {
    let spoilt = |number: usize| shared.transports[number].is_spoilt(call);
    match call.transport.get().is_some_and(spoilt) {
        true => Progress::Answered(false),
        false => Progress::UnderWay,
    }
}

/// Has a client get the reply to a call of another connection.
fn attach(shared: &Shared, call: &Rc<Call>, client: &Rc<Client>) {
    let before = call.client.replace(Rc::clone(client));
    if Rc::ptr_eq(&before, client) {
        return;
    }
    before.done(call);
    if let Some(number) = call.transport.get() {
        shared.transports[number].retract(call, &before);
    }
    let mut pending = client.pending.borrow_mut();
    pending.insert(call.header.xid, Rc::clone(call));
}

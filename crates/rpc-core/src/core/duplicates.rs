//! Calls that clients repeat by another connection: they wait for the first one's reply, or have the one that is kept.

use bytes::Bytes;

use super::call::Reply;
use super::places::Places;
use super::{CallId, ClientId, Core, Ends, LOG, Now};
use crate::duplicate::{Bounds, Cache, Key, Known};
use crate::journal::{Entry, Keys, Notes, Place};
use crate::message;
use crate::program::{Class, Nature};
use crate::replay::{Meant, Progress, REMEMBER, Repeated, repeated};

/// What is remembered of calls that were answered. Replies up to 16 KiB are kept, as they are written.
const BOUNDS: Bounds = Bounds {
    entries: 16 << 10,
    bytes: 8 << 20,
    time: REMEMBER,
};

/// A call's way to the server: the transport's number, and its ends.
pub(super) type Way = (usize, Ends);

/// What is remembered of a call that was answered.
struct Answered {
    /// The stream, as the client gets it.
    reply: Option<Bytes>,
    way: Option<Way>,
    /// The XID to the server.
    xid: u32,
}

/// Calls under way and answered.
type Calls = Cache<CallId, Answered>;

/// Non-idempotent calls, under way and answered.
pub(super) struct Duplicates {
    /// What writes, and all else: many WRITEs push out no MKDIR. A call's bytes decide which it is in.
    writes: Calls,
    others: Calls,
    /// Where those went that are answered and remembered no more.
    places: Places,
    keys: Keys,
}

/// A call's place among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    writes: bool,
    key: Key,
    serial: u64,
}

impl Ticket {
    /// Whether both are of one call and its repetition.
    pub(super) fn is_of(&self, other: &Ticket) -> bool {
        self.key == other.key
    }
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
    pub(super) fn new(keys: Keys) -> Duplicates {
        Duplicates {
            writes: Cache::new(BOUNDS),
            others: Cache::new(BOUNDS),
            places: Places::default(),
            keys,
        }
    }

    /// Those that a call is among.
    fn of(&mut self, writes: bool) -> &mut Calls {
        match writes {
            true => &mut self.writes,
            false => &mut self.others,
        }
    }

    /// Answered calls that are remembered, and bytes of their replies.
    pub(super) fn kept(&self) -> (usize, usize) {
        let (writes, others) = (self.writes.kept(), self.others.kept());
        (writes.0 + others.0, writes.1 + others.1)
    }

    /// Forgets what is too old.
    pub(super) fn expire(&mut self, now: Now) {
        for writes in [true, false] {
            let forgotten = self.of(writes).expire(now.at);
            self.remember_places(forgotten, now);
        }
    }

    /// Of these calls no more is remembered than where they went.
    fn remember_places(&mut self, calls: Vec<(Key, Answered)>, now: Now) {
        for (key, answered) in calls {
            if let Some((transport, (local, peer))) = answered.way {
                let place = Place {
                    transport: transport as u16,
                    local,
                    peer,
                    xid: answered.xid,
                };
                self.places.add(key.tag(&self.keys), place, now.second);
            }
        }
    }

    /// What a call is known by to other processes.
    pub(super) fn tag(&self, ticket: &Ticket) -> u64 {
        ticket.key.tag(&self.keys)
    }

    /// Where a call went that was answered and is remembered no more.
    fn place(&self, ticket: &Ticket, now: Now) -> Option<Entry> {
        if self.places.is_empty() {
            return None;
        }
        self.places.find(self.tag(ticket), now.second)
    }

    /// Remembers a call.
    pub(super) fn begin(&mut self, class: Class, key: Key, call: CallId) -> Ticket {
        let writes = class == Class::Write;
        let serial = self.of(writes).begin(key, call);
        Ticket {
            writes,
            key,
            serial,
        }
    }

    /// A call is no more; if it has no reply, it will have none.
    pub(super) fn ended(&mut self, ticket: &Ticket) {
        self.of(ticket.writes).ended(&ticket.key, ticket.serial);
    }
}

impl Core {
    /// A call has its reply, which is kept if it is given; it went by this transport.
    pub(super) fn remember(&mut self, call: CallId, reply: Option<Bytes>, transport: usize) {
        let Some(call) = self.calls.get(call) else {
            return;
        };
        let Some(ticket) = &call.ticket else {
            return;
        };
        // A signed one would not be accepted a second time.
        let reply = reply.filter(|_| !call.header.is_signed());
        let bytes = reply.as_ref().map_or(0, Bytes::len);
        let way = self.transports[transport].way();
        let xid = call.xid;
        let answered = Answered { reply, way, xid };
        let place = (ticket.key, ticket.serial);
        let cache = self.duplicates.of(ticket.writes);
        let forgotten = cache.answered(place, answered, bytes, self.now.at);
        self.duplicates.remember_places(forgotten, self.now);
    }

    /// Where a non-idempotent call that has come now was sent before: by this process, which remembers no more of it, or by
    /// an earlier one.
    pub(super) fn sent_before(&self, ticket: &Ticket) -> Option<Entry> {
        let here = self.duplicates.place(ticket, self.now);
        here.or_else(|| match self.left.calls.is_empty() {
            true => None,
            false => self.left.calls.get(&self.duplicates.tag(ticket)).copied(),
        })
    }

    /// Looks whether a call repeats an earlier one, and deals with it then.
    pub(super) fn meet(
        &mut self,
        client: ClientId,
        (header, nature): (&message::Call, &Nature),
        head: &[u8],
        fragment: (u64, bool),
    ) -> Met {
        let Some(peer) = self.clients.get(client).map(|client| client.peer) else {
            return Met::Repeated;
        };
        if !nature.class.is_non_idempotent() {
            return Met::Other(None, None);
        }
        let Some(key) = Key::new(peer, header, head, fragment, &self.duplicates.keys) else {
            return Met::Other(None, None);
        };
        let other = Met::Other(Some(key), None);
        let cache = self.duplicates.of(nature.class == Class::Write);
        let (id, progress, reply, way) = match cache.find(&key, self.now.at) {
            None => return other,
            Some(Known::UnderWay(id)) => {
                let id = *id;
                let Some(call) = self.calls.get(id) else {
                    return other;
                };
                let transport = call.transport.map(|number| &self.transports[number]);
                let way = transport.and_then(|transport| transport.way());
                (Some(id), self.progress(id), None, way)
            }
            Some(Known::Answered(Answered { reply, way, .. })) => {
                let progress = Progress::Answered(reply.is_some());
                (None, progress, reply.clone(), *way)
            }
        };
        let (meant, rule) = repeated(&Repeated {
            progress,
            signed: header.is_signed(),
        });
        tracing::debug!(target: LOG, client = %peer, xid = header.xid, ?meant, rule, "repeated");
        match (meant, id, reply) {
            (Meant::Wait, Some(call), _) => {
                self.counters.repeated_calls += 1;
                self.attach(call, client);
                Met::Repeated
            }
            (Meant::Answer, _, Some(reply)) => {
                self.counters.answered_again += 1;
                let reply = self.enter_reply(Reply::new(client, reply, true));
                self.give(client, reply);
                Met::Repeated
            }
            (Meant::Server, before, _) => {
                // One that still waits for a connection gives way to its repetition, or both would be sent.
                let waits = before.and_then(|id| self.calls.get(id));
                let waits = waits.filter(|call| call.transport.is_none());
                match (before, waits.map(|call| call.way)) {
                    (Some(id), Some(way)) => {
                        self.remove_call(id);
                        Met::Other(Some(key), way)
                    }
                    _ => Met::Other(Some(key), way),
                }
            }
            _ => {
                if rule == 5 {
                    let why = "the client repeats it, and its reply was too large to be kept";
                    self.runs_again(peer, header, why);
                }
                other
            }
        }
    }

    /// How far a call is. One of which a reply comes, some of which is gone, to another client or nowhere, is as good
    /// as answered.
    fn progress(&self, id: CallId) -> Progress {
        let transport = self.calls.get(id).and_then(|call| call.transport);
        let answering = transport.and_then(|number| self.transports[number].answering);
        let reply = answering.filter(|of| of.call == id);
        let reply = reply.and_then(|of| self.replies.get(of.reply));
        match reply.is_some_and(|reply| reply.started || reply.forgotten) {
            true => Progress::Answered(false),
            false => Progress::UnderWay,
        }
    }

    /// Has a client get the reply to a call of another connection.
    fn attach(&mut self, id: CallId, client: ClientId) {
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut call.client, client);
        let (xid, transport) = (call.header.xid, call.transport);
        if before == client {
            return;
        }
        self.uses(client);
        self.no_longer_pending(before, xid, id);
        let answering = transport.and_then(|number| self.transports[number].answering);
        if let Some(of) = answering.filter(|of| of.call == id) {
            self.retract(before, of.reply);
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.pending.insert(xid, id);
        }
        self.uses_no_more(before);
    }

    /// Notes a non-idempotent call that is about to be sent, or that was.
    pub(super) fn note(
        &mut self,
        transport: usize,
        id: CallId,
        enter: fn(&mut Notes, bool, u64, Place, u32) -> crate::journal::Noted,
    ) {
        let ends = self.transports[transport].identity;
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let Some((ticket, (local, peer))) = call.ticket.as_ref().zip(ends) else {
            return;
        };
        let second = self.now.second;
        if self.notes.is_kept(second) {
            let place = Place {
                transport: transport as u16,
                local,
                peer,
                xid: call.xid,
            };
            let (writes, tag) = (call.writes(), self.duplicates.tag(ticket));
            call.noted = Some(enter(&mut self.notes, writes, tag, place, second));
        }
    }
}

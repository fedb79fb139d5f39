//! Which connection a call takes, and when.

use super::{Action, CallId, Core, LOG};
use crate::dispatch::Load;
use crate::journal::{Entry, Notes};
use crate::record::mark;
use crate::replay::{RETURN, Resume, Sent};

use super::call::TOGETHER;
use super::event::{Actions, NextCall, Now};
use bytes::BytesMut;

/// Signed calls that wait for their XID and are tried at once, at most.
const STUCK: usize = 64;

impl Core {
    /// Whether its client waits for the reply; or may come back to, as the server has it and it is non-idempotent.
    pub(super) fn is_wanted(&self, id: CallId) -> bool {
        let Some(call) = self.calls.get(id) else {
            return false;
        };
        let client = self.clients.get(call.client);
        match client.map(|client| client.closed) {
            Some(None) => true,
            Some(Some(at)) => {
                let time = self.now.at.saturating_duration_since(at);
                let sent = call.sent == Sent::All || call.way.is_some();
                call.ticket.is_some() && sent && time < RETURN
            }
            None => false,
        }
    }

    /// Whether a transport of this service is being made anew, or has to be.
    pub(super) fn is_moving(&self, service: usize) -> bool {
        let mut of = self.transports.iter().filter(|t| t.service == service);
        of.any(|transport| transport.drains || !transport.stands())
    }

    /// Calls that wait for a transport.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().map(|of| of.count()).sum()
    }

    /// Gives a call to a transport, or has it wait. A small one overtakes large ones that wait.
    pub(super) fn submit(&mut self, id: CallId) {
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let (service, client, large) = (call.service, call.client, call.want.is_large());
        let free = self.waiting[service].is_empty();
        if (free || !large) && self.assign(id) {
            return;
        }
        match free && self.is_stuck(id) {
            true => self.waiting[service].push_stuck(id),
            false => self.waiting[service].push(client, id),
        }
    }

    /// Has a call that was cut off go before all others.
    pub(super) fn again(&mut self, id: CallId) {
        if let Some(call) = self.calls.get_mut(id) {
            call.sent = Sent::Nothing;
            call.transport = None;
            self.waiting[call.service].push_first(id);
        }
    }

    /// Gives waiting calls to transports, as far as there is room.
    pub(super) fn pump(&mut self, service: usize) {
        while let Some(id) = self.waiting[service].pop() {
            if !self.is_wanted(id) {
                self.remove_call(id);
            } else if self.assign(id) {
            } else if self.is_stuck(id) {
                self.waiting[service].push_stuck(id);
            } else {
                self.waiting[service].push_first(id);
                break;
            }
        }
        for _ in 0..self.waiting[service].stuck().min(STUCK) {
            let Some(id) = self.waiting[service].pop_stuck() else {
                break;
            };
            if !self.is_wanted(id) {
                self.remove_call(id);
            } else if !self.assign(id) {
                self.waiting[service].push_stuck(id);
            }
        }
    }

    /// Whether it is its XID that keeps a call from every transport that stands.
    fn is_stuck(&self, id: CallId) -> bool {
        let Some(call) = self.calls.get(id) else {
            return false;
        };
        if let Some(way) = call.way
            && self.transports[way.0].way() == Some(way)
        {
            return self.transports[way.0].has(call.header.xid);
        }
        let mut stand = self
            .transports
            .iter()
            .filter(|t| t.service == call.service && t.stands())
            .peekable();
        call.header.is_signed()
            && stand.peek().is_some()
            && stand.all(|transport| transport.has(call.header.xid))
    }

    /// Sends a call from where an earlier process has sent it, if this is possible.
    fn resume(&mut self, id: CallId, entry: &Entry) -> bool {
        let number = usize::from(entry.place.transport);
        // One that there is no more has no port either.
        let (resumed, rule) = match number < self.transports.len() {
            true => self.resume_at(number, id, entry),
            false => (Resume::Other, 2),
        };
        let Some(call) = self.calls.get_mut(id) else {
            return false;
        };
        let header = call.header;
        let same = resumed == Resume::SamePlace;
        match same {
            true => call.transport = Some(number),
            false => call.place = None,
        }
        let client = self.clients.get(call.client).map(|client| client.peer);
        let Some(client) = client else {
            return same;
        };
        let local = entry.place.local;
        tracing::debug!(target: LOG, server = self.server(), %client, %local, xid = header.xid, ?resumed, rule, "sent before");
        if same {
            // What is held counts when it goes out.
            if self.transports[number].stands() {
                self.counters.replayed += 1;
            }
            return true;
        }
        if rule != 1 {
            let why =
                format!("it was sent from {local} before, which is not to be had (rule {rule})");
            self.runs_again(client, &header, &why);
        }
        false
    }

    fn assign(&mut self, id: CallId) -> bool {
        let Some(call) = self.calls.get(id) else {
            return true;
        };
        let (place, way, service, want) = (call.place, call.way, call.service, call.want);
        let signed = call.header.is_signed().then_some(call.header.xid);
        if let Some(entry) = place
            && self.resume(id, &entry)
        {
            return true;
        }
        if let Some(way) = way {
            if self.transports[way.0].way() == Some(way) {
                return self.take_again(way.0, id);
            }
            self.lost_its_way(id);
        }
        if signed.is_some() {
            let all = self.transports.len();
            if (0..all).any(|transport| self.replace(transport, id)) {
                return true;
            }
        }
        let mut numbers = Vec::with_capacity(self.transports.len());
        let mut loads: Vec<Load> = Vec::with_capacity(self.transports.len());
        for (number, transport) in self.transports.iter().enumerate() {
            if transport.service != service {
                continue;
            }
            let mut load = transport.load(self.now.at);
            // A signed call keeps its XID, and may not meet another one with it.
            load.up &= signed.is_none_or(|xid| !transport.has(xid));
            numbers.push(number);
            loads.push(load);
        }
        let chosen = self.dispatch[service].choose(&loads, want);
        match chosen.map(|i| numbers[i]) {
            Some(number) => self.take(number, id),
            None => false,
        }
    }

    /// Queues a call under an XID of its own; false where there is none.
    fn take(&mut self, number: usize, id: CallId) -> bool {
        let (Some(call), transport) = (self.calls.get_mut(id), &mut self.transports[number]) else {
            return true;
        };
        let xid = match call.header.is_signed() {
            true => Some(call.header.xid).filter(|xid| !transport.has(*xid)),
            false => transport.free_xid(),
        };
        let Some(xid) = xid else {
            return false;
        };
        transport.program = (call.header.program, call.header.version);
        (call.xid, call.transport) = (xid, Some(number));
        transport.pending.insert(xid, id);
        transport.charge(call);
        transport.queue.push_back(id);
        self.actions.push(Action::WriteCalls(number));
        true
    }

    /// Takes a signed call in place of the one that its client repeats by it, under a new signature: by the same
    /// connection, so that the server knows it. False where there is none.
    fn replace(&mut self, number: usize, id: CallId) -> bool {
        let Some(call) = self.calls.get(id) else {
            return false;
        };
        let xid = call.header.xid;
        let found = self.transports[number].pending.get(&xid).copied();
        let Some((old, before)) = found.and_then(|old| Some((old, self.calls.get(old)?))) else {
            return false;
        };
        // By another connection of its client.
        let mine = call.ticket.as_ref().filter(|_| call.way.is_some());
        let both = mine.zip(before.ticket.as_ref());
        let repeats_earlier = both.is_some_and(|(mine, of)| mine.is_of(of));
        let repeats = (repeats_earlier || before.client == call.client)
            && before.header.is_signed()
            && (call.header.program, call.header.procedure)
                == (before.header.program, before.header.procedure);
        if !repeats || old == id {
            return false;
        }
        // What has been sent once stays sent, by an earlier process, too: the server may have run it then.
        let (sent, place, noted) = (before.sent, before.place, before.noted);
        self.transports[number].discharge(before);
        self.transports[number].charge(call);
        if let Some(call) = self.calls.get_mut(id) {
            (call.xid, call.transport) = (xid, Some(number));
            (call.sent, call.place, call.noted) = (sent, place, noted);
        }
        let transport = &mut self.transports[number];
        transport.pending.insert(xid, id);
        match transport.held.iter_mut().find(|of| **of == old) {
            Some(of) => *of = id,
            None => transport.queue.push_back(id),
        }
        self.remove_call(old);
        self.actions.push(Action::WriteCalls(number));
        true
    }

    /// Takes the repetition of a signed call that it has, or had; false where another one has its XID.
    fn take_again(&mut self, number: usize, id: CallId) -> bool {
        if self.replace(number, id) {
            return true;
        }
        let transport = &self.transports[number];
        if transport.stands() {
            return self.take(number, id);
        }
        // It will have the same port.
        let Some(call) = self.calls.get_mut(id) else {
            return true;
        };
        let free = !transport.has(call.header.xid);
        if free {
            (call.xid, call.transport) = (call.header.xid, Some(number));
            self.hold(number, id, usize::MAX);
        }
        free
    }

    /// The connection that a signed call was sent by is no more, and its port is another one's.
    fn lost_its_way(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let (way, header, client) = (call.way.take(), call.header, call.client);
        let peer = self.clients.get(client).map(|client| client.peer);
        if let (Some((_, (from, _))), Some(peer)) = (way, peer) {
            let why = format!("it is signed, and was sent from {from} before, which is given up");
            self.runs_again(peer, &header, &why);
        }
    }

    /// Forgets a call that a transport has.
    pub(super) fn forget(&mut self, number: usize, id: CallId) {
        self.take_off(number, id);
        self.remove_call(id);
    }

    /// A call waits for no reply on a transport any more.
    pub(super) fn take_off(&mut self, number: usize, id: CallId) {
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let transport = &mut self.transports[number];
        if transport.pending.get(&call.xid) == Some(&id) {
            transport.pending.remove(&call.xid);
            transport.discharge(call);
            transport.rate.left(transport.outstanding);
        }
    }

    /// What is to be written to a server next: small calls and internal messages go into the buffer, to be
    /// written before anything else. From then on the server may have them.
    pub fn calls_to_write(
        &mut self,
        now: Now,
        number: usize,
        buffer: &mut BytesMut,
        actions: &mut Actions,
    ) -> NextCall {
        self.now = now;
        let next = self.next_call(number, buffer);
        actions.append(&mut self.actions);
        next
    }

    fn next_call(&mut self, number: usize, buffer: &mut BytesMut) -> NextCall {
        while buffer.len() < 4 * TOGETHER {
            for message in self.transports[number].internal.drain(..) {
                buffer.extend_from_slice(&mark(message.len() as u32, true));
                buffer.extend_from_slice(&message);
            }
            let Some(id) = self.transports[number].queue.pop_front() else {
                return match buffer.is_empty() {
                    true => NextCall::Nothing,
                    false => NextCall::Buffer,
                };
            };
            // One that is here to be repeated may have been answered meanwhile.
            let xid = self.calls.get(id).map(|call| call.xid);
            let transport = &mut self.transports[number];
            if xid.is_none_or(|xid| transport.pending.get(&xid) != Some(&id)) {
                continue;
            }
            if !self.is_wanted(id) {
                self.forget(number, id);
                self.pump(self.transports[number].service);
                continue;
            }
            self.transports[number].tallies.calls += 1;
            self.note(number, id, Notes::note);
            let now = self.now.at;
            let Some(call) = self.calls.get_mut(id) else {
                continue;
            };
            call.written = Some(now);
            if call.length() > TOGETHER {
                return NextCall::Large {
                    call: id,
                    head: call.head(),
                    body: call.body.clone(),
                };
            }
            // From here on nobody knows how far it gets.
            call.sent = Sent::All;
            buffer.extend_from_slice(&call.head());
            for chunk in &*call.body {
                buffer.extend_from_slice(chunk);
            }
        }
        NextCall::Buffer
    }

    /// Bytes have gone to a server.
    pub(super) fn moved_out(&mut self, number: usize, bytes: usize, large: bool) {
        let transport = &mut self.transports[number];
        transport.tallies.bytes_out += bytes as u64;
        if large {
            let outstanding = transport.outstanding;
            transport.rate.moved(bytes as u64, outstanding, self.now.at);
        }
    }

    /// Bytes have come from one.
    pub(super) fn moved_in(&mut self, number: usize, bytes: usize) {
        let transport = &mut self.transports[number];
        transport.tallies.bytes_in += bytes as u64;
        let outstanding = transport.outstanding;
        transport.rate.moved(bytes as u64, outstanding, self.now.at);
    }
}

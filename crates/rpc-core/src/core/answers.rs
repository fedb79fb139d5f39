//! Replies of a server, to the clients that wait for them.

use bytes::Bytes;

use super::call::{Reply, stream};
use super::transport::Answering;
use super::{CallId, Core};
use crate::assemble::Part;
use crate::message::{FromServer, MessageError};
use crate::record::mark;
use crate::replay::Sent;

/// Time that the rest of a reply may take to come once it is being written.
const SOON: f64 = 0.001;

impl Core {
    /// Takes a part of what a server sends.
    pub(super) fn server_says(&mut self, number: usize, part: Part) -> Result<(), MessageError> {
        match part {
            Part::Whole(bytes) => {
                let Some(id) = self.answered(number, &bytes, true)? else {
                    return Ok(());
                };
                self.look_for_backchannel(number, id, &bytes);
                let Some(call) = self.calls.get(id) else {
                    return Ok(());
                };
                let (client, xid) = (call.client, call.header.xid);
                let reply = Reply::new(client, stream(xid, &bytes, 0, true), true);
                let kept = call.ticket.as_ref().and_then(|_| reply.small());
                let reply = self.enter_reply(reply);
                self.give(client, reply);
                self.done(number, id, kept);
            }
            Part::Start { head, rest, last } => {
                let Some(id) = self.answered(number, &head, false)? else {
                    return Ok(());
                };
                let Some(call) = self.calls.get(id) else {
                    return Ok(());
                };
                let first = stream(call.header.xid, &head, rest, last);
                let xid = call.xid;
                let reply = self.enter_reply(Reply::new(call.client, first, false));
                self.transports[number].answering = Some(Answering {
                    call: id,
                    reply,
                    xid,
                    left: (rest.into(), last),
                });
                self.pass_on(number);
            }
            Part::Fragment { length, last } => {
                if let Some(answering) = &mut self.transports[number].answering {
                    answering.left = (length.into(), last);
                }
                self.more(number, Bytes::copy_from_slice(&mark(length, last)));
            }
            Part::Data(bytes) => {
                if let Some(answering) = &mut self.transports[number].answering {
                    answering.left.0 = answering.left.0.saturating_sub(bytes.len() as u64);
                }
                self.more(number, bytes);
                self.pass_on(number);
            }
            Part::End => {
                if let Some(of) = self.transports[number].answering.take() {
                    self.reply_ends(number, of);
                }
            }
        }
        Ok(())
    }

    fn reply_ends(&mut self, number: usize, of: Answering) {
        if let Some(reply) = self.replies.get_mut(of.reply) {
            reply.complete = true;
            let bytes = reply.charged;
            if let Some(call) = self.calls.get(of.call) {
                let foreseen = call.nature.foreseen;
                self.sizes.saw(bytes, foreseen, self.now.at);
            }
        }
        if let Some(call) = self.calls.get(of.call) {
            let id = call.client;
            let client = self.clients.get(id);
            match client.is_some_and(|client| client.passes_on(of.reply)) {
                true => self.wake(id),
                false => self.give(id, of.reply),
            }
        }
        self.done(number, of.call, None);
    }

    /// Has the reply that comes written, where its client waits for nothing else and the rest will be here within
    /// a millisecond: whatever is to be said meanwhile has to wait for it.
    fn pass_on(&mut self, number: usize) {
        let transport = &self.transports[number];
        let Some(of) = transport.answering else {
            return;
        };
        let rate = transport.rate.per_second(self.now.at);
        let soon = rate.is_some_and(|rate| of.left.0 as f64 <= rate * SOON);
        let Some(id) = self.calls.get(of.call).map(|call| call.client) else {
            return;
        };
        let waits = self
            .clients
            .get(id)
            .is_some_and(|client| client.waits_for_one() && !client.passes_on(of.reply));
        if of.left.1 && soon && waits {
            self.give(id, of.reply);
        }
    }

    /// More of the reply that comes; it is dropped where nobody wants it.
    fn more(&mut self, number: usize, bytes: Bytes) {
        let Some(of) = self.transports[number].answering else {
            return;
        };
        let Some(client) = self.calls.get(of.call).map(|call| call.client) else {
            return;
        };
        if self.is_closed(client) {
            return self.forget_reply(of.reply);
        }
        let (length, mut payer) = (bytes.len(), client);
        if let Some(reply) = self.replies.get_mut(of.reply) {
            reply.chunks.push_back(bytes);
            reply.charged += length;
            payer = reply.payer;
        }
        self.charge_reply(payer, length);
        self.wake(client);
    }

    /// The call that a message answers; it is no longer pending. None for a message that answers none.
    fn answered(
        &mut self,
        number: usize,
        head: &Bytes,
        whole: bool,
    ) -> Result<Option<CallId>, MessageError> {
        let xid = match FromServer::parse(head)? {
            FromServer::Reply(xid) => xid,
            FromServer::Call(xid) => {
                self.call_of_server(number, head, (xid, whole));
                return Ok(None);
            }
        };
        let transport = &mut self.transports[number];
        if transport.pings.remove(&xid) {
            return Ok(None);
        }
        let call = transport.pending.get(&xid).copied();
        let sent = |id: &CallId| {
            let call = self.calls.get(*id);
            call.is_some_and(|call| call.sent == Sent::All)
        };
        let call = call.filter(sent);
        match call {
            Some(_) => drop(transport.pending.remove(&xid)),
            None => self.counters.unknown_replies += 1,
        }
        Ok(call)
    }

    /// A call has its whole reply, which is given if it may be kept.
    fn done(&mut self, number: usize, id: CallId, reply: Option<Bytes>) {
        let transport = &mut self.transports[number];
        if let Some(call) = self.calls.get(id) {
            transport.discharge(call);
            transport.rate.left(transport.outstanding);
            transport.tallies.done(call, self.now.at);
        }
        let service = transport.service;
        self.remember(id, reply, number);
        self.remove_call(id);
        self.pump(service);
    }
}

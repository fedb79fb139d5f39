//! Calls of a client, to the connection that they take.

use std::sync::Arc;

use bytes::Bytes;

use super::call::{Call, OVERHEAD, stream};
use super::client::Coming;
use super::duplicates::Met;
use super::memory::Kind;
use super::{CallId, ClientId, Core, Now, Reply};
use crate::assemble::Part;
use crate::dispatch::Want;
use crate::message::{self, AUTH_TLS, Answer, FromServer, MessageError, answer};
use crate::portmap;
use crate::program::{self, Class, Nature};
use crate::record::mark;
use crate::replay::Sent;

/// Bytes that may come of a large call behind its head, of which the first fragment has `rest`, where no record may be
/// longer than `most`.
pub(super) fn to_come(head: usize, (rest, last): (u32, bool), most: u32) -> usize {
    match last {
        true => rest as usize,
        // Nothing says how much follows.
        false => (most as usize).saturating_sub(head),
    }
}

/// A call that has come.
struct Came<'a> {
    head: &'a Bytes,
    /// The length of its first fragment, and whether that is its last.
    fragment: (u64, bool),
    /// What is behind the head.
    rest: Vec<Bytes>,
}

impl Core {
    /// Bytes that may come behind a large call's head, of which the first fragment has `rest`: there has to be room for
    /// them ([`Core::has_room_for_call`]) before its start is told.
    pub fn to_come(&self, head: &Bytes, fragment: (u32, bool)) -> usize {
        to_come(head.len(), fragment, self.config.most)
    }

    /// Takes a part. A call goes to a server when all of it is here: what a client has broken off never reaches one, and
    /// none waits for a client that is slow. All of it has to be kept until the reply, in any case.
    pub(super) fn client_says(&mut self, id: ClientId, part: Part) -> Result<(), MessageError> {
        if self.is_closed(id) {
            return Ok(());
        }
        match part {
            Part::Whole(head) => {
                let fragment = (head.len() as u64, true);
                let came = Came {
                    head: &head,
                    fragment,
                    rest: Vec::new(),
                };
                return self.came(id, came);
            }
            Part::Start { head, rest, last } => {
                // What makes no sense is not waited for.
                message::Call::parse(&head)?;
                let expected = to_come(head.len(), (rest, last), self.config.most);
                let kept = head.len();
                // One that has not ended is given back.
                self.stop_coming(id);
                if let Some(mut of) = self.share(Kind::Calls, id) {
                    of.add(kept);
                    of.expect(expected);
                }
                let coming = Coming {
                    fragment: (kept as u64 + u64::from(rest), last),
                    head,
                    rest: Vec::new(),
                    kept,
                    expected,
                };
                if let Some(client) = self.clients.get_mut(id) {
                    client.coming = Some(coming);
                }
            }
            Part::Fragment { length, last } => {
                self.more_of_call(id, Bytes::copy_from_slice(&mark(length, last)));
            }
            Part::Data(bytes) => self.more_of_call(id, bytes),
            Part::End => {
                if let Some(coming) = self.stop_coming(id) {
                    let came = Came {
                        head: &coming.head,
                        fragment: coming.fragment,
                        rest: coming.rest,
                    };
                    return self.came(id, came);
                }
            }
        }
        Ok(())
    }

    fn more_of_call(&mut self, id: ClientId, bytes: Bytes) {
        let coming = self.clients.get_mut(id).and_then(|c| c.coming.take());
        let Some(mut coming) = coming else {
            return;
        };
        coming.kept += bytes.len();
        if let Some(mut of) = self.share(Kind::Calls, id) {
            coming.expected = of.arrived(bytes.len(), coming.expected);
        }
        coming.rest.push(bytes);
        if let Some(client) = self.clients.get_mut(id) {
            client.coming = Some(coming);
        }
    }

    /// What was coming of a large call, which is charged no more.
    pub(super) fn stop_coming(&mut self, id: ClientId) -> Option<Coming> {
        let coming = self.clients.get_mut(id)?.coming.take()?;
        self.release(Kind::Calls, id, coming.kept, coming.expected);
        Some(coming)
    }

    /// Passes on a call that is all here, unless it is answered at once, or repeats one that is on its way.
    fn came(&mut self, id: ClientId, came: Came<'_>) -> Result<(), MessageError> {
        let (head, fragment) = (came.head, came.fragment);
        if let Ok(FromServer::Reply(xid)) = FromServer::parse(head)
            && head.len() as u64 == fragment.0
            && self.reply_to_server(id, head, xid)
        {
            return Ok(());
        }
        let header = message::Call::parse(head)?;
        if let Some(client) = self.clients.get_mut(id) {
            client.calls += 1;
        }
        let answered = match (header.flavour, header.program) {
            (AUTH_TLS, _) => Some(answer(header.xid, Answer::NoTls)),
            (_, program::number::PORTMAP) => Some(portmap::reply(&header, head, self.config.port)),
            _ => None,
        };
        if let Some(bytes) = answered {
            let bytes = stream(header.xid, &bytes, 0, true);
            let reply = self.enter_reply(Reply::new(id, bytes, true));
            self.give(id, reply);
            return Ok(());
        }
        if self.is_repeated(id, &header, head, fragment.0) {
            self.counters.repeated_calls += 1;
            return Ok(());
        }
        let nature = program::nature(&header, head);
        let Met::Other(key, way) = self.meet(id, (&header, &nature), head, fragment) else {
            return Ok(());
        };
        let first = head.slice(4..);
        let body = std::iter::once(first).chain(came.rest).collect();
        let call = self.enter_call(id, (header, nature), fragment, body);
        if let Some(key) = key {
            let ticket = self.duplicates.begin(nature.class, key, call);
            let place = match way {
                None => self.sent_before(&ticket),
                Some(_) => None,
            };
            if let Some(call) = self.calls.get_mut(call) {
                (call.ticket, call.place) = (Some(ticket), place);
            }
        }
        if let Some(call) = self.calls.get_mut(call) {
            call.way = way;
        }
        self.submit_of(id, header.xid, call);
        Ok(())
    }

    fn submit_of(&mut self, client: ClientId, xid: u32, call: CallId) {
        if let Some(client) = self.clients.get_mut(client) {
            client.pending.insert(xid, call);
        }
        self.submit(call);
    }

    /// Makes a call of the program itself, without marks, in two parts; its first fragment is all of it. What it does
    /// when it is made twice may be known.
    pub fn call(
        &mut self,
        now: Now,
        client: ClientId,
        header: message::Call,
        (head, rest, class): (Bytes, Bytes, Option<Class>),
        actions: &mut super::Actions,
    ) {
        self.now = now;
        let mut nature = program::nature(&header, &head);
        nature.class = class.unwrap_or(nature.class);
        let length = head.len() as u64 + rest.len() as u64;
        let rest = Some(rest).filter(|rest| !rest.is_empty());
        let body = std::iter::once(head.slice(4..)).chain(rest).collect();
        let call = self.enter_call(client, (header, nature), (length, true), body);
        self.submit_of(client, header.xid, call);
        actions.append(&mut self.actions);
    }

    /// Takes a call in, and charges it. Its first fragment has this length, and may be its last.
    fn enter_call(
        &mut self,
        client: ClientId,
        (header, nature): (message::Call, Nature),
        (length, last): (u64, bool),
        body: Arc<[Bytes]>,
    ) -> CallId {
        let unforeseen = match nature.foreseen {
            true => 0,
            false => self.sizes.guess(self.config.memory, self.now.at),
        };
        let reserved = (nature.expected as usize).saturating_add(unforeseen);
        let reserved = reserved.min(self.config.most as usize);
        let charged = OVERHEAD + body.iter().map(Bytes::len).sum::<usize>();
        if let Some(mut of) = self.share(Kind::Calls, client) {
            of.add(charged);
        }
        if let Some(mut of) = self.share(Kind::Replies, client) {
            of.expect(reserved);
        }
        // Who pays, and who gets the reply.
        self.uses(client);
        self.uses(client);
        self.came += 1;
        self.calls.insert(Call {
            number: self.came,
            client,
            service: self.service(header.program),
            header,
            nature,
            want: Want {
                bytes: length + u64::from(self.sizes.given(nature.expected)),
                file: nature.file,
            },
            mark: mark(length as u32, last),
            body,
            xid: header.xid,
            transport: None,
            sent: Sent::Nothing,
            replay: None,
            since: self.now.at,
            written: None,
            payer: client,
            charged,
            reserved,
            ticket: None,
            way: None,
            place: None,
            noted: None,
        })
    }

    /// The service of a program.
    fn service(&self, program: u32) -> usize {
        let mut named = self.config.services.iter().skip(1);
        let found = named.position(|s| s.programs.contains(&program));
        found.map_or(0, |i| i + 1)
    }

    /// Whether a small call is the same, byte by byte, as one that has no reply yet: the client has lost its
    /// patience, and gets the first one's reply.
    fn is_repeated(
        &self,
        client: ClientId,
        header: &message::Call,
        head: &Bytes,
        length: u64,
    ) -> bool {
        let client = self.clients.get(client);
        let before = client.and_then(|client| client.pending.get(&header.xid));
        let before = before.and_then(|before| self.calls.get(*before));
        before.is_some_and(|before| {
            let same = matches!(&*before.body, [all] if all[..] == head[4..]);
            head.len() as u64 == length && same
        })
    }

    /// A call is no more: what it was charged is given back, and nobody waits for it.
    pub(super) fn remove_call(&mut self, id: CallId) {
        self.release_call(id);
        let Some(call) = self.calls.remove(id) else {
            return;
        };
        if let Some(ticket) = &call.ticket {
            self.duplicates.ended(ticket);
        }
        self.no_longer_pending(call.client, call.header.xid, id);
        self.uses_no_more(call.client);
        self.uses_no_more(call.payer);
    }

    /// Gives back what a call was charged, and its reply.
    fn release_call(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        let payer = call.payer;
        let charged = std::mem::take(&mut call.charged);
        let reserved = std::mem::take(&mut call.reserved);
        self.release(Kind::Calls, payer, charged, 0);
        self.release(Kind::Replies, payer, 0, reserved);
    }

    /// A client waits for a call's reply no longer.
    pub(super) fn no_longer_pending(&mut self, client: ClientId, xid: u32, id: CallId) {
        if let Some(client) = self.clients.get_mut(client)
            && client.pending.get(&xid) == Some(&id)
        {
            client.pending.remove(&xid);
        }
    }

    /// Lets go of what has been written as a whole, and which nobody wants the reply to: the server may never give one.
    /// The XID stays in use.
    pub(super) fn abandon(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else {
            return;
        };
        if call.length() <= super::TOGETHER && call.sent == Sent::All {
            call.body = Arc::default();
            self.release_call(id);
        }
    }
}

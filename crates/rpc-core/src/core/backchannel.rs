//! Calls of a server to a client (the backchannel of NFSv4.1, RFC 8881, section 2.10.3.1): which client, and
//! where its replies go.
//!
//! A server calls by the connections that a client has bound to its session for that, by CREATE_SESSION or
//! BIND_CONN_TO_SESSION; through the proxy, by the connection that such a call went out by. When that fails, the
//! server tells the client so (`SEQ4_STATUS_CB_PATH_DOWN`), which binds another.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

use super::call::{Reply, stream};
use super::transport::Transport;
use super::{Action, CallId, ClientId, Core};
use crate::compound::{self, SessionId};
use crate::message::{self, Answer, answer};
use crate::program::{Class, number::NFS};

/// Sessions that are remembered.
const SESSIONS: usize = 4096;
/// Calls that a client may owe replies to.
const OWED: usize = 256;
/// Internal messages, the proxy's, that wait to be written, at most: a server may call and read no answers.
const INTERNAL: usize = 1024;

/// A connection: its transport's number, and which one of that.
type Connection = (usize, u64);

/// A session whose server may call.
struct Bound {
    client: ClientId,
    by: Connection,
    /// The newest has the highest.
    order: u64,
}

/// Which client has which session.
#[derive(Default)]
pub(super) struct Sessions {
    bound: HashMap<SessionId, Bound>,
    order: u64,
}

/// A server's call that a client owes the reply to.
#[derive(Clone, Copy, Debug)]
struct Owed {
    by: Connection,
    xid: u32,
}

/// The server's calls of a client, under XIDs of their own.
#[derive(Default)]
pub(super) struct Debts {
    owed: HashMap<u32, Owed>,
    next: u32,
}

impl Debts {
    /// One more; the XID that the client gets it under, or none where it owes too many.
    fn add(&mut self, transports: &[Transport], owed: Owed) -> Option<u32> {
        if self.owed.len() >= OWED {
            self.owed.retain(|_, owed| stands(transports, owed.by));
        }
        if self.owed.len() >= OWED {
            return None;
        }
        let mut xid = self.next;
        while self.owed.contains_key(&xid) {
            xid = xid.wrapping_add(1);
        }
        self.next = xid.wrapping_add(1);
        self.owed.insert(xid, owed);
        Some(xid)
    }
}

/// Whether a transport still has that connection.
fn stands(transports: &[Transport], (number, connection): Connection) -> bool {
    let transport = &transports[number];
    transport.stands() && transport.tallies.connections == connection
}

impl Core {
    fn connection(&self, number: usize) -> Connection {
        (number, self.transports[number].tallies.connections)
    }

    /// Has an internal message written, ahead of calls. Gives up a connection that takes none.
    pub(super) fn say(&mut self, number: usize, message: Bytes) {
        let internal = &mut self.transports[number].internal;
        if internal.len() >= INTERNAL {
            let why = "the server calls, and takes no answers";
            return self.actions.push(Action::Close(number, why));
        }
        internal.push_back(message);
        self.actions.push(Action::WriteCalls(number));
    }

    /// Looks whether a reply gives its client a backchannel by this connection, and remembers that.
    pub(super) fn look_for_backchannel(&mut self, number: usize, call: CallId, reply: &[u8]) {
        let Some(call) = self.calls.get(call) else {
            return;
        };
        let header = &call.header;
        // Neither operation may stand behind a SEQUENCE but in its own compound; they are non-idempotent.
        if (header.program, header.version, call.nature.class) != (NFS, 4, Class::Once)
            || self.clients.get(call.client).is_none_or(|c| c.internal)
        {
            return;
        }
        let Some(session) = compound::bound(reply) else {
            return;
        };
        let by = self.connection(number);
        let clients = &self.clients;
        let bound = &mut self.sessions.bound;
        bound.retain(|_, b| clients.get(b.client).is_some_and(|c| !c.is_closed()));
        if bound.len() >= SESSIONS && !bound.contains_key(&session) {
            return;
        }
        self.sessions.order += 1;
        let new = Bound {
            client: call.client,
            by,
            order: self.sessions.order,
        };
        bound.insert(session, new);
    }

    /// Passes a call of the server on.
    ///
    /// 1. It is a CB_COMPOUND with a CB_SEQUENCE: to the client that has that session.
    /// 2. It is a CB_NULL: to the client that has bound this connection last.
    /// 3. There is no such client, it owes too many replies, or the call is larger than any of these is: it is answered
    ///    with "no such program".
    pub(super) fn call_of_server(
        &mut self,
        number: usize,
        bytes: &[u8],
        (xid, whole): (u32, bool),
    ) {
        let by = self.connection(number);
        let header = message::Call::parse(bytes).ok().filter(|_| whole);
        let found = header.and_then(|header| {
            let arguments = bytes.get(header.arguments..)?;
            let bound = &self.sessions.bound;
            let found = match header.procedure {
                0 => bound
                    .values()
                    .filter(|b| b.by == by)
                    .max_by_key(|b| b.order),
                _ => bound.get(&compound::called(arguments)?),
            };
            Some(found?.client)
        });
        let passed = found.and_then(|id| {
            let client = self.clients.get_mut(id).filter(|c| !c.is_closed())?;
            let own = client.debts.add(&self.transports, Owed { by, xid })?;
            Some((id, own))
        });
        match passed {
            Some((client, own)) => {
                let bytes = stream(own, bytes, 0, true);
                let reply = self.enter_reply(Reply::new(client, bytes, true));
                self.give(client, reply);
                self.counters.server_calls += 1;
            }
            None => {
                self.counters.server_calls_refused += 1;
                self.say(number, answer(xid, Answer::NoProgram));
            }
        }
    }

    /// Passes a client's reply on; false where it answers no call.
    pub(super) fn reply_to_server(&mut self, client: ClientId, bytes: &[u8], xid: u32) -> bool {
        let client = self.clients.get_mut(client);
        let Some(owed) = client.and_then(|client| client.debts.owed.remove(&xid)) else {
            return false;
        };
        if stands(&self.transports, owed.by) {
            let mut message = BytesMut::with_capacity(bytes.len());
            message.put_u32(owed.xid);
            message.put_slice(bytes.get(4..).unwrap_or(&[]));
            self.say(owed.by.0, message.freeze());
        }
        true
    }

    /// Answers for a client that is gone.
    pub(super) fn owes_no_more(&mut self, client: ClientId) {
        let debts = self.clients.get_mut(client);
        let owed = debts.map(|client| std::mem::take(&mut client.debts.owed));
        let mut owed: Vec<_> = owed.unwrap_or_default().into_iter().collect();
        owed.sort_unstable_by_key(|(xid, _)| *xid);
        for (_, owed) in owed {
            if stands(&self.transports, owed.by) {
                self.counters.server_calls_refused += 1;
                self.say(owed.by.0, answer(owed.xid, Answer::NoProgram));
            }
        }
    }
}

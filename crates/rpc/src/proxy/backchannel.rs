//! Calls of a server to a client (the backchannel of NFSv4.1, RFC 8881, section 2.10.3.1): which client, and
//! where its replies go.
//!
//! A server calls by the connections that a client has bound to its session for that, by CREATE_SESSION or
//! BIND_CONN_TO_SESSION; through the proxy, by the connection that such a call went out by. When that fails, the
//! server tells the client so (`SEQ4_STATUS_CB_PATH_DOWN`), which binds another.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use bytes::{BufMut, BytesMut};

use super::call::{Call, Reply};
use super::client::Client;
use super::own::is_own;
use super::shared::{Shared, count};
use super::transport::Transport;
use crate::compound::{self, SessionId};
use crate::message::{self, Answer, answer};
use crate::program::{Class, number::NFS};

/// Sessions that are remembered.
const SESSIONS: usize = 4096;
/// Calls that a client may owe replies to.
const OWED: usize = 256;

/// A session whose server may call.
struct Bound {
    client: Weak<Client>,
    /// The connection, by its transport's number and which one of that.
    by: (usize, u64),
    /// The newest has the highest.
    order: u64,
}

/// Which client has which session.
#[derive(Default)]
pub(super) struct Sessions {
    bound: RefCell<HashMap<SessionId, Bound>>,
    order: Cell<u64>,
}

/// A server's call that a client owes the reply to.
#[derive(Clone, Copy, Debug)]
struct Owed {
    by: (usize, u64),
    xid: u32,
}

/// The server's calls of a client, under XIDs of their own.
#[derive(Default)]
pub(super) struct Debts {
    owed: RefCell<HashMap<u32, Owed>>,
    next: Cell<u32>,
}

impl Debts {
    fn add(&self, shared: &Shared, owed: Owed) -> Option<u32> {
        let mut all = self.owed.borrow_mut();
        if all.len() >= OWED {
            all.retain(|_, owed| stands(shared, owed.by).is_some());
        }
        if all.len() >= OWED {
            return None;
        }
        let mut xid = self.next.get();
        while all.contains_key(&xid) {
            xid = xid.wrapping_add(1);
        }
        self.next.set(xid.wrapping_add(1));
        all.insert(xid, owed);
        Some(xid)
    }
}

/// The transport, if it still has that connection.
fn stands(shared: &Shared, (number, connection): (usize, u64)) -> Option<&Transport> {
    let transport = &shared.transports[number];
    let is = transport.watched().is_some() && transport.tallies.connections.get() == connection;
    is.then_some(transport)
}

fn connection(transport: &Transport) -> (usize, u64) {
    (transport.index, transport.tallies.connections.get())
}

/// Looks whether a reply gives its client a backchannel by this connection, and remembers that.
pub(super) fn look(shared: &Shared, transport: &Transport, call: &Call, reply: &[u8]) {
    let header = &call.header;
    // Neither operation may stand behind a SEQUENCE but in its own compound; they count once.
    if (header.program, header.version, call.nature.class) != (NFS, 4, Class::Once)
        || is_own(call.client().peer)
    {
        return;
    }
    let Some(session) = compound::bound(reply) else {
        return;
    };
    let sessions = &shared.sessions;
    let mut bound = sessions.bound.borrow_mut();
    bound.retain(|_, b| b.client.upgrade().is_some_and(|client| !client.is_closed()));
    if bound.len() >= SESSIONS && !bound.contains_key(&session) {
        return;
    }
    sessions.order.set(sessions.order.get() + 1);
    let new = Bound {
        client: Rc::downgrade(&call.client()),
        by: connection(transport),
        order: sessions.order.get(),
    };
    bound.insert(session, new);
}

/// Passes a call of the server on.
///
/// 1. It is a CB_COMPOUND with a CB_SEQUENCE: to the client that has that session.
/// 2. It is a CB_NULL: to the client that has bound this connection last.
/// 3. There is no such client, it owes too many replies, or the call is larger than any of these is: it is answered with \"no such program\".
pub(super) fn call(
    shared: &Shared,
    transport: &Transport,
    bytes: &[u8],
    (xid, whole): (u32, bool),
) {
    let by = connection(transport);
    let client = message::Call::parse(bytes).ok().filter(|_| whole);
    let client = client.and_then(|header| {
        let arguments = bytes.get(header.arguments..)?;
        let bound = shared.sessions.bound.borrow();
        let found = match header.procedure {
            0 => bound
                .values()
                .filter(|b| b.by == by)
                .max_by_key(|b| b.order),
            _ => bound.get(&compound::called(arguments)?),
        };
        found?.client.upgrade().filter(|client| !client.is_closed())
    });
    let passed = client.and_then(|client| {
        let own = client.debts.add(shared, Owed { by, xid })?;
        let reply = Reply::new(own, bytes, 0, true, client.of_replies.charge(0));
        reply.complete.set(true);
        client.reply(Rc::new(reply));
        Some(())
    });
    match passed {
        Some(()) => count(&shared.counts.server_calls),
        None => {
            count(&shared.counts.server_calls_refused);
            transport.say(answer(xid, Answer::NoProgram));
        }
    }
}

/// Passes a client's reply on; false where it answers no call.
pub(super) fn reply(shared: &Shared, client: &Client, bytes: &[u8], xid: u32) -> bool {
    let Some(owed) = client.debts.owed.borrow_mut().remove(&xid) else {
        return false;
    };
    if let Some(transport) = stands(shared, owed.by) {
        let mut message = BytesMut::with_capacity(bytes.len());
        message.put_u32(owed.xid);
        message.put_slice(bytes.get(4..).unwrap_or(&[]));
        transport.say(message.freeze());
    }
    true
}

/// Answers for a client that is gone.
pub(super) fn gone(shared: &Shared, client: &Client) {
    for (_, owed) in client.debts.owed.take() {
        if let Some(transport) = stands(shared, owed.by) {
            count(&shared.counts.server_calls_refused);
            transport.say(answer(owed.xid, Answer::NoProgram));
        }
    }
}

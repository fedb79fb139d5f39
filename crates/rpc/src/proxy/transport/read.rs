//! Replies of a server, to the clients that wait for them.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

use super::{Answering, Transport, add};
use crate::assemble::{Assembler, Part};
use crate::message::{FromServer, MessageError};
use crate::proxy::backchannel;
use crate::proxy::call::{Call, Reply};
use crate::proxy::client::READ;
use crate::proxy::pressure;
use crate::proxy::shared::{Shared, count};
use crate::record::mark;
use crate::replay::Sent;

pub(super) async fn read(
    shared: &Rc<Shared>,
    transport: &Transport,
    reader: OwnedReadHalf,
) -> String {
    let mut assembler = Assembler::new(shared.config.most);
    let mut input = BytesMut::new();
    loop {
        let ready = match assembler.is_inside() {
            true => match timeout(shared.config.patience, reader.readable()).await {
                Ok(ready) => ready,
                Err(_) => return "the server stalled within a record".into(),
            },
            false => reader.readable().await,
        };
        if let Err(e) = ready {
            return e.to_string();
        }
        if input.capacity() - input.len() < READ / 4 {
            input.reserve(READ);
        }
        match reader.try_read_buf(&mut input) {
            Ok(0) => return "closed by the server".into(),
            Ok(bytes) => {
                add(&transport.tallies.bytes_in, bytes);
                let outstanding = transport.outstanding.get();
                let now = Instant::now();
                transport
                    .rate
                    .borrow_mut()
                    .moved(bytes as u64, outstanding, now);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // What says nothing has no buffer. What a large reply has taken of it is there in any case, and the
                // next part of it belongs behind that.
                if input.is_empty() && assembler.passes().is_none() {
                    input = BytesMut::new();
                }
            }
            Err(e) => return e.to_string(),
        }
        loop {
            // Before each record, also those that have come together with the end of another.
            if !assembler.is_inside() {
                pressure::room(shared).await;
            }
            match assembler.next(&mut input) {
                Ok(None) => break,
                Ok(Some(part)) => {
                    if let Err(error) = take(shared, transport, part) {
                        return format!("the server sends {error}");
                    }
                }
                Err(error) => return format!("the server sends {error}"),
            }
        }
    }
}

fn take(shared: &Shared, transport: &Transport, part: Part) -> Result<(), MessageError> {
    match part {
        Part::Whole(bytes) => {
            let Some(call) = answered(shared, transport, &bytes, true)? else {
                return Ok(());
            };
            backchannel::look(shared, transport, &call, &bytes);
            let charge = call.client().of_replies.charge(0);
            let reply = Rc::new(Reply::new(call.header.xid, &bytes, 0, true, charge));
            reply.complete.set(true);
            call.client().reply(Rc::clone(&reply));
            done(shared, transport, &call, Some(&reply));
        }
        Part::Start { head, rest, last } => {
            let Some(call) = answered(shared, transport, &head, false)? else {
                return Ok(());
            };
            let charge = call.client().of_replies.charge(0);
            let reply = Rc::new(Reply::new(call.header.xid, &head, rest, last, charge));
            *transport.answering.borrow_mut() = Some(Answering {
                call,
                reply,
                left: (rest.into(), last),
            });
            pass_on(transport);
        }
        Part::Fragment { length, last } => {
            if let Some(answering) = &mut *transport.answering.borrow_mut() {
                answering.left = (length.into(), last);
            }
            more(transport, Bytes::copy_from_slice(&mark(length, last)));
        }
        Part::Data(bytes) => {
            if let Some(answering) = &mut *transport.answering.borrow_mut() {
                answering.left.0 = answering.left.0.saturating_sub(bytes.len() as u64);
            }
            more(transport, bytes);
            pass_on(transport);
        }
        Part::End => {
            let answering = transport.answering.borrow_mut().take();
            if let Some(Answering { call, reply, .. }) = answering {
                reply.complete.set(true);
                let foreseen = call.nature.foreseen;
                shared.sizes.saw(reply.bytes(), foreseen, Instant::now());
                let client = call.client();
                match client.passes_on(&reply) {
                    true => client.wake(),
                    false => client.reply(reply),
                }
                done(shared, transport, &call, None);
            }
        }
    }
    Ok(())
}

/// Time that the rest of a reply may take to come once it is being written.
const SOON: f64 = 0.001;

/// Has the reply that comes written, where its client waits for nothing else and the rest will be here within
/// a millisecond: whatever is to be said meanwhile has to wait for it.
fn pass_on(transport: &Transport) {
    let answering = transport.answering.borrow();
    let Some(Answering { call, reply, left }) = &*answering else {
        return;
    };
    let rate = transport.rate.borrow().per_second(Instant::now());
    let soon = rate.is_some_and(|rate| left.0 as f64 <= rate * SOON);
    let client = call.client();
    if left.1 && soon && client.waits_for_one() && !client.passes_on(reply) {
        client.reply(Rc::clone(reply));
    }
}

/// More of the reply that comes; it is dropped where nobody wants it.
fn more(transport: &Transport, bytes: Bytes) {
    let answering = transport.answering.borrow();
    let Some(Answering { call, reply, .. }) = &*answering else {
        return;
    };
    let client = call.client();
    if client.is_closed() {
        reply.forget();
        return;
    }
    reply.push(bytes);
    client.wake();
}

/// The call that a message answers; it is no longer pending. None for a message that answers none.
fn answered(
    shared: &Shared,
    transport: &Transport,
    head: &[u8],
    whole: bool,
) -> Result<Option<Rc<Call>>, MessageError> {
    let xid = match FromServer::parse(head)? {
        FromServer::Reply(xid) => xid,
        FromServer::Call(xid) => {
            backchannel::call(shared, transport, head, (xid, whole));
            return Ok(None);
        }
    };
    if transport.pings.borrow_mut().remove(&xid) {
        return Ok(None);
    }
    let mut pending = transport.pending.borrow_mut();
    match pending.get(&xid) {
        Some(call) if call.sent.get() == Sent::All => Ok(pending.remove(&xid)),
        _ => {
            count(&shared.counts.unknown_replies);
            Ok(None)
        }
    }
}

/// A call has its whole reply, which is given if it may be kept.
fn done(shared: &Shared, transport: &Transport, call: &Rc<Call>, reply: Option<&Reply>) {
    let left = transport.discharge(call);
    transport.rate.borrow_mut().left(left);
    transport.tallies.done(call);
    call.reserve.release();
    call.client().done(call);
    if let Some(ticket) = call.ticket.get() {
        ticket.answered(call, reply, transport.way());
    }
    shared.pump(transport.service);
}

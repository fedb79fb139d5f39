//! Calls of a client, to the connection that they take.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{sleep, timeout};

use super::{Client, End, Pace, READ};
use crate::assemble::{Assembler, Part};
use crate::message::{self, AUTH_TLS, Answer, FromServer, answer};
use crate::portmap;
use crate::program;
use crate::proxy::backchannel;
use crate::proxy::call::{Call, Reply};
use crate::proxy::duplicates::{self, Met};
use crate::proxy::first;
use crate::proxy::memory::Charge;
use crate::proxy::shared::{Shared, count};
use crate::record::mark;

/// How often it is looked whether a client has all its replies.
const SOON: Duration = Duration::from_millis(2);
/// How long a client may take to close its connection when the proxy ends.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes that are read of what nobody knows whether there is room for, at most.
const AHEAD: usize = 64 << 10;

/// A large call that comes.
struct Coming {
    head: Bytes,
    /// Length of its first fragment, and whether that is its last.
    fragment: (u64, bool),
    /// What has come behind the head, marks included.
    rest: Vec<Bytes>,
    kept: Charge,
    /// What is to come, so that nobody else takes the room that it needs.
    expected: Charge,
}

impl Coming {
    /// Begins with a head, behind which `rest` bytes of the first fragment are to come; there is room for what is
    /// `expected`.
    fn new(client: &Client, head: Bytes, (rest, last): (u32, bool), expected: usize) -> Coming {
        Coming {
            fragment: (head.len() as u64 + u64::from(rest), last),
            kept: client.of_calls.charge(head.len()),
            expected: client.of_calls.expect(expected),
            head,
            rest: Vec::new(),
        }
    }

    fn push(&mut self, bytes: Bytes) {
        self.kept.arrived(bytes.len(), &self.expected);
        self.rest.push(bytes);
    }
}

/// Bytes that may come of a large call behind its head, of which the first fragment has `rest`.
fn to_come(head: &Bytes, (rest, last): (u32, bool), most: u32) -> usize {
    match last {
        true => rest as usize,
        // Nothing says how much follows.
        false => (most as usize).saturating_sub(head.len()),
    }
}

pub(super) async fn read(shared: &Rc<Shared>, client: &Rc<Client>, reader: &OwnedReadHalf) -> End {
    let mut assembler = Assembler::new(shared.config.most);
    let mut input = BytesMut::new();
    let mut large = None;
    let mut pace = Pace::new(shared.config.patience);
    loop {
        // What has come of a record has reached no server, and its client repeats it.
        if shared.ends() {
            return satisfied(client).await;
        }
        let ready = first(reader.readable(), shared.told_to_end());
        let ready = match assembler.is_inside() {
            true => pace.ready(ready).await,
            false => ready.await,
        };
        if input.capacity() - input.len() < READ / 4 {
            input.reserve(READ);
        }
        // There is room for a large call that comes; of what is behind it nobody knows.
        let granted = assembler.passes().unwrap_or(0).saturating_sub(input.len());
        let mut most = (&mut input).limit(granted + AHEAD);
        match ready.and_then(|()| reader.try_read_buf(&mut most)) {
            Ok(0) if assembler.is_inside() => return End::bad("it ended within a record"),
            Ok(0) => {
                return End {
                    text: "by the client".into(),
                    is_bad: false,
                };
            }
            Ok(bytes) => {
                pace.moved(bytes);
                client.moved.set(Instant::now());
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // Who says nothing has no buffer. What a large call has taken of it is there in any case, and the
                // next part of it belongs behind that.
                if input.is_empty() && assembler.passes().is_none() {
                    input = BytesMut::new();
                }
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return End::bad("it stalled within a record");
            }
            Err(e) => return End::of(&e),
        }
        loop {
            client
                .receives
                .set(assembler.is_inside() || !input.is_empty());
            // Before each record, also those that have come together with the end of another.
            if !assembler.is_inside() {
                if !room(shared, client, 0, &mut input).await {
                    return satisfied(client).await;
                }
                pace.begin();
            }
            let taken = match assembler.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Part::Start { head, rest, last })) => match message::Call::parse(&head) {
                    // What makes no sense is not waited for.
                    Err(error) => Err(error.to_string()),
                    Ok(_) => {
                        let fragment = (rest, last);
                        let bytes = to_come(&head, fragment, shared.config.most);
                        if !room(shared, client, bytes, &mut input).await {
                            return satisfied(client).await;
                        }
                        pace.begin();
                        large = Some(Coming::new(client, head, fragment, bytes));
                        Ok(())
                    }
                },
                Ok(Some(part)) => {
                    take(shared, client, part, &mut large).map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = taken {
                count(&shared.counts.bad_records);
                return End::bad(error);
            }
        }
    }
}

/// Waits until so many bytes of a call may come, and its reply; false when no more calls are taken. What has been read
/// takes no more than its own bytes meanwhile.
async fn room(shared: &Shared, client: &Client, bytes: usize, input: &mut BytesMut) -> bool {
    if client.of_calls.has_room(bytes) && client.of_replies.has_room(0) {
        return true;
    }
    *input = BytesMut::from(&input[..]);
    let found = async {
        client.of_calls.room(bytes).await;
        client.of_replies.room(0).await;
        Ok(())
    };
    let _ = first(found, shared.told_to_end()).await;
    !shared.ends()
}

/// Waits until the client has a reply to all that it has called.
async fn satisfied(client: &Client) -> End {
    while !client.is_satisfied() {
        sleep(SOON).await;
    }
    End {
        text: "the proxy ends".into(),
        is_bad: false,
    }
}

/// Reads what comes until the client closes its connection, too, or for half a second: a connection that is closed
/// with something unread is reset, and the client may lose replies that it has not read.
pub(super) async fn linger(reader: &OwnedReadHalf) {
    let mut away = vec![0; 16 << 10];
    let read = async {
        while reader.readable().await.is_ok() {
            match reader.try_read(&mut away) {
                Ok(0) => return,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    };
    // Whoever has not closed by then has read all, or never will.
    let _ = timeout(LINGER, read).await;
}

/// Takes a part. A call goes to a server when all of it is here: what a client has broken off never reaches one, and
/// none waits for a client that is slow. All of it has to be kept until the reply, in any case.
fn take(
    shared: &Rc<Shared>,
    client: &Rc<Client>,
    part: Part,
    large: &mut Option<Coming>,
) -> Result<(), message::MessageError> {
    match part {
        Part::Whole(bytes) => {
            let fragment = (bytes.len() as u64, true);
            call(shared, client, &bytes, fragment, [])?;
        }
        // Its reader has begun with it, when there was room.
        Part::Start { .. } => {}
        Part::Fragment { length, last } => {
            more(large, Bytes::copy_from_slice(&mark(length, last)));
        }
        Part::Data(bytes) => more(large, bytes),
        Part::End => {
            if let Some(coming) = large.take() {
                let (head, fragment, rest) = (coming.head, coming.fragment, coming.rest);
                // The call is counted by itself.
                drop((coming.kept, coming.expected));
                call(shared, client, &head, fragment, rest)?;
            }
        }
    }
    Ok(())
}

fn more(large: &mut Option<Coming>, bytes: Bytes) {
    if let Some(coming) = large {
        coming.push(bytes);
    }
}

fn submit(shared: &Shared, call: Rc<Call>) {
    let pending = call.client();
    let mut pending = pending.pending.borrow_mut();
    pending.insert(call.header.xid, Rc::clone(&call));
    drop(pending);
    shared.submit(call);
}

/// Passes on a call that is all here, unless it is answered at once, or repeats one that is on its way. `fragment` is
/// the length of its first fragment, and whether that is its last; `rest` is what is behind the head.
fn call(
    shared: &Rc<Shared>,
    client: &Rc<Client>,
    head: &Bytes,
    fragment: (u64, bool),
    rest: impl IntoIterator<Item = Bytes>,
) -> Result<(), message::MessageError> {
    if let Ok(FromServer::Reply(xid)) = FromServer::parse(head)
        && head.len() as u64 == fragment.0
        && backchannel::reply(shared, client, head, xid)
    {
        return Ok(());
    }
    let header = message::Call::parse(head)?;
    client.calls.set(client.calls.get() + 1);
    let own = match (header.flavour, header.program) {
        (AUTH_TLS, _) => Some(answer(header.xid, Answer::NoTls)),
        (_, program::number::PORTMAP) => Some(portmap::reply(&header, head, shared.config.port)),
        _ => None,
    };
    if let Some(bytes) = own {
        let charge = client.of_replies.charge(0);
        let reply = Reply::new(header.xid, &bytes, 0, true, charge);
        reply.complete.set(true);
        client.reply(Rc::new(reply));
        return Ok(());
    }
    if is_repeated(client, &header, head, fragment.0) {
        count(&shared.counts.repeated);
        return Ok(());
    }
    let nature = program::nature(&header, head);
    let Met::Other(key, way) = duplicates::meet(shared, client, (&header, &nature), head, fragment)
    else {
        return Ok(());
    };
    let call = Call::new(shared, client, header, nature, fragment);
    call.way.set(way);
    if let Some(key) = key {
        let ticket = shared.duplicates.begin(key, &call);
        // It is new, and has none.
        let _ = call.ticket.set(ticket);
        if way.is_none() {
            call.place.set(shared.left(&call));
        }
    }
    call.push(head.slice(4..));
    rest.into_iter().for_each(|bytes| call.push(bytes));
    submit(shared, call);
    Ok(())
}

/// Whether a small call is the same, byte by byte, as one that has no reply yet: the client has lost its
/// patience, and gets the first one's reply.
fn is_repeated(client: &Client, header: &message::Call, head: &Bytes, length: u64) -> bool {
    let pending = client.pending.borrow();
    let before = pending.get(&header.xid);
    before.is_some_and(|before| {
        let body = before.body.borrow();
        head.len() as u64 == length && matches!(body.as_slice(), [all] if all[..] == head[4..])
    })
}

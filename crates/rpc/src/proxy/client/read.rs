//! Calls of a client, to the connection that they take.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{sleep, timeout};

use super::{End, Pace, READ};
use crate::assemble::{Assembler, Part};
use crate::core::{ClientId, Core, Event};
use crate::message;
use crate::proxy::first;
use crate::proxy::shared::{LOOK, Shared, Socket};

/// How often it is looked whether a client has all its replies.
const SOON: Duration = Duration::from_millis(2);
/// How long a client may take to close its connection when the proxy ends.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes that are read of what nobody knows whether there is room for, at most.
const AHEAD: usize = 64 << 10;

/// Reads until the connection ends; why it does.
pub(super) async fn read(
    shared: &Rc<Shared>,
    client: ClientId,
    socket: &Socket,
    reader: &OwnedReadHalf,
) -> End {
    let mut assembler = Assembler::new(shared.most);
    let mut input = BytesMut::new();
    let mut pace = Pace::new(shared.patience);
    loop {
        // What has come of a record has reached no server, and its client repeats it.
        if shared.ends() {
            return satisfied(shared, client).await;
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
                shared.tell(Event::Received(client));
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
            let inside = assembler.is_inside() || !input.is_empty();
            shared.look(|core| core.receives(client, inside));
            // Before each record, also those that have come together with the end of another.
            if !assembler.is_inside() {
                if !room(shared, client, socket, 0, &mut input).await {
                    return satisfied(shared, client).await;
                }
                pace.begin();
            }
            let taken = match assembler.next(&mut input) {
                Ok(None) => break,
                Ok(Some(part)) => {
                    if let Part::Start { head, rest, last } = &part
                        // What makes no sense is not waited for.
                        && message::Call::parse(head).is_ok()
                    {
                        let bytes = shared.look(|core| core.to_come(head, (*rest, *last)));
                        if !room(shared, client, socket, bytes, &mut input).await {
                            return satisfied(shared, client).await;
                        }
                        pace.begin();
                    }
                    let taken = shared.handle(Event::FromClient(client, part));
                    taken.map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = taken {
                shared.tell(Event::BadRecord);
                return End::bad(error);
            }
        }
    }
}

/// Waits until so many bytes of a call may come, and its reply; false when no more calls are taken. What has been read
/// takes no more than its own bytes meanwhile.
async fn room(
    shared: &Shared,
    client: ClientId,
    socket: &Socket,
    bytes: usize,
    input: &mut BytesMut,
) -> bool {
    let for_call = |core: &mut Core| core.has_room_for_call(client, bytes);
    let for_replies = |core: &mut Core| core.has_room_for_replies(client);
    if shared.look(for_call) && shared.look(for_replies) {
        return true;
    }
    *input = BytesMut::from(&input[..]);
    let found = async {
        // What others give back counts, too.
        while !shared.look(for_call) {
            let _ = timeout(LOOK, socket.room.notified()).await;
        }
        while !shared.look(for_replies) {
            let _ = timeout(LOOK, socket.room.notified()).await;
        }
        Ok(())
    };
    let _ = first(found, shared.told_to_end()).await;
    !shared.ends()
}

/// Waits until the client has a reply to all that it has called.
async fn satisfied(shared: &Shared, client: ClientId) -> End {
    while !shared.look(|core| core.is_satisfied(client)) {
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

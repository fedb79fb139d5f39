//! Replies to a client.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::net::tcp::OwnedWriteHalf;

use super::{End, Pace, SLICES};
use crate::core::{ClientId, Event, ReplyId, TOGETHER};
use crate::proxy::shared::{Shared, Socket};

/// Writes until the connection ends; why it does.
pub(super) async fn write(
    shared: &Rc<Shared>,
    client: ClientId,
    socket: &Socket,
    writer: &OwnedWriteHalf,
) -> End {
    let mut together = BytesMut::new();
    loop {
        match write_next(shared, client, socket, writer, &mut together).await {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return End::bad("it takes no replies");
            }
            Err(e) => return End::of(&e),
        }
    }
}

/// Writes what is next, or waits for it.
async fn write_next(
    shared: &Rc<Shared>,
    client: ClientId,
    socket: &Socket,
    writer: &OwnedWriteHalf,
    together: &mut BytesMut,
) -> io::Result<()> {
    let next =
        shared.with(|core, now, actions| core.replies_to_write(now, client, together, actions));
    let Some(next) = next else {
        if together.capacity() > TOGETHER {
            *together = BytesMut::new();
        }
        socket.wake.notified().await;
        return Ok(());
    };
    let bytes = together.len();
    all(writer, together, shared.patience).await?;
    shared.tell(Event::Took {
        client,
        bytes,
        replies: next.small,
    });
    match next.large {
        Some(reply) => stream(shared, (client, reply), socket, writer).await,
        None => Ok(()),
    }
}

/// Writes all of a buffer.
async fn all(writer: &OwnedWriteHalf, bytes: &mut BytesMut, patience: Duration) -> io::Result<()> {
    let mut pace = Pace::new(patience);
    while !bytes.is_empty() {
        pace.ready(writer.writable()).await?;
        match writer.try_write(bytes) {
            Ok(count) => {
                pace.moved(count);
                bytes.advance(count);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// What is to be done about a large reply.
enum Step {
    Wait,
    Write,
    Done,
}

/// Writes a reply as it comes.
async fn stream(
    shared: &Rc<Shared>,
    (client, reply): (ClientId, ReplyId),
    socket: &Socket,
    writer: &OwnedWriteHalf,
) -> io::Result<()> {
    let mut pace = Pace::new(shared.patience);
    loop {
        let step = shared.look(|core| match core.chunks(reply) {
            None => Step::Done,
            Some((chunks, complete)) if chunks.is_empty() => match complete {
                true => Step::Done,
                false => Step::Wait,
            },
            Some(_) => Step::Write,
        });
        match step {
            Step::Done => break,
            Step::Wait => {
                socket.wake.notified().await;
                pace.begin();
                continue;
            }
            Step::Write => pace.ready(writer.writable()).await?,
        }
        let written = shared.look(|core| {
            let chunks = core.chunks(reply).map(|(chunks, _)| chunks);
            let slices: Vec<IoSlice<'_>> = chunks
                .into_iter()
                .flatten()
                .take(SLICES)
                .map(|c| IoSlice::new(c))
                .collect();
            writer.try_write_vectored(&slices)
        });
        match written {
            Ok(count) => {
                pace.moved(count);
                shared.tell(Event::TookOf(client, reply, count));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    shared.tell(Event::TookAll(client, reply));
    Ok(())
}

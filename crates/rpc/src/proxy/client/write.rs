//! Replies to a client.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::tcp::OwnedWriteHalf;

use super::{Client, End, Pace, SLICES, TOGETHER};
use crate::proxy::call::Reply;
use crate::proxy::shared::Shared;

pub(super) async fn write(shared: &Rc<Shared>, client: &Rc<Client>, writer: OwnedWriteHalf) -> End {
    let patience = shared.config.patience;
    let mut together = BytesMut::new();
    loop {
        let done = write_next(client, &writer, &mut together, patience).await;
        match done {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return End::bad("it takes no replies");
            }
            Err(e) => return End::of(&e),
        }
    }
}

/// Writes what is next: small replies together, as many as are there, and one large reply after each such
/// batch. So a small reply waits for one record at most, and a large one for 64 KiB of small ones.
async fn write_next(
    client: &Client,
    writer: &OwnedWriteHalf,
    together: &mut BytesMut,
    patience: Duration,
) -> io::Result<()> {
    let mut written = 0;
    while together.len() < 4 * TOGETHER {
        let Some(reply) = client.small.borrow_mut().pop_front() else {
            break;
        };
        reply.started.set(true);
        written += 1;
        for chunk in &*reply.chunks.borrow() {
            together.extend_from_slice(chunk);
        }
    }
    let large = client.large.borrow_mut().pop_front();
    if large.is_none() && together.is_empty() {
        if together.capacity() > TOGETHER {
            *together = BytesMut::new();
        }
        client.wake.notified().await;
        return Ok(());
    }
    if let Some(reply) = &large {
        reply.started.set(true);
        *client.writing.borrow_mut() = Some(Rc::clone(reply));
    }
    let bytes = together.len();
    all(writer, together, patience).await?;
    took(client, bytes);
    client.owed.set(client.owed.get() - written);
    client.moved.set(Instant::now());
    let Some(reply) = large else {
        return Ok(());
    };
    let done = stream(client, writer, &reply, patience).await;
    *client.writing.borrow_mut() = None;
    client.owed.set(client.owed.get().saturating_sub(1));
    client.moved.set(Instant::now());
    done
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

/// Writes a reply as it comes.
async fn stream(
    client: &Client,
    writer: &OwnedWriteHalf,
    reply: &Reply,
    patience: Duration,
) -> io::Result<()> {
    let mut pace = Pace::new(patience);
    loop {
        if reply.chunks.borrow().is_empty() {
            if reply.complete.get() {
                return Ok(());
            }
            client.wake.notified().await;
            pace.begin();
            continue;
        }
        pace.ready(writer.writable()).await?;
        let written = {
            let chunks = reply.chunks.borrow();
            let slices: Vec<IoSlice<'_>> = chunks
                .iter()
                .take(SLICES)
                .map(|c| IoSlice::new(c))
                .collect();
            writer.try_write_vectored(&slices)
        };
        match written {
            Ok(count) => {
                pace.moved(count);
                took(client, count);
                advance(&mut reply.chunks.borrow_mut(), count);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}

/// The client has taken so many bytes.
fn took(client: &Client, bytes: usize) {
    client.took.set(client.took.get() + bytes as u64);
}

/// Takes bytes off the front.
fn advance(chunks: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(chunk) = chunks.front_mut() {
        if count < chunk.len() {
            chunk.advance(count);
            return;
        }
        count -= chunk.len();
        chunks.pop_front();
    }
}

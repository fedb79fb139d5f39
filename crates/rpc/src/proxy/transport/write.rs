//! Calls to a server.

use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::tcp::OwnedWriteHalf;

use crate::core::{CallId, Event, NextCall};
use crate::proxy::client::SLICES;
use crate::proxy::shared::Shared;
use crate::replay::Sent;

/// Writes until the connection fails; why it does.
pub(super) async fn write(shared: &Rc<Shared>, index: usize, writer: &OwnedWriteHalf) -> String {
    let mut together = BytesMut::new();
    loop {
        if let Err(e) = write_next(shared, index, writer, &mut together).await {
            return e.to_string();
        }
    }
}

/// Writes what is next, or waits for it.
async fn write_next(
    shared: &Rc<Shared>,
    index: usize,
    writer: &OwnedWriteHalf,
    together: &mut BytesMut,
) -> io::Result<()> {
    let next = shared.with(|core, now, actions| core.calls_to_write(now, index, together, actions));
    match next {
        NextCall::Nothing => shared.links[index].wake.notified().await,
        NextCall::Buffer => all(shared, index, writer, together).await?,
        NextCall::Large { call, head, body } => {
            all(shared, index, writer, together).await?;
            stream(shared, (index, call), writer, &head, &body).await?;
        }
    }
    Ok(())
}

/// Writes all of a buffer.
async fn all(
    shared: &Rc<Shared>,
    index: usize,
    writer: &OwnedWriteHalf,
    bytes: &mut BytesMut,
) -> io::Result<()> {
    shared.flush();
    while !bytes.is_empty() {
        writer.writable().await?;
        match writer.try_write(bytes) {
            Ok(count) => {
                shared.tell(Event::Out {
                    transport: index,
                    bytes: count,
                    large: false,
                });
                bytes.advance(count);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes a large call. It has been sent as a whole when its last byte may have been.
async fn stream(
    shared: &Rc<Shared>,
    (index, call): (usize, CallId),
    writer: &OwnedWriteHalf,
    head: &[u8],
    body: &[Bytes],
) -> io::Result<()> {
    shared.tell(Event::Sent(call, Sent::Part));
    // Bytes written of the head; then chunks, and bytes of the next one.
    let (mut of_head, mut chunk, mut within) = (0, 0, 0);
    loop {
        if of_head == head.len() && chunk == body.len() {
            shared.tell(Event::Sent(call, Sent::All));
            return Ok(());
        }
        writer.writable().await?;
        let mut slices = Vec::with_capacity(SLICES);
        if of_head < head.len() {
            slices.push(IoSlice::new(&head[of_head..]));
        }
        let chunks = body[chunk..].iter().take(SLICES - 1).enumerate();
        slices.extend(
            chunks.map(|(i, bytes)| IoSlice::new(if i == 0 { &bytes[within..] } else { bytes })),
        );
        if body.len() - chunk < SLICES {
            shared.tell(Event::Sent(call, Sent::All));
        }
        let mut written = match writer.try_write_vectored(&slices) {
            Ok(written) => written,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        };
        shared.tell(Event::Out {
            transport: index,
            bytes: written,
            large: true,
        });
        let taken = written.min(head.len() - of_head);
        of_head += taken;
        written -= taken;
        while written > 0 {
            let left = body[chunk].len() - within;
            if written < left {
                within += written;
                break;
            }
            written -= left;
            (chunk, within) = (chunk + 1, 0);
        }
    }
}

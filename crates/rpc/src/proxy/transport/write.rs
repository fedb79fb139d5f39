//! Calls to a server.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Instant;

use bytes::BytesMut;
use tokio::net::tcp::OwnedWriteHalf;

use super::{Transport, add};
use crate::proxy::call::Call;
use crate::proxy::client::{SLICES, TOGETHER};
use crate::proxy::shared::{Shared, count};
use crate::record::mark;
use crate::replay::Sent;

pub(super) async fn write(
    shared: &Rc<Shared>,
    transport: &Transport,
    writer: OwnedWriteHalf,
) -> String {
    let mut together = BytesMut::new();
    loop {
        if let Err(e) = write_next(shared, transport, &writer, &mut together).await {
            return e.to_string();
        }
    }
}

/// Writes the next call, or collects it with other small ones.
async fn write_next(
    shared: &Shared,
    transport: &Transport,
    writer: &OwnedWriteHalf,
    together: &mut BytesMut,
) -> io::Result<()> {
    while let Some(own) = transport.own.borrow_mut().pop_front() {
        together.extend_from_slice(&mark(own.len() as u32, true));
        together.extend_from_slice(&own);
    }
    let next = transport.queue.borrow_mut().pop_front();
    let Some(call) = next else {
        if together.is_empty() {
            transport.wake.notified().await;
            return Ok(());
        }
        return all(shared, transport, writer, together).await;
    };
    // One that is here to be repeated may have been answered meanwhile.
    if !transport.is_pending(&call) {
        return Ok(());
    }
    if !call.is_wanted() {
        transport.forget(&call);
        shared.pump(transport.service);
        return Ok(());
    }
    count(&transport.tallies.calls);
    call.written.set(Some(Instant::now()));
    shared.note(transport, &call);
    if call.length() <= TOGETHER {
        // From here on nobody knows how far it gets.
        call.sent.set(Sent::All);
        together.extend_from_slice(&call.head());
        for chunk in &*call.body.borrow() {
            together.extend_from_slice(chunk);
        }
        if together.len() < 4 * TOGETHER {
            return Ok(());
        }
        return all(shared, transport, writer, together).await;
    }
    all(shared, transport, writer, together).await?;
    stream(transport, writer, &call).await
}

/// Writes all of a buffer.
async fn all(
    shared: &Shared,
    transport: &Transport,
    writer: &OwnedWriteHalf,
    bytes: &mut BytesMut,
) -> io::Result<()> {
    use bytes::Buf;
    shared.flush();
    while !bytes.is_empty() {
        writer.writable().await?;
        match writer.try_write(bytes) {
            Ok(count) => {
                add(&transport.tallies.bytes_out, count);
                bytes.advance(count);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes a large call. It has been sent as a whole when its last byte may have been.
async fn stream(transport: &Transport, writer: &OwnedWriteHalf, call: &Call) -> io::Result<()> {
    // What has been sent once stays sent: the server may have run it then.
    if call.sent.get() == Sent::Nothing {
        call.sent.set(Sent::Part);
    }
    let head = call.head();
    // Bytes written of the head; then chunks, and bytes of the next one.
    let (mut of_head, mut chunk, mut within) = (0, 0, 0);
    loop {
        let count = call.body.borrow().len();
        if of_head == head.len() && chunk == count {
            call.sent.set(Sent::All);
            return Ok(());
        }
        writer.writable().await?;
        let written = {
            let body = call.body.borrow();
            let mut slices = Vec::with_capacity(SLICES);
            if of_head < head.len() {
                slices.push(IoSlice::new(&head[of_head..]));
            }
            let chunks = body[chunk..].iter().take(SLICES - 1).enumerate();
            slices.extend(
                chunks
                    .map(|(i, bytes)| IoSlice::new(if i == 0 { &bytes[within..] } else { bytes })),
            );
            if count - chunk < SLICES {
                call.sent.set(Sent::All);
            }
            writer.try_write_vectored(&slices)
        };
        let mut written = match written {
            Ok(written) => written,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        };
        add(&transport.tallies.bytes_out, written);
        let now = Instant::now();
        let outstanding = transport.outstanding.get();
        transport
            .rate
            .borrow_mut()
            .moved(written as u64, outstanding, now);
        let taken = written.min(head.len() - of_head);
        of_head += taken;
        written -= taken;
        let body = call.body.borrow();
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

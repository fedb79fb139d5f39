//! A client's connection: calls in, replies out.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::call::{Call, Reply};
use super::first;
use super::shared::{Shared, count};
use crate::assemble::{Assembler, Part};
use crate::dispatch::Want;
use crate::message::{self, AUTH_TLS, Answer, answer};
use crate::portmap;
use crate::program;
use crate::record::mark;
use crate::replay::Sent;

/// Bytes that a read takes at most.
pub(super) const READ: usize = 256 << 10;
/// Replies up to this size are written together.
pub(super) const TOGETHER: usize = 16 << 10;
/// Chunks that a write takes.
pub(super) const SLICES: usize = 64;

/// A client.
pub(super) struct Client {
    pub peer: SocketAddr,
    closed: Cell<bool>,
    replies: RefCell<VecDeque<Rc<Reply>>>,
    /// The reply that is being written.
    writing: RefCell<Option<Rc<Reply>>>,
    wake: Notify,
    /// Its calls without a reply, by its own XIDs.
    pub pending: RefCell<HashMap<u32, Rc<Call>>>,
    task: RefCell<Option<AbortHandle>>,
    pub calls: Cell<u64>,
}

impl Client {
    /// Whether its connection is over.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Whether a reply may be passed on while it comes: nothing else is to be said, or expected, meanwhile
    /// that it would hold up.
    pub(super) fn waits_for_one(&self) -> bool {
        self.pending.borrow().len() <= 1 && self.replies.borrow().is_empty()
    }

    /// Something of a reply has come.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Has a reply written, behind others.
    pub(super) fn reply(&self, reply: Rc<Reply>) {
        if !self.is_closed() {
            self.replies.borrow_mut().push_back(reply);
            self.wake();
        }
    }

    /// Whether a reply has been given to be written, and comes meanwhile.
    pub(super) fn passes_on(&self, reply: &Rc<Reply>) -> bool {
        let is = |other: &Rc<Reply>| Rc::ptr_eq(other, reply);
        self.writing.borrow().as_ref().is_some_and(is) || self.replies.borrow().iter().any(is)
    }

    /// Takes back a reply that nothing was written of.
    pub(super) fn retract(&self, reply: &Rc<Reply>) {
        self.replies.borrow_mut().retain(|r| !Rc::ptr_eq(r, reply));
    }

    /// A call has got its reply.
    pub(super) fn done(&self, call: &Rc<Call>) {
        let mut pending = self.pending.borrow_mut();
        let xid = call.header.xid;
        if pending.get(&xid).is_some_and(|of| Rc::ptr_eq(of, call)) {
            pending.remove(&xid);
        }
    }

    /// Ends the connection. Its calls are forgotten as far as they were not sent.
    pub(super) fn disconnect(&self, shared: &Shared, why: &str) {
        if self.closed.replace(true) {
            return;
        }
        tracing::debug!(client = %self.peer, "connection closed: {why}");
        self.replies.borrow_mut().clear();
        let calls = std::mem::take(&mut *self.pending.borrow_mut());
        for call in calls.into_values() {
            // The rest of it will not come, and the server waits for it.
            if !call.complete.get()
                && call.sent.get() == Sent::Part
                && let Some(number) = call.transport.get()
            {
                shared.transports[number].fail("a client left within a call");
            }
        }
        shared
            .clients
            .borrow_mut()
            .retain(|_, c| !std::ptr::eq(&**c, self));
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
    }
}

/// Takes a client in, or refuses it where there are too many.
pub(super) fn welcome(shared: &Rc<Shared>, stream: TcpStream, peer: SocketAddr) {
    if shared.clients.borrow().len() >= shared.config.clients {
        count(&shared.counts.refused);
        tracing::warn!(%peer, "refused: {} clients are connected", shared.config.clients);
        return;
    }
    let _ = stream.set_nodelay(true);
    count(&shared.counts.clients);
    let number = shared.counts.clients.get();
    let client = Rc::new(Client {
        peer,
        closed: Cell::new(false),
        replies: RefCell::default(),
        writing: RefCell::default(),
        wake: Notify::new(),
        pending: RefCell::default(),
        task: RefCell::default(),
        calls: Cell::new(0),
    });
    shared
        .clients
        .borrow_mut()
        .insert(number, Rc::clone(&client));
    let task = tokio::task::spawn_local(serve(Rc::clone(shared), Rc::clone(&client), stream));
    *client.task.borrow_mut() = Some(task.abort_handle());
}

async fn serve(shared: Rc<Shared>, client: Rc<Client>, stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    let why = first(
        read(&shared, &client, reader),
        write(&shared, &client, writer),
    )
    .await;
    if why.is_bad {
        shared.ended(client.peer, &why.text);
    }
    client.disconnect(&shared, &why.text);
}

/// Why a connection ends.
struct End {
    text: String,
    is_bad: bool,
}

impl End {
    fn bad(text: impl ToString) -> End {
        End {
            text: text.to_string(),
            is_bad: true,
        }
    }

    fn of(error: &io::Error) -> End {
        End {
            text: error.to_string(),
            is_bad: false,
        }
    }
}

async fn read(shared: &Rc<Shared>, client: &Rc<Client>, reader: OwnedReadHalf) -> End {
    let mut assembler = Assembler::new(shared.config.most);
    let mut input = BytesMut::new();
    let mut large = None;
    loop {
        if input.capacity() - input.len() < READ / 4 {
            input.reserve(READ);
        }
        let ready = match assembler.is_inside() {
            true => match timeout(shared.config.patience, reader.readable()).await {
                Ok(ready) => ready,
                Err(_) => return End::bad("it stalled within a record"),
            },
            false => reader.readable().await,
        };
        match ready.and_then(|()| reader.try_read_buf(&mut input)) {
            Ok(0) if assembler.is_inside() => return End::bad("it ended within a record"),
            Ok(0) => {
                return End {
                    text: "by the client".into(),
                    is_bad: false,
                };
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return End::of(&e),
        }
        loop {
            // Before each record, also those that have come together with the end of another.
            if !assembler.is_inside() {
                shared.calls.room().await;
            }
            match assembler.next(&mut input) {
                Ok(None) => break,
                Ok(Some(part)) => {
                    if let Err(error) = take(shared, client, part, &mut large) {
                        count(&shared.counts.bad_records);
                        return End::bad(error);
                    }
                }
                Err(error) => {
                    count(&shared.counts.bad_records);
                    return End::bad(error);
                }
            }
        }
    }
}

fn take(
    shared: &Rc<Shared>,
    client: &Rc<Client>,
    part: Part,
    large: &mut Option<Rc<Call>>,
) -> Result<(), message::MessageError> {
    match part {
        Part::Whole(bytes) => {
            let Some(call) = call(shared, client, &bytes, bytes.len() as u64, true)? else {
                return Ok(());
            };
            call.push(bytes.slice(4..));
            call.complete.set(true);
            submit(shared, call);
        }
        Part::Start { head, rest, last } => {
            let length = head.len() as u64 + u64::from(rest);
            let Some(call) = call(shared, client, &head, length, last)? else {
                return Ok(());
            };
            call.push(head.slice(4..));
            *large = Some(Rc::clone(&call));
            submit(shared, call);
        }
        Part::Fragment { length, last } => {
            more(shared, large, Bytes::copy_from_slice(&mark(length, last)));
        }
        Part::Data(bytes) => more(shared, large, bytes),
        Part::End => {
            if let Some(call) = large.take() {
                call.complete.set(true);
                awake(shared, &call);
            }
        }
    }
    Ok(())
}

fn more(shared: &Shared, large: &Option<Rc<Call>>, bytes: Bytes) {
    if let Some(call) = large {
        call.push(bytes);
        awake(shared, call);
    }
}

fn awake(shared: &Shared, call: &Call) {
    if let Some(number) = call.transport.get() {
        shared.transports[number].wake();
    }
}

fn submit(shared: &Shared, call: Rc<Call>) {
    let pending = &call.client.pending;
    pending
        .borrow_mut()
        .insert(call.header.xid, Rc::clone(&call));
    shared.submit(call);
}

/// Makes a call of its head; none where it has been answered, or is a repetition of one that is on its way.
/// `length` is that of its first fragment.
fn call(
    shared: &Rc<Shared>,
    client: &Rc<Client>,
    head: &Bytes,
    length: u64,
    last: bool,
) -> Result<Option<Rc<Call>>, message::MessageError> {
    let header = message::Call::parse(head)?;
    client.calls.set(client.calls.get() + 1);
    let own = match (header.flavour, header.program) {
        (AUTH_TLS, _) => Some(answer(header.xid, Answer::NoTls)),
        (_, program::number::PORTMAP) => Some(portmap::reply(&header, head, shared.config.port)),
        _ => None,
    };
    if let Some(bytes) = own {
        let charge = shared.replies.charge(0);
        let reply = Reply::new(header.xid, &bytes, 0, true, charge);
        reply.complete.set(true);
        client.reply(Rc::new(reply));
        return Ok(None);
    }
    if is_repeated(client, &header, head, length) {
        count(&shared.counts.repeated);
        return Ok(None);
    }
    let nature = program::nature(&header, head);
    Ok(Some(Rc::new(Call {
        client: Rc::clone(client),
        service: shared.service(header.program),
        header,
        nature,
        want: Want {
            bytes: length + u64::from(nature.expected),
            file: nature.file,
        },
        mark: mark(length as u32, last),
        body: RefCell::default(),
        complete: Cell::new(false),
        xid: Cell::new(header.xid),
        transport: Cell::new(None),
        sent: Cell::new(Sent::Nothing),
        since: Instant::now(),
        charge: shared.calls.charge(0),
    })))
}

/// Whether a small call is the same, byte by byte, as one that has no reply yet: the client has lost its
/// patience, and gets the first one's reply.
fn is_repeated(client: &Client, header: &message::Call, head: &Bytes, length: u64) -> bool {
    let pending = client.pending.borrow();
    let before = pending.get(&header.xid);
    before.is_some_and(|before| {
        let body = before.body.borrow();
        head.len() as u64 == length
            && before.complete.get()
            && matches!(body.as_slice(), [all] if all[..] == head[4..])
    })
}

async fn write(shared: &Rc<Shared>, client: &Rc<Client>, writer: OwnedWriteHalf) -> End {
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

/// Writes the next reply, or collects it with other small ones.
async fn write_next(
    client: &Client,
    writer: &OwnedWriteHalf,
    together: &mut BytesMut,
    patience: Duration,
) -> io::Result<()> {
    let next = client.replies.borrow_mut().pop_front();
    let Some(reply) = next else {
        if together.is_empty() {
            client.wake.notified().await;
            return Ok(());
        }
        return all(writer, together, patience).await;
    };
    reply.started.set(true);
    let small = reply.complete.get() && {
        let chunks = reply.chunks.borrow();
        chunks.iter().map(Bytes::len).sum::<usize>() <= TOGETHER
    };
    if small {
        for chunk in &*reply.chunks.borrow() {
            together.extend_from_slice(chunk);
        }
        if together.len() < 4 * TOGETHER {
            return Ok(());
        }
    }
    if small {
        return all(writer, together, patience).await;
    }
    *client.writing.borrow_mut() = Some(Rc::clone(&reply));
    all(writer, together, patience).await?;
    let done = stream(client, writer, &reply, patience).await;
    *client.writing.borrow_mut() = None;
    done
}

/// Waits until a socket takes bytes.
///
/// # Errors
/// `TimedOut` when it does not within this time.
async fn writable(writer: &OwnedWriteHalf, patience: Duration) -> io::Result<()> {
    match timeout(patience, writer.writable()).await {
        Ok(ready) => ready,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Writes all of a buffer.
async fn all(writer: &OwnedWriteHalf, bytes: &mut BytesMut, patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        writable(writer, patience).await?;
        match writer.try_write(bytes) {
            Ok(count) => bytes.advance(count),
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
    loop {
        if reply.chunks.borrow().is_empty() {
            if reply.complete.get() {
                return Ok(());
            }
            client.wake.notified().await;
            continue;
        }
        writable(writer, patience).await?;
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
            Ok(count) => advance(&mut reply.chunks.borrow_mut(), count),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
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

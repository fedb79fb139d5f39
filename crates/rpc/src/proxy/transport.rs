//! A connection to a server: calls out, replies in, and what becomes of calls when it fails.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::call::{Call, Reply};
use super::client::{READ, SLICES, TOGETHER};
use super::shared::{Shared, count};
use super::watch::Watched;
use super::{Connected, Wanted, first};
use crate::assemble::{Assembler, Part};
use crate::dispatch::{Load, Rate};
use crate::message::{Answer, FromServer, MessageError, answer, null};
use crate::program::number::NFS;
use crate::record::mark;
use crate::replay::{Action, Sent, decide};
use crate::xid::Segment;

/// Pauses between attempts to connect, first and longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Questions without an answer, at most: a server that does not know the program may give none.
const PINGS: usize = 8;

/// Where a connection is.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Not connected, and why.
    Down(String),
    /// Connected.
    Up(Up),
}

/// A connection that stands.
#[derive(Clone, Debug)]
pub(super) struct Up {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub out: Option<String>,
    pub back: Option<String>,
    pub attempts: u32,
    pub since: Instant,
    watched: Watched,
}

/// Counts of a transport.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub calls: Cell<u64>,
    pub replies: Cell<u64>,
    pub bytes_out: Cell<u64>,
    pub bytes_in: Cell<u64>,
    pub connections: Cell<u64>,
    /// Time from a call's coming to its reply's end, smoothed, in microseconds.
    pub latency: Cell<f64>,
}

/// A transport: one connection at a time, which is made anew when it fails.
pub(super) struct Transport {
    pub service: usize,
    pub number: usize,
    pub lane: bool,
    segment: RefCell<Segment>,
    pub state: RefCell<State>,
    /// Calls without a complete reply, by the XIDs to the server.
    pub pending: RefCell<HashMap<u32, Rc<Call>>>,
    queue: RefCell<VecDeque<Rc<Call>>>,
    /// Messages of the proxy's own, without marks.
    own: RefCell<VecDeque<Bytes>>,
    /// XIDs of questions whether the server is there.
    pings: RefCell<HashSet<u32>>,
    /// The program that was called last, and its version.
    program: Cell<(u32, u32)>,
    /// Whether it takes no more calls, and ends when those that it has are done.
    pub drains: Cell<bool>,
    /// When it was asked last.
    asked: Cell<Option<Instant>>,
    /// Calls that go out again from the same port, or nowhere; they are pending, too.
    pub held: RefCell<Vec<Rc<Call>>>,
    /// The port that they were sent from.
    identity: Cell<Option<SocketAddr>>,
    /// The call that is being answered.
    answering: RefCell<Option<(Rc<Call>, Rc<Reply>)>>,
    pub outstanding: Cell<u64>,
    pub rate: RefCell<Rate>,
    wake: Notify,
    failed: Notify,
    why: Cell<Option<&'static str>>,
    pub tallies: Tallies,
}

fn add(counter: &Cell<u64>, bytes: usize) {
    counter.set(counter.get() + bytes as u64);
}

impl Transport {
    pub(super) fn new(
        (service, number, lane): (usize, usize, bool),
        (segment, of, start): (usize, usize, u32),
    ) -> Transport {
        Transport {
            service,
            number,
            lane,
            segment: RefCell::new(Segment::new(segment, of, start)),
            state: RefCell::new(State::Down("connecting".into())),
            pending: RefCell::default(),
            queue: RefCell::default(),
            own: RefCell::default(),
            pings: RefCell::default(),
            program: Cell::new((NFS, 3)),
            drains: Cell::new(false),
            asked: Cell::new(None),
            held: RefCell::default(),
            identity: Cell::new(None),
            answering: RefCell::default(),
            outstanding: Cell::new(0),
            rate: RefCell::default(),
            wake: Notify::new(),
            failed: Notify::new(),
            why: Cell::new(None),
            tallies: Tallies::default(),
        }
    }

    /// As dispatch sees it.
    pub(super) fn load(&self) -> Load {
        let rate = self.rate.borrow();
        Load {
            up: matches!(*self.state.borrow(), State::Up(_)) && !self.drains.get(),
            lane: self.lane,
            outstanding: self.outstanding.get(),
            window: rate.window(),
            rate: rate.per_second(Instant::now()),
        }
    }

    /// Whether an XID is in use.
    pub(super) fn has(&self, xid: u32) -> bool {
        self.pending.borrow().contains_key(&xid) || self.pings.borrow().contains(&xid)
    }

    /// Queues a call under an XID of its own; false where there is none.
    pub(super) fn take(&self, call: &Rc<Call>) -> bool {
        let mut pending = self.pending.borrow_mut();
        let pings = self.pings.borrow();
        let used = |xid: u32| pending.contains_key(&xid) || pings.contains(&xid);
        let xid = match call.header.is_signed() {
            true => Some(call.header.xid).filter(|xid| !used(*xid)),
            false => self.segment.borrow_mut().take(used),
        };
        let Some(xid) = xid else {
            return false;
        };
        self.program.set((call.header.program, call.header.version));
        call.xid.set(xid);
        pending.insert(xid, Rc::clone(call));
        self.outstanding
            .set(self.outstanding.get() + call.want.bytes);
        self.queue.borrow_mut().push_back(Rc::clone(call));
        self.wake();
        true
    }

    /// There is something to write.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The socket, while it is connected.
    pub(super) fn watched(&self) -> Option<Watched> {
        match &*self.state.borrow() {
            State::Up(up) => Some(up.watched),
            State::Down(_) => None,
        }
    }

    /// Whether replies are to come.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.borrow().is_empty() || self.answering.borrow().is_some()
    }

    /// How long ago it was asked whether it is there.
    pub(super) fn asked(&self, now: Instant) -> Option<Duration> {
        let asked = self.asked.get()?;
        Some(now.saturating_duration_since(asked))
    }

    /// Asks whether the server is there, unless it is being asked.
    pub(super) fn ask(&self, now: Instant) {
        self.asked.set(Some(now));
        let mut pings = self.pings.borrow_mut();
        if pings.len() >= PINGS {
            return;
        }
        let pending = self.pending.borrow();
        let used = |xid| pending.contains_key(&xid) || pings.contains(&xid);
        let taken = self.segment.borrow_mut().take(used);
        if let Some(xid) = taken {
            let (program, version) = self.program.get();
            self.own.borrow_mut().push_back(null(xid, program, version));
            pings.insert(xid);
            self.wake();
        }
    }

    /// Gives the connection up.
    pub(super) fn fail(&self, why: &'static str) {
        self.why.set(Some(why));
        self.failed.notify_one();
    }

    /// Forgets a call.
    fn forget(&self, call: &Call) {
        if self.pending.borrow_mut().remove(&call.xid.get()).is_some() {
            let left = self.outstanding.get().saturating_sub(call.want.bytes);
            self.outstanding.set(left);
        }
    }
}

/// Keeps a transport connected for as long as the proxy runs.
pub(super) async fn drive(shared: Rc<Shared>, index: usize) {
    let transport = &shared.transports[index];
    let (service, number) = (transport.service, transport.number);
    let mut pause = PAUSES.0;
    loop {
        let from = transport
            .identity
            .get()
            .filter(|_| !transport.held.borrow().is_empty());
        let wanted = Wanted {
            service,
            number,
            lane: transport.lane,
            from,
        };
        match shared.connect.connect(wanted).await {
            Ok(connected) => match connected.stream.local_addr() {
                Ok(local) => {
                    pause = PAUSES.0;
                    stand(&shared, index, connected, local).await;
                    shared.connect.closed(service, number);
                    shared.pump(service);
                    continue;
                }
                Err(e) => *transport.state.borrow_mut() = State::Down(e.to_string()),
            },
            Err(e) => {
                tracing::warn!(service, number, "not connected: {e}");
                *transport.state.borrow_mut() = State::Down(e.to_string());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSES.1);
    }
}

/// Works with a connection until it fails.
async fn stand(shared: &Rc<Shared>, index: usize, connected: Connected, local: SocketAddr) {
    let transport = &shared.transports[index];
    let peer = connected.stream.peer_addr().unwrap_or(local);
    let watched = Watched::new(&connected.stream);
    let _ = connected.stream.set_nodelay(true);
    tracing::info!(%local, %peer, out = ?connected.out, back = ?connected.back, "connected");
    *transport.state.borrow_mut() = State::Up(Up {
        local,
        peer,
        out: connected.out,
        back: connected.back,
        attempts: connected.attempts,
        since: Instant::now(),
        watched,
    });
    transport.asked.set(None);
    // What went before it does not count.
    transport.why.set(None);
    transport.drains.set(false);
    transport.pings.borrow_mut().clear();
    transport.identity.set(Some(local));
    *transport.rate.borrow_mut() = Rate::default();
    count(&transport.tallies.connections);
    // What is held goes out first, as it was.
    for call in transport.held.borrow_mut().drain(..) {
        count(&shared.counts.replayed);
        transport.queue.borrow_mut().push_back(call);
    }
    shared.pump(transport.service);
    let (reader, writer) = connected.stream.into_split();
    let given_up = async {
        loop {
            transport.failed.notified().await;
            if let Some(why) = transport.why.take() {
                return why.to_owned();
            }
        }
    };
    let works = first(
        read(shared, transport, reader),
        write(shared, transport, writer),
    );
    let why = first(works, given_up).await;
    match transport.drains.get() {
        true => tracing::info!(%local, %peer, "{why}"),
        false => tracing::warn!(%local, %peer, "connection lost: {why}"),
    }
    cut_off(shared, transport, why);
}

/// Decides about every call of a connection that has failed.
fn cut_off(shared: &Shared, transport: &Transport, why: String) {
    *transport.state.borrow_mut() = State::Down(why);
    transport.queue.borrow_mut().clear();
    transport.own.borrow_mut().clear();
    let mut answered = None;
    if let Some((call, reply)) = transport.answering.borrow_mut().take() {
        if reply.started.get() {
            answered = Some(call.xid.get());
        } else {
            call.client.retract(&reply);
        }
        transport.pending.borrow_mut().insert(call.xid.get(), call);
    }
    let mut calls: Vec<Rc<Call>> = transport
        .pending
        .borrow_mut()
        .drain()
        .map(|(_, c)| c)
        .collect();
    transport.outstanding.set(0);
    // The oldest goes first again.
    calls.sort_by_key(|call| std::cmp::Reverse(call.since));
    for call in calls {
        let cut = call.cut(answered == Some(call.xid.get()));
        let (action, rule) = decide(&cut);
        tracing::debug!(xid = call.xid.get(), ?action, rule, "cut off");
        match action {
            Action::Drop => {}
            Action::Disconnect => {
                let why = format!("a connection to the server failed (rule {rule})");
                shared.ended(call.client.peer, &why);
                call.client.disconnect(shared, &why);
            }
            Action::Elsewhere => {
                count(&shared.counts.resent);
                shared.again(call);
            }
            Action::SamePort => {
                let xid = call.xid.get();
                let bytes = call.want.bytes;
                transport
                    .outstanding
                    .set(transport.outstanding.get() + bytes);
                transport.held.borrow_mut().insert(0, Rc::clone(&call));
                transport.pending.borrow_mut().insert(xid, call);
            }
        }
    }
}

async fn read(shared: &Rc<Shared>, transport: &Transport, reader: OwnedReadHalf) -> String {
    let mut assembler = Assembler::new(shared.config.most);
    let mut input = BytesMut::new();
    loop {
        if input.capacity() - input.len() < READ / 4 {
            input.reserve(READ);
        }
        if let Err(e) = reader.readable().await {
            return e.to_string();
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
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return e.to_string(),
        }
        loop {
            // Before each record, also those that have come together with the end of another.
            if !assembler.is_inside() {
                shared.replies.room().await;
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
            let Some(call) = answered(shared, transport, &bytes)? else {
                return Ok(());
            };
            let charge = shared.replies.charge(0);
            let reply = Rc::new(Reply::new(call.header.xid, &bytes, 0, true, charge));
            reply.complete.set(true);
            call.client.reply(reply);
            done(shared, transport, &call);
        }
        Part::Start { head, rest, last } => {
            let Some(call) = answered(shared, transport, &head)? else {
                return Ok(());
            };
            let charge = shared.replies.charge(0);
            let reply = Rc::new(Reply::new(call.header.xid, &head, rest, last, charge));
            if call.client.waits_for_one() {
                call.client.reply(Rc::clone(&reply));
            }
            *transport.answering.borrow_mut() = Some((call, reply));
        }
        Part::Fragment { length, last } => {
            more(transport, Bytes::copy_from_slice(&mark(length, last)));
        }
        Part::Data(bytes) => more(transport, bytes),
        Part::End => {
            let answering = transport.answering.borrow_mut().take();
            if let Some((call, reply)) = answering {
                reply.complete.set(true);
                match call.client.passes_on(&reply) {
                    true => call.client.wake(),
                    false => call.client.reply(reply),
                }
                done(shared, transport, &call);
            }
        }
    }
    Ok(())
}

/// More of the reply that comes; it is dropped where nobody wants it.
fn more(transport: &Transport, bytes: Bytes) {
    let answering = transport.answering.borrow();
    let Some((call, reply)) = &*answering else {
        return;
    };
    if !call.is_wanted() {
        reply.forget();
        return;
    }
    reply.push(bytes);
    call.client.wake();
}

/// The call that a message answers; it is no longer pending. None for a message that answers none.
fn answered(
    shared: &Shared,
    transport: &Transport,
    head: &[u8],
) -> Result<Option<Rc<Call>>, MessageError> {
    let xid = match FromServer::parse(head)? {
        FromServer::Reply(xid) => xid,
        FromServer::Call(xid) => {
            count(&shared.counts.server_calls);
            let mut own = transport.own.borrow_mut();
            own.push_back(answer(xid, Answer::NoProgram));
            transport.wake();
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

/// A call has its whole reply.
fn done(shared: &Shared, transport: &Transport, call: &Rc<Call>) {
    let left = transport.outstanding.get().saturating_sub(call.want.bytes);
    transport.outstanding.set(left);
    count(&transport.tallies.replies);
    let took = call.since.elapsed().as_secs_f64() * 1e6;
    let latency = &transport.tallies.latency;
    latency.set(match latency.get() {
        0.0 => took,
        before => before + (took - before) / 8.0,
    });
    call.client.done(call);
    shared.pump(transport.service);
}

async fn write(shared: &Rc<Shared>, transport: &Transport, writer: OwnedWriteHalf) -> String {
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
        return all(transport, writer, together).await;
    };
    if !call.is_wanted() {
        transport.forget(&call);
        shared.pump(transport.service);
        return Ok(());
    }
    count(&transport.tallies.calls);
    if call.complete.get() && call.length() <= TOGETHER {
        // From here on nobody knows how far it gets.
        call.sent.set(Sent::All);
        together.extend_from_slice(&call.head());
        for chunk in &*call.body.borrow() {
            together.extend_from_slice(chunk);
        }
        if together.len() < 4 * TOGETHER {
            return Ok(());
        }
        return all(transport, writer, together).await;
    }
    all(transport, writer, together).await?;
    stream(transport, writer, &call).await
}

/// Writes all of a buffer.
async fn all(
    transport: &Transport,
    writer: &OwnedWriteHalf,
    bytes: &mut BytesMut,
) -> io::Result<()> {
    use bytes::Buf;
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

/// Writes a large call as it comes. It has been sent as a whole when its last byte may have been.
async fn stream(transport: &Transport, writer: &OwnedWriteHalf, call: &Call) -> io::Result<()> {
    // What has been sent once stays sent: the server may have run it then.
    if call.sent.get() == Sent::Nothing {
        call.sent.set(Sent::Part);
    }
    let head = call.head();
    // Bytes written of the head; then chunks, and bytes of the next one.
    let (mut of_head, mut chunk, mut within) = (0, 0, 0);
    loop {
        let (all_here, count) = (call.complete.get(), call.body.borrow().len());
        if of_head == head.len() && chunk == count {
            if all_here {
                call.sent.set(Sent::All);
                return Ok(());
            }
            transport.wake.notified().await;
            continue;
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
            if all_here && count - chunk < SLICES {
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

//! A call on its way, and its reply on the way back.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;

use super::client::{Client, TOGETHER};
use super::duplicates::{Ticket, Way};
use super::memory::Charge;
use super::shared::Shared;
use crate::dispatch::Want;
use crate::journal::{Entry, Noted};
use crate::message;
use crate::program::{Class, Nature};
use crate::record::mark;
use crate::replay::{Cut, RETURN, Sent};

/// What a call or a reply takes beside its bytes, roughly, so that very many small ones are bounded, too.
const OVERHEAD: usize = 512;

/// A call, all of which has come from its client. It is kept until its reply has come.
pub(super) struct Call {
    /// Who gets the reply; another one where the client has come back by a new connection.
    pub client: RefCell<Rc<Client>>,
    pub service: usize,
    pub header: message::Call,
    pub nature: Nature,
    pub want: Want,
    /// The first fragment's mark.
    pub mark: [u8; 4],
    /// The stream behind the first mark and the XID.
    pub body: RefCell<Vec<Bytes>>,
    /// The XID to the server.
    pub xid: Cell<u32>,
    /// The transport that has it.
    pub transport: Cell<Option<usize>>,
    pub sent: Cell<Sent>,
    /// How often it was sent again from the same port, and when last.
    pub replay: Cell<Option<(u32, Instant)>>,
    /// When it came.
    pub since: Instant,
    /// When it was written to a connection last.
    pub written: Cell<Option<Instant>>,
    pub charge: Charge,
    /// Its reply, as far as its size is known.
    pub reserve: Charge,
    /// Its place among the calls that count.
    pub ticket: OnceCell<Ticket>,
    /// The way that it has to take, as it is the repetition of a signed call.
    pub way: Cell<Option<Way>>,
    /// The place that it was sent from before, by an earlier process or when it was answered, where it goes again.
    pub place: Cell<Option<Entry>>,
    /// When it was noted in the journal last, by this process.
    pub noted: Cell<Option<Noted>>,
}

impl Call {
    /// One of which nothing has been kept yet. Its first fragment has this length, and may be its last.
    pub(super) fn new(
        shared: &Shared,
        client: &Rc<Client>,
        header: message::Call,
        nature: Nature,
        (length, last): (u64, bool),
    ) -> Rc<Call> {
        let unforeseen = match nature.foreseen {
            true => 0,
            false => shared.sizes.guess(shared.config.memory, Instant::now()),
        };
        let reserve = (nature.expected as usize).saturating_add(unforeseen);
        let reserve = reserve.min(shared.config.most as usize);
        Rc::new(Call {
            client: RefCell::new(Rc::clone(client)),
            service: shared.service(header.program),
            header,
            nature,
            want: Want {
                bytes: length + u64::from(shared.sizes.given(nature.expected)),
                file: nature.file,
            },
            mark: mark(length as u32, last),
            body: RefCell::default(),
            xid: Cell::new(header.xid),
            transport: Cell::new(None),
            sent: Cell::new(Sent::Nothing),
            replay: Cell::new(None),
            since: Instant::now(),
            written: Cell::new(None),
            charge: client.of_calls.charge(OVERHEAD),
            reserve: client.of_replies.expect(reserve),
            ticket: OnceCell::new(),
            way: Cell::new(None),
            place: Cell::new(None),
            noted: Cell::new(None),
        })
    }

    /// Adds what has come.
    pub(super) fn push(&self, bytes: Bytes) {
        self.charge.add(bytes.len());
        self.body.borrow_mut().push(bytes);
    }

    /// Lets go of what has been handed over as a whole, and which nobody wants the reply to: the server may
    /// never give one. The XID stays in use.
    pub(super) fn abandon(&self) {
        let copied = self.length() <= TOGETHER;
        if copied && self.sent.get() == Sent::All {
            self.body.borrow_mut().clear();
            self.charge.release();
            self.reserve.release();
        }
    }

    /// Its bytes.
    pub(super) fn length(&self) -> usize {
        8 + self.body.borrow().iter().map(Bytes::len).sum::<usize>()
    }

    /// What precedes the body.
    pub(super) fn head(&self) -> [u8; 8] {
        let [a, b, c, d] = self.xid.get().to_be_bytes();
        let [m, n, o, p] = self.mark;
        [m, n, o, p, a, b, c, d]
    }

    /// It is sent again from the same port.
    pub(super) fn replayed(&self) {
        let times = self.replay.get().map_or(0, |(times, _)| times);
        self.replay
            .set(Some((times.saturating_add(1), Instant::now())));
    }

    /// Who gets the reply.
    pub(super) fn client(&self) -> Rc<Client> {
        Rc::clone(&self.client.borrow())
    }

    /// Whether its client waits for the reply; or may come back to, as the server has it, and it counts.
    pub(super) fn is_wanted(&self) -> bool {
        match self.client.borrow().closed_for() {
            None => true,
            Some(time) => {
                self.ticket.get().is_some() && self.sent.get() == Sent::All && time < RETURN
            }
        }
    }

    /// Whether it is noted, and remembered, among those that write.
    pub(super) fn writes(&self) -> bool {
        self.nature.class == Class::Write
    }

    /// Whether the server may have run it, or may yet.
    pub(super) fn may_be_run(&self) -> bool {
        self.place.get().is_some() || self.sent.get() != Sent::Nothing
    }

    /// What replay has to know.
    pub(super) fn cut(&self, answered: bool) -> Cut {
        // What an earlier process has sent may have been run.
        let sent = match self.place.get() {
            Some(_) => Sent::All,
            None => self.sent.get(),
        };
        Cut {
            sent,
            class: self.nature.class,
            signed: self.header.is_signed(),
            answered,
            wanted: self.is_wanted(),
        }
    }
}

/// A reply.
pub(super) struct Reply {
    /// The stream, as the client gets it.
    pub chunks: RefCell<VecDeque<Bytes>>,
    /// Whether all of it is here.
    pub complete: Cell<bool>,
    /// Whether any of it has been written.
    pub started: Cell<bool>,
    /// Whether some of it was let go of.
    pub forgotten: Cell<bool>,
    charge: Charge,
}

impl Reply {
    /// One that begins with these bytes, the XID included, in a fragment of this length.
    pub(super) fn new(xid: u32, head: &[u8], rest: u32, last: bool, charge: Charge) -> Reply {
        let mut bytes = Vec::with_capacity(head.len() + 4);
        bytes.extend(mark(head.len() as u32 + rest, last));
        bytes.extend(xid.to_be_bytes());
        bytes.extend_from_slice(head.get(4..).unwrap_or(&[]));
        charge.add(OVERHEAD + bytes.len());
        Reply {
            chunks: RefCell::new(VecDeque::from([Bytes::from(bytes)])),
            complete: Cell::new(false),
            started: Cell::new(false),
            forgotten: Cell::new(false),
            charge,
        }
    }

    /// One that was given before, as the client gets it.
    pub(super) fn again(stream: Bytes, charge: Charge) -> Reply {
        charge.add(OVERHEAD + stream.len());
        Reply {
            chunks: RefCell::new(VecDeque::from([stream])),
            complete: Cell::new(true),
            started: Cell::new(false),
            forgotten: Cell::new(false),
            charge,
        }
    }

    /// Bytes that have come of it, and what it takes beside them; none once they are let go of.
    pub(super) fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// All of it, if it is small and in one piece.
    pub(super) fn small(&self) -> Option<Bytes> {
        let chunks = self.chunks.borrow();
        let only = chunks.front().filter(|_| chunks.len() == 1);
        only.filter(|_| self.is_small()).cloned()
    }

    /// Adds what has come.
    pub(super) fn push(&self, bytes: Bytes) {
        self.charge.add(bytes.len());
        self.chunks.borrow_mut().push_back(bytes);
    }

    /// Whether it is here, and of a size that is written together with others.
    pub(super) fn is_small(&self) -> bool {
        self.complete.get()
            && self.chunks.borrow().iter().map(Bytes::len).sum::<usize>() <= TOGETHER
    }

    /// Lets go of what has come, which nobody wants any more.
    pub(super) fn forget(&self) {
        self.forgotten.set(true);
        self.chunks.borrow_mut().clear();
        self.charge.release();
    }
}

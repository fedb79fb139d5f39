//! A call on its way, and its reply on the way back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::ClientId;
use super::duplicates::{Ticket, Way};
use crate::dispatch::Want;
use crate::journal::{Entry, Noted};
use crate::message;
use crate::program::{Class, Nature};
use crate::record::mark;
use crate::replay::Sent;

/// What a call or a reply takes beside its bytes, roughly, so that very many small ones are bounded, too.
pub(super) const OVERHEAD: usize = 512;
/// Calls and replies up to this size are written together.
pub const TOGETHER: usize = 16 << 10;

/// A call, all of which has come from its client. It is kept until its reply has come.
pub struct Call {
    /// Which one of all that have come.
    pub(super) number: u64,
    /// Who gets the reply; another one where the client has come back by a new connection.
    pub(super) client: ClientId,
    pub(super) service: usize,
    pub(super) header: message::Call,
    pub(super) nature: Nature,
    pub(super) want: Want,
    /// The first fragment's mark.
    pub(super) mark: [u8; 4],
    /// The stream behind the first mark and the XID.
    pub(super) body: Arc<[Bytes]>,
    /// The XID to the server.
    pub(super) xid: u32,
    /// The transport that has it.
    pub(super) transport: Option<usize>,
    pub(super) sent: Sent,
    /// How often it was sent again from the same port, and when last.
    pub(super) replay: Option<(u32, Instant)>,
    /// When it came.
    pub(super) since: Instant,
    /// When it was written to a connection last.
    pub(super) written: Option<Instant>,
    /// Who it is charged to, and how many bytes; and its reply, as far as its size is known.
    pub(super) payer: ClientId,
    pub(super) charged: usize,
    pub(super) reserved: usize,
    /// Its place among the non-idempotent calls.
    pub(super) ticket: Option<Ticket>,
    /// The way that it has to take, as it is the repetition of a signed call.
    pub(super) way: Option<Way>,
    /// The place that it was sent from before, by an earlier process or when it was answered, where it goes again.
    pub(super) place: Option<Entry>,
    /// When it was noted in the journal last, by this process.
    pub(super) noted: Option<Noted>,
}

impl Call {
    /// Its bytes.
    pub(super) fn length(&self) -> usize {
        8 + self.body.iter().map(Bytes::len).sum::<usize>()
    }

    /// What precedes the body.
    pub(super) fn head(&self) -> [u8; 8] {
        let [a, b, c, d] = self.xid.to_be_bytes();
        let [m, n, o, p] = self.mark;
        [m, n, o, p, a, b, c, d]
    }

    /// It is sent again from the same port.
    pub(super) fn replayed(&mut self, now: Instant) {
        let times = self.replay.map_or(0, |(times, _)| times);
        self.replay = Some((times.saturating_add(1), now));
    }

    /// Whether it is noted, and remembered, among those that write.
    pub(super) fn writes(&self) -> bool {
        self.nature.class == Class::Write
    }

    /// Whether it was sent before it came: by an earlier process, or when its client signed it first.
    pub(super) fn was_sent(&self) -> bool {
        self.place.is_some() || self.way.is_some()
    }

    /// Whether the server may have run it, or may yet.
    pub(super) fn may_be_run(&self) -> bool {
        self.was_sent() || self.sent != Sent::Nothing
    }
}

/// A reply.
pub struct Reply {
    /// The stream, as the client gets it.
    pub(super) chunks: VecDeque<Bytes>,
    /// Whether all of it is here.
    pub(super) complete: bool,
    /// Whether any of it has been written.
    pub(super) started: bool,
    /// Whether some of it was let go of.
    pub(super) forgotten: bool,
    /// Who it is charged to, and how many bytes.
    pub(super) payer: ClientId,
    pub(super) charged: usize,
}

impl Reply {
    /// One of these pieces; nothing is charged yet.
    pub(super) fn new(payer: ClientId, first: Bytes, complete: bool) -> Reply {
        Reply {
            chunks: VecDeque::from([first]),
            complete,
            started: false,
            forgotten: false,
            payer,
            charged: 0,
        }
    }

    /// All of it, if it is small and in one piece.
    pub(super) fn small(&self) -> Option<Bytes> {
        let only = self.chunks.front().filter(|_| self.chunks.len() == 1);
        only.filter(|_| self.is_small()).cloned()
    }

    /// Whether it is here, and of a size that is written together with others.
    pub(super) fn is_small(&self) -> bool {
        self.complete && self.chunks.iter().map(Bytes::len).sum::<usize>() <= TOGETHER
    }
}

/// The first bytes of a reply as the client gets it: `head` begins with an XID in place of which is this one, and
/// `rest` bytes of its fragment follow.
pub(super) fn stream(xid: u32, head: &[u8], rest: u32, last: bool) -> Bytes {
    let mut bytes = Vec::with_capacity(head.len() + 4);
    bytes.extend(mark(head.len() as u32 + rest, last));
    bytes.extend(xid.to_be_bytes());
    bytes.extend_from_slice(head.get(4..).unwrap_or(&[]));
    bytes.into()
}

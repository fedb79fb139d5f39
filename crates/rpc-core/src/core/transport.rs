//! A connection to a server: which calls it has, and whether it stands. One at a time, which is made anew when it
//! fails.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::call::Call;
use super::duplicates::Way;
use super::{CallId, Ends, ReplyId};
use crate::dispatch::{Load, Rate};
use crate::histogram::Histogram;
use crate::program::number::NFS;
use crate::xid::Segment;

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
    pub(super) ends: Ends,
    pub(super) out: Option<String>,
    pub(super) back: Option<String>,
    pub(super) attempts: u32,
    /// Whether it goes another way than routing would have it.
    pub(super) detour: bool,
    pub(super) since: Instant,
    /// Replies that had come before it.
    pub(super) replies: u64,
}

/// Counts of a transport.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) calls: u64,
    pub(super) replies: u64,
    pub(super) bytes_out: u64,
    pub(super) bytes_in: u64,
    pub(super) connections: u64,
    /// Time from a call's coming to its reply's end, smoothed, in microseconds.
    pub(super) latency: f64,
    /// Times from a call's being written to its reply's end, of small calls and of large ones.
    pub(super) trips: [Histogram; 2],
    /// Calls of failed connections that went elsewhere.
    pub(super) resent: u64,
    /// Calls sent again from the same port.
    pub(super) replayed: u64,
}

impl Tallies {
    /// A call has its whole reply.
    pub(super) fn done(&mut self, call: &Call, now: Instant) {
        self.replies += 1;
        let took = now.saturating_duration_since(call.since).as_secs_f64() * 1e6;
        self.latency = match self.latency {
            0.0 => took,
            before => before + (took - before) / 8.0,
        };
        if let Some(written) = call.written {
            let trips = &mut self.trips[usize::from(call.want.is_large())];
            trips.add(now.saturating_duration_since(written));
        }
    }
}

/// A large reply that comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answering {
    pub(super) call: CallId,
    pub(super) reply: ReplyId,
    /// The XID to the server.
    pub(super) xid: u32,
    /// Bytes of the present fragment that are to come, and whether it is the last.
    pub(super) left: (u64, bool),
}

/// A transport.
pub(super) struct Transport {
    /// Its number among all.
    pub(super) index: usize,
    pub(super) service: usize,
    pub(super) number: usize,
    pub(super) lane: bool,
    segment: Segment,
    pub(super) state: State,
    /// Calls without a complete reply, by the XIDs to the server.
    pub(super) pending: HashMap<u32, CallId>,
    /// Calls that are to be written, and some that are pending no more.
    pub(super) queue: VecDeque<CallId>,
    /// Internal messages, without marks.
    pub(super) internal: VecDeque<Bytes>,
    /// XIDs of questions whether the server is there.
    pub(super) pings: HashSet<u32>,
    /// The program that was called last, and its version.
    pub(super) program: (u32, u32),
    /// Whether it takes no more calls, and ends when those that it has are done.
    pub(super) drains: bool,
    /// When it was asked last.
    pub(super) asked: Option<Instant>,
    /// Calls that go out again from the same port, or nowhere; they are pending, too.
    pub(super) held: Vec<CallId>,
    /// Where they were sent from, and to.
    pub(super) identity: Option<Ends>,
    /// Whether calls of an earlier process may come back to it, and which XIDs they have.
    pub(super) expects: bool,
    pub(super) reserved: HashSet<u32>,
    /// Since when it has looked for their port.
    pub(super) seeks: Option<Instant>,
    /// Since when this port is not to be had, and whether it is no port of this machine and server any more.
    pub(super) lacks: Option<(Instant, bool)>,
    /// Whether the last connection failed by saying nothing.
    pub(super) silent: bool,
    /// How often a connection was tried since the last one, and how long the next pause is.
    pub(super) round: u32,
    pub(super) pause: Duration,
    /// Whether there is a pause before the next attempt.
    pub(super) rests: bool,
    /// The call that is being answered.
    pub(super) answering: Option<Answering>,
    pub(super) outstanding: u64,
    /// How many of its calls are large.
    pub(super) large: usize,
    pub(super) rate: Rate,
    pub(super) tallies: Tallies,
}

impl Transport {
    pub(super) fn new(
        (service, number, lane): (usize, usize, bool),
        (index, of, start): (usize, usize, u32),
        pause: Duration,
    ) -> Transport {
        Transport {
            index,
            service,
            number,
            lane,
            segment: Segment::new(index, of, start),
            state: State::Down("connecting".into()),
            pending: HashMap::new(),
            queue: VecDeque::new(),
            internal: VecDeque::new(),
            pings: HashSet::new(),
            program: (NFS, 3),
            drains: false,
            asked: None,
            held: Vec::new(),
            identity: None,
            expects: false,
            reserved: HashSet::new(),
            seeks: None,
            lacks: None,
            silent: false,
            round: 0,
            pause,
            rests: false,
            answering: None,
            outstanding: 0,
            large: 0,
            rate: Rate::default(),
            tallies: Tallies::default(),
        }
    }

    /// Whether it is connected.
    pub(super) fn stands(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// As dispatch sees it.
    pub(super) fn load(&self, now: Instant) -> Load {
        Load {
            up: self.stands() && !self.drains,
            lane: self.lane,
            outstanding: self.outstanding,
            large: self.large > 0,
            window: self.rate.window(),
            rate: self.rate.per_second(now),
        }
    }

    /// A call waits for its reply here from now on.
    pub(super) fn charge(&mut self, call: &Call) {
        self.outstanding += call.want.bytes;
        self.large += usize::from(call.want.is_large());
    }

    /// It no longer does.
    pub(super) fn discharge(&mut self, call: &Call) {
        self.outstanding = self.outstanding.saturating_sub(call.want.bytes);
        let large = usize::from(call.want.is_large());
        self.large = self.large.saturating_sub(large);
    }

    /// Whether an XID is in use, also by a call whose reply has begun to come.
    pub(super) fn has(&self, xid: u32) -> bool {
        self.pending.contains_key(&xid)
            || self.pings.contains(&xid)
            || self.answering.is_some_and(|of| of.xid == xid)
    }

    /// An XID of its own that is not in use; none where there is none.
    pub(super) fn free_xid(&mut self) -> Option<u32> {
        let (pending, pings, reserved) = (&self.pending, &self.pings, &self.reserved);
        let answering = self.answering.map(|of| of.xid);
        let used = |xid| {
            let waits = pending.contains_key(&xid) || pings.contains(&xid);
            waits || reserved.contains(&xid) || answering == Some(xid)
        };
        self.segment.take(used)
    }

    /// Its connection, or the one that its held calls wait for.
    pub(super) fn way(&self) -> Option<Way> {
        let waits = self.stands() || !self.held.is_empty();
        let ends = self.identity.filter(|_| waits)?;
        Some((self.index, ends))
    }

    /// Whether replies are to come.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.answering.is_some()
    }

    /// How long ago it was asked whether it is there.
    pub(super) fn asked(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.asked?))
    }
}

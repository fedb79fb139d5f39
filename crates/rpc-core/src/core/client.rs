//! A client's connection: which calls it has made, and which replies are to be written.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::arena::Id;
use super::backchannel::Debts;
use super::memory::{Kept, Share, User};
use super::{CallId, ReplyId};

/// A large call that comes.
pub(super) struct Coming {
    pub(super) head: Bytes,
    /// Length of its first fragment, and whether that is its last.
    pub(super) fragment: (u64, bool),
    /// What has come behind the head, marks included.
    pub(super) rest: Vec<Bytes>,
    /// What is here, and what is to come, so that nobody else takes the room that it needs.
    pub(super) kept: usize,
    pub(super) expected: usize,
}

/// A client.
pub struct Client {
    /// Which one of all that have come.
    pub(super) number: u64,
    pub(super) peer: SocketAddr,
    /// Who it is.
    pub(super) user: User,
    pub(super) kept: Id<Kept>,
    /// Whether it is the program itself that calls, without a connection.
    pub(super) internal: bool,
    /// Its shares of what may be kept of calls and of replies, and whether it waits for room.
    pub(super) of_calls: Share,
    pub(super) of_replies: Share,
    pub(super) waits: bool,
    /// Calls and replies that are charged to it, and calls whose replies it gets.
    pub(super) users: usize,
    /// When it has sent or taken something last, and whether a record of it is coming.
    pub(super) moved: Instant,
    pub(super) receives: bool,
    /// When its connection ended.
    pub(super) closed: Option<Instant>,
    /// Replies that it was given and that are not written.
    pub(super) owed: usize,
    /// Bytes of replies that it has taken.
    pub(super) took: u64,
    /// Replies that wait to be written: small ones, which do not wait for all the others.
    pub(super) small: VecDeque<ReplyId>,
    pub(super) large: VecDeque<ReplyId>,
    /// The reply that is being written.
    pub(super) writing: Option<ReplyId>,
    /// Its calls without a reply, by its own XIDs.
    pub(super) pending: HashMap<u32, CallId>,
    pub(super) calls: u64,
    /// Calls of servers that it owes replies to.
    pub(super) debts: Debts,
    /// The large call that comes.
    pub(super) coming: Option<Coming>,
}

impl Client {
    /// Whether its connection is over.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// For how long nothing has been under way for it; none while something is.
    pub(super) fn idle(&self, now: Instant) -> Option<Duration> {
        let idle = self.is_satisfied() && !self.receives;
        idle.then(|| now.saturating_duration_since(self.moved))
    }

    /// Whether a reply may be passed on while it comes: nothing else is to be said, or expected, meanwhile
    /// that it would hold up.
    pub(super) fn waits_for_one(&self) -> bool {
        !self.internal && self.pending.len() <= 1 && self.small.is_empty() && self.large.is_empty()
    }

    /// Whether it has a reply to all that it has called, as far as the proxy can tell.
    pub(super) fn is_satisfied(&self) -> bool {
        self.pending.is_empty() && self.owed == 0
    }

    /// Whether a reply has been given to be written, and comes meanwhile.
    pub(super) fn passes_on(&self, reply: ReplyId) -> bool {
        self.writing == Some(reply) || self.large.contains(&reply)
    }
}

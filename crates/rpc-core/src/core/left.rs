//! Calls that an earlier process has sent: their port is looked for first, and kept until their clients have had time
//! to repeat them. And the end of what is held for a port that is not to be had any more.

use std::io::ErrorKind;
use std::time::Duration;

use super::transport::Transport;
use super::{Action, CallId, Core, Ends};
use crate::journal::{self, Entry, age};
use crate::replay::{Left, RETURN, Resume, resumed};

/// How long the port is looked for. A connection from any other is better than none after that.
const SEEK: Duration = Duration::from_secs(15);

impl Transport {
    /// Takes in what an earlier process has left.
    pub(super) fn expect(&mut self, left: &journal::Left) {
        let ends = u16::try_from(self.index).ok();
        let Some(ends) = ends.and_then(|index| left.ends.get(&index)) else {
            return;
        };
        self.identity = Some(*ends);
        self.expects = true;
        let places = left.calls.values().map(|entry| entry.place);
        let mine = places.filter(|place| usize::from(place.transport) == self.index);
        self.reserved = mine.map(|place| place.xid).collect();
    }

    /// None of them comes back any more.
    fn expect_no_more(&mut self) {
        self.expects = false;
        self.reserved.clear();
    }
}

impl Core {
    /// Forgets what an earlier process has left when nobody comes back for it any more.
    pub(super) fn forget_left(&mut self) {
        let age = self.now.at.saturating_duration_since(self.started);
        if age >= RETURN && !self.left.calls.is_empty() {
            self.left = journal::Left::default();
            self.transports
                .iter_mut()
                .for_each(Transport::expect_no_more);
        }
    }

    /// Non-idempotent calls that the server may have run or may yet, and whose replies somebody may want.
    pub(super) fn under_way(&self, number: usize) -> Vec<CallId> {
        let transport = &self.transports[number];
        let answering = transport.answering.map(|of| of.call);
        let all = transport.pending.values().copied().chain(answering);
        let is_to_be_kept = |id: &CallId| {
            let call = self.calls.get(*id);
            call.is_some_and(|call| call.ticket.is_some() && call.may_be_run())
                && self.is_wanted(*id)
        };
        all.filter(is_to_be_kept).collect()
    }

    /// Whether the port of an earlier process's calls is looked for; not for ever.
    pub(super) fn seeks(&mut self, number: usize) -> bool {
        let now = self.now.at;
        let transport = &mut self.transports[number];
        if !transport.expects {
            return false;
        }
        let since = *transport.seeks.get_or_insert(now);
        if now.saturating_duration_since(since) >= SEEK {
            transport.expect_no_more();
        }
        transport.expects
    }

    /// It is connected.
    pub(super) fn found(&mut self, number: usize, ends: Ends) {
        let transport = &mut self.transports[number];
        if transport.identity.replace(ends) != Some(ends) {
            transport.expect_no_more();
        }
        (transport.seeks, transport.lacks) = (None, None);
    }

    /// It is not. Where its address is gone, or the server is another one, the port is looked for no longer.
    pub(super) fn not_found(&mut self, number: usize, error: ErrorKind) {
        let transport = &mut self.transports[number];
        let gone = error == ErrorKind::Other;
        if gone {
            transport.expect_no_more();
        }
        let lacks = gone || matches!(error, ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable);
        let since = transport.lacks.map_or(self.now.at, |(at, _)| at);
        transport.lacks = lacks.then_some((since, gone));
    }

    /// Takes out the held calls that are held no longer, as their port is not to be had.
    ///
    /// 1. Their server does not answer, or nobody knows yet: they wait.
    /// 2. An earlier process has sent them, and the address is gone, or the server another one: they go at once.
    /// 3. An earlier process has sent them, and the port has been somebody else's for [`SEEK`]: they go.
    /// 4. This process has sent them, and the port has not been to be had for [`RETURN`]: they go. The server has
    ///    forgotten them, too.
    pub(super) fn not_to_be_held(&mut self, number: usize) -> Vec<CallId> {
        let Some((since, gone)) = self.transports[number].lacks else {
            return Vec::new();
        };
        let lacks = self.now.at.saturating_duration_since(since);
        let goes = |id: &CallId| {
            let call = self.calls.get(*id);
            match call.is_some_and(|call| call.place.is_some()) {
                true => gone || lacks >= SEEK,
                false => lacks >= RETURN,
            }
        };
        let held = std::mem::take(&mut self.transports[number].held);
        let (go, stay): (Vec<_>, Vec<_>) = held.into_iter().partition(goes);
        self.transports[number].held = stay;
        go.iter().for_each(|call| self.take_off(number, *call));
        go
    }

    /// Takes a call that an earlier process has sent from here, if this is possible; by which rule of [`resumed`].
    pub(super) fn resume_at(&mut self, number: usize, id: CallId, entry: &Entry) -> (Resume, u8) {
        let place = &entry.place;
        let transport = &self.transports[number];
        let stands = transport.stands();
        let looks = transport.expects || !transport.held.is_empty();
        let decided = resumed(&Left {
            age: age(entry, self.now.second),
            same_port: transport.identity == Some((place.local, place.peer)) && (stands || looks),
            taken: transport.has(place.xid),
        });
        if decided.0 == Resume::SamePlace {
            let Some(call) = self.calls.get_mut(id) else {
                return decided;
            };
            call.xid = place.xid;
            // The server may be running the first copy, and drop this one.
            call.replayed(self.now.at);
            match stands {
                false => self.hold(number, id, usize::MAX),
                true => {
                    let transport = &mut self.transports[number];
                    transport.charge(call);
                    transport.pending.insert(place.xid, id);
                    transport.queue.push_back(id);
                    self.actions.push(Action::WriteCalls(number));
                }
            }
        }
        decided
    }
}

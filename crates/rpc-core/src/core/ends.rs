//! What becomes of the calls of a connection that ends, to a server or of a client.

use std::io::ErrorKind;
use std::time::Duration;

use super::transport::{Answering, State, Up};
use super::{Action, Actions, CallId, ClientId, Core, LOG, Made, Now, Wanted};
use crate::dispatch::Rate;
use crate::program::Class;
use crate::replay::{self, Cut, Sent, decide};

use super::event::Again;

/// Pauses between attempts to connect: the first one, and the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection that fails sooner, without a reply, is one more attempt: some servers accept, and close at once.
const STOOD: Duration = Duration::from_secs(1);
/// The longest while calls are held, or wait for a connection.
const HELD: Duration = Duration::from_secs(1);

impl Core {
    /// Ends a client's connection. Its calls are forgotten as far as they were not sent.
    pub(super) fn disconnect(&mut self, id: ClientId, why: &str) {
        let Some(client) = self.clients.get_mut(id).filter(|c| !c.is_closed()) else {
            return;
        };
        client.closed = Some(self.now.at);
        let calls = std::mem::take(&mut client.pending);
        if client.internal {
            // There is one.
            calls.into_values().for_each(|call| self.abandon(call));
            self.actions.push(Action::NoAnswer(id, why.to_owned()));
            return self.forget_client(id);
        }
        let peer = client.peer;
        let replies = (client.small.drain(..))
            .chain(client.large.drain(..))
            // Its calls may keep it for long, until there is room to read their replies.
            .chain(client.writing.take());
        let replies: Vec<_> = replies.collect();
        client.owed = 0;
        // Its last reply's going does not take it along: it may be within a call, and owe replies itself.
        self.uses(id);
        for reply in replies {
            self.unwanted(reply);
        }
        self.stop_coming(id);
        tracing::debug!(target: LOG, server = self.server(), client = %peer, "client's connection closed: {why}");
        self.owes_no_more(id);
        self.actions.push(Action::Disconnect(id));
        self.uses_no_more(id);
    }

    /// What replay has to know.
    fn cut(&self, id: CallId, answered: bool) -> Cut {
        let call = self.calls.get(id);
        // What an earlier process has sent may have been run, and what a client signs anew, too.
        let sent = call.map(|call| match call.was_sent() {
            true => Sent::All,
            false => call.sent,
        });
        Cut {
            sent: sent.unwrap_or(Sent::Nothing),
            class: call.map_or(Class::Unknown, |call| call.nature.class),
            signed: call.is_some_and(|call| call.header.is_signed()),
            answered,
            wanted: self.is_wanted(id),
        }
    }

    /// A connection is no more; decides about every call of it. Whether it has failed, or was closed on purpose.
    pub(super) fn lost(&mut self, number: usize, why: String, failed: bool) {
        let now = self.now.at;
        let transport = &mut self.transports[number];
        let service = transport.service;
        if let State::Up(up) = &transport.state {
            let stood = now.saturating_duration_since(up.since) >= STOOD;
            transport.rests = failed && !stood && transport.tallies.replies == up.replies;
            if !transport.rests {
                transport.pause = FIRST_PAUSE;
            }
        }
        transport.state = State::Down(why);
        transport.queue.clear();
        transport.internal.clear();
        let mut answered = None;
        let answering = transport.answering.take();
        if let Some(Answering { call, reply, .. }) = answering {
            if self.replies.get(reply).is_some_and(|reply| reply.started) {
                answered = Some(call);
            } else if let Some(call) = self.calls.get(call) {
                self.retract(call.client, reply);
            }
            if let Some(of) = self.calls.get(call) {
                self.transports[number].pending.insert(of.xid, call);
            }
        }
        let transport = &mut self.transports[number];
        let mut calls: Vec<CallId> = transport.pending.drain().map(|(_, call)| call).collect();
        transport.outstanding = 0;
        transport.large = 0;
        // The oldest goes first again.
        calls.sort_by_key(|id| std::cmp::Reverse(self.calls.get(*id).map(|call| call.number)));
        for id in calls {
            self.cut_off(number, id, answered == Some(id));
        }
        // Nothing more comes of it.
        if let Some(of) = answering {
            self.remove_reply(of.reply);
        }
        self.pump(service);
    }

    /// Decides about a call of a connection that has failed.
    fn cut_off(&mut self, number: usize, id: CallId, answered: bool) {
        let (action, rule) = decide(&self.cut(id, answered));
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let (client, xid) = (call.client, call.xid);
        tracing::debug!(
            target: LOG,
            server = self.server(),
            xid,
            ?action,
            rule,
            "a call of a connection that was lost"
        );
        match action {
            replay::Action::Drop => self.remove_call(id),
            replay::Action::Disconnect => {
                let why = format!("a connection to the server failed (rule {rule})");
                if !self.is_closed(client) {
                    self.ended(client, &why);
                    self.disconnect(client, &why);
                }
                // The client may come back for it.
                match decide(&self.cut(id, false)).0 {
                    replay::Action::SamePort => self.hold(number, id, 0),
                    _ => self.remove_call(id),
                }
            }
            replay::Action::Elsewhere => {
                self.counters.resent += 1;
                self.transports[number].tallies.resent += 1;
                self.again(id);
            }
            replay::Action::SamePort => self.hold(number, id, 0),
        }
    }

    /// Keeps a call until the connection stands again from the same port, before this one of others or last.
    pub(super) fn hold(&mut self, number: usize, id: CallId, before: usize) {
        let Some(call) = self.calls.get(id) else {
            return;
        };
        let transport = &mut self.transports[number];
        transport.charge(call);
        let before = before.min(transport.held.len());
        transport.held.insert(before, id);
        transport.pending.insert(call.xid, id);
    }

    /// Which connection is to be made now in place of one that there is not.
    pub fn wanted(&mut self, now: Now, number: usize, actions: &mut Actions) -> Wanted {
        self.now = now;
        // Nobody has to be answered but those that still wait.
        let held = std::mem::take(&mut self.transports[number].held);
        let (wanted, gone): (Vec<_>, Vec<_>) = held.into_iter().partition(|c| self.is_wanted(*c));
        self.transports[number].held = wanted;
        gone.into_iter().for_each(|call| self.forget(number, call));
        let seeks = self.seeks(number);
        actions.append(&mut self.actions);
        let transport = &self.transports[number];
        let again = transport.identity;
        let again = again.filter(|_| seeks || !transport.held.is_empty());
        Wanted {
            service: transport.service,
            number: transport.number,
            lane: transport.lane,
            again: again.map(|(from, to)| Again {
                from,
                to,
                silent: transport.silent,
                round: transport.round,
            }),
        }
    }

    /// How long to wait before another connection is made; nothing where the last one was good.
    pub fn pause(&mut self, number: usize) -> Duration {
        let transport = &self.transports[number];
        if !transport.rests {
            return Duration::ZERO;
        }
        // Calls may be held only since the connection has failed.
        let wanted = !transport.held.is_empty()
            || transport.expects
            || !self.waiting[transport.service].is_empty();
        let longest = if wanted { HELD } else { LONGEST_PAUSE };
        let transport = &mut self.transports[number];
        let pause = transport.pause.min(longest);
        transport.pause = (2 * transport.pause).min(longest);
        pause
    }

    /// A connection was made.
    pub(super) fn connected(&mut self, number: usize, made: Made) {
        let now = self.now.at;
        self.found(number, made.ends);
        let transport = &mut self.transports[number];
        transport.round = 0;
        transport.asked = None;
        transport.drains = made.detour;
        transport.silent = false;
        transport.pings.clear();
        transport.rate = Rate::default();
        transport.tallies.connections += 1;
        transport.state = State::Up(Up {
            ends: made.ends,
            out: made.out,
            back: made.back,
            attempts: made.attempts,
            detour: made.detour,
            since: now,
            replies: transport.tallies.replies,
        });
        // What is held goes out first, as it was.
        let held = std::mem::take(&mut transport.held);
        self.counters.replayed += held.len() as u64;
        transport.tallies.replayed += held.len() as u64;
        for id in held {
            if let Some(call) = self.calls.get_mut(id) {
                call.replayed(now);
                transport.queue.push_back(id);
            }
        }
        let service = transport.service;
        self.actions.push(Action::WriteCalls(number));
        self.pump(service);
    }

    /// None could be made.
    pub(super) fn not_connected(&mut self, number: usize, error: ErrorKind, why: String) {
        self.not_found(number, error);
        self.give_up(number);
        let transport = &mut self.transports[number];
        transport.rests = true;
        transport.round = transport.round.saturating_add(1);
        transport.state = State::Down(why);
    }

    /// Has calls go elsewhere whose port is not to be had any more. One that is signed and was sent has to be signed
    /// anew.
    fn give_up(&mut self, number: usize) {
        let calls = self.not_to_be_held(number);
        if calls.is_empty() {
            return;
        }
        // The oldest goes first again.
        for id in calls.into_iter().rev() {
            let Some(call) = self.calls.get(id) else {
                continue;
            };
            let (client, header, sent) = (call.client, call.header, call.sent);
            let Some(peer) = self.clients.get(client).map(|client| client.peer) else {
                continue;
            };
            let (from, _) = self.transports[number].identity.unwrap_or((peer, peer));
            let why =
                format!("from another port, as {from}, from which it was sent, is not to be had");
            self.runs_again(peer, &header, &why);
            if header.is_signed() && sent != Sent::Nothing {
                let why = "the port that a signed call was sent from is not to be had";
                self.ended(client, why);
                self.disconnect(client, why);
                self.remove_call(id);
                continue;
            }
            if let Some(call) = self.calls.get_mut(id) {
                (call.place, call.way) = (None, None);
            }
            self.again(id);
        }
        self.pump(self.transports[number].service);
    }
}

//! Looks after connections that say nothing.

use std::time::Instant;

use super::transport::State;
use super::{Action, CallId, Core, Heard, Now, Review, Standing};
use crate::dispatch::Load;
use crate::liveness::{Signs, Verdict, judge};
use crate::message::null;
use crate::replay::{Sent, repeat_after};

/// Questions without an answer, at most: a server that does not know the program may give none.
const PINGS: usize = 8;

impl Core {
    /// Time has gone on.
    pub(super) fn tick(&mut self, heard: &[Option<Heard>]) {
        self.duplicates.expire(self.now);
        self.forget_left();
        for number in 0..self.transports.len() {
            self.close_drained(number);
            self.repeat(number);
        }
        let of = |number: usize| *heard.get(number).unwrap_or(&None);
        let mut dead = Vec::new();
        for number in 0..self.transports.len() {
            if let Some(own) = of(number).filter(|_| self.transports[number].stands()) {
                // Also those of other services: it is the same machine, and a service may have one connection.
                let others = (0..self.transports.len()).filter(|i| *i != number);
                let others = others.filter_map(|i| Some(of(i)?.silent)).min();
                dead.extend(self.look_at(number, &own, others, heard));
            }
        }
        // All that are silent are named before the first is closed.
        self.actions.extend(dead);
    }

    /// Gives up a connection that takes no more calls, and has none.
    fn close_drained(&mut self, number: usize) {
        let transport = &self.transports[number];
        let State::Up(up) = &transport.state else {
            return;
        };
        if transport.drains && !transport.is_waiting() && !transport.expects {
            let why = match up.detour {
                true => "closed: the calls that it went around a silent link for are answered",
                false => "closed, to be made again where fewer connections lie",
            };
            self.actions.push(Action::Close(number, why));
        }
    }

    /// Sends calls again that were replayed and have had no reply for long.
    fn repeat(&mut self, number: usize) {
        let now = self.now.at;
        let transport = &mut self.transports[number];
        if !transport.stands() {
            return;
        }
        let is_due = |id: &CallId| {
            let call = self.calls.get(*id);
            let call = call.filter(|call| call.sent == Sent::All && !call.header.is_signed())?;
            let (times, at) = call.replay?;
            let due = now.saturating_duration_since(at) >= repeat_after(times);
            due.then_some((call.number, *id))
        };
        let mut due: Vec<_> = transport.pending.values().filter_map(is_due).collect();
        if due.is_empty() {
            return;
        }
        due.sort_unstable_by_key(|(number, _)| *number);
        for (_, id) in due {
            transport.queue.push_back(id);
            if let Some(call) = self.calls.get_mut(id) {
                call.replayed(now);
            }
        }
        self.actions.push(Action::WriteCalls(number));
    }

    /// Judges a connection of which this was heard, and does what has to be done; returns how it is closed, if it is.
    fn look_at(
        &mut self,
        number: usize,
        own: &Heard,
        others: Option<std::time::Duration>,
        heard: &[Option<Heard>],
    ) -> Option<Action> {
        let now = self.now.at;
        let transport = &self.transports[number];
        let asked = transport.asked(now);
        let verdict = judge(&Signs {
            outstanding: transport.is_waiting() || own.probed,
            silent: own.silent,
            rtt: own.rtt,
            unacknowledged: own.unacknowledged,
            asked,
            others,
            beside: self.beside.heard(now),
            repeats: own.repeats,
        });
        match verdict {
            Verdict::Fine => {}
            Verdict::Ask => {
                for (number, heard) in heard.iter().enumerate().take(self.transports.len()) {
                    if heard.is_some() && self.transports[number].stands() {
                        self.ask(number, now);
                    }
                }
            }
            Verdict::Beside => {
                if let State::Up(up) = &transport.state
                    && self.beside.begins(now)
                {
                    self.actions.push(Action::Beside(up.ends));
                }
            }
            Verdict::Dead => {
                let heard = others.is_some_and(|others| asked.is_some_and(|at| others < at));
                self.transports[number].silent = true;
                self.actions.push(Action::Silent(number));
                let why = match heard {
                    true => {
                        "nothing is heard by it, while others are heard: its link may be silent"
                    }
                    false => {
                        "nothing is heard by it, while a new connection is answered: a firewall may have forgotten it"
                    }
                };
                return Some(Action::Close(number, why));
            }
        }
        None
    }

    /// Asks whether the server is there, unless it is being asked.
    fn ask(&mut self, number: usize, now: Instant) {
        let transport = &mut self.transports[number];
        transport.asked = Some(now);
        if transport.pings.len() >= PINGS {
            return;
        }
        if let Some(xid) = transport.free_xid() {
            let (program, version) = transport.program;
            transport.pings.insert(xid);
            self.say(number, null(xid, program, version));
        }
    }

    /// All connections, as dispatch sees them.
    pub fn loads(&self, now: Now) -> Vec<Load> {
        let loads = self.transports.iter().map(|of| of.load(now.at));
        loads.collect()
    }

    /// The connections that stand.
    pub fn standing(&self) -> Vec<Standing> {
        let standing = self.transports.iter().filter_map(|transport| {
            let State::Up(up) = &transport.state else {
                return None;
            };
            Some(Standing {
                service: transport.service,
                number: transport.number,
                lane: transport.lane,
                local: up.ends.0,
                peer: up.ends.1,
                moves: self.is_moving(transport.service),
                expects: transport.expects,
            })
        });
        standing.collect()
    }

    /// It was looked at where connections lie: has one drained that would lie better elsewhere. One that is being
    /// moved is waited for.
    pub(super) fn reviewed(&mut self, review: Review) {
        let mut links = review.links.into_iter().zip(review.back);
        let stand = self.transports.iter_mut().filter(|t| t.stands());
        for (i, transport) in stand.enumerate() {
            if let State::Up(up) = &mut transport.state
                && let Some((out, back)) = links.next()
            {
                (up.out, up.back) = (out, back);
            }
            if review.again == Some(i) && !transport.expects {
                transport.drains = true;
            }
        }
    }
}

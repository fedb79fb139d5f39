//! Calls that wait for a transport: each client has its turn, so that one with many calls does not hold up others.

use std::collections::{HashMap, VecDeque};

use super::{CallId, ClientId};

/// Calls that wait.
#[derive(Default)]
pub(super) struct Waiting {
    /// Those that go before all others.
    first: VecDeque<CallId>,
    /// The others, by client.
    of: HashMap<ClientId, VecDeque<CallId>>,
    /// Whose turn it is; each once.
    turns: VecDeque<ClientId>,
    /// Signed calls whose XID is in use by every transport: they hold nobody up.
    stuck: VecDeque<CallId>,
    /// All but the stuck ones.
    count: usize,
}

impl Waiting {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count + self.stuck.len()
    }

    /// Whether none waits for room.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many wait for their XID.
    pub(super) fn stuck(&self) -> usize {
        self.stuck.len()
    }

    /// One that waits for its XID, behind others that do.
    pub(super) fn push_stuck(&mut self, call: CallId) {
        self.stuck.push_back(call);
    }

    /// The one that has waited for its XID for longest, or was tried before all others.
    pub(super) fn pop_stuck(&mut self) -> Option<CallId> {
        self.stuck.pop_front()
    }

    /// One more of this client, behind its others.
    pub(super) fn push(&mut self, client: ClientId, call: CallId) {
        let of = self.of.entry(client).or_default();
        if of.is_empty() {
            self.turns.push_back(client);
        }
        of.push_back(call);
        self.count += 1;
    }

    /// One more, before all others.
    pub(super) fn push_first(&mut self, call: CallId) {
        self.first.push_front(call);
        self.count += 1;
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<CallId> {
        let call = self.first.pop_front().or_else(|| self.pop_in_turn())?;
        self.count -= 1;
        Some(call)
    }

    fn pop_in_turn(&mut self) -> Option<CallId> {
        let client = self.turns.pop_front()?;
        let of = self.of.get_mut(&client)?;
        let call = of.pop_front();
        match of.is_empty() {
            true => drop(self.of.remove(&client)),
            false => self.turns.push_back(client),
        }
        call
    }
}

//! Room for calls and replies: what is charged to whom, and who waits.

use super::memory::{Kind, Of};
use super::{Action, ClientId, Core};

impl Core {
    /// Bytes of calls and of replies that are kept now.
    pub fn kept(&self) -> (usize, usize) {
        (self.of_calls.used(), self.of_replies.used())
    }

    /// Bytes of calls that have begun and are to come; what is kept counts without them.
    pub fn expected(&self) -> usize {
        self.of_calls.expected()
    }

    /// What a client keeps of a kind, to be changed.
    pub(super) fn share(&mut self, kind: Kind, client: ClientId) -> Option<Of<'_>> {
        let client = self.clients.get_mut(client)?;
        let user = self.users.kept_mut(client.kept)?;
        Some(match kind {
            Kind::Calls => Of {
                memory: &mut self.of_calls,
                user: &mut user.calls,
                share: &mut client.of_calls,
            },
            Kind::Replies => Of {
                memory: &mut self.of_replies,
                user: &mut user.replies,
                share: &mut client.of_replies,
            },
        })
    }

    /// Bytes of a client are here no more, or expected no more: who waits may look again.
    pub(super) fn release(&mut self, kind: Kind, client: ClientId, here: usize, expected: usize) {
        if let Some(mut of) = self.share(kind, client) {
            of.release(here);
            of.expect_less(expected);
        }
        if let Some(of) = self.clients.get_mut(client)
            && std::mem::take(&mut of.waits)
        {
            self.actions.push(Action::Room(client));
        }
        let (memory, waits, action) = match kind {
            Kind::Calls => (&self.of_calls, &mut self.calls_wait, Action::RoomForCalls),
            Kind::Replies => (
                &self.of_replies,
                &mut self.replies_wait,
                Action::RoomForReplies,
            ),
        };
        if *waits && !memory.is_full() {
            *waits = false;
            self.actions.push(action);
        }
    }

    fn has_room(&mut self, kind: Kind, id: ClientId, bytes: usize) -> bool {
        let Some(client) = self.clients.get_mut(id) else {
            return true;
        };
        let Some(kept) = self.users.kept(client.kept) else {
            return true;
        };
        let (memory, user, share) = match kind {
            Kind::Calls => (&self.of_calls, kept.calls, client.of_calls),
            Kind::Replies => (&self.of_replies, kept.replies, client.of_replies),
        };
        let room = memory.has_room(user, share, bytes);
        client.waits |= !room;
        room
    }

    /// Whether so many bytes more of a call of this client may come; none where another record is to begin.
    /// [`Action::Room`] says when that may have changed, but not all of it.
    pub fn has_room_for_call(&mut self, client: ClientId, bytes: usize) -> bool {
        self.has_room(Kind::Calls, client, bytes)
    }

    /// The same of the replies to its calls.
    pub fn has_room_for_replies(&mut self, client: ClientId) -> bool {
        self.has_room(Kind::Replies, client, 0)
    }

    /// Whether no other call may begin, whoever makes it. [`Action::RoomForCalls`] says when that has changed.
    pub fn calls_are_full(&mut self) -> bool {
        self.calls_wait |= self.of_calls.is_full();
        self.of_calls.is_full()
    }

    /// Whether no other reply may begin, whoever it is for. [`Action::RoomForReplies`] says when that has changed.
    pub fn replies_are_full(&mut self) -> bool {
        self.replies_wait |= self.of_replies.is_full();
        self.of_replies.is_full()
    }
}

//! Replies that are written to clients.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::call::{OVERHEAD, Reply, TOGETHER};
use super::memory::Kind;
use super::{Action, Actions, ClientId, Core, NextReply, Now, ReplyId};

impl Core {
    /// Takes a reply in, and charges it to its payer.
    pub(super) fn enter_reply(&mut self, mut reply: Reply) -> ReplyId {
        let bytes = OVERHEAD + reply.chunks.iter().map(Bytes::len).sum::<usize>();
        reply.charged = bytes;
        let payer = reply.payer;
        self.charge_reply(payer, bytes);
        self.uses(payer);
        self.replies.insert(reply)
    }

    /// Bytes of a reply are here.
    pub(super) fn charge_reply(&mut self, payer: ClientId, bytes: usize) {
        if let Some(mut of) = self.share(Kind::Replies, payer) {
            of.add(bytes);
        }
    }

    /// A reply is no more.
    pub(super) fn remove_reply(&mut self, id: ReplyId) {
        if let Some(reply) = self.replies.remove(id) {
            self.release(Kind::Replies, reply.payer, reply.charged, 0);
            self.uses_no_more(reply.payer);
        }
    }

    /// Lets go of what has come of a reply that nobody wants any more.
    pub(super) fn forget_reply(&mut self, id: ReplyId) {
        if let Some(reply) = self.replies.get_mut(id) {
            reply.forgotten = true;
            reply.chunks = VecDeque::new();
            let (payer, bytes) = (reply.payer, std::mem::take(&mut reply.charged));
            self.release(Kind::Replies, payer, bytes, 0);
        }
    }

    /// Something of a reply has come.
    pub(super) fn wake(&mut self, client: ClientId) {
        self.actions.push(Action::WriteReplies(client));
    }

    /// Has a reply written, behind others of its kind.
    pub(super) fn give(&mut self, id: ClientId, reply: ReplyId) {
        let Some(client) = self.clients.get_mut(id).filter(|c| !c.is_closed()) else {
            return self.unwanted(reply);
        };
        if client.internal {
            if let Some(of) = self.replies.get_mut(reply) {
                let chunks = std::mem::take(&mut of.chunks).into();
                self.actions.push(Action::Answer(id, chunks));
            }
            return self.remove_reply(reply);
        }
        client.owed += 1;
        match self.replies.get(reply).is_some_and(Reply::is_small) {
            true => client.small.push_back(reply),
            false => client.large.push_back(reply),
        }
        self.wake(id);
    }

    /// Nobody gets a reply. One that is coming still answers its call, unless the client has got a part of it: who
    /// repeats the call waits for its end.
    pub(super) fn unwanted(&mut self, id: ReplyId) {
        match self.replies.get(id) {
            Some(reply) if reply.complete => self.remove_reply(id),
            Some(reply) if reply.started => self.forget_reply(id),
            _ => {}
        }
    }

    /// Takes back a reply that nothing was written of.
    pub(super) fn retract(&mut self, client: ClientId, reply: ReplyId) {
        let Some(client) = self.clients.get_mut(client) else {
            return;
        };
        for queue in [&mut client.small, &mut client.large] {
            let before = queue.len();
            queue.retain(|r| *r != reply);
            client.owed -= before - queue.len();
        }
    }

    /// What is to be written to a client next: small replies together, as many as are there, and one large reply after
    /// each such batch. So a small reply waits for one record at most, and a large one for 64 KiB of small ones. None
    /// where there is nothing.
    pub fn replies_to_write(
        &mut self,
        now: Now,
        id: ClientId,
        buffer: &mut BytesMut,
        actions: &mut Actions,
    ) -> Option<NextReply> {
        self.now = now;
        let mut small = 0;
        while buffer.len() < 4 * TOGETHER {
            let next = self.clients.get_mut(id)?.small.pop_front();
            let Some(reply) = next else {
                break;
            };
            small += 1;
            if let Some(of) = self.replies.get(reply) {
                of.chunks
                    .iter()
                    .for_each(|chunk| buffer.extend_from_slice(chunk));
            }
            self.remove_reply(reply);
        }
        let client = self.clients.get_mut(id)?;
        let large = client.large.pop_front();
        client.writing = large;
        if let Some(reply) = large
            && let Some(reply) = self.replies.get_mut(reply)
        {
            reply.started = true;
        }
        actions.append(&mut self.actions);
        (large.is_some() || small > 0).then_some(NextReply { small, large })
    }

    /// What is here of a large reply that is being written, and whether nothing more comes; none where it is no more.
    #[inline]
    pub fn chunks(&self, reply: ReplyId) -> Option<(&VecDeque<Bytes>, bool)> {
        let reply = self.replies.get(reply)?;
        Some((&reply.chunks, reply.complete))
    }

    /// A client has taken bytes of this many small replies.
    pub(super) fn took(&mut self, id: ClientId, bytes: usize, replies: usize) {
        if let Some(client) = self.clients.get_mut(id) {
            client.took += bytes as u64;
            client.owed = client.owed.saturating_sub(replies);
            client.moved = self.now.at;
        }
    }

    /// A client has taken bytes of a large reply.
    pub(super) fn took_of(&mut self, id: ClientId, reply: ReplyId, bytes: usize) {
        if let Some(client) = self.clients.get_mut(id) {
            client.took += bytes as u64;
        }
        if let Some(reply) = self.replies.get_mut(reply) {
            advance(&mut reply.chunks, bytes);
        }
    }

    /// A client has taken all of it.
    pub(super) fn took_all(&mut self, id: ClientId, reply: ReplyId) {
        if let Some(client) = self.clients.get_mut(id)
            && client.writing == Some(reply)
        {
            client.writing = None;
            client.owed = client.owed.saturating_sub(1);
            client.moved = self.now.at;
        }
        self.remove_reply(reply);
    }
}

/// Takes bytes off the front.
fn advance(chunks: &mut VecDeque<Bytes>, mut count: usize) {
    while let Some(chunk) = chunks.front_mut() {
        if count < chunk.len() {
            chunk.advance(count);
            return;
        }
        count -= chunk.len();
        chunks.pop_front();
    }
}

//! Who is a client, and for how long it is known.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::backchannel::Debts;
use super::memory::{Share, User};
use super::status::Ended;
use super::{Actions, Client, ClientId, Core, LOG, Now};
use crate::limits::{Admission, admit};
use crate::trouble::Tell;

/// Disconnected clients that are remembered.
const ENDED: usize = 16;

impl Core {
    /// How many clients are connected.
    pub fn connected_clients(&self) -> usize {
        let here = |client: &Client| !client.is_closed() && !client.internal;
        self.clients.iter().filter(|(_, c)| here(c)).count()
    }

    /// Whether a client from this address and port is refused for its port.
    pub fn refuses_port(&mut self, now: Now, peer: SocketAddr) -> bool {
        let Some(below) = self.config.below.filter(|below| peer.port() >= *below) else {
            return false;
        };
        self.counters.clients_refused += 1;
        let times = match self.strangers.failed(0, now.at) {
            None => return true,
            Some(Tell::First) => 1,
            Some(Tell::Still { times, .. }) => times,
        };
        tracing::warn!(target: LOG, server = self.server(), client = %peer, times,
            "client refused: port {} is not below {below}, so that it may be any user's program, and the server takes \
             the proxy's calls for root's; mount as root, without noresvport", peer.port());
        true
    }

    /// Takes a client in, or refuses it where there are too many; one that is idle may have to go for it.
    pub fn welcome(
        &mut self,
        now: Now,
        peer: SocketAddr,
        user: User,
        actions: &mut Actions,
    ) -> Option<ClientId> {
        self.now = now;
        let all = self.clients.iter();
        let all = all.filter(|(_, client)| !client.is_closed() && !client.internal);
        let (ids, connected): (Vec<_>, Vec<_>) = all
            .map(|(id, client)| (id, (client.user, client.idle(now.at))))
            .unzip();
        match admit(self.config.clients, &user, &connected) {
            Admission::Welcome => {}
            Admission::InPlaceOf(number) => {
                let idle = ids[number];
                self.ended(idle, "it was idle, and its user has the most connections");
                self.disconnect(idle, "idle, to make room");
            }
            Admission::Refused => {
                self.counters.clients_refused += 1;
                let most = self.config.clients;
                let what = format!(
                    "client refused: its user has its share of {most} connections, and none is idle"
                );
                self.tell(peer, &what);
                return None;
            }
        }
        self.counters.clients += 1;
        let client = self.enter(peer, user, false);
        actions.append(&mut self.actions);
        Some(client)
    }

    /// Takes in the program itself, for one call.
    pub fn welcome_internal(&mut self, now: Now, peer: SocketAddr) -> ClientId {
        self.now = now;
        self.enter(peer, User::At(peer.ip()), true)
    }

    fn enter(&mut self, peer: SocketAddr, user: User, internal: bool) -> ClientId {
        let kept = self.users.enter(user);
        self.clients.insert(Client {
            number: self.counters.clients,
            peer,
            user,
            kept,
            internal,
            of_calls: Share::default(),
            of_replies: Share::default(),
            waits: false,
            users: 0,
            moved: self.now.at,
            receives: false,
            closed: None,
            owed: 0,
            took: 0,
            small: VecDeque::new(),
            large: VecDeque::new(),
            writing: None,
            pending: HashMap::new(),
            calls: 0,
            debts: Debts::default(),
            coming: None,
        })
    }

    /// Whether a client's connection is over.
    #[inline]
    pub fn is_closed(&self, client: ClientId) -> bool {
        self.clients.get(client).is_none_or(Client::is_closed)
    }

    /// Whether a client has a reply to all that it has called.
    pub fn is_satisfied(&self, client: ClientId) -> bool {
        self.clients.get(client).is_none_or(Client::is_satisfied)
    }

    /// Whether a record of a client is coming: it is not idle then.
    #[inline]
    pub fn receives(&mut self, client: ClientId, inside: bool) {
        if let Some(client) = self.clients.get_mut(client) {
            client.receives = inside;
        }
    }

    /// Forgets a client of which nothing is left.
    pub(super) fn forget_client(&mut self, id: ClientId) {
        let over = |client: &Client| client.is_closed() && client.users == 0;
        if self.clients.get(id).is_some_and(over)
            && let Some(client) = self.clients.remove(id)
        {
            debug_assert!(client.coming.is_none(), "what is to come is given back");
            self.users.leave(client.kept);
        }
    }

    /// One call or reply more, or less, goes by a client.
    pub(super) fn uses(&mut self, client: ClientId) {
        if let Some(client) = self.clients.get_mut(client) {
            client.users += 1;
        }
    }

    pub(super) fn uses_no_more(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.users -= 1;
            self.forget_client(id);
        }
    }

    /// A client has been disconnected for a reason.
    pub(super) fn ended(&mut self, client: ClientId, why: &str) {
        let Some(client) = self.clients.get(client) else {
            return;
        };
        // A call of the program itself, which is told so.
        if client.internal || client.is_closed() {
            return;
        }
        let peer = client.peer;
        self.counters.clients_disconnected += 1;
        self.tell(peer, &format!("client disconnected: {why}"));
        self.ended.truncate(ENDED - 1);
        self.ended.push_front(Ended {
            client: peer,
            why: why.to_owned(),
        });
    }
}

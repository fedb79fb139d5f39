//! What the proxy decides, without sockets, clocks or tasks: events go in, with the time, and actions come out.
//!
//! A driver (`raddle_rpc::proxy`, or a test) has the connections. It tells what has happened ([`Core::handle`]), does what
//! is asked ([`Action`]), and takes what is to be written when a connection can take it ([`Core::calls_to_write`],
//! [`Core::replies_to_write`]). Bytes of calls and replies pass through in handles that are counted ([`bytes::Bytes`]):
//! what is larger than [`TOGETHER`] is copied nowhere.
//!
//! | part | decides |
//! |---|---|
//! | `calls` | what a call of a client is: a question to the proxy itself, a repetition, or one to be sent |
//! | `duplicates`, `places`, [`crate::duplicate`] | which call is the repetition of another one, and what becomes of it |
//! | `assign`, `waiting`, [`crate::dispatch`] | which connection a call takes, and whose turn it is |
//! | `answers` | which call a message of a server answers, and when its client gets what |
//! | `ends`, [`crate::replay`] | what becomes of the calls of a connection that fails, and of a client that goes |
//! | `left` | what is sent from where an earlier process sent it |
//! | `watch`, `beside`, [`crate::liveness`] | which connection is dead, and what is asked |
//! | `memory`, `room`, `pressure` | how much is kept of whom, and who has to go |
//! | `clients` | who is taken in, and for how long it is known |
//! | `replies` | which reply is written next |
//! | `backchannel` | which client a server's call is for |

mod answers;
mod arena;
mod assign;
mod backchannel;
mod beside;
mod call;
mod calls;
mod client;
mod clients;
mod duplicates;
mod ends;
mod event;
mod left;
mod memory;
mod places;
mod pressure;
mod replies;
mod room;
pub mod status;
mod transport;
mod waiting;
mod watch;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use tracing::field::{DisplayValue, display};

use crate::dispatch::Dispatch;
use crate::journal::{Left, Notes, PENDING};
use crate::message::MessageError;
use crate::program;
use crate::replay::Sent;
use crate::trouble::{Often, Trouble};

use arena::Arena;
pub use arena::Id;
use backchannel::Sessions;
use beside::Beside;
pub use call::{Call, Reply, TOGETHER};
pub use client::Client;
use duplicates::Duplicates;
pub use ends::LONGEST_PAUSE;
pub use event::{
    Action, Actions, Again, Config, Ends, Event, Heard, Made, NextCall, NextReply, Now, Review,
    Service, Standing, Wanted,
};
pub use memory::User;
use memory::{Memory, Users};
use pressure::{Pressure, Sizes};
use status::{Counters, Ended};
use transport::Transport;
use waiting::Waiting;

/// The target of log lines: one name for this crate and its driver.
const LOG: &str = "raddle_rpc";

/// A client's number.
pub type ClientId = Id<Client>;
/// A call's number.
pub type CallId = Id<Call>;
/// A reply's number.
pub type ReplyId = Id<Reply>;

/// The state of a proxy.
pub struct Core {
    config: Config,
    /// What log lines call the server; nothing where there can be only one.
    name: Option<String>,
    /// When the event came that is being handled.
    now: Now,
    actions: Actions,
    transports: Vec<Transport>,
    clients: Arena<Client>,
    calls: Arena<Call>,
    /// How many have come.
    came: u64,
    replies: Arena<Reply>,
    dispatch: Vec<Dispatch>,
    waiting: Vec<Waiting>,
    of_calls: Memory,
    of_replies: Memory,
    users: Users,
    /// Whether somebody waits until calls, or replies, of anybody take less.
    calls_wait: bool,
    replies_wait: bool,
    sizes: Sizes,
    pressure: Pressure,
    counters: Counters,
    duplicates: Duplicates,
    /// What the next process is to know of non-idempotent calls.
    notes: Notes,
    /// The journal's step at which calls were noted again last, and whether there were too many.
    noted: [u32; 4],
    crowded: bool,
    /// What the process before has left.
    left: Left,
    /// Which clients servers may call.
    sessions: Sessions,
    beside: Beside,
    /// The last clients that were disconnected, and why.
    ended: VecDeque<Ended>,
    /// Clients that were refused for their port.
    strangers: Trouble,
    /// Whether no more calls are taken.
    ends: bool,
    /// Clients that are told of in the log.
    told: Often,
    /// Non-idempotent calls that were sent again: that many clients go hides none.
    told_again: Often,
    started: Instant,
}

impl Core {
    /// One without connections yet, of the server with this name, if there can be several. `start` is where XIDs start;
    /// draw it.
    pub fn new(
        (config, name): (Config, Option<String>),
        start: u32,
        (notes, left): (Notes, Left),
        now: Now,
    ) -> Core {
        let all: usize = config
            .services
            .iter()
            .map(|s| s.connections + s.lanes)
            .sum();
        let mut transports = Vec::with_capacity(all);
        for (service, of) in config.services.iter().enumerate() {
            for number in 0..of.connections + of.lanes {
                let lane = number >= of.connections;
                let segment = (transports.len(), all, start);
                let mut transport =
                    Transport::new((service, number, lane), segment, ends::FIRST_PAUSE);
                transport.expect(&left);
                transports.push(transport);
            }
        }
        let services = config.services.len();
        Core {
            name,
            now,
            actions: Actions::new(),
            transports,
            clients: Arena::default(),
            calls: Arena::default(),
            came: 0,
            replies: Arena::default(),
            dispatch: vec![Dispatch::new(config.policy); services],
            waiting: (0..services).map(|_| Waiting::default()).collect(),
            of_calls: Memory::new(config.memory),
            of_replies: Memory::new(config.memory),
            users: Users::default(),
            calls_wait: false,
            replies_wait: false,
            sizes: Sizes::default(),
            pressure: Pressure::default(),
            counters: Counters::default(),
            duplicates: Duplicates::new(notes.keys()),
            noted: notes.step(now.second),
            notes,
            crowded: false,
            left,
            sessions: Sessions::default(),
            beside: Beside::default(),
            ended: VecDeque::new(),
            strangers: Trouble::default(),
            ends: false,
            told: Often::default(),
            told_again: Often::default(),
            started: now.at,
            config,
        }
    }

    /// Something has happened; what is to be done for it is added to the actions.
    ///
    /// # Errors
    /// What has come from a client or a server makes no sense: its connection has to be closed.
    pub fn handle(
        &mut self,
        now: Now,
        event: Event<'_>,
        actions: &mut Actions,
    ) -> Result<(), MessageError> {
        self.now = now;
        let mut result = Ok(());
        match event {
            Event::FromClient(client, part) => result = self.client_says(client, part),
            Event::FromServer(transport, part) => result = self.server_says(transport, part),
            Event::Received(client) => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.moved = now.at;
                }
            }
            Event::Took {
                client,
                bytes,
                replies,
            } => self.took(client, bytes, replies),
            Event::TookOf(client, reply, bytes) => self.took_of(client, reply, bytes),
            Event::TookAll(client, reply) => self.took_all(client, reply),
            Event::ClientEnds { client, why, bad } => {
                if bad {
                    self.ended(client, why);
                }
                self.disconnect(client, why);
            }
            Event::BadRecord => self.counters.bad_records += 1,
            Event::In(transport, bytes) => self.moved_in(transport, bytes),
            Event::Out {
                transport,
                bytes,
                large,
            } => self.moved_out(transport, bytes, large),
            Event::Sent(call, sent) => {
                // What has been sent once stays sent: the server may have run it then.
                if let Some(call) = self.calls.get_mut(call)
                    && (sent == Sent::All || call.sent == Sent::Nothing)
                {
                    call.sent = sent;
                }
            }
            Event::Connected(transport, made) => self.connected(transport, made),
            Event::NotConnected(transport, error, why) => {
                self.not_connected(transport, error, why);
            }
            Event::Lost {
                transport,
                why,
                failed,
            } => self.lost(transport, why, failed),
            Event::Tick(heard) => self.tick(heard),
            Event::Reviewed(review) => self.reviewed(review),
            Event::Reached => self.beside.answered(now.at),
            Event::Drain => self.ends = true,
        }
        actions.append(&mut self.actions);
        result
    }

    /// Whether no more calls are taken.
    #[inline]
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// The longest record.
    #[inline]
    pub fn most(&self) -> u32 {
        self.config.most
    }

    /// How many connections to servers there may be.
    #[inline]
    pub fn transports(&self) -> usize {
        self.transports.len()
    }

    /// Whether a connection to a server takes no more calls, and is closed when it has none.
    #[inline]
    pub fn drains(&self, transport: usize) -> bool {
        self.transports[transport].drains
    }

    /// Calls, replies and clients that are known now, also those that are gone and have calls left.
    pub fn known(&self) -> (usize, usize, usize) {
        (self.calls.len(), self.replies.len(), self.clients.len())
    }

    /// What is to be written to the journal before anything that is to be written to a server.
    pub fn notes(&mut self, now: Now) -> &mut Notes {
        self.now = now;
        self.note_again();
        &mut self.notes
    }

    /// Nothing is noted any more.
    pub fn forget_notes(&mut self) {
        self.notes = Notes::none(self.notes.keys());
    }

    /// What log lines call the server.
    fn server(&self) -> Option<DisplayValue<&str>> {
        self.name.as_deref().map(display)
    }

    /// Logs what has become of a client, unless that happens too often.
    fn tell(&mut self, client: SocketAddr, what: &str) {
        let told = self.told.happened(self.now.at);
        say(self.server(), told, client, what);
    }

    /// Counts a non-idempotent call of a client that is sent again, so that it may be run twice, and logs why, unless that
    /// happens too often.
    fn runs_again(&mut self, client: SocketAddr, call: &crate::message::Call, why: &str) {
        self.counters.run_again += 1;
        let (program, xid) = (call.program, call.xid);
        let what = match program::name(program, call.version, call.procedure) {
            Some(name) => {
                format!("{name} with XID {xid:#x} sent again, and may be run twice: {why}")
            }
            None => {
                let procedure = call.procedure;
                format!(
                    "procedure {procedure} of program {program} with XID {xid:#x} sent again, and may be run twice: {why}"
                )
            }
        };
        let told = self.told_again.happened(self.now.at);
        say(self.server(), told, client, &what);
    }

    /// Notes calls that wait for their replies again, where the journal would have them no more otherwise.
    fn note_again(&mut self) {
        let second = self.now.second;
        let step = self.notes.step(second);
        if std::mem::replace(&mut self.noted, step) == step {
            return;
        }
        let mut under_way = [0; 2];
        for transport in 0..self.transports.len() {
            for id in self.under_way(transport) {
                let Some(call) = self.calls.get(id) else {
                    continue;
                };
                let writes = call.writes();
                under_way[usize::from(writes)] += 1;
                if self.notes.is_due(writes, call.noted, second) {
                    self.note(transport, id, Notes::note_again);
                }
            }
        }
        let crowded = under_way.iter().any(|count| *count > PENDING);
        if crowded && !self.crowded {
            tracing::warn!(
                target: LOG,
                server = self.server(),
                "more than {PENDING} calls wait for their replies, and the journal has no room for all: some may be run \
                 twice if this process ends now"
            );
        }
        self.crowded = crowded;
    }
}

fn say(server: Option<DisplayValue<&str>>, told: Option<u64>, client: SocketAddr, what: &str) {
    match told {
        Some(0) => tracing::warn!(target: LOG, server, %client, "{what}"),
        Some(more) => {
            tracing::warn!(target: LOG, server, %client, "{what}; so were, or otherwise, {more} more before")
        }
        None => tracing::debug!(target: LOG, server, %client, "{what}"),
    }
}

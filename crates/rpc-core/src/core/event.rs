//! What goes into the core, and what comes out of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{CallId, ClientId, ReplyId};
use crate::assemble::Part;
use crate::dispatch::Policy;
use crate::replay::Sent;

/// How a proxy works.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is served; the first takes every program that no other names.
    pub services: Vec<Service>,
    /// Which connection a call takes.
    pub policy: Policy,
    /// Longest record, in bytes; less than 2^31.
    pub most: u32,
    /// Bytes of calls, and as many of replies, that may be kept at once. A call begins only where there is room for
    /// it, unless its user has next to nothing: one record may come on top. A reply that has begun is always finished,
    /// so that one for each connection to a server may.
    pub memory: usize,
    /// How long a client or a server may stall within a record, or a client not take a reply.
    pub patience: Duration,
    /// Most clients at once, of which one user has half at most ([`crate::limits`]).
    pub clients: usize,
    /// The port that the portmapper's questions are answered with.
    pub port: u16,
    /// Clients have to come from a port below this one; others are refused.
    pub below: Option<u16>,
}

/// A server, or a port of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The programs that go there; of the first service those that no other has.
    pub programs: Vec<u32>,
    /// Connections for all calls, at least 1.
    pub connections: usize,
    /// Connections more, for small calls.
    pub lanes: usize,
}

/// A connection's own address and port, and the server's.
pub type Ends = (SocketAddr, SocketAddr);

/// The time.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// As the process counts it.
    pub at: Instant,
    /// As all processes of this boot of the machine count it, in seconds (`raddle_rpc::journal::second`).
    pub second: u32,
}

/// Which connection is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The service's number.
    pub service: usize,
    /// The connection's number within it; those for small calls come last.
    pub number: usize,
    /// Whether it is kept for small calls.
    pub lane: bool,
    /// The connection that it has to take the place of, for calls that must not be run twice.
    pub again: Option<Again>,
}

/// A connection that is made again from the same address and port, so that the server knows its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Own address and port.
    pub from: SocketAddr,
    /// The server's.
    pub to: SocketAddr,
    /// Whether it said nothing any more; otherwise it was reset or closed.
    pub silent: bool,
    /// How often it has been tried since it failed.
    pub round: u32,
}

/// A connection that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its own address and port, and the server's.
    pub ends: Ends,
    /// The link that it goes out by, if known.
    pub out: Option<String>,
    /// The link that it comes back by, if known.
    pub back: Option<String>,
    /// Connections that were made to find it.
    pub attempts: u32,
    /// Whether it goes another way than routing would have it: it is kept for the calls that are held, and no
    /// longer.
    pub detour: bool,
}

/// A connection that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The service's number.
    pub service: usize,
    /// The connection's number within it.
    pub number: usize,
    /// Whether it is kept for small calls.
    pub lane: bool,
    /// Own address and port.
    pub local: SocketAddr,
    /// The server's.
    pub peer: SocketAddr,
    /// Whether it, or another one of its service, is being made anew: none is moved meanwhile.
    pub moves: bool,
    /// Whether it has the port of an earlier process, whose calls may come back to it: it is not moved meanwhile.
    pub expects: bool,
}

/// What has become of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// The links that they go out by now, in the order of the question; may be shorter.
    pub links: Vec<Option<String>>,
    /// The links that they come back by now, likewise.
    pub back: Vec<Option<String>>,
    /// One that would lie better if it were made anew. It is, when its calls have their replies.
    pub again: Option<usize>,
}

/// What the kernel says about a connection.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// How long nothing has been heard, acknowledgements included.
    pub silent: Duration,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// How long TCP waits before it sends again.
    pub repeats: Duration,
    /// Whether bytes that were sent, or probes of its window, have no answer.
    pub unacknowledged: bool,
    /// Whether a keep-alive, or a probe of its window, has no answer.
    pub probed: bool,
}

/// What has happened. Connections to servers go by their numbers among all.
#[derive(Debug)]
pub enum Event<'a> {
    /// A part of a record has come from a client.
    FromClient(ClientId, Part),
    /// A part of a record has come from a server.
    FromServer(usize, Part),
    /// Bytes have come from a client.
    Received(ClientId),
    /// A record of a client made no sense.
    BadRecord,
    /// A client has taken these bytes, of so many small replies.
    Took {
        /// The client.
        client: ClientId,
        /// Bytes.
        bytes: usize,
        /// Replies.
        replies: usize,
    },
    /// A client has taken so many bytes of a large reply.
    TookOf(ClientId, ReplyId, usize),
    /// A client has taken all of a large reply.
    TookAll(ClientId, ReplyId),
    /// A client's connection has ended.
    ClientEnds {
        /// The client.
        client: ClientId,
        /// Why.
        why: &'a str,
        /// Whether it is the client's fault, which is remembered.
        bad: bool,
    },
    /// Bytes have come from a server.
    In(usize, usize),
    /// Bytes have gone to a server.
    Out {
        /// The connection.
        transport: usize,
        /// Bytes.
        bytes: usize,
        /// Whether they are of a large call.
        large: bool,
    },
    /// So much of a call may be with a server from now on.
    Sent(CallId, Sent),
    /// A connection was made.
    Connected(usize, Made),
    /// None could be made: what kind of failure, and why.
    NotConnected(usize, io::ErrorKind, String),
    /// A connection is no more.
    Lost {
        /// Which one.
        transport: usize,
        /// Why.
        why: String,
        /// Whether it has failed; otherwise it was closed because of [`Action::Close`].
        failed: bool,
    },
    /// 50 ms are over: what the kernel says about each connection that stands.
    Tick(&'a [Option<Heard>]),
    /// It was looked at where those of [`super::Core::standing`] lie.
    Reviewed(Review),
    /// A connection that was made beside others ([`Action::Beside`]) was answered.
    Reached,
    /// No more calls are to be taken.
    Drain,
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// There is something to be written to a server: [`super::Core::calls_to_write`].
    WriteCalls(usize),
    /// There is something to be written to a client, or more of what is being written:
    /// [`super::Core::replies_to_write`].
    WriteReplies(ClientId),
    /// A call of the program itself has its reply: the stream.
    Answer(ClientId, Vec<Bytes>),
    /// It will have none, and why.
    NoAnswer(ClientId, String),
    /// A client's connection has to be closed; nothing more is to be told of it.
    Disconnect(ClientId),
    /// A connection to a server has to be closed, and why; it is [`Event::Lost`] then.
    Close(usize, &'static str),
    /// A connection is given up, as nothing is heard of it while others are; all of which that is found at once are
    /// named before the first is closed.
    Silent(usize),
    /// A connection is to be made from this address, any port, to that one, and closed: [`Event::Reached`] if there is
    /// an answer.
    Beside(Ends),
    /// There may be room for more of a client's calls.
    Room(ClientId),
    /// There is room for calls again.
    RoomForCalls,
    /// There is room for replies again.
    RoomForReplies,
}

/// What is to be done, in this order.
pub type Actions = Vec<Action>;

/// What is to be written to a server.
#[derive(Debug)]
pub enum NextCall {
    /// Nothing.
    Nothing,
    /// What is in the buffer.
    Buffer,
    /// What is in the buffer, and then this call.
    Large {
        /// Its number.
        call: CallId,
        /// The first bytes of the stream.
        head: [u8; 8],
        /// The rest.
        body: Arc<[Bytes]>,
    },
}

/// What is to be written to a client.
#[derive(Clone, Copy, Debug)]
pub struct NextReply {
    /// So many small replies are in the buffer.
    pub small: usize,
    /// Then this one, as it comes: [`super::Core::chunks`].
    pub large: Option<ReplyId>,
}

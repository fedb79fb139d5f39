//! What a proxy does now, for people and programs.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::transport::{State, Transport};
use super::{Core, Now};
use crate::histogram::Histogram;
use crate::program;

/// The state of a proxy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Connections to servers.
    pub transports: Vec<TransportStatus>,
    /// What there is to say about where connections lie.
    pub notes: Vec<String>,
    /// Connections of clients.
    pub clients: Vec<ClientStatus>,
    /// Calls that wait for a transport.
    pub waiting: usize,
    /// Calls that must not be run twice, and whose connection has failed.
    pub held: Vec<Held>,
    /// Bytes of calls and of replies that are kept.
    pub kept_bytes: (usize, usize),
    /// Non-idempotent calls that were answered, which are remembered in case that their clients repeat them, and bytes
    /// of their replies.
    pub remembered: (usize, usize),
    /// The last clients that were disconnected, newest first.
    pub disconnected: Vec<Ended>,
    /// Counts since the start.
    pub counters: Counters,
}

/// A client that was disconnected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// Its address and port.
    pub client: SocketAddr,
    /// Why.
    pub why: String,
}

/// Where a transport is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum TransportState {
    /// Not connected.
    Down {
        /// Why.
        why: String,
    },
    /// Connected.
    Up {
        /// Own address and port.
        local: SocketAddr,
        /// The server's.
        peer: SocketAddr,
        /// The link that it goes out by.
        out: Option<String>,
        /// The link that it comes back by.
        back: Option<String>,
        /// Connections that were made to find it.
        attempts: u32,
        /// Whether it goes another way than routing would have it, for calls that are held.
        detour: bool,
        /// Seconds that it stands.
        seconds: u64,
    },
}

impl TransportState {
    /// The links that the connection goes out and comes back by, where it stands and they are known.
    pub fn links(&self) -> [Option<&str>; 2] {
        match self {
            TransportState::Up { out, back, .. } => [out.as_deref(), back.as_deref()],
            TransportState::Down { .. } => [None, None],
        }
    }
}

/// A connection to a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransportStatus {
    /// The service's number.
    pub service: usize,
    /// Its number within the service.
    pub number: usize,
    /// Whether it is kept for small calls.
    pub lane: bool,
    /// Whether it is connected.
    #[serde(flatten)]
    pub state: TransportState,
    /// Calls sent.
    pub calls: u64,
    /// Replies received.
    pub replies: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Calls without a reply.
    pub outstanding_calls: usize,
    /// Bytes that they move.
    pub outstanding_bytes: u64,
    /// Measured rate in bytes a second.
    pub rate: Option<f64>,
    /// From a call's coming to its reply's end, smoothed, in microseconds.
    pub latency_us: f64,
    /// Connections made since the start.
    pub connections: u64,
    /// Calls of its failed connections that were sent again by others.
    pub resent: u64,
    /// Calls sent again from the same port.
    pub replayed: u64,
    /// Segments that TCP has sent again on the present connection.
    pub tcp_retransmits: u32,
    /// From a small call's being written, last if more than once, to its reply's end. Small are calls that move
    /// at most 32 KiB both ways.
    pub small: Histogram,
    /// The same of large calls.
    pub large: Histogram,
}

/// A client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its address and port.
    pub peer: SocketAddr,
    /// Calls that it has made.
    pub calls: u64,
    /// Those without a reply.
    pub outstanding_calls: usize,
}

/// A call that is held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The client.
    pub client: SocketAddr,
    /// Its program number.
    pub program: u32,
    /// The procedure, by name if it is known.
    pub procedure: String,
    /// The client's XID.
    pub xid: u32,
    /// Seconds since it came.
    pub seconds: u64,
}

/// Counts of what should not happen often.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Clients that have connected.
    pub clients: u64,
    /// Clients that were refused.
    pub clients_refused: u64,
    /// Clients that were disconnected.
    pub clients_disconnected: u64,
    /// Records of clients that made no sense.
    pub bad_records: u64,
    /// Calls that clients repeated before they had a reply, by the same connection or a new one, and which were not
    /// sent again.
    pub repeated_calls: u64,
    /// Non-idempotent calls that clients repeated after the reply, which they were given once more.
    pub answered_again: u64,
    /// Non-idempotent calls that clients repeated after a reply too large to be kept: they were sent again.
    pub run_again: u64,
    /// Replies that answer no call.
    pub unknown_replies: u64,
    /// Calls of servers (NFSv4.1 backchannel) that were passed to clients.
    pub server_calls: u64,
    /// Calls of servers that no client takes.
    pub server_calls_refused: u64,
    /// Calls sent again by another connection.
    pub resent: u64,
    /// Calls sent again from the same port.
    pub replayed: u64,
}

impl Counters {
    /// Each of them with its name, by name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("answered again", self.answered_again),
            ("bad records", self.bad_records),
            ("clients", self.clients),
            ("clients disconnected", self.clients_disconnected),
            ("clients refused", self.clients_refused),
            ("repeated calls", self.repeated_calls),
            ("replayed", self.replayed),
            ("resent", self.resent),
            ("run again", self.run_again),
            ("server calls", self.server_calls),
            ("server calls refused", self.server_calls_refused),
            ("unknown replies", self.unknown_replies),
        ]
        .into_iter()
    }
}

impl Core {
    /// What it does now. What there is to say about where connections lie, and how often TCP has sent something again,
    /// is not known here.
    pub fn status(&self, now: Now) -> Status {
        let since = |at| now.at.saturating_duration_since(at).as_secs();
        let clients = self.clients.iter().map(|(_, client)| client);
        let here = clients.filter(|client| !client.is_closed() && !client.internal);
        let held = self.transports.iter().flat_map(|t| self.held(t, now));
        Status {
            uptime_seconds: since(self.started),
            transports: self
                .transports
                .iter()
                .map(|of| transport(of, now))
                .collect(),
            notes: Vec::new(),
            clients: here
                .map(|client| ClientStatus {
                    peer: client.peer,
                    calls: client.calls,
                    outstanding_calls: client.pending.len(),
                })
                .collect(),
            waiting: self.waiting(),
            held: held.collect(),
            kept_bytes: self.kept(),
            remembered: self.duplicates.kept(),
            disconnected: self.ended.iter().cloned().collect(),
            counters: self.counters,
        }
    }

    fn held(&self, transport: &Transport, now: Now) -> Vec<Held> {
        let held = transport.held.iter().filter_map(|id| {
            let call = self.calls.get(*id)?;
            let header = &call.header;
            let name = program::name(header.program, header.version, header.procedure);
            Some(Held {
                client: self.clients.get(call.client)?.peer,
                program: header.program,
                procedure: name.map_or_else(|| header.procedure.to_string(), str::to_owned),
                xid: header.xid,
                seconds: now.at.saturating_duration_since(call.since).as_secs(),
            })
        });
        held.collect()
    }
}

fn transport(transport: &Transport, now: Now) -> TransportStatus {
    let state = match &transport.state {
        State::Down(why) => TransportState::Down { why: why.clone() },
        State::Up(up) => TransportState::Up {
            local: up.ends.0,
            peer: up.ends.1,
            out: up.out.clone(),
            back: up.back.clone(),
            attempts: up.attempts,
            detour: up.detour,
            seconds: now.at.saturating_duration_since(up.since).as_secs(),
        },
    };
    let tallies = &transport.tallies;
    let [small, large] = tallies.trips.clone();
    TransportStatus {
        service: transport.service,
        number: transport.number,
        lane: transport.lane,
        state,
        calls: tallies.calls,
        replies: tallies.replies,
        bytes_out: tallies.bytes_out,
        bytes_in: tallies.bytes_in,
        outstanding_calls: transport.pending.len(),
        outstanding_bytes: transport.outstanding,
        rate: transport.rate.per_second(now.at),
        latency_us: tallies.latency,
        connections: tallies.connections,
        resent: tallies.resent,
        replayed: tallies.replayed,
        tcp_retransmits: 0,
        small,
        large,
    }
}

//! What proxies may say of themselves, for the tests of their metrics and of `raddle rpc status`.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::Duration;

use raddle_control::{Proxies, Proxy, ProxyConfig, Serving};
use raddle_rpc_core::core::status::{
    ClientStatus, Counters, Held, Status, TransportState, TransportStatus,
};
use raddle_rpc_core::histogram::Histogram;

/// A connection that stands.
pub(crate) fn transport(number: usize, lane: bool) -> TransportStatus {
    let mut small = Histogram::default();
    for _ in 0..99 {
        small.add(Duration::from_micros(100));
    }
    small.add(Duration::from_millis(5));
    TransportStatus {
        service: 0,
        number,
        lane,
        state: TransportState::Up {
            local: "10.0.0.1:800".parse().unwrap(),
            peer: "10.9.0.1:2049".parse().unwrap(),
            out: Some(format!("l{number}")),
            back: Some("l1".into()),
            attempts: 1,
            detour: false,
            seconds: 9,
        },
        calls: 12,
        replies: 12,
        bytes_out: 1_000_000,
        bytes_in: 25_000_000,
        outstanding_calls: 3,
        outstanding_bytes: 300,
        rate: Some(25e6),
        latency_us: 850.4,
        connections: 1,
        resent: 2,
        replayed: 0,
        tcp_retransmits: 7,
        small,
        large: Histogram::default(),
    }
}

/// A proxy without connections.
pub(crate) fn idle() -> Status {
    Status {
        uptime_seconds: 9,
        transports: Vec::new(),
        notes: Vec::new(),
        clients: Vec::new(),
        waiting: 0,
        held: Vec::new(),
        kept_bytes: (0, 0),
        remembered: (0, 0),
        disconnected: Vec::new(),
        counters: Counters::default(),
    }
}

/// A client with a call.
pub(crate) fn client() -> ClientStatus {
    ClientStatus {
        peer: "127.0.0.1:700".parse().unwrap(),
        calls: 1,
        outstanding_calls: 0,
    }
}

/// Two servers.
pub(crate) fn proxies() -> Proxies {
    let proxy = |name: &str, status| Proxy {
        name: name.into(),
        server: None,
        listen: Vec::new(),
        serving: Serving::Yes(Box::new(status)),
    };
    let nas = Status {
        transports: vec![transport(0, false), transport(1, true)],
        clients: vec![client()],
        held: vec![Held {
            client: "127.0.0.1:700".parse().unwrap(),
            program: 100_003,
            procedure: "MKDIR".into(),
            xid: 1,
            seconds: 4,
        }],
        counters: Counters {
            resent: 2,
            ..Counters::default()
        },
        ..idle()
    };
    Proxies {
        servers: vec![proxy("nas", nas), proxy("other", idle())],
        config: Some(ProxyConfig {
            file: "/etc/raddle/rpc.toml".into(),
            read_seconds: 7,
            refused: None,
        }),
    }
}

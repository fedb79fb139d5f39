//! What the proxies' answer comes to as metrics.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::Duration;

use raddle_control::{Proxies, Proxy, ProxyConfig, Serving};
use raddle_metrics::proxies_text;
use raddle_rpc_core::core::status::{
    ClientStatus, Counters, Held, Status, TransportState, TransportStatus,
};
use raddle_rpc_core::histogram::Histogram;

/// A connection that stands.
fn transport(number: usize, lane: bool) -> TransportStatus {
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
fn idle() -> Status {
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

fn client() -> ClientStatus {
    ClientStatus {
        peer: "127.0.0.1:700".parse().unwrap(),
        calls: 1,
        outstanding_calls: 0,
    }
}

/// Two servers.
fn proxies() -> Proxies {
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

#[test]
fn prometheus_gets_every_transport() {
    let said = proxies_text(&proxies());
    let of = "server=\"nas\",service=\"0\",number=\"0\",lane=\"false\"";
    for line in [
        format!("raddle_rpc_up{{{of}}} 1"),
        "raddle_rpc_received_bytes_total{server=\"nas\",service=\"0\",number=\"1\",lane=\"true\"} 25000000".into(),
        format!("raddle_rpc_placement{{{of},out=\"l0\",back=\"l1\"}} 1"),
        "raddle_rpc_held_calls{server=\"nas\"} 1".into(),
        "raddle_rpc_resent_calls_total{server=\"nas\"} 2".into(),
        "raddle_rpc_held_calls{server=\"other\"} 0".into(),
        "raddle_rpc_served{server=\"other\"} 1".into(),
        "raddle_rpc_config_refused 0".into(),
        "raddle_rpc_config_read_seconds 7".into(),
        "# TYPE raddle_rpc_call_seconds histogram".into(),
        format!("raddle_rpc_call_seconds_count{{{of},size=\"small\"}} 100"),
        format!("raddle_rpc_call_seconds_sum{{{of},size=\"small\"}} 0.0149"),
        format!("raddle_rpc_call_seconds_bucket{{le=\"0.000016\",{of},size=\"small\"}} 0"),
        format!("raddle_rpc_call_seconds_bucket{{le=\"0.000128\",{of},size=\"small\"}} 99"),
        format!("raddle_rpc_call_seconds_bucket{{le=\"+Inf\",{of},size=\"small\"}} 100"),
        format!("raddle_rpc_call_seconds_count{{{of},size=\"large\"}} 0"),
    ] {
        assert!(said.lines().any(|l| l == line), "{line}\n{said}");
    }
    for line in said.lines().filter(|line| line.starts_with("# HELP")) {
        assert!(line.contains("label"), "{line}");
    }
}

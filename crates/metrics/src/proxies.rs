//! What the proxies of `raddle rpc` do, as OpenMetrics text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use raddle_control::Proxies;
use raddle_rpc_core::core::status::{Status, TransportState, TransportStatus};
use raddle_rpc_core::histogram::{Histogram, LONGEST_US};

use crate::rows::{Labels, Rows, Values, text_of};

/// The shortest time that has a bucket of its own, in microseconds.
const SHORTEST_US: u64 = 16;

/// What the labels of a connection's values are.
const OF_CONNECTION: &str = "labels: server; service (0: all calls but those of 1; 1: MOUNT by --mount-port); \
                             number of the connection in it; lane (true: for small calls only)";

/// A value of a transport or of a server: name, help, whether it only grows.
type Of<T> = (&'static str, &'static str, bool, fn(&T) -> u64);

const OF_TRANSPORTS: [Of<TransportStatus>; 12] = [
    ("up", "1 while the connection stands, else 0", false, |t| {
        u64::from(matches!(t.state, TransportState::Up { .. }))
    }),
    (
        "calls",
        "Calls sent by the connection, those sent again included",
        true,
        |t| t.calls,
    ),
    ("replies", "Replies received by the connection", true, |t| {
        t.replies
    }),
    (
        "sent_bytes",
        "Bytes sent by the connection, record marks included",
        true,
        |t| t.bytes_out,
    ),
    (
        "received_bytes",
        "Bytes received by the connection, record marks included",
        true,
        |t| t.bytes_in,
    ),
    (
        "connections",
        "TCP connections made since the start, as this one",
        true,
        |t| t.connections,
    ),
    (
        "outstanding_calls",
        "Calls sent that have no reply yet",
        false,
        |t| t.outstanding_calls as u64,
    ),
    (
        "outstanding_bytes",
        "Bytes that calls without a reply move, both ways, as estimated when they are sent",
        false,
        |t| t.outstanding_bytes,
    ),
    (
        "rate_bytes_per_second",
        "Measured rate in bytes per second, 0 while it is not known",
        false,
        |t| t.rate.unwrap_or(0.0) as u64,
    ),
    (
        "transport_resent_calls",
        "Calls of the connection that went to another one when it failed",
        true,
        |t| t.resent,
    ),
    (
        "transport_replayed_calls",
        "Calls sent again by it from the same port, with the same XID",
        true,
        |t| t.replayed,
    ),
    (
        "tcp_retransmits",
        "TCP segments sent again on the present connection; starts from 0 with each",
        false,
        |t| t.tcp_retransmits.into(),
    ),
];

const OF_SERVERS: [Of<Status>; 10] = [
    (
        "clients",
        "Clients that are connected to the server's listeners",
        false,
        |s| s.clients.len() as u64,
    ),
    (
        "waiting_calls",
        "Calls of clients that no connection has taken yet",
        false,
        |s| s.waiting as u64,
    ),
    (
        "held_calls",
        "Calls held until they can go out again from the same port, as they must not be run twice",
        false,
        |s| s.held.len() as u64,
    ),
    (
        "resent_calls",
        "Calls sent again by another connection than the one that failed",
        true,
        |s| s.counters.resent,
    ),
    (
        "replayed_calls",
        "Calls sent again from the same port, with the same XID",
        true,
        |s| s.counters.replayed,
    ),
    (
        "repeated_calls",
        "Calls that clients repeated before they had a reply, and that were not sent again",
        true,
        |s| s.counters.repeated_calls,
    ),
    (
        "answered_again_calls",
        "Calls that change something, WRITE included, repeated after the reply, which was given once more",
        true,
        |s| s.counters.answered_again,
    ),
    (
        "run_again_calls",
        "Calls that change something, WRITE included, repeated after a reply too large to be kept: sent again",
        true,
        |s| s.counters.run_again,
    ),
    (
        "bad_records",
        "Records of clients that made no sense; the client is disconnected",
        true,
        |s| s.counters.bad_records,
    ),
    (
        "unknown_replies",
        "Replies of the server that answer no call",
        true,
        |s| s.counters.unknown_replies,
    ),
];

/// Times, for each set of labels.
#[derive(Debug)]
struct Trips {
    rows: Vec<(Labels, Histogram)>,
}

impl Collector for Trips {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Seconds from a call's being written to its reply's end; size: small moves at most 32 KiB both ways, large more";
        let kind = MetricType::Histogram;
        let help = format!("{help}; {OF_CONNECTION}");
        let mut family = encoder.encode_descriptor("call_seconds", &help, None, kind)?;
        for (labels, trips) in &self.rows {
            let mut buckets: Vec<(f64, u64)> = Vec::new();
            let mut short = 0;
            for (us, count) in trips.powers() {
                short += count;
                if us >= SHORTEST_US {
                    // What is longer than the longest is in the last.
                    let bound = if us < LONGEST_US {
                        us as f64 / 1e6
                    } else {
                        f64::INFINITY
                    };
                    buckets.push((bound, std::mem::take(&mut short)));
                }
            }
            let sum = trips.sum_us() as f64 / 1e6;
            let mut metric = family.encode_family(labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, trips.count(), &buckets, None)?;
        }
        Ok(())
    }
}

/// The exposition text for this answer of the proxies.
pub fn proxies_text(proxies: &Proxies) -> String {
    let mut registry = Registry::with_prefix("raddle_rpc");
    let servers: Vec<(&str, &Status)> = proxies
        .servers
        .iter()
        .filter_map(|proxy| Some((&*proxy.name, proxy.serving.status()?)))
        .collect();
    let of_server = |name: &str| vec![("server".to_owned(), name.to_owned())];
    let labels = |server: &str, transport: &TransportStatus| {
        let mut labels = of_server(server);
        let label = |key: &str, value: String| (key.to_owned(), value);
        labels.extend([
            label("service", transport.service.to_string()),
            label("number", transport.number.to_string()),
            label("lane", transport.lane.to_string()),
        ]);
        labels
    };
    let transports: Vec<(&str, &TransportStatus)> = servers
        .iter()
        .flat_map(|(name, status)| status.transports.iter().map(|t| (*name, t)))
        .collect();
    let mut put = |name, help: &str, of: &str, counter, rows: Values| {
        registry.register_collector(Box::new(Rows {
            name,
            help: format!("{help}; {of}").into(),
            counter,
            rows,
        }));
    };
    for (name, help, counter, value) in OF_TRANSPORTS {
        let rows = transports
            .iter()
            .map(|(server, t)| (labels(server, t), value(t)));
        put(name, help, OF_CONNECTION, counter, rows.collect());
    }
    let placements = transports.iter().map(|(server, t)| {
        let mut labels = labels(server, t);
        let [out, back] = t.state.links().map(|link| link.unwrap_or("-").to_owned());
        labels.extend([("out".to_owned(), out), ("back".to_owned(), back)]);
        (labels, 1)
    });
    let help = "Always 1; out and back are the links that the connection goes out and comes back by, - where unknown";
    put(
        "placement",
        help,
        OF_CONNECTION,
        false,
        placements.collect(),
    );
    for (name, help, counter, value) in OF_SERVERS {
        let rows = servers
            .iter()
            .map(|(name, status)| (of_server(name), value(status)));
        put(name, help, "label: server", counter, rows.collect());
    }
    let all = proxies.servers.iter();
    let served = all.map(|proxy| {
        let served = proxy.serving.status().is_some();
        (of_server(&proxy.name), u64::from(served))
    });
    let help = "1 if the server is served, 0 if it cannot be, and is tried again";
    put("served", help, "label: server", false, served.collect());
    if let Some(config) = &proxies.config {
        let refused = vec![(Labels::new(), u64::from(config.refused.is_some()))];
        let help =
            "1 if the configuration was read again and refused, so that the one before holds";
        put("config_refused", help, "no labels", false, refused);
        let read = vec![(Labels::new(), config.read_seconds)];
        let help = "Seconds since the configuration that holds was read";
        put("config_read_seconds", help, "no labels", false, read);
    }
    let mut rows = Vec::new();
    for (server, transport) in &transports {
        for (size, trips) in [("small", &transport.small), ("large", &transport.large)] {
            let mut labels = labels(server, transport);
            labels.push(("size".to_owned(), size.to_owned()));
            rows.push((labels, trips.clone()));
        }
    }
    registry.register_collector(Box::new(Trips { rows }));
    text_of(&registry)
}

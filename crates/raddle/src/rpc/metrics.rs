//! What the proxies do, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use raddle_rpc::histogram::{Histogram, LONGEST_US};
use serde::Deserialize;
use serde_json::Value;

use super::show::{list, word};
use crate::metrics::Rows;

/// The shortest time that has a bucket of its own, in microseconds.
const SHORTEST_US: u64 = 16;

/// Labels of a row.
type Labels = Vec<(String, String)>;

/// Labels and a value for each row.
type Values = Vec<(Labels, u64)>;

/// What the labels of a connection's values are.
const OF_CONNECTION: &str = "labels: server; service (0: all calls but those of 1; 1: MOUNT by --mount-port); \
                             number of the connection in it; lane (true: for small calls only)";

/// A value of a transport or of a server: name, help, whether it only grows.
type Of = (&'static str, &'static str, bool, fn(&Value) -> u64);

const OF_TRANSPORTS: [Of; 12] = [
    ("up", "1 while the connection stands, else 0", false, |t| {
        u64::from(t["state"] == "up")
    }),
    (
        "calls",
        "Calls sent by the connection, those sent again included",
        true,
        |t| number(&t["calls"]),
    ),
    ("replies", "Replies received by the connection", true, |t| {
        number(&t["replies"])
    }),
    (
        "sent_bytes",
        "Bytes sent by the connection, record marks included",
        true,
        |t| number(&t["bytes_out"]),
    ),
    (
        "received_bytes",
        "Bytes received by the connection, record marks included",
        true,
        |t| number(&t["bytes_in"]),
    ),
    (
        "connections",
        "TCP connections made since the start, as this one",
        true,
        |t| number(&t["connections"]),
    ),
    (
        "outstanding_calls",
        "Calls sent that have no reply yet",
        false,
        |t| number(&t["outstanding_calls"]),
    ),
    (
        "outstanding_bytes",
        "Bytes that calls without a reply move, both ways, as estimated when they are sent",
        false,
        |t| number(&t["outstanding_bytes"]),
    ),
    (
        "rate_bytes_per_second",
        "Measured rate in bytes per second, 0 while it is not known",
        false,
        |t| t["rate"].as_f64().unwrap_or(0.0) as u64,
    ),
    (
        "transport_resent_calls",
        "Calls of the connection that went to another one when it failed",
        true,
        |t| number(&t["resent"]),
    ),
    (
        "transport_replayed_calls",
        "Calls sent again by it from the same port, with the same XID",
        true,
        |t| number(&t["replayed"]),
    ),
    (
        "tcp_retransmits",
        "TCP segments sent again on the present connection; starts from 0 with each",
        false,
        |t| number(&t["tcp_retransmits"]),
    ),
];

const OF_SERVERS: [Of; 10] = [
    (
        "clients",
        "Clients that are connected to the server's listeners",
        false,
        |s| list(&s["clients"]).len() as u64,
    ),
    (
        "waiting_calls",
        "Calls of clients that no connection has taken yet",
        false,
        |s| number(&s["waiting"]),
    ),
    (
        "held_calls",
        "Calls held until they can go out again from the same port, as they must not be run twice",
        false,
        |s| list(&s["held"]).len() as u64,
    ),
    (
        "resent_calls",
        "Calls sent again by another connection than the one that failed",
        true,
        |s| number(&s["counters"]["resent"]),
    ),
    (
        "replayed_calls",
        "Calls sent again from the same port, with the same XID",
        true,
        |s| number(&s["counters"]["replayed"]),
    ),
    (
        "repeated_calls",
        "Calls that clients repeated before they had a reply, and that were not sent again",
        true,
        |s| number(&s["counters"]["repeated_calls"]),
    ),
    (
        "answered_again_calls",
        "Calls that count, repeated after the reply, which was given once more",
        true,
        |s| number(&s["counters"]["answered_again"]),
    ),
    (
        "run_again_calls",
        "Calls that count, repeated after a reply too large to be kept: sent again",
        true,
        |s| number(&s["counters"]["run_again"]),
    ),
    (
        "bad_records",
        "Records of clients that made no sense; the client is disconnected",
        true,
        |s| number(&s["counters"]["bad_records"]),
    ),
    (
        "unknown_replies",
        "Replies of the server that answer no call",
        true,
        |s| number(&s["counters"]["unknown_replies"]),
    ),
];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

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

/// The text, from the answer to any question.
pub(super) fn text(status: &Value, _: &Value, _: &Value) -> Option<String> {
    let mut registry = Registry::with_prefix("raddle_rpc");
    let all = list(&status["servers"]).iter();
    let servers: Vec<&Value> = all.filter(|s| s["not_served"].is_null()).collect();
    let of_server = |server: &Value| vec![("server".to_owned(), word(&server["name"]))];
    let labels = |server: &Value, transport: &Value| {
        let mut labels = of_server(server);
        labels.extend(
            ["service", "number", "lane"].map(|key| (key.to_owned(), transport[key].to_string())),
        );
        labels
    };
    let mut transports: Vec<(&Value, &Value)> = Vec::new();
    for server in &servers {
        transports.extend(list(&server["transports"]).iter().map(|t| (*server, t)));
    }
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
    let links = transports.iter().map(|(server, t)| {
        let mut labels = labels(server, t);
        labels.extend(["out", "back"].map(|way| (way.to_owned(), word(&t[way]))));
        (labels, 1)
    });
    let help = "Always 1; out and back are the links that the connection goes out and comes back by, - where unknown";
    put("placement", help, OF_CONNECTION, false, links.collect());
    for (name, help, counter, value) in OF_SERVERS {
        let rows = servers
            .iter()
            .map(|server| (of_server(server), value(server)));
        put(name, help, "label: server", counter, rows.collect());
    }
    let all = list(&status["servers"]).iter();
    let served = all.map(|s| (of_server(s), u64::from(s["not_served"].is_null())));
    let help = "1 if the server is served, 0 if it cannot be, and is tried again";
    put("served", help, "label: server", false, served.collect());
    let config = &status["config"];
    if !config.is_null() {
        let refused = vec![(Labels::new(), u64::from(!config["refused"].is_null()))];
        let help =
            "1 if the configuration was read again and refused, so that the one before holds";
        put("config_refused", help, "no labels", false, refused);
        let read = vec![(Labels::new(), number(&config["read_seconds"]))];
        let help = "Seconds since the configuration that holds was read";
        put("config_read_seconds", help, "no labels", false, read);
    }
    let mut rows = Vec::new();
    for (server, transport) in &transports {
        for size in ["small", "large"] {
            let mut labels = labels(server, transport);
            labels.push(("size".to_owned(), size.to_owned()));
            let trips = Histogram::deserialize(&transport[size]).ok()?;
            rows.push((labels, trips));
        }
    }
    registry.register_collector(Box::new(Trips { rows }));
    let mut text = String::new();
    encode(&mut text, &registry).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::show::tests::status;

    #[test]
    fn prometheus_gets_every_transport() {
        let said = text(&status(), &Value::Null, &Value::Null).unwrap();
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
}

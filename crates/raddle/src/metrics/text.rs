//! What the metrics say: the daemon's answers as OpenMetrics text.

use std::borrow::Cow;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::lag::Lag;
use super::segments::of as of_segments;

/// The exposition text for these answers of the daemon.
pub(crate) fn render(status: &Value, counters: &Value, segments: &Value) -> Option<String> {
    let mut registry = Registry::with_prefix("raddle");
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = ("version".to_owned(), text(&status["version"]));
    registry.register_collector(Box::new(Rows {
        name: "build_info",
        help: "The version that runs".into(),
        counter: false,
        rows: vec![(vec![version], 1)],
    }));
    let gauge = |name, help: &'static str, rows| Rows {
        name,
        help: help.into(),
        counter: false,
        rows,
    };
    let counter = |name, help: &'static str, rows| Rows {
        name,
        help: help.into(),
        counter: true,
        rows,
    };
    let label = |name: &str, value: String| (name.to_owned(), value);
    let routes = ["inet", "inet6"]
        .map(|f| {
            (
                vec![label("family", f.to_owned())],
                number(&status["routes"][f]),
            )
        })
        .to_vec();
    let held = u64::from(status["state"] == "held");
    let mut sets = vec![
        gauge(
            "routes",
            "Prefixes with routes, of the kernel, by FPM and of raddle's own",
            routes,
        ),
        gauge(
            "held",
            "1 while everything is handed to the kernel",
            vec![(Vec::new(), held)],
        ),
        gauge(
            "image_full",
            "1 while part of the traffic goes to the kernel for want of room in the image",
            vec![(Vec::new(), u64::from(status["image"]["full"] == true))],
        ),
        counter(
            "deadline_lapses",
            "Times that the daemon did not look at the firewall before its deadline, and everything went to the kernel",
            vec![(Vec::new(), number(&status["deadline"]["lapses"]))],
        ),
        counter(
            "priority_demotions",
            "Times that the daemon computed for so long that it lost its real-time priority for up to a second",
            vec![(Vec::new(), number(&status["priority"]["demotions"]))],
        ),
        counter(
            "netlink_overruns",
            "Times that the kernel's notifications were lost and everything was read anew",
            vec![(Vec::new(), number(&status["mirror"]["overruns"]))],
        ),
        counter(
            "commits",
            "Times that changes were published to the engine",
            vec![(Vec::new(), number(&status["commits"]))],
        ),
    ];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    sets.extend(of_status(status));
    for (name, bytes, help) in [
        (
            "punted_packets",
            "packets",
            "Packets that the kernel got, by reason",
        ),
        (
            "punted_bytes",
            "bytes",
            "Bytes that the kernel got, by reason",
        ),
    ] {
        let rows = list(&counters["reasons"])
            .iter()
            .filter(|row| row["verdict"] == "kernel")
            .map(|row| {
                (
                    vec![label("reason", text(&row["reason"]))],
                    number(&row[bytes]),
                )
            })
            .collect();
        sets.push(counter(name, help, rows));
    }
    let drops = list(&counters["reasons"])
        .iter()
        .filter(|row| row["verdict"] == "drop")
        .map(|row| {
            (
                vec![label("reason", text(&row["reason"]))],
                number(&row["packets"]),
            )
        })
        .collect();
    sets.push(counter(
        "drops",
        "Packets that were dropped, by reason",
        drops,
    ));
    for (name, way, what, help) in [
        (
            "received_packets",
            "received",
            "packets",
            "Packets that came in on a link",
        ),
        (
            "received_bytes",
            "received",
            "bytes",
            "Bytes that came in on a link",
        ),
        (
            "sent_packets",
            "sent",
            "packets",
            "Packets that were forwarded through a link",
        ),
        (
            "sent_bytes",
            "sent",
            "bytes",
            "Bytes that were forwarded through a link",
        ),
    ] {
        let rows = list(&counters["links"])
            .iter()
            .filter(|row| row[way].is_object())
            .map(|row| {
                (
                    vec![label("device", text(&row["dev"]))],
                    number(&row[way][what]),
                )
            })
            .collect();
        sets.push(counter(name, help, rows));
    }
    for (name, what, help) in [
        (
            "nexthop_packets",
            "packets",
            "Packets that were forwarded to a neighbour",
        ),
        (
            "nexthop_bytes",
            "bytes",
            "Bytes that were forwarded to a neighbour",
        ),
    ] {
        let rows = list(&counters["nexthops"])
            .iter()
            .map(|row| {
                let labels = vec![
                    label("device", text(&row["dev"])),
                    label("via", text(&row["via"])),
                    label("mtu", number(&row["mtu"]).to_string()),
                ];
                (labels, number(&row[what]))
            })
            .collect();
        sets.push(counter(name, help, rows));
    }
    sets.extend(of_fpm(&status["fpm"]));
    sets.extend(of_segments(segments));
    for set in sets {
        registry.register_collector(Box::new(set));
    }
    registry.register_collector(Box::new(Lag::of(status)));
    let mut out = String::new();
    encode(&mut out, &registry).ok()?;
    Some(out)
}

/// What there is to say of FPM, where it is listened for.
fn of_fpm(fpm: &Value) -> Vec<Rows> {
    if fpm.is_null() {
        return Vec::new();
    }
    let families = |what: &str| {
        let row = |family: &str| {
            let labels = vec![("family".to_owned(), family.to_owned())];
            (labels, fpm[what][family].as_u64().unwrap_or(0))
        };
        ["inet", "inet6"].map(row).to_vec()
    };
    let messages = fpm["messages"].as_object().into_iter().flatten();
    let messages = messages.map(|(kind, count)| {
        let labels = vec![("type".to_owned(), kind.clone())];
        (labels, count.as_u64().unwrap_or(0))
    });
    let rows = |name, help: &'static str, counter, rows| Rows {
        name,
        help: help.into(),
        counter,
        rows,
    };
    let of_result = |what: &str| {
        let result = match what {
            "connections" => "accepted",
            other => other,
        };
        let labels = vec![("result".to_owned(), result.to_owned())];
        (labels, fpm[what].as_u64().unwrap_or(0))
    };
    let connected = u64::from(fpm["peer"].is_string());
    vec![
        rows(
            "fpm_connected",
            "1 while a routing daemon is connected",
            false,
            vec![(Vec::new(), connected)],
        ),
        rows(
            "fpm_routes",
            "Routes that a routing daemon has told",
            false,
            families("routes"),
        ),
        rows(
            "fpm_routes_used",
            "Routes that a routing daemon has told and that are used, as the kernel does not have them",
            false,
            families("used"),
        ),
        rows(
            "fpm_connections",
            "Connections of routing daemons, by what became of them",
            true,
            ["connections", "refused", "broken"].map(of_result).to_vec(),
        ),
        rows(
            "fpm_messages",
            "Messages of a routing daemon, by type",
            true,
            messages.collect(),
        ),
    ]
}

/// Gauges of links, warnings and the image.
fn of_status(status: &Value) -> Vec<Rows> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let label = |name: &str, value: &Value| {
        let value = value.as_str().unwrap_or_default();
        (name.to_owned(), value.to_owned())
    };
    let gauge = |name, help: &'static str, rows| Rows {
        name,
        help: help.into(),
        counter: false,
        rows,
    };
    let (attached, out_only) = (list(&status["links"]), list(&status["out_only"]));
    let by_link = |link: &Value, value: bool| (vec![label("device", &link["dev"])], value.into());
    let mode = |link: &Value| {
        let labels = vec![label("device", &link["dev"]), label("mode", &link["mode"])];
        (labels, 1)
    };
    let all = || attached.iter().chain(&out_only);
    let image = &status["image"];
    let alone = |value: u64| vec![(Vec::new(), value)];
    let entries = ["inet", "inet6"].map(|family| {
        let entries = image[format!("{family}_entries")].as_u64();
        (vec![label("family", &family.into())], entries.unwrap_or(0))
    });
    let told = |value: &Value| value.as_u64().unwrap_or(0);
    let [all_segments, kernel, dropped] =
        ["all", "kernel", "dropped"].map(|key| told(&status["segments"][key]));
    let engine = all_segments.saturating_sub(kernel + dropped);
    let segments = [("raddle", engine), ("kernel", kernel), ("nobody", dropped)]
        .map(|(who, count)| (vec![label("by", &who.into())], count));
    vec![
        gauge(
            "link_attached",
            "1 for each link that is forwarded from, by mode",
            attached.iter().map(mode).collect(),
        ),
        gauge(
            "link_out",
            "1 for each link that is sent through, 0 for one that is not now",
            all().map(|l| by_link(l, l["out"] == true)).collect(),
        ),
        gauge(
            "link_up",
            "1 for each link that is up and has carrier",
            all().map(|l| by_link(l, l["state"] == "up")).collect(),
        ),
        gauge(
            "segments",
            "SIDs and segment lists, by who carries them out: raddle, the kernel, or nobody, so that packets \
             are dropped",
            segments.to_vec(),
        ),
        gauge(
            "segments_not_carried_out",
            "SIDs and segment lists that raddle would carry out if the kernel took its programs for them",
            alone(told(&status["segments"]["not_carried_out"]["count"])),
        ),
        gauge(
            "warnings",
            "How many warnings raddle status shows, without what has been fixed",
            alone(
                list(&status["warnings"])
                    .iter()
                    .filter(|w| w["finding"]["fixed"] != true)
                    .count() as u64,
            ),
        ),
        gauge(
            "image_entries",
            "Entries in the tables that packets are looked up in",
            entries.to_vec(),
        ),
        gauge(
            "image_groups",
            "Nexthop groups in the image",
            alone(image["groups"].as_u64().unwrap_or(0)),
        ),
        gauge(
            "image_adjacencies",
            "Adjacencies in the image",
            alone(image["adjacencies"].as_u64().unwrap_or(0)),
        ),
    ]
}

/// One metric with its labelled values.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Its name, without prefix and `_total`.
    pub name: &'static str,
    /// What it says.
    pub help: Cow<'static, str>,
    /// Whether it only grows.
    pub counter: bool,
    /// Labels and value.
    pub rows: Vec<(Vec<(String, String)>, u64)>,
}

impl prometheus_client::collector::Collector for Rows {
    fn encode(
        &self,
        mut encoder: prometheus_client::encoding::DescriptorEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
        use prometheus_client::metrics::MetricType;
        let kind = if self.counter {
            MetricType::Counter
        } else {
            MetricType::Gauge
        };
        let mut family = encoder.encode_descriptor(self.name, &self.help, None, kind)?;
        let put = |value: u64, metric: MetricEncoder<'_>| match self.counter {
            true => ConstCounter::new(value).encode(metric),
            false => ConstGauge::new(value as i64).encode(metric),
        };
        for (labels, value) in &self.rows {
            if labels.is_empty() {
                // Without labels there is one value, and no empty pair of braces.
                return put(*value, family);
            }
            put(*value, family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_counter_has_its_series() {
        let status = json!({
            "version": "9.9", "state": "forwarding", "routes": { "inet": 5, "inet6": 6 },
            "links": [{ "dev": "eth0", "mode": "native", "state": "up", "out": false }],
            "out_only": [{ "dev": "eth1", "state": "no carrier", "out": true }],
            "warnings": [{ "text": "x" }, { "text": "y" }, { "text": "z", "finding": { "fixed": true } }],
            "segments": { "all": 9, "own": 2, "kernel": 4, "dropped": 2,
                          "not_carried_out": { "count": 6, "names": [], "why": "refused" } },
            "image": { "full": false, "inet_entries": 11, "inet6_entries": 12, "groups": 13,
                       "adjacencies": 14 },
            "mirror": { "overruns": 1 }, "commits": 2, "deadline": { "seconds": 2, "lapses": 15 },
            "priority": { "demotions": 16 },
            "lag": { "count": 10, "sum_microseconds": 2_500_000, "buckets": [
                { "up_to_microseconds": 500, "count": 7 }, { "up_to_microseconds": 1_000_000, "count": 2 },
            ] },
            "fpm": { "peer": "127.0.0.1:40000", "routes": { "inet": 21, "inet6": 22 },
                     "used": { "inet": 23, "inet6": 24 }, "messages": { "route": 25, "malformed": 26 },
                     "connections": 27, "refused": 28, "broken": 29 },
        });
        let counters = json!({
            "reasons": [
                { "reason": "mtu", "verdict": "kernel", "packets": 3, "bytes": 30 },
                { "reason": "blackhole", "verdict": "drop", "packets": 4, "bytes": 40 },
            ],
            "links": [{ "dev": "eth0", "received": { "packets": 7, "bytes": 70 } },
                      { "dev": "eth1", "sent": { "packets": 8, "bytes": 90 } }],
            "nexthops": [{ "dev": "eth1", "via": "10.0.0.2", "mtu": 1500, "packets": 8, "bytes": 80 }],
        });
        let cpus = |first: u64, last: u64| {
            let mut values = [0u64; 16];
            (values[0], values[1], values[2], values[14]) = (first, 100 * first, last, 9);
            json!({ "cpu": 0, "values": values })
        };
        let segments = json!({
            "segments": [
                { "counters": true, "name": "End.X", "segs": [], "dev": "eth0", "cpus": [cpus(1, 2), cpus(3, 4)],
                  "owner": { "table": 254, "dst": "fc00::1/128", "metric": 1024, "gateway": null } },
                { "counters": true, "name": "End", "segs": [], "dev": "eth0", "cpus": [],
                  "owner": { "nexthop": 9 } },
                { "counters": false, "name": "End", "segs": [], "dev": "eth0", "cpus": [],
                  "owner": { "table": 254, "dst": "fc00::2/128", "metric": 1024, "gateway": null } },
                { "counters": true, "name": "encap.red", "segs": ["fc00::7", "fc00::8"], "dev": "eth1",
                  "cpus": [cpus(5, 0)], "owner": null },
            ],
        });
        let text = render(&status, &counters, &segments).unwrap();
        assert!(!text.contains("fc00::2"), "{text}");
        for line in [
            "raddle_build_info{version=\"9.9\"} 1",
            "raddle_link_attached{device=\"eth0\",mode=\"native\"} 1",
            "raddle_link_out{device=\"eth0\"} 0",
            "raddle_link_out{device=\"eth1\"} 1",
            "raddle_link_up{device=\"eth0\"} 1",
            "raddle_link_up{device=\"eth1\"} 0",
            "raddle_warnings 2",
            "raddle_segments{by=\"raddle\"} 3",
            "raddle_segments{by=\"kernel\"} 4",
            "raddle_segments{by=\"nobody\"} 2",
            "raddle_segments_not_carried_out 6",
            "raddle_image_entries{family=\"inet6\"} 12",
            "raddle_image_groups 13",
            "raddle_image_adjacencies 14",
            "raddle_routes{family=\"inet6\"} 6",
            "raddle_punted_packets_total{reason=\"mtu\"} 3",
            "raddle_drops_total{reason=\"blackhole\"} 4",
            "raddle_received_bytes_total{device=\"eth0\"} 70",
            "raddle_sent_packets_total{device=\"eth1\"} 8",
            "raddle_sent_bytes_total{device=\"eth1\"} 90",
            "raddle_nexthop_packets_total{device=\"eth1\",via=\"10.0.0.2\",mtu=\"1500\"} 8",
            "raddle_netlink_overruns_total 1",
            "raddle_deadline_lapses_total 15",
            "raddle_priority_demotions_total 16",
            "raddle_publish_lag_seconds_sum 2.5",
            "raddle_publish_lag_seconds_count 10",
            "raddle_publish_lag_seconds_bucket{le=\"0.0005\"} 7",
            "raddle_publish_lag_seconds_bucket{le=\"1.0\"} 9",
            "raddle_publish_lag_seconds_bucket{le=\"+Inf\"} 10",
            "raddle_fpm_connected 1",
            "raddle_fpm_routes{family=\"inet6\"} 22",
            "raddle_fpm_routes_used{family=\"inet\"} 23",
            "raddle_fpm_messages_total{type=\"malformed\"} 26",
            "raddle_fpm_connections_total{result=\"accepted\"} 27",
            "raddle_fpm_connections_total{result=\"broken\"} 29",
            "raddle_sid_packets_total{sid=\"fc00::1/128\",table=\"254\",behaviour=\"End.X\"} 4",
            "raddle_sid_bytes_total{sid=\"fc00::1/128\",table=\"254\",behaviour=\"End.X\"} 400",
            "behaviour=\"End.X\",reason=\"no-srh\"} 6",
            "behaviour=\"End.X\",reason=\"other\"} 18",
            "raddle_sid_packets_total{sid=\"nhid:9\",table=\"\",behaviour=\"End\"} 0",
            "raddle_segment_list_packets_total{segments=\"fc00::7,fc00::8\",mode=\"encap.red\",device=\"eth1\"} 5",
            "raddle_segment_list_errors_total{segments=\"fc00::7,fc00::8\",mode=\"encap.red\",device=\"eth1\",reason=\"other\"} 9",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}

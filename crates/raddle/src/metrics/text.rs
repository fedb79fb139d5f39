//! What the metrics say: the daemon's answers as OpenMetrics text.

use std::borrow::Cow;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use raddle_control::status::{ByFamily, Fpm, State};
use raddle_control::{Count, Counters, Segments, Status, Verdict};

use super::lag::Lag;
use super::segments::of as of_segments;

/// The exposition text for these answers of the daemon.
pub(crate) fn render(status: &Status, counters: &Counters, segments: &Segments) -> String {
    let mut registry = Registry::with_prefix("raddle");
    let mut sets = of_status(status);
    sets.extend(of_counters(counters));
    sets.extend(status.fpm.iter().flat_map(of_fpm));
    sets.extend(of_segments(segments));
    for set in sets {
        registry.register_collector(Box::new(set));
    }
    registry.register_collector(Box::new(Lag(status.lag.clone())));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut out, &registry);
    out
}

type Values = Vec<(Vec<(String, String)>, u64)>;

fn label(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn gauge(name: &'static str, help: &'static str, rows: Values) -> Rows {
    Rows {
        name,
        help: help.into(),
        counter: false,
        rows,
    }
}

fn counter(name: &'static str, help: &'static str, rows: Values) -> Rows {
    Rows {
        counter: true,
        ..gauge(name, help, rows)
    }
}

/// A value without labels.
fn alone(value: u64) -> Values {
    vec![(Vec::new(), value)]
}

fn by_family(numbers: ByFamily) -> Values {
    let row = |(family, number): (&str, u64)| (vec![label("family", family)], number);
    numbers.each().map(row).to_vec()
}

/// What was punted and dropped, came in and was forwarded.
fn of_counters(counters: &Counters) -> Vec<Rows> {
    let reasons = |verdict, of: fn(Count) -> u64| {
        let rows = counters.reasons.iter();
        rows.filter(|row| row.verdict == verdict)
            .map(|row| (vec![label("reason", &row.reason)], of(row.count)))
            .collect()
    };
    let links = |sent: bool, of: fn(Count) -> u64| {
        let rows = counters.links.iter().filter_map(|row| {
            let count = if sent { Some(row.sent) } else { row.received };
            Some((vec![label("device", &row.dev)], of(count?)))
        });
        rows.collect()
    };
    let nexthops = |of: fn(Count) -> u64| {
        let rows = counters.nexthops.iter().map(|row| {
            let via = row.via.map(|via| via.to_string()).unwrap_or_default();
            let labels = vec![
                label("device", &row.dev),
                label("via", via),
                label("mtu", row.mtu.to_string()),
            ];
            (labels, of(row.count))
        });
        rows.collect()
    };
    let packets: fn(Count) -> u64 = |count| count.packets;
    let bytes: fn(Count) -> u64 = |count| count.bytes;
    vec![
        counter(
            "punted_packets",
            "Packets that the kernel got, by reason",
            reasons(Verdict::Punt, packets),
        ),
        counter(
            "punted_bytes",
            "Bytes that the kernel got, by reason",
            reasons(Verdict::Punt, bytes),
        ),
        counter(
            "drops",
            "Packets that were dropped, by reason",
            reasons(Verdict::Drop, packets),
        ),
        counter(
            "received_packets",
            "Packets that came in on a link",
            links(false, packets),
        ),
        counter(
            "received_bytes",
            "Bytes that came in on a link",
            links(false, bytes),
        ),
        counter(
            "sent_packets",
            "Packets that were forwarded through a link",
            links(true, packets),
        ),
        counter(
            "sent_bytes",
            "Bytes that were forwarded through a link",
            links(true, bytes),
        ),
        counter(
            "nexthop_packets",
            "Packets that were forwarded to a neighbour",
            nexthops(packets),
        ),
        counter(
            "nexthop_bytes",
            "Bytes that were forwarded to a neighbour",
            nexthops(bytes),
        ),
    ]
}

/// What there is to say of FPM.
fn of_fpm(fpm: &Fpm) -> Vec<Rows> {
    let messages = fpm.messages.each().into_iter();
    let results = [
        ("accepted", fpm.connections),
        ("refused", fpm.refused),
        ("broken", fpm.broken),
    ];
    vec![
        gauge(
            "fpm_connected",
            "1 while a routing daemon is connected",
            alone(u64::from(fpm.peer.is_some())),
        ),
        gauge(
            "fpm_routes",
            "Routes that a routing daemon has told",
            by_family(fpm.routes),
        ),
        gauge(
            "fpm_routes_used",
            "Routes that a routing daemon has told and that are used, as the kernel does not have them",
            by_family(fpm.used),
        ),
        counter(
            "fpm_connections",
            "Connections of routing daemons, by what became of them",
            results
                .map(|(result, count)| (vec![label("result", result)], count))
                .to_vec(),
        ),
        counter(
            "fpm_messages",
            "Messages of a routing daemon, by type",
            messages
                .map(|(kind, count)| (vec![label("type", kind)], count))
                .collect(),
        ),
    ]
}

/// What the daemon is, does and has.
fn of_status(status: &Status) -> Vec<Rows> {
    let image = &status.image;
    let attached = status.links.iter();
    let modes = attached.clone().map(|link| {
        let labels = vec![label("device", &link.dev), label("mode", &link.mode)];
        (labels, 1)
    });
    // Each link's name, state, and whether packets are sent through it.
    let all = || {
        let attached = attached
            .clone()
            .map(|link| (&link.dev, link.state.as_deref(), link.out));
        let out_only = status.out_only.iter();
        attached.chain(out_only.map(|link| (&link.dev, Some(&*link.state), link.out)))
    };
    let by_link = |dev: &str, value: bool| (vec![label("device", dev)], u64::from(value));
    let entries = ByFamily {
        inet: image.inet_entries,
        inet6: image.inet6_entries,
    };
    let numbers = &status.segments;
    let engine = numbers.all.saturating_sub(numbers.kernel + numbers.dropped);
    let segments = [
        ("raddle", engine),
        ("kernel", numbers.kernel),
        ("nobody", numbers.dropped),
    ];
    let not_carried_out = numbers.not_carried_out.as_ref().map_or(0, |of| of.count);
    let warnings = status.warnings.iter().filter(|w| !w.finding.fixed);
    vec![
        gauge(
            "build_info",
            "The version that runs",
            vec![(vec![label("version", &status.version)], 1)],
        ),
        gauge(
            "routes",
            "Prefixes with routes, of the kernel, by FPM and of raddle's own",
            by_family(status.routes),
        ),
        gauge(
            "held",
            "1 while everything is punted to the kernel",
            alone(u64::from(status.state == State::Held)),
        ),
        gauge(
            "image_full",
            "1 while part of the traffic goes to the kernel for want of room in the image",
            alone(u64::from(image.full)),
        ),
        counter(
            "deadline_lapses",
            "Times that the daemon did not look at the firewall before its deadline, and everything went to the kernel",
            alone(status.deadline.lapses),
        ),
        counter(
            "priority_demotions",
            "Times that the daemon computed for so long that it lost its real-time priority for up to a second",
            alone(status.priority.demotions),
        ),
        counter(
            "netlink_overruns",
            "Times that the kernel's notifications were lost and everything was read anew",
            alone(status.mirror.overruns),
        ),
        counter(
            "commits",
            "Times that changes were published to the engine",
            alone(status.commits),
        ),
        gauge(
            "link_attached",
            "1 for each link that is forwarded from, by mode",
            modes.collect(),
        ),
        gauge(
            "link_out",
            "1 for each link that is sent through, 0 for one that is not now",
            all().map(|(dev, _, out)| by_link(dev, out)).collect(),
        ),
        gauge(
            "link_up",
            "1 for each link that is up and has carrier",
            all()
                .map(|(dev, state, _)| by_link(dev, state == Some("up")))
                .collect(),
        ),
        gauge(
            "segments",
            "SIDs and segment lists, by who carries them out: raddle, the kernel, or nobody, so that packets \
             are dropped",
            segments
                .map(|(who, count)| (vec![label("by", who)], count))
                .to_vec(),
        ),
        gauge(
            "segments_not_carried_out",
            "SIDs and segment lists that raddle would carry out if the kernel took its programs for them",
            alone(not_carried_out),
        ),
        gauge(
            "warnings",
            "How many warnings raddle status shows, without what has been fixed",
            alone(warnings.count() as u64),
        ),
        gauge(
            "image_entries",
            "Entries in the tables that packets are looked up in",
            by_family(entries),
        ),
        gauge(
            "image_groups",
            "Nexthop groups in the image",
            alone(image.groups),
        ),
        gauge(
            "image_adjacencies",
            "Adjacencies in the image",
            alone(image.adjacencies),
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
    use raddle_control::status::{
        Deadline, FpmMessages, Image, Lag, LagBucket, Link, Mirror, NotCarriedOut, OutOnly,
        Priority, SegmentNumbers, Warning,
    };
    use raddle_control::{
        CpuCounts, LinkCount, NexthopCount, Owner, ReasonCount, Segment, SegmentCounts,
    };
    use raddle_preflight::{Finding, Role, Severity};
    use raddle_rib::event::Encap;

    use super::*;

    fn status() -> Status {
        let bucket = |up_to_microseconds, count| LagBucket {
            up_to_microseconds,
            count,
        };
        let warning = |fixed| Warning {
            text: "x".into(),
            finding: Finding {
                severity: Severity::Warning,
                link: None,
                role: Role::Both,
                what: "x".into(),
                why: "y".into(),
                fix: None,
                fixed,
            },
        };
        let families = |inet, inet6| ByFamily { inet, inet6 };
        Status {
            version: "9.9".into(),
            routes: families(5, 6),
            links: vec![Link {
                ifindex: 2,
                dev: "eth0".into(),
                state: Some("up".into()),
                mode: "native".into(),
                rx_hash: None,
                out: false,
            }],
            out_only: vec![OutOnly {
                ifindex: 3,
                dev: "eth1".into(),
                state: "no carrier".into(),
                out: true,
            }],
            warnings: [false, false, true].map(warning).to_vec(),
            segments: SegmentNumbers {
                all: 9,
                own: 2,
                kernel: 4,
                dropped: 2,
                not_carried_out: Some(NotCarriedOut {
                    count: 6,
                    names: Vec::new(),
                    why: "refused".into(),
                }),
            },
            image: Image {
                inet_entries: 11,
                inet6_entries: 12,
                groups: 13,
                adjacencies: 14,
                ..Image::default()
            },
            mirror: Mirror {
                overruns: 1,
                ..Mirror::default()
            },
            commits: 2,
            deadline: Deadline {
                seconds: 2,
                lapses: 15,
            },
            priority: Priority {
                demotions: 16,
                ..Priority::default()
            },
            lag: Lag {
                count: 10,
                sum_microseconds: 2_500_000,
                buckets: vec![bucket(500, 7), bucket(1_000_000, 2)],
                ..Lag::default()
            },
            fpm: Some(Fpm {
                peer: Some("127.0.0.1:40000".into()),
                routes: families(21, 22),
                used: families(23, 24),
                messages: FpmMessages {
                    route: 25,
                    malformed: 26,
                    ..FpmMessages::default()
                },
                connections: 27,
                refused: 28,
                broken: 29,
                ..Fpm::default()
            }),
            ..Status::default()
        }
    }

    fn counters() -> Counters {
        let count = |packets, bytes| Count { packets, bytes };
        let reason = |reason: &str, verdict, count| ReasonCount {
            reason: reason.into(),
            verdict,
            count,
        };
        let link = |dev: &str, received, sent| LinkCount {
            dev: dev.into(),
            received,
            sent,
        };
        Counters {
            reasons: vec![
                reason("mtu", Verdict::Punt, count(3, 30)),
                reason("blackhole", Verdict::Drop, count(4, 40)),
            ],
            links: vec![
                link("eth0", Some(count(7, 70)), count(0, 0)),
                link("eth1", None, count(8, 90)),
            ],
            nexthops: vec![NexthopCount {
                ifindex: 3,
                dev: "eth1".into(),
                via: "10.0.0.2".parse().ok(),
                mtu: 1500,
                forwards: true,
                stale: false,
                count: count(8, 80),
            }],
        }
    }

    fn segments() -> Segments {
        let cpus = |first: u64, last: u64| {
            let mut values = [0u64; 16];
            (values[0], values[1], values[2], values[14]) = (first, 100 * first, last, 9);
            CpuCounts { cpu: 0, values }
        };
        let route = |dst: &str| {
            Some(Owner::Route {
                table: 254,
                dst: dst.parse().unwrap(),
                metric: 1024,
                gateway: None,
            })
        };
        let segment = |counters, name: &str, segs: &[&str], dev: &str, owner, cpus| Segment {
            counters,
            name: name.into(),
            segs: segs.iter().map(|seg| (*seg).to_owned()).collect(),
            encap: Encap {
                kind: 7,
                data: Default::default(),
            },
            index: 2,
            dev: Some(dev.into()),
            owner,
            counts: SegmentCounts {
                cpus,
                ..SegmentCounts::default()
            },
        };
        let object = Some(Owner::Nexthop { nexthop: 9 });
        let list = ["fc00::7", "fc00::8"];
        Segments {
            segments: vec![
                segment(
                    true,
                    "End.X",
                    &[],
                    "eth0",
                    route("fc00::1/128"),
                    vec![cpus(1, 2), cpus(3, 4)],
                ),
                segment(true, "End", &[], "eth0", object, Vec::new()),
                segment(false, "End", &[], "eth0", route("fc00::2/128"), Vec::new()),
                segment(true, "encap.red", &list, "eth1", None, vec![cpus(5, 0)]),
            ],
        }
    }

    #[test]
    fn every_counter_has_its_series() {
        let text = render(&status(), &counters(), &segments());
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

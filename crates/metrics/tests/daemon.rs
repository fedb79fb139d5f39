//! What the daemon's answers come to as metrics.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_control::status::{
    ByFamily, Deadline, Fpm, FpmMessages, Image, Lag, LagBucket, Link, Mirror, NotCarriedOut,
    OutOnly, Priority, SegmentNumbers, Warning,
};
use raddle_control::{
    Count, Counters, CpuCounts, LinkCount, LinkLoss, NexthopCount, Owner, ReasonCount, Segment,
    SegmentCounts, Segments, Status, Verdict,
};
use raddle_metrics::daemon_text;
use raddle_preflight::{Finding, Role, Severity};
use raddle_rib::event::Encap;

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
            lacking: None,
            not_in: Default::default(),
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
        left: received.map(|_| count(5, 50)),
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
        lost: vec![LinkLoss {
            dev: "eth2".into(),
            lost: 30,
            aborted: 31,
            errno: Some(6),
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
    let text = daemon_text(&status(), &counters(), &segments());
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
        "raddle_lost_packets_total{device=\"eth0\"} 0",
        "raddle_lost_packets_total{device=\"eth2\"} 30",
        "raddle_aborted_packets_total{device=\"eth2\"} 31",
        "raddle_losses_counted 1",
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

#[test]
fn what_is_not_counted_has_no_series() {
    let status = Status {
        lost_not_counted: Some("no BTF".into()),
        ..status()
    };
    let text = daemon_text(&status, &counters(), &segments());
    assert!(text.contains("raddle_losses_counted 0"), "{text}");
    assert!(!text.contains("raddle_lost_packets"), "{text}");
}

//! The daemon's answers as OpenMetrics text.

use prometheus_client::registry::Registry;
use raddle_control::status::{ByFamily, Fpm, State};
use raddle_control::{Count, Counters, LinkCount, LinkLoss, Segments, Status, Verdict};
use raddle_select::KeyKind;

use crate::lag::Lag;
use crate::rows::{Rows, Values, counter, gauge, label, text_of};
use crate::segments::of as of_segments;

/// The exposition text for these answers of the daemon.
pub fn daemon_text(status: &Status, counters: &Counters, segments: &Segments) -> String {
    let mut registry = Registry::with_prefix("raddle");
    let mut sets = of_status(status);
    sets.extend(of_counters(counters));
    if status.lost_not_counted.is_none() {
        sets.extend(of_losses(counters));
    }
    sets.extend(status.fpm.iter().flat_map(of_fpm));
    sets.extend(of_segments(segments));
    for set in sets {
        registry.register_collector(Box::new(set));
    }
    registry.register_collector(Box::new(Lag(status.lag.clone())));
    text_of(&registry)
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
    let links = |which: fn(&LinkCount) -> Option<Count>, of: fn(Count) -> u64| {
        let rows = counters
            .links
            .iter()
            .filter_map(|row| Some((vec![label("device", &row.dev)], of(which(row)?))));
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
            links(|row| row.received, packets),
        ),
        counter(
            "received_bytes",
            "Bytes that came in on a link",
            links(|row| row.received, bytes),
        ),
        counter(
            "left_packets",
            "Packets that came in on a link and that the kernel got, though they were to be forwarded (while held, all packets)",
            links(|row| row.left, packets),
        ),
        counter("left_bytes", "Bytes of these", links(|row| row.left, bytes)),
        counter(
            "sent_packets",
            "Packets that were forwarded through a link",
            links(|row| Some(row.sent), packets),
        ),
        counter(
            "sent_bytes",
            "Bytes that were forwarded through a link",
            links(|row| Some(row.sent), bytes),
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

/// What was lost behind the engine's verdict; 0 of links that have lost nothing.
fn of_losses(counters: &Counters) -> Vec<Rows> {
    let rows = |of: fn(&LinkLoss) -> u64| {
        let lost = counters.lost.iter().map(|row| (&*row.dev, of(row)));
        let is_told = |dev: &str| counters.lost.iter().any(|row| row.dev == dev);
        let others = counters.links.iter().filter(|row| !is_told(&row.dev));
        let all = lost.chain(others.map(|row| (&*row.dev, 0)));
        all.map(|(dev, lost)| (vec![label("device", dev)], lost))
            .collect()
    };
    vec![
        counter(
            "lost_packets",
            "Packets that were redirected to a link and that its driver, or the kernel before it, has lost",
            rows(|row| row.lost),
        ),
        counter(
            "aborted_packets",
            "Packets that came in on a link and were lost because an XDP program failed on them",
            rows(|row| row.aborted),
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
        gauge("fpm_routes", "FPM routes", by_family(fpm.routes)),
        gauge(
            "fpm_routes_used",
            "FPM routes that are used, as the kernel does not have them",
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
            "Prefixes with routes: the kernel's, FPM routes, and static ones",
            by_family(status.routes),
        ),
        gauge(
            "held",
            "1 while everything is punted to the kernel",
            alone(u64::from(status.state == State::Held)),
        ),
        gauge(
            "hash_key",
            "1 for the key that choices among paths are made by: that of the seed, the kernel's own, or none that is known",
            KeyKind::ALL
                .map(|kind| {
                    (
                        vec![label("kind", kind.name())],
                        u64::from(kind == status.hash_key),
                    )
                })
                .to_vec(),
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
            "losses_counted",
            "1 while packets are counted that drivers lose",
            alone(u64::from(status.lost_not_counted.is_none())),
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

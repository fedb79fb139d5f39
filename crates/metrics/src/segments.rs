//! What the engine has counted of SIDs and segment lists.

use std::collections::BTreeMap;

use raddle_control::{Count, Owner, Segment, SegmentCounts, Segments};

use crate::rows::{Labels, Rows, label};

/// Counters of SIDs and of segment lists, from the daemon's answer about its segments. SIDs that do not
/// count have none, nor have those that are left to the kernel and have none to tell.
pub(crate) fn of(answer: &Segments) -> Vec<Rows> {
    let (mut sids, mut lists) = (Families::new("sid"), Families::new("segment_list"));
    for segment in answer.segments.iter().filter(|segment| segment.counters) {
        match &segment.owner {
            Some(owner) => sids.add(sid_labels(segment, owner), &segment.counts),
            None => lists.add(list_labels(segment), &segment.counts),
        }
    }
    sids.rows().into_iter().chain(lists.rows()).collect()
}

/// The labels of a SID: its prefix and table, or the nexthop object that it is.
fn sid_labels(segment: &Segment, owner: &Owner) -> Labels {
    let (sid, table) = match owner {
        Owner::Nexthop { nexthop } => (format!("nhid:{nexthop}"), String::new()),
        Owner::Route { dst, table, .. } => (dst.to_string(), table.to_string()),
    };
    vec![
        label("sid", sid),
        label("table", table),
        label("behaviour", &segment.name),
    ]
}

fn list_labels(segment: &Segment) -> Labels {
    vec![
        label("segments", segment.segs.join(",")),
        label("mode", &segment.name),
        label("device", segment.dev.as_deref().unwrap_or_default()),
    ]
}

/// Counters by their labels. There may be several segments for one: lists that differ in what no label says count
/// together.
type Series = BTreeMap<Labels, u64>;

fn add(series: &mut Series, labels: Labels, count: u64) {
    let sum = series.entry(labels).or_default();
    *sum = sum.wrapping_add(count);
}

/// Packets, bytes and errors of one kind of segment.
struct Families {
    noun: &'static str,
    packets: Series,
    bytes: Series,
    errors: Series,
}

impl Families {
    fn new(noun: &'static str) -> Families {
        Families {
            noun,
            packets: Series::new(),
            bytes: Series::new(),
            errors: Series::new(),
        }
    }

    fn add(&mut self, labels: Labels, counts: &SegmentCounts) {
        // A series for each reason of each SID would be too many; it comes with the first error.
        for (reason, count) in counts.errors_by_reason() {
            let reason = label("reason", reason);
            let labels = labels.iter().cloned().chain([reason]).collect();
            add(&mut self.errors, labels, count);
        }
        let Count { packets, bytes } = counts.total();
        add(&mut self.packets, labels.clone(), packets);
        add(&mut self.bytes, labels, bytes);
    }

    fn rows(self) -> [Rows; 3] {
        let [packets, bytes, errors] = match self.noun {
            "sid" => [
                (
                    "sid_packets",
                    "Packets that a SID's behaviour was carried out on by the engine",
                ),
                (
                    "sid_bytes",
                    "Bytes of these packets, IPv6 header and payload as they came in",
                ),
                (
                    "sid_errors",
                    "Packets of a SID that were dropped or punted, by reason",
                ),
            ],
            _ => [
                (
                    "segment_list_packets",
                    "Packets that were given a segment list by the engine",
                ),
                (
                    "segment_list_bytes",
                    "Bytes of these packets before they were encapsulated",
                ),
                (
                    "segment_list_errors",
                    "Packets with a segment list that were dropped or punted, by reason",
                ),
            ],
        };
        let counter = |(name, help): (_, &'static str), series: Series| Rows {
            name,
            help: help.into(),
            counter: true,
            rows: series.into_iter().collect(),
        };
        [
            counter(packets, self.packets),
            counter(bytes, self.bytes),
            counter(errors, self.errors),
        ]
    }
}

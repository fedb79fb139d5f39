//! What the engine has counted of SIDs and segment lists.

use std::collections::BTreeMap;

use serde_json::Value;

use super::text::Rows;
use crate::show::figures::error_names;
use raddle_image::segment_counter::{BYTES, FAILED, PACKETS};

/// Counters of SIDs and of segment lists, from the daemon's answer about its segments. SIDs that do not
/// count have none, nor have those that are left to the kernel and have none to tell.
pub(super) fn of(answer: &Value) -> Vec<Rows> {
    let (mut sids, mut lists) = (Families::new("sid"), Families::new("segment_list"));
    for segment in answer["segments"].as_array().into_iter().flatten() {
        if segment["counters"] != true {
            continue;
        }
        match sid_labels(segment) {
            Some(labels) => sids.add(labels, segment),
            None => lists.add(list_labels(segment), segment),
        }
    }
    sids.rows().into_iter().chain(lists.rows()).collect()
}

type Labels = Vec<(String, String)>;

fn label(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

/// The labels of a SID: its prefix and table, or the nexthop object that it is; none for what is no SID.
fn sid_labels(segment: &Value) -> Option<Labels> {
    let owner = &segment["owner"];
    let (sid, table) = match owner["nexthop"].as_u64() {
        Some(id) => (format!("nhid:{id}"), String::new()),
        None => (
            owner["dst"].as_str()?.to_owned(),
            owner["table"].to_string(),
        ),
    };
    let behaviour = segment["name"].as_str().unwrap_or_default();
    Some(vec![
        label("sid", sid),
        label("table", table),
        label("behaviour", behaviour),
    ])
}

fn list_labels(segment: &Value) -> Labels {
    let segments = segment["segs"].as_array().into_iter().flatten();
    let segments: Vec<&str> = segments.filter_map(Value::as_str).collect();
    let text = |key: &str| segment[key].as_str().unwrap_or_default();
    vec![
        label("segments", segments.join(",")),
        label("mode", text("name")),
        label("device", text("dev")),
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

    fn add(&mut self, labels: Labels, segment: &Value) {
        let sum = |place: usize| {
            let cpus = segment["cpus"].as_array().into_iter().flatten();
            let values = cpus.map(|cpu| cpu["values"][place].as_u64().unwrap_or(0));
            values.fold(0, u64::wrapping_add)
        };
        for (place, reason) in (FAILED..).zip(error_names()) {
            // A series for each reason of each SID would be too many; it comes with the first error.
            let count = sum(place);
            if count > 0 {
                let reason = label("reason", reason);
                let labels = labels.iter().cloned().chain([reason]).collect();
                add(&mut self.errors, labels, count);
            }
        }
        add(&mut self.packets, labels.clone(), sum(PACKETS));
        add(&mut self.bytes, labels, sum(BYTES));
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

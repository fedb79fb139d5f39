//! What has been counted: by the kernel, which is asked at that moment, and by the daemon's engine.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::net::IpAddr;

use raddle_control::{Count, Counters, Owner, SegmentCounts, Segments};
use raddle_netlink::EncapOf;
use raddle_netlink::codec::SidCounters;
use raddle_rib::seg6::{Encaps, Seg6};

use super::lookup::Carried;
use super::out::Out;

/// What the engine has counted, as the kernel counts.
pub(crate) fn total(counts: &SegmentCounts) -> SidCounters {
    let Count { packets, bytes } = counts.total();
    SidCounters {
        packets,
        bytes,
        errors: counts.drops(),
    }
}

/// Everything that `-statistics` prints.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What the kernel has counted of SIDs.
    pub(crate) kernel: BTreeMap<EncapOf, SidCounters>,
    /// What the engine has counted of SIDs.
    sids: BTreeMap<EncapOf, SegmentCounts>,
    /// What it has counted of encapsulations: equal ones by the same link count together.
    lists: HashMap<(Encaps, u32), SegmentCounts>,
    /// What the engine has sent, by link and neighbour. None where no daemon answers.
    sent: Option<HashMap<(u32, IpAddr), Count>>,
}

impl Figures {
    /// What the kernel alone has counted.
    pub fn of_kernel(kernel: BTreeMap<EncapOf, SidCounters>) -> Figures {
        Figures {
            kernel,
            ..Figures::default()
        }
    }

    /// Takes what the daemon has counted of SIDs and lists.
    pub fn take_segments(&mut self, answer: Segments) {
        for segment in answer.segments {
            let counts = segment.counts;
            let place = match segment.owner {
                Some(Owner::Nexthop { nexthop }) => EncapOf::Nexthop(nexthop),
                Some(Owner::Route {
                    table,
                    dst,
                    metric,
                    gateway,
                }) => EncapOf::Route {
                    table,
                    dst,
                    metric,
                    gateway,
                    index: segment.index,
                },
                None => {
                    if let Ok(Seg6::Encaps(encaps)) = Seg6::parse(&segment.encap) {
                        // Those that differ in what is not shown count together.
                        match self.lists.entry((encaps, segment.index)) {
                            Entry::Occupied(mut known) => known.get_mut().add(counts),
                            Entry::Vacant(place) => _ = place.insert(counts),
                        }
                    }
                    continue;
                }
            };
            self.sids.insert(place, counts);
        }
    }

    /// What the engine has counted of this.
    pub(crate) fn engine(&self, carried: &Carried<'_>) -> Option<&SegmentCounts> {
        match Seg6::parse(carried.encap) {
            Ok(Seg6::Encaps(encaps)) => self.lists.get(&(encaps, carried.index)),
            _ => self.sids.get(&carried.place),
        }
    }

    /// Takes what the daemon has counted by neighbour. Neighbours with several MTUs are added up.
    pub fn take_counters(&mut self, answer: &Counters) {
        let mut all: HashMap<(u32, IpAddr), Count> = HashMap::new();
        for row in &answer.nexthops {
            if let Some(via) = row.via {
                let sent = all.entry((row.ifindex, via)).or_default();
                sent.packets = sent.packets.wrapping_add(row.count.packets);
                sent.bytes = sent.bytes.wrapping_add(row.count.bytes);
            }
        }
        self.sent = Some(all);
    }

    /// Kernel and engine together; `None` where nobody counts.
    pub(crate) fn total(&self, carried: &Carried<'_>) -> Option<SidCounters> {
        let engine = self.engine(carried).map(total);
        match (self.kernel.get(&carried.place), engine) {
            (Some(kernel), Some(engine)) => Some(*kernel + engine),
            (kernel, engine) => kernel.copied().or(engine),
        }
    }

    /// Prints what the engine has sent to a neighbour.
    pub(crate) fn print_sent(&self, out: &mut Out<'_>, index: u32, gateway: Option<IpAddr>) {
        let (Some(all), Some(gateway)) = (&self.sent, gateway) else {
            return;
        };
        let sent = all.get(&(index, gateway)).copied().unwrap_or_default();
        out.begin_object("sent");
        out.number("packets", "packets", sent.packets);
        out.number("bytes", "bytes", sent.bytes);
        out.end_object();
    }

    /// Prints who has counted what: in JSON kernel and engine apart, errors by reason and by CPU; in text,
    /// with `details`, a line of its own.
    pub(crate) fn print_apart(&self, out: &mut Out<'_>, carried: &Carried<'_>, details: bool) {
        let (kernel, engine) = (self.kernel.get(&carried.place), self.engine(carried));
        if out.is_json() {
            out.begin_object("counters");
            if let Some(kernel) = kernel {
                out.begin_object("kernel");
                numbers(out, *kernel);
                out.end_object();
            }
            if let Some(engine) = engine {
                print_engine(out, engine);
            }
            out.end_object();
            return;
        }
        if !details || (kernel.is_none() && engine.is_none()) {
            return;
        }
        out.line_below();
        if let Some(engine) = engine {
            let SidCounters { packets, bytes, .. } = total(engine);
            out.text(format_args!("engine packets {packets} bytes {bytes} "));
            for (reason, count) in engine.errors_by_reason() {
                out.text(format_args!("{reason} {count} "));
            }
            if let Some(reason) = &engine.reason {
                let fate = if engine.own {
                    "dropped"
                } else {
                    "to the kernel"
                };
                out.text(format_args!("({fate}: {reason}) "));
            }
        }
        if let Some(kernel) = kernel {
            out.text("kernel ");
            numbers(out, *kernel);
        }
    }
}

/// `packets N bytes N errors N`.
fn numbers(out: &mut Out<'_>, counters: SidCounters) {
    out.number("packets", "packets", counters.packets);
    out.number("bytes", "bytes", counters.bytes);
    out.number("errors", "errors", counters.errors);
}

/// The figures of a SID as `ip -statistics` prints them.
pub(crate) fn print_sid(out: &mut Out<'_>, counters: SidCounters) {
    out.begin_object("stats64");
    numbers(out, counters);
    out.end_object();
}

/// Those of an encapsulation, of which `ip` has none.
pub(crate) fn print_list(out: &mut Out<'_>, counters: SidCounters) {
    out.begin_object("stats64");
    out.number("packets", "packets", counters.packets);
    out.number("bytes", "bytes", counters.bytes);
    if counters.errors > 0 || out.is_json() {
        out.number("errors", "errors", counters.errors);
    }
    out.end_object();
}

fn print_engine(out: &mut Out<'_>, engine: &SegmentCounts) {
    out.begin_object("engine");
    out.json_number("segment", u64::from(engine.segment));
    if let Some(reason) = &engine.reason {
        out.json_string("reason", reason);
    }
    numbers(out, total(engine));
    out.begin_object("reasons");
    for (reason, count) in engine.errors_by_reason() {
        out.json_number(reason, count);
    }
    out.end_object();
    out.begin_array("cpus");
    for one in &engine.cpus {
        let cpu = one.cpu;
        let one = SegmentCounts {
            cpus: vec![*one],
            own: engine.own,
            ..SegmentCounts::default()
        };
        out.begin_object("");
        out.json_number("cpu", u64::from(cpu));
        numbers(out, total(&one));
        out.begin_object("reasons");
        for (reason, count) in one.errors_by_reason() {
            out.json_number(reason, count);
        }
        out.end_object();
        out.end_object();
    }
    out.end_array();
    out.end_object();
}

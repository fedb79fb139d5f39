//! What has been counted: by the kernel, which is asked at that moment, and by the daemon's engine.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::net::IpAddr;

use raddle_image::segment_counter::{BYTES, FAILED, PACKETS, REASONS};
use raddle_image::{Reason, SEGMENT_COUNTERS};
use raddle_netlink::codec::SidCounters;
use raddle_netlink::{EncapOf, Socket};
use raddle_rib::event::Encap;
use raddle_rib::seg6::{Encaps, Seg6};
use serde::Deserialize;
use serde_json::Value;

use super::lookup::Carried;
use super::out::Out;
use crate::control::{Command, ask};
use crate::error::Failure;

/// What the engine has counted of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct EngineCounts {
    /// The segment's number in the image.
    pub segment: u32,
    /// Whether the engine carries it out, and does not punt it.
    pub forwards: bool,
    /// Why not, where it punts everything.
    pub reason: Option<String>,
    /// Whether the kernel does not have it, so that what the engine cannot do is dropped.
    #[serde(default)]
    pub own: bool,
    /// What each CPU has counted; those that have counted nothing are left out.
    pub cpus: Vec<CpuCounts>,
}

/// What one CPU has counted of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct CpuCounts {
    /// The CPU's number.
    pub cpu: u32,
    /// By `segment_counter`.
    pub values: [u64; SEGMENT_COUNTERS],
}

impl EngineCounts {
    /// Takes another segment's counts, too.
    fn add(&mut self, other: EngineCounts) {
        for cpu in other.cpus {
            match self.cpus.iter_mut().find(|known| known.cpu == cpu.cpu) {
                Some(known) => {
                    let values = known.values.iter_mut().zip(cpu.values);
                    values.for_each(|(sum, value)| *sum = sum.wrapping_add(value));
                }
                None => self.cpus.push(cpu),
            }
        }
    }

    fn sum(&self, place: usize) -> u64 {
        self.cpus
            .iter()
            .fold(0, |sum, cpu| sum.wrapping_add(cpu.values[place]))
    }

    /// Packets, bytes and errors over all CPUs. Errors are the packets that were dropped: those that were
    /// punted the kernel counts, as packets or as errors.
    pub(crate) fn total(&self) -> SidCounters {
        let dropped = |place: usize| {
            let reason = REASONS.get(place - FAILED);
            self.own || reason.is_some_and(|reason| reason.is_drop())
        };
        let errors = (FAILED..SEGMENT_COUNTERS).filter(|place| dropped(*place));
        SidCounters {
            packets: self.sum(PACKETS),
            bytes: self.sum(BYTES),
            errors: errors.fold(0, |sum, place| sum.wrapping_add(self.sum(place))),
        }
    }

    /// Packets that were dropped or punted, by the name of the reason, without those that did not
    /// happen.
    fn errors_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        (FAILED..)
            .zip(error_names())
            .map(|(place, name)| (name, self.sum(place)))
            .filter(|(_, count)| *count > 0)
    }
}

/// What the errors of a segment are called, in the order of their counters: the reasons that are told
/// apart, then all others together.
pub(crate) fn error_names() -> impl Iterator<Item = &'static str> {
    REASONS
        .iter()
        .map(|reason| Reason::name(*reason))
        .chain(["other"])
}

/// Packets and bytes that the engine has sent to a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub packets: u64,
    pub bytes: u64,
}

/// Everything that `-statistics` prints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// What the kernel has counted of SIDs.
    pub kernel: BTreeMap<EncapOf, SidCounters>,
    /// What the engine has counted of SIDs.
    sids: BTreeMap<EncapOf, EngineCounts>,
    /// What it has counted of encapsulations: equal ones by the same link count together.
    lists: HashMap<(Encaps, u32), EngineCounts>,
    /// What the engine has sent, by link and neighbour. None where no daemon answers.
    sent: Option<HashMap<(u32, IpAddr), Sent>>,
}

/// A segment as the daemon tells of it.
#[derive(Deserialize)]
struct Told {
    encap: Encap,
    index: u32,
    owner: Option<Owner>,
    #[serde(flatten)]
    counts: EngineCounts,
}

/// Whose a SID is, as the daemon tells of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Owner {
    Nexthop {
        nexthop: u32,
    },
    Route {
        table: u32,
        dst: ipnet::IpNet,
        metric: u32,
        gateway: Option<IpAddr>,
    },
}

/// The answer to [`Command::Segments`].
#[derive(Deserialize)]
struct Segments {
    segments: Vec<Told>,
}

impl Figures {
    /// What the kernel alone has counted.
    pub(crate) fn of_kernel(kernel: BTreeMap<EncapOf, SidCounters>) -> Figures {
        Figures {
            kernel,
            ..Figures::default()
        }
    }

    /// What the live kernel and the daemon of this network namespace, if there is one, have counted.
    ///
    /// # Errors
    /// When the kernel does not tell, or the daemon's answer makes no sense.
    pub(crate) fn live() -> Result<Figures, Failure> {
        let mut figures = Figures::of_kernel(Socket::open()?.sid_counters()?);
        if let (Ok(segments), Ok(counters)) =
            (ask(None, Command::Segments), ask(None, Command::Counters))
        {
            figures.read_segments(&segments)?;
            figures.read_counters(&counters);
        }
        Ok(figures)
    }

    /// Takes the daemon's answer to [`Command::Segments`].
    pub(crate) fn read_segments(&mut self, answer: &Value) -> Result<(), Failure> {
        let answer: Segments = serde_json::from_value(answer.clone())
            .map_err(|e| Failure::system(format!("the daemon's answer makes no sense: {e}")))?;
        for Told {
            encap,
            index,
            owner,
            counts,
        } in answer.segments
        {
            let place = match owner {
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
                    index,
                },
                None => {
                    if let Ok(Seg6::Encaps(encaps)) = Seg6::parse(&encap) {
                        // Those that differ in what is not shown count together.
                        match self.lists.entry((encaps, index)) {
                            Entry::Occupied(mut known) => known.get_mut().add(counts),
                            Entry::Vacant(place) => _ = place.insert(counts),
                        }
                    }
                    continue;
                }
            };
            self.sids.insert(place, counts);
        }
        Ok(())
    }

    /// What the engine has counted of this.
    pub(crate) fn engine(&self, carried: &Carried<'_>) -> Option<&EngineCounts> {
        match Seg6::parse(carried.encap) {
            Ok(Seg6::Encaps(encaps)) => self.lists.get(&(encaps, carried.index)),
            _ => self.sids.get(&carried.place),
        }
    }

    /// Takes the daemon's answer to [`Command::Counters`]. Neighbours with several MTUs are added up.
    pub(crate) fn read_counters(&mut self, answer: &Value) {
        let mut all: HashMap<(u32, IpAddr), Sent> = HashMap::new();
        for row in answer["nexthops"].as_array().into_iter().flatten() {
            let index = row["ifindex"].as_u64().and_then(|n| u32::try_from(n).ok());
            let via = row["via"].as_str().and_then(|via| via.parse().ok());
            if let (Some(index), Some(via)) = (index, via) {
                let sent = all.entry((index, via)).or_default();
                sent.packets = sent
                    .packets
                    .wrapping_add(row["packets"].as_u64().unwrap_or(0));
                sent.bytes = sent.bytes.wrapping_add(row["bytes"].as_u64().unwrap_or(0));
            }
        }
        self.sent = Some(all);
    }

    /// Kernel and engine together; `None` where nobody counts.
    pub(crate) fn total(&self, carried: &Carried<'_>) -> Option<SidCounters> {
        let engine = self.engine(carried).map(EngineCounts::total);
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
            let SidCounters { packets, bytes, .. } = engine.total();
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

fn print_engine(out: &mut Out<'_>, engine: &EngineCounts) {
    out.begin_object("engine");
    out.json_number("segment", u64::from(engine.segment));
    if let Some(reason) = &engine.reason {
        out.json_string("reason", reason);
    }
    numbers(out, engine.total());
    out.begin_object("reasons");
    for (reason, count) in engine.errors_by_reason() {
        out.json_number(reason, count);
    }
    out.end_object();
    out.begin_array("cpus");
    for one in &engine.cpus {
        let cpu = one.cpu;
        let one = EngineCounts {
            cpus: vec![*one],
            own: engine.own,
            ..EngineCounts::default()
        };
        out.begin_object("");
        out.json_number("cpu", u64::from(cpu));
        numbers(out, one.total());
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

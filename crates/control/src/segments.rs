//! The answer to [`Command::Segments`].

use std::net::IpAddr;

use ipnet::IpNet;
use raddle_image::segment_counter::{BYTES, FAILED, PACKETS, REASONS};
use raddle_image::{Reason, SEGMENT_COUNTERS};
use raddle_rib::event::Encap;
use serde::{Deserialize, Serialize};

use crate::{Answer, Command, Count};

/// SIDs and segment lists as the engine has them, with what it has counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Segments {
    /// By their numbers.
    pub segments: Vec<Segment>,
}

impl Answer for Segments {
    const COMMAND: Command = Command::Segments;
}

/// A SID or a segment list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Whether it has counters.
    pub counters: bool,
    /// The behaviour, or how a list is put on.
    pub name: String,
    /// The segments that are put on, in the order of travel.
    pub segs: Vec<String>,
    /// The encapsulation as the kernel has it.
    pub encap: Encap,
    /// The out-link; 0 for none.
    pub index: u32,
    /// The out-link's name.
    pub dev: Option<String>,
    /// Whose a SID is; none of a list, which all share that have it.
    pub owner: Option<Owner>,
    /// What the engine makes of it.
    #[serde(flatten)]
    pub counts: SegmentCounts,
}

/// Whose a SID is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Owner {
    /// A nexthop object's.
    Nexthop {
        /// Its id.
        nexthop: u32,
    },
    /// A route's.
    Route {
        /// Its table.
        table: u32,
        /// Its destination: the SID.
        dst: IpNet,
        /// Its metric.
        metric: u32,
        /// The gateway of the path.
        gateway: Option<IpAddr>,
    },
}

/// What the engine makes of a segment, and has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounts {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCounts {
    /// The CPU's number.
    pub cpu: u32,
    /// By `raddle_image::segment_counter`.
    pub values: [u64; SEGMENT_COUNTERS],
}

impl SegmentCounts {
    /// Takes another segment's counts, too.
    pub fn add(&mut self, other: SegmentCounts) {
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

    /// Packets and bytes that it was carried out on, over all CPUs.
    pub fn total(&self) -> Count {
        Count {
            packets: self.sum(PACKETS),
            bytes: self.sum(BYTES),
        }
    }

    /// Packets that were dropped: those that were punted the kernel counts, as packets or as errors.
    pub fn drops(&self) -> u64 {
        let dropped = |place: usize| {
            let reason = REASONS.get(place - FAILED);
            self.own || reason.is_some_and(|reason| reason.is_drop())
        };
        let places = (FAILED..SEGMENT_COUNTERS).filter(|place| dropped(*place));
        places.fold(0, |sum, place| sum.wrapping_add(self.sum(place)))
    }

    /// Packets that were dropped or punted, by the name of the reason, without those that did not happen.
    pub fn errors_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        (FAILED..)
            .zip(error_names())
            .map(|(place, name)| (name, self.sum(place)))
            .filter(|(_, count)| *count > 0)
    }
}

/// What the errors of a segment are called, in the order of their counters: the reasons that are told apart, then all
/// others together.
fn error_names() -> impl Iterator<Item = &'static str> {
    REASONS
        .iter()
        .map(|reason| Reason::name(*reason))
        .chain(["other"])
}

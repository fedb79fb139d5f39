//! The steps that do not depend on the address family.

use std::sync::Arc;

use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::{
    ADJACENCY_COUNTERS, Adjacency, ConfigHead, LinkEntry, MAGIC, Memory, REASON_COUNTERS,
    config_flags, link_flags,
};
use raddle_select::{Hasher, Seed};

use crate::counters::Counters;
use crate::state::State;
use crate::{ipv4, ipv6};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by this link. The frame's first `len` bytes are what is sent.
    Forward {
        /// Interface index of the out-link.
        index: u32,
        /// The adjacency that was chosen.
        adjacency: u32,
        /// Length of the frame as sent: what an Ethernet minimum or a sloppy sender had added is
        /// trimmed, as Linux does.
        len: usize,
    },
    /// The kernel gets it, untouched.
    Kernel(Reason),
    /// It is dropped, as the kernel would drop it.
    Drop(Reason),
}

/// The userspace engine: one on each core.
#[derive(Debug)]
pub struct Engine {
    memory: Arc<Memory>,
    counters: Counters,
    state: State,
    /// Made anew when the image's seed changes.
    hasher: Option<(u32, Hasher)>,
}

/// What the steps of one packet need.
pub(crate) struct Context<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) config: ConfigHead,
    pub(crate) link: LinkEntry,
    pub(crate) ingress: u32,
    pub(crate) hasher: Option<&'a Hasher>,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub(crate) now: u64,
}

impl Engine {
    /// An engine over this image.
    pub fn new(memory: Arc<Memory>) -> Engine {
        let adjacencies = memory.adjacencies.len() / size_of::<Adjacency>();
        Engine {
            state: State::new(memory.members.len() / 8),
            memory,
            counters: Counters::new(adjacencies),
            hasher: None,
        }
    }

    /// What this engine has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Decides about a frame that came in on link `ingress`, and rewrites it when it is forwarded.
    ///
    /// `frame` starts at the destination MAC address and has no frame check sequence; `now` is
    /// `CLOCK_MONOTONIC` in nanoseconds, compared with the image's deadline.
    pub fn forward(&mut self, frame: &mut [u8], ingress: u32, now: u64) -> Verdict {
        let verdict = self.decide(frame, ingress, now);
        match verdict {
            Verdict::Forward { adjacency, len, .. } => {
                self.counters
                    .add(ADJACENCY_COUNTERS + adjacency as usize, len);
            }
            Verdict::Kernel(reason) | Verdict::Drop(reason) => {
                self.counters.add(reason as usize, frame.len());
            }
        }
        verdict
    }

    fn decide(&mut self, frame: &mut [u8], ingress: u32, now: u64) -> Verdict {
        let config = self.memory.config_head();
        let late = config.deadline != 0 && now > config.deadline;
        if config.magic != MAGIC || config.flags & config_flags::HOLD != 0 || late {
            return Verdict::Kernel(Reason::Held);
        }
        let link = self.memory.link(ingress);
        if link.flags & link_flags::ENABLED == 0 {
            return Verdict::Kernel(Reason::NotEnabled);
        }
        self.counters
            .add(REASON_COUNTERS + link.slot as usize, frame.len());
        self.follow_seed(&config);
        let hasher = self.hasher.as_ref().map(|(_, hasher)| hasher);
        let context = Context {
            memory: &self.memory,
            config,
            link,
            ingress,
            hasher,
            now,
        };
        let decided = match family(frame, &link) {
            Ok(Family::V4) => ipv4::forward(&context, &mut self.state, frame),
            Ok(Family::V6) => ipv6::forward(&context, &mut self.state, frame),
            Err(reason) => return Verdict::Kernel(reason),
        };
        match decided {
            Ok(verdict) => verdict,
            Err(reason) if reason.is_drop() => Verdict::Drop(reason),
            Err(reason) => Verdict::Kernel(reason),
        }
    }

    fn follow_seed(&mut self, config: &ConfigHead) {
        let known = self.hasher.as_ref().map_or(0, |(seed, _)| *seed);
        if known != config.seed {
            self.hasher = Seed::new(config.seed).map(|seed| (config.seed, Hasher::new(seed)));
        }
    }
}

/// Steps P3 to P5.
fn family(frame: &[u8], link: &LinkEntry) -> Result<Family, Reason> {
    let Some(header) = frame.first_chunk::<14>() else {
        return Err(Reason::Truncated);
    };
    let family = match u16::from_be_bytes([header[12], header[13]]) {
        0x0800 => Family::V4,
        0x86dd => Family::V6,
        0x8100 | 0x88a8 => return Err(Reason::Vlan),
        _ => return Err(Reason::NotIp),
    };
    if header[..6] != link.mac {
        return Err(Reason::OtherMac);
    }
    Ok(family)
}

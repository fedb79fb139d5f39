//! What an answer depends on beside the mirrored state: the kernel's version, and what else gives
//! packets a hash.

use std::fs;

use raddle_netlink::probe::{bpf, ethtool};
use raddle_rib::AlgoRules;
use raddle_rib::event::Link;
use raddle_select::KernelVersion;

use crate::source::kernel;

/// The surroundings of the state that is explained.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// The kernel that chooses; none where nobody says.
    pub kernel: Option<KernelVersion>,
    /// The state is that of this machine, now: the kernel can be asked.
    pub live: bool,
    /// Routes that are spread otherwise than by the namespace's hash policy.
    pub algos: AlgoRules,
    /// A daemon may run here, and may not be asked what else it spreads or has.
    pub unasked: bool,
}

/// What may mark packets that come in on a link with an L4 hash (`skb->l4_hash`); none where nobody
/// knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Receive packet steering: some `rps_cpus` is not 0.
    pub rps: Option<bool>,
    /// The driver passes the NIC's hash on (`receive-hashing`).
    pub rx_hash: Option<bool>,
}

impl Surroundings {
    /// Those of this machine.
    pub(crate) fn live() -> Surroundings {
        Surroundings {
            kernel: kernel().ok(),
            live: true,
            algos: AlgoRules::default(),
            unasked: false,
        }
    }

    /// What is known of packets that come in on this link.
    pub(super) fn marks(&self, link: &Link) -> Marks {
        if !self.live {
            return Marks::default();
        }
        Marks {
            rps: rps(link),
            rx_hash: ethtool::flags(&link.name).ok().map(|flags| flags.rx_hash),
        }
    }

    /// Whether a BPF program dissects flows in place of the kernel; none where nobody may say.
    pub(super) fn dissector(&self) -> Option<bool> {
        if !self.live {
            return None;
        }
        bpf::flow_dissector().ok().map(|program| program.is_some())
    }
}

/// Whether packets of the link are steered by their hash. `/sys` may show another network namespace
/// than ours; a link of it that differs says nothing about this one.
fn rps(link: &Link) -> Option<bool> {
    let folder = format!("/sys/class/net/{}", link.name);
    let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok();
    let mac = link.mac?.map(|byte| format!("{byte:02x}")).join(":");
    let same = read("ifindex")?.trim() == link.index.to_string() && read("address")?.trim() == mac;
    if !same {
        return None;
    }
    let mut on = false;
    for queue in fs::read_dir(format!("{folder}/queues")).ok()?.flatten() {
        if let Ok(cpus) = fs::read_to_string(queue.path().join("rps_cpus")) {
            on |= cpus.trim().chars().any(|c| c != '0' && c != ',');
        }
    }
    Some(on)
}

//! What this machine says of itself that no mirror has.

use std::fs;

use raddle_explain::{Machine, Marks};
use raddle_netlink::probe::{bpf, ethtool};
use raddle_rib::event::Link;

/// The machine that the command runs on.
#[derive(Debug)]
pub(super) struct ThisMachine;

impl Machine for ThisMachine {
    fn marks(&self, link: &Link) -> Marks {
        Marks {
            rps: rps(link),
            rx_hash: ethtool::flags(&link.name).ok().map(|flags| flags.rx_hash),
        }
    }

    fn dissector(&self) -> Option<bool> {
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

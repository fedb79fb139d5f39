//! What this machine says of itself that no mirror has.

use std::path::Path;
use std::sync::OnceLock;

use raddle_explain::{Machine, Marks};
use raddle_netlink::probe::{bpf, ethtool};
use raddle_preflight::steering;
use raddle_rib::event::Link;
use raddle_select::{HashKey, Steering};

/// The machine that the command runs on.
#[derive(Debug, Default)]
pub(crate) struct ThisMachine {
    /// Read once, where it is needed.
    software: OnceLock<Option<HashKey>>,
}

impl Machine for ThisMachine {
    fn marks(&self, link: &Link) -> Marks {
        let steering = steering(Path::new("/sys/class/net"), link);
        let rx_hash = ethtool::flags(&link.name).ok().map(|flags| flags.rx_hash);
        let key = || raddle_key::read_software_key().ok();
        Marks {
            steering,
            software: match steering {
                Some(Steering::On) => *self.software.get_or_init(key),
                _ => None,
            },
            rx_hash,
            rss: match rx_hash {
                Some(true) => ethtool::rss(&link.name).ok().flatten(),
                _ => None,
            },
        }
    }

    fn dissector(&self) -> Option<bool> {
        bpf::flow_dissector().ok().map(|program| program.is_some())
    }
}

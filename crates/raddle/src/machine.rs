//! What this machine says of itself that no mirror has.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use raddle_control::Status;
use raddle_explain::{Machine, Marks};
use raddle_netlink::probe::{bpf, ethtool};
use raddle_preflight::{bond_members, steering};
use raddle_rib::event::Link;
use raddle_select::{BondMembers, HashKey, Steering};

use crate::source;

/// The machine that the command runs on.
#[derive(Debug, Default)]
pub(crate) struct ThisMachine {
    /// Only what its kernel does is asked for.
    kernel_alone: bool,
    /// Read once, where it is needed.
    software: OnceLock<Result<HashKey, String>>,
    daemon: OnceLock<Option<Status>>,
    /// What was found about links.
    marks: Fresh<Marks>,
    /// The same of bonds.
    bonds: Fresh<Option<BondMembers>>,
}

/// What was found about links, by index, and when.
#[derive(Debug)]
struct Fresh<T>(Mutex<HashMap<u32, (Instant, T)>>);

impl<T> Default for Fresh<T> {
    fn default() -> Fresh<T> {
        Fresh(Mutex::default())
    }
}

/// For so long what was found about a link is taken for true: it is asked about for every packet of a capture.
const FRESH: Duration = Duration::from_secs(1);

impl<T: Clone> Fresh<T> {
    /// What is known of a link, or is found out by `look_at`.
    fn of(&self, link: &Link, look_at: impl FnOnce() -> T) -> T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((at, found)) = known.get(&link.index)
            && now - *at < FRESH
        {
            return found.clone();
        }
        let found = look_at();
        known.insert(link.index, (now, found.clone()));
        found
    }
}

impl ThisMachine {
    /// For what the kernel does, whatever raddle does here.
    pub(crate) fn kernel_alone(kernel_alone: bool) -> ThisMachine {
        ThisMachine {
            kernel_alone,
            ..ThisMachine::default()
        }
    }

    /// Why the key of the kernel's hash of packets is not known, where it was needed.
    pub(crate) fn no_software_key(&self) -> Option<&str> {
        self.software.get()?.as_ref().err().map(String::as_str)
    }
}

impl Machine for ThisMachine {
    fn marks(&self, link: &Link) -> Marks {
        self.marks.of(link, || self.look_at(link))
    }

    fn dissector(&self) -> Option<bool> {
        bpf::flow_dissector().ok().map(|program| program.is_some())
    }

    fn bond(&self, bond: &Link) -> Option<BondMembers> {
        let sys = Path::new("/sys/class/net");
        self.bonds.of(bond, || bond_members(sys, bond))
    }
}

impl ThisMachine {
    fn look_at(&self, link: &Link) -> Marks {
        let steering = steering(Path::new("/sys/class/net"), link);
        let rx_hash = ethtool::flags(&link.name).ok().map(|flags| flags.rx_hash);
        let key = || raddle_key::read_software_key().map_err(|e| e.to_string());
        let daemon = || source::of_daemon::<Status>();
        let daemon = match self.kernel_alone {
            true => None,
            false => self.daemon.get_or_init(daemon).as_ref(),
        };
        let ours = daemon.filter(|status| status.held_because.is_none());
        let ours = ours.and_then(|status| {
            let ours = status.links.iter().find(|one| one.dev == link.name)?;
            Some(ours.rx_hash.as_ref().is_some_and(|hash| hash.read))
        });
        Marks {
            steering,
            software: match steering {
                Some(Steering::On) => self.software.get_or_init(key).as_ref().ok().copied(),
                _ => None,
            },
            rx_hash,
            rss: match rx_hash {
                Some(true) => ethtool::rss(&link.name).ok().flatten(),
                _ => None,
            },
            ours,
        }
    }
}

//! What an answer depends on beside the mirrored state: the kernel's version, and what else gives
//! packets a hash.

use std::fmt::Debug;
use std::sync::Arc;

use raddle_rib::AlgoRules;
use raddle_rib::event::Link;
use raddle_select::{BondMembers, Brings, HashKey, KernelVersion, Rss, Steering};

/// The surroundings of the state that is explained.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The kernel that chooses; none where nobody says.
    pub kernel: Option<KernelVersion>,
    /// The machine whose state it is, where it is that of now and the machine can be asked; none for a snapshot.
    pub machine: Option<Arc<dyn Machine>>,
    /// Routes that are spread otherwise than by the namespace's hash policy.
    pub algos: AlgoRules,
    /// Why the kernel's own key is not known, where it is needed and nobody could read it.
    pub no_key: Option<String>,
    /// Show hashes also where they are made by the kernel's own key, which they give away.
    pub show_key: bool,
    /// Why the daemon here cannot be asked what else it spreads or has, where it cannot.
    pub unasked: Option<String>,
}

/// A machine that can be asked what no mirror has.
pub trait Machine: Debug {
    /// What is known of packets that come in on this link.
    fn marks(&self, link: &Link) -> Marks;

    /// Whether a BPF program dissects flows in place of the kernel; none where nobody may say.
    fn dissector(&self) -> Option<bool>;

    /// What is known of a bond's members; none where it cannot be seen.
    fn bond(&self, bond: &Link) -> Option<BondMembers>;
}

/// What may mark packets that come in on a link with an L4 hash (`skb->l4_hash`); none where nobody
/// knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Receive packet steering.
    pub steering: Option<Steering>,
    /// The key of the hash that the kernel gives to packets that it steers.
    pub software: Option<HashKey>,
    /// The driver passes the NIC's hash on (`receive-hashing`).
    pub rx_hash: Option<bool>,
    /// How the NIC hashes.
    pub rss: Option<Rss>,
    /// Of a link that raddle, which runs here and is not held, is attached to: whether it reads the NIC's hash.
    pub ours: Option<bool>,
}

impl Marks {
    /// What gives packets of a link a hash that can be computed.
    ///
    /// 1. Of a NIC (a link without a kind) that passes its hash on, or may do so, that comes first; it is not known how it hashes
    ///    where the driver does not tell.
    /// 2. Of a NIC or a veth, all of whose queues are steered, the kernel, if its key is known.
    /// 3. Other links pass on what came from below: nothing can be said.
    pub fn brings(&self, link: &Link) -> Brings {
        let is_nic = link.kind.is_none();
        let steers = is_nic || link.kind.as_deref() == Some("veth");
        Brings {
            nic: (is_nic && self.rx_hash != Some(false))
                .then(|| self.rss.clone().unwrap_or_default()),
            software: self
                .software
                .filter(|_| steers && self.steering == Some(Steering::On)),
        }
    }
}

impl Surroundings {
    /// Whether the state is that of a machine, now.
    pub(crate) fn is_live(&self) -> bool {
        self.machine.is_some()
    }

    /// What is known of packets that come in on this link.
    pub(crate) fn marks(&self, link: &Link) -> Marks {
        let machine = self.machine.as_ref();
        machine.map_or_else(Marks::default, |machine| machine.marks(link))
    }

    /// Whether a BPF program dissects flows in place of the kernel; none where nobody may say.
    pub(crate) fn dissector(&self) -> Option<bool> {
        self.machine.as_ref()?.dissector()
    }
}

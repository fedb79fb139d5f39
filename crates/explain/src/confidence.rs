//! How sure an answer is, and why it is not surer.

use raddle_image::Reason;
use raddle_rib::event::Link;
use raddle_select::faults::DST_HINT;
use raddle_select::{Brought, Giver, KernelVersion, Steering};
use serde::Serialize;

use super::around::Marks;

/// How sure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The kernel does this.
    #[default]
    Exact,
    /// The kernel does this, unless one of the reasons holds.
    ExactUnless,
    /// The kernel may do anything else as well.
    Unknown,
}

/// How sure an answer is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confidence {
    /// How sure.
    pub level: Level,
    /// Why not surer: conditions after "unless", or reasons why nobody knows.
    pub why: Vec<String>,
    /// It is not surer for a hash that packets may bring along, of which a kernel that is asked (`RTM_GETROUTE`) knows nothing.
    #[serde(skip)]
    pub brought: bool,
}

impl Confidence {
    /// The answer holds, but not if this does.
    pub(super) fn unless(&mut self, why: impl Into<String>) {
        if self.level != Level::Unknown {
            self.level = Level::ExactUnless;
            self.add(why.into());
        }
    }

    /// Nobody can know, for this reason; what was only a condition is forgotten.
    pub(super) fn unknown(&mut self, why: impl Into<String>) {
        if self.level != Level::Unknown {
            self.level = Level::Unknown;
            self.why.clear();
        }
        self.add(why.into());
    }

    /// Nothing that made it unknown matters any more.
    pub(super) fn settle(&mut self) {
        if self.level == Level::Unknown {
            *self = Confidence::default();
        }
    }

    /// Takes over the doubts of an answer that this one builds on.
    pub(super) fn merge(&mut self, other: &Confidence) {
        self.brought |= other.brought;
        for why in &other.why {
            match other.level {
                Level::Exact => {}
                Level::ExactUnless => self.unless(why.clone()),
                Level::Unknown => self.unknown(why.clone()),
            }
        }
    }

    fn add(&mut self, why: String) {
        if !self.why.contains(&why) {
            self.why.push(why);
        }
    }
}

/// What a choice among several nexthops owes to the kernel's version. `None` where it is the model's.
pub(super) fn version_doubt(kernel: Option<KernelVersion>) -> Option<String> {
    let (oldest, newest) = (KernelVersion::OLDEST, KernelVersion::NEWEST);
    match kernel {
        None => Some(format!(
            "the kernel is not Linux {}.{} to {}.{}: nobody says which it is (--kernel)",
            oldest.major, oldest.minor, newest.major, newest.minor
        )),
        Some(kernel) if kernel < oldest => Some(format!(
            "Linux {kernel} does it otherwise: it is older than {}.{}, the oldest that the model \
             is held against",
            oldest.major, oldest.minor
        )),
        Some(kernel) if kernel > newest => Some(format!(
            "Linux {kernel} does it otherwise: it is newer than {}.{}, the newest that the model \
             is held against",
            newest.major, newest.minor
        )),
        Some(_) => None,
    }
}

/// What a forwarded packet's choice owes to the packet before it, on kernels that have the fault.
pub(super) fn batch_doubt(kernel: Option<KernelVersion>) -> Option<String> {
    let version = kernel.filter(|version| DST_HINT.holds(*version))?;
    Some(format!(
        "it arrives in one batch behind another packet to the same destination: Linux {version} then \
         takes that packet's path (fixed in 6.6, 6.5.4 and 6.1.54)"
    ))
}

/// Why policy 1 may not choose by what the packet is said to have `brought`: it takes the packet's L4 hash where there is one
/// (`skb->l4_hash`, `fib_multipath_hash`). So does a bond with encap3+4 (`bond_xmit_hash`); `taker` says who. `ports` says whether a NIC may have given it one, `steerable` whether the kernel may.
///
/// 1. Receive packet steering is on, and the hash that it gives is not known: a hash by a random key.
/// 2. The link is a veth: a socket behind its other end gives its packets its own hash, and what is forwarded there keeps the one
///    that it came with, of a NIC or of receive packet steering.
/// 3. The link is a NIC that hashes, and how is known: drivers may say of fewer packets, or of more, that it is one over ports.
/// 4. It is a NIC that hashes, or may do so.
/// 5. Any other link passes on what came with the packet from below.
/// 6. Some queues are steered, or it is not known whether any is.
pub(super) fn l4_hash_doubts(
    link: &Link,
    marks: &Marks,
    brought: Brought,
    what: (bool, bool),
    taker: &str,
    confidence: &mut Confidence,
) {
    let mut doubts = Confidence::default();
    doubts_of_brought(link, marks, brought, what, taker, &mut doubts);
    doubts.brought = doubts.level != Level::Exact;
    confidence.merge(&doubts);
}

fn doubts_of_brought(
    link: &Link,
    marks: &Marks,
    brought: Brought,
    (ports, steerable): (bool, bool),
    taker: &str,
    confidence: &mut Confidence,
) {
    let name = &link.name;
    let by = match brought {
        Brought::Hash { giver, .. } => Some(giver),
        Brought::Nothing | Brought::Unknown(_) => None,
    };
    let steered = marks.steering == Some(Steering::On);
    let known = marks.brings(link).software.is_some() && !matches!(brought, Brought::Unknown(_));
    if let Brought::Unknown(why) = brought
        && steerable
        && steered
        && marks.brings(link).software.is_some()
    {
        return confidence.unknown(format!(
            "receive packet steering is on at {name} (rps_cpus), so that packets bring a hash along, and {why}"
        ));
    }
    if steerable && steered && by.is_none() && !known {
        confidence.unknown(format!(
            "receive packet steering is on at {name} (rps_cpus): packets carry a software hash \
             with a random key, and {taker} takes it in place of the fields"
        ));
        return;
    }
    let carries = format!("and {taker} takes that in place of the fields");
    match (link.kind.as_deref(), brought) {
        (Some("veth"), _) => confidence.unless(format!(
            "it has a hash from behind the other end of veth {name}, of its socket there (TCP, connected UDP; of IPv6 every one that makes flow labels) or of the link that it \
             came in by there (a NIC's, or rps_cpus), {carries}"
        )),
        (None, Brought::Hash { giver: Giver::Nic, .. }) => confidence.unless(format!(
            "the driver of {name} does not call the NIC's hash of this packet one over ports (PKT_HASH_TYPE_L4)"
        )),
        // Where the driver tells nothing of how it hashes, the words below say more.
        (None, Brought::Unknown(why)) if marks.rss.is_some() || !ports => confidence.unless(format!(
            "the NIC of {name} gives an L4 hash with the packet, {carries}: {why}"
        )),
        (None, _) if marks.rx_hash == Some(true) && marks.rss.is_some() => {
            confidence.unless(format!(
                "the driver of {name} calls the NIC's hash of this packet one over ports (PKT_HASH_TYPE_L4), though its settings \
                 name none (ethtool -n {name} rx-flow-hash)"
            ));
        }
        (None, _) if by.is_none() && ports && marks.rx_hash != Some(false) => confidence.unless(format!(
            "the NIC of {name} gives an L4 hash with the packet (ethtool -k: receive-hashing), \
             {carries}"
        )),
        (None, _) => {}
        (Some(_), _) => confidence.unless(format!(
            "the packet has an L4 hash from below {name}, from a NIC or a socket, {carries}"
        )),
    }
    if steerable && by.is_none() && matches!(marks.steering, None | Some(Steering::Partly)) {
        let which = match marks.steering {
            // Of a snapshot nothing is told of its NICs either.
            None if marks.rx_hash.is_some() => {
                " (rps_cpus; not to be seen from here, as /sys is another network namespace's)"
            }
            None => " (rps_cpus)",
            Some(_) => " for the queue that it comes in by (rps_cpus)",
        };
        confidence.unless(format!(
            "receive packet steering is on at {name}{which}: packets carry a software hash, {carries}"
        ));
    }
}

/// Whether an answer without a link is sure, by its reason and the kernel. `None` where it is: nothing is
/// chosen.
pub(super) fn reason_doubt(reason: Reason, kernel: Option<KernelVersion>) -> Option<&'static str> {
    match reason {
        Reason::Rules => Some("a rule decides by what is not modelled"),
        Reason::HashPolicy => Some("the hash policy is not modelled"),
        Reason::SeedUnknown if !KernelVersion::may_have_hash_seed(kernel) => {
            Some("the kernel's own hash key is not known")
        }
        Reason::SeedUnknown => Some(
            "net.ipv4.fib_multipath_hash_seed is 0, and the kernel's own hash key is not known",
        ),
        Reason::OutLink => Some("no nexthop can be used, and the kernel goes on to other routes"),
        Reason::Throw => Some("the tables behind it decide, as the route is one to throw"),
        Reason::Encap => Some("an encapsulation that is not modelled"),
        Reason::Resilient => Some("a resilient group whose buckets are moving, or are not known"),
        Reason::Expiring => Some("the route is about to expire or has expired: the kernel knows"),
        Reason::RouteFeature => Some("a feature of the route that is not modelled"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use raddle_select::Rss;

    use super::*;

    fn doubts(kind: Option<&str>, marks: &Marks, brought: Brought) -> Confidence {
        let link = Link {
            name: "in0".into(),
            kind: kind.map(str::to_owned),
            ..Link::default()
        };
        let mut confidence = Confidence::default();
        l4_hash_doubts(
            &link,
            marks,
            brought,
            (true, true),
            "policy 1",
            &mut confidence,
        );
        confidence
    }

    #[test]
    fn a_hash_that_comes_with_the_packet_is_a_doubt() {
        let known = |steering, rx_hash| Marks {
            steering: Some(steering),
            rx_hash: Some(rx_hash),
            ..Marks::default()
        };
        let nothing = Brought::Nothing;
        let by = |giver| Brought::Hash { hash: 7, giver };
        let with_rss = Marks {
            rss: Some(Rss::default()),
            ..known(Steering::Off, true)
        };
        let exact = [
            (known(Steering::Off, false), nothing),
            (known(Steering::On, false), by(Giver::Kernel)),
        ];
        for (marks, brought) in exact {
            assert_eq!(doubts(None, &marks, brought).level, Level::Exact);
        }
        for (kind, marks, brought, said) in [
            (None, known(Steering::Off, true), nothing, "receive-hashing"),
            (None, with_rss.clone(), nothing, "though its settings"),
            (None, with_rss, by(Giver::Kernel), "though its settings"),
            (
                None,
                known(Steering::Off, true),
                by(Giver::Nic),
                "PKT_HASH_TYPE_L4",
            ),
            (
                None,
                known(Steering::Partly, false),
                nothing,
                "for the queue",
            ),
            (
                Some("veth"),
                known(Steering::Off, false),
                nothing,
                "other end of veth in0",
            ),
            (
                Some("veth"),
                known(Steering::On, false),
                by(Giver::Kernel),
                "other end of veth in0",
            ),
            (
                Some("vlan"),
                known(Steering::Off, false),
                nothing,
                "from below in0",
            ),
        ] {
            let confidence = doubts(kind, &marks, brought);
            assert_eq!(confidence.level, Level::ExactUnless);
            assert_eq!(confidence.why.len(), 1, "{confidence:?}");
            assert!(confidence.why[0].contains(said), "{confidence:?}");
        }
        let steered = doubts(Some("veth"), &known(Steering::On, false), nothing);
        assert_eq!((steered.level, steered.why.len()), (Level::Unknown, 1));
        assert_eq!(doubts(None, &Marks::default(), nothing).why.len(), 2);
    }

    #[test]
    fn what_nobody_knows_outweighs_conditions() {
        let mut confidence = Confidence::default();
        confidence.unless("a");
        confidence.unknown("b");
        confidence.unless("c");
        confidence.unknown("d");
        assert_eq!(confidence.why, ["b", "d"]);
        let mut other = Confidence::default();
        other.unless("e");
        other.merge(&confidence);
        assert_eq!(other, confidence);
    }

    #[test]
    fn versions_beside_the_model_are_doubts() {
        let doubt = |text: &str| version_doubt(Some(text.parse().unwrap()));
        assert_eq!(doubt("6.1.0"), None);
        assert_eq!(doubt("6.1.192"), None);
        assert_eq!(doubt("6.12.0"), None);
        assert_eq!(doubt("6.18.99"), None);
        assert!(doubt("6.0.19").unwrap().contains("older than 6.1,"));
        assert!(doubt("7.0.1").unwrap().contains("newer than 6.18"));
        assert!(version_doubt(None).unwrap().contains("--kernel"));
    }

    #[test]
    fn a_batch_with_one_path_is_a_doubt() {
        let doubt = |text: &str| batch_doubt(Some(text.parse().unwrap()));
        assert!(doubt("6.1.53").unwrap().contains("Linux 6.1.53"));
        assert!(doubt("6.5.3").is_some());
        for fixed in ["6.1.54", "6.1.192", "6.5.4", "6.6.0", "6.12.1", "6.18.44"] {
            assert_eq!(doubt(fixed), None, "{fixed}");
        }
        assert_eq!(batch_doubt(None), None);
    }
}

//! How sure an answer is, and why it is not surer.

use raddle_image::Reason;
use raddle_rib::event::Link;
use raddle_select::KernelVersion;
use raddle_select::faults::DST_HINT;
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

/// Why policy 1 may not hash a packet's fields: it takes the packet's L4 hash where there is one
/// (`skb->l4_hash`, `fib_multipath_hash`).
///
/// 1. Receive packet steering is on and the packet has ports: a software hash, keyed at random.
/// 2. The link is a veth: a socket behind its other end gives its packets its own hash.
/// 3. The link is a NIC that hashes, or may do so, and the packet has ports.
/// 4. Any other link passes on what came with the packet from below.
/// 5. It is not known whether steering is on.
pub(super) fn l4_hash_doubts(link: &Link, marks: Marks, ports: bool, confidence: &mut Confidence) {
    let name = &link.name;
    if ports && marks.rps == Some(true) {
        confidence.unknown(format!(
            "receive packet steering is on at {name} (rps_cpus): packets carry a software hash \
             with a random key, and policy 1 takes it in place of the fields"
        ));
        return;
    }
    let carries = "and policy 1 takes that in place of the fields";
    match link.kind.as_deref() {
        Some("veth") => confidence.unless(format!(
            "it comes from a socket behind the other end of veth {name} (TCP, connected UDP): \
             the packet carries the socket's hash, {carries}"
        )),
        None if ports && marks.rx_hash != Some(false) => confidence.unless(format!(
            "the NIC of {name} gives an L4 hash with the packet (ethtool -k: receive-hashing), \
             {carries}"
        )),
        None => {}
        Some(_) => confidence.unless(format!(
            "the packet has an L4 hash from below {name}, from a NIC or a socket, {carries}"
        )),
    }
    if ports && marks.rps.is_none() {
        confidence.unless(format!(
            "receive packet steering is on at {name} (rps_cpus): packets carry a software hash, \
             {carries}"
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
    use super::*;

    fn doubts(kind: Option<&str>, marks: Marks, ports: bool) -> Confidence {
        let link = Link {
            name: "in0".into(),
            kind: kind.map(str::to_owned),
            ..Link::default()
        };
        let mut confidence = Confidence::default();
        l4_hash_doubts(&link, marks, ports, &mut confidence);
        confidence
    }

    #[test]
    fn a_hash_that_comes_with_the_packet_is_a_doubt() {
        let known = |rps, rx_hash| Marks {
            rps: Some(rps),
            rx_hash: Some(rx_hash),
        };
        assert_eq!(doubts(None, known(false, false), true).level, Level::Exact);
        assert_eq!(doubts(None, known(false, true), false).level, Level::Exact);
        for (kind, marks, said) in [
            (None, known(false, true), "receive-hashing"),
            (Some("veth"), known(false, false), "other end of veth in0"),
            (Some("vlan"), known(false, false), "from below in0"),
        ] {
            let confidence = doubts(kind, marks, true);
            assert_eq!(confidence.level, Level::ExactUnless);
            assert_eq!(confidence.why.len(), 1);
            assert!(confidence.why[0].contains(said), "{confidence:?}");
        }
        let steered = doubts(Some("veth"), known(true, false), true);
        assert_eq!((steered.level, steered.why.len()), (Level::Unknown, 1));
        assert_eq!(
            doubts(Some("veth"), known(true, false), false).level,
            Level::ExactUnless
        );
        assert_eq!(doubts(None, Marks::default(), true).why.len(), 2);
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

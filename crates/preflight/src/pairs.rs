//! Which pairs of links no firewall concerns.

use std::collections::{BTreeMap, BTreeSet};

use raddle_rib::firewall::{Firewall, Guarded, Range};

/// Links by index.
pub(crate) type Links = BTreeMap<u32, String>;

/// What the firewall may judge, and what says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// What is the kernel's.
    pub firewall: Firewall,
    /// By which rules.
    pub why: Vec<Why>,
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Version::V4 => "IPv4",
            Version::V6 => "IPv6",
        })
    }
}

/// A rule that concerns forwarded packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Of which family.
    pub family: Version,
    /// The pairs of in-link and out-link that it concerns, by index.
    pub pairs: BTreeSet<(u32, u32)>,
    /// Only packets of these addresses; else all of them.
    pub range: Option<Range>,
    /// The rule in the words of the tool that shows it.
    pub rule: String,
}

impl Verdicts {
    /// Closes all pairs of both families for `rule`.
    fn close_all(&mut self, ins: &Links, outs: &Links, rule: &str) {
        let pairs: BTreeSet<_> = ins
            .keys()
            .flat_map(|&a| outs.keys().map(move |&b| (a, b)))
            .collect();
        for family in [Version::V4, Version::V6] {
            self.guarded(family).pairs.extend(&pairs);
            self.why.push(Why {
                family,
                pairs: pairs.clone(),
                range: None,
                rule: rule.to_owned(),
            });
        }
    }

    fn guarded(&mut self, family: Version) -> &mut Guarded {
        match family {
            Version::V4 => &mut self.firewall.v4,
            Version::V6 => &mut self.firewall.v6,
        }
    }
}

/// Everything is closed as soon as there is anything.
pub(crate) fn closed(ins: &Links, outs: &Links, rules: &[String]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for rule in rules {
        verdicts.close_all(ins, outs, rule);
    }
    verdicts
}

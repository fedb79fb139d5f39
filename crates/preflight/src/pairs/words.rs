//! Verdicts in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Ends, Links, Verdicts, Version, Why};
use raddle_image::Reason;
use raddle_rib::firewall::{Guarded, Range};

/// Packets that are left to the kernel, and what may judge them there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Punted {
    /// Which packets, as `IPv4 from eth0 to eth1, eth2`.
    pub packets: String,
    /// The rule, in the words of the tool that shows it.
    pub rule: String,
    /// The name of the reason by which they are counted.
    #[serde(default = "of_firewall")]
    pub reason: String,
}

/// What a daemon that does not tell the reason knows of.
fn of_firewall() -> String {
    Reason::Firewall.name().to_owned()
}

impl Punted {
    /// The rule, and how the packets are counted where that is not as a firewall's.
    pub fn why(&self) -> String {
        match self.reason == of_firewall() {
            true => self.rule.clone(),
            false => format!("{} (counted as {})", self.rule, self.reason),
        }
    }
}

impl fmt::Display for Punted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.packets, self.why())
    }
}

impl Verdicts {
    /// What is left to the kernel of packets between these links, by index with their names, rule by rule.
    pub fn punted(&self, ins: &BTreeMap<u32, String>, outs: &BTreeMap<u32, String>) -> Vec<Punted> {
        let mut punted: Vec<Punted> = self
            .why
            .iter()
            .map(|why| Punted {
                packets: packets(why, ins, outs),
                rule: why.rule.clone(),
                reason: of_firewall(),
            })
            .collect();
        let of = [
            (Version::V4, &self.firewall.v4),
            (Version::V6, &self.firewall.v6),
        ];
        for ((version, of), who) in of.into_iter().zip(&self.tracked) {
            if !of.fragments && !of.icmp_errors {
                continue;
            }
            let who = who
                .as_deref()
                .unwrap_or("addresses are translated, or xfrm has policies");
            punted.push(Punted {
                packets: format!("{version} fragments and ICMP errors"),
                rule: who.to_owned(),
                reason: of_firewall(),
            });
        }
        punted.extend(self.ends.iter().map(|Ends { tunnels, rule }| {
            let names: Vec<&str> = tunnels.iter().map(String::as_str).collect();
            Punted {
                packets: format!("IPv4 and IPv6 that come in by {}", names.join(", ")),
                rule: format!("{rule} (what comes in by tunnels may meet it on its way)"),
                reason: of_firewall(),
            }
        }));
        punted
    }

    /// Leaves to the kernel all packets of families whose connections it tracks, so that they are in its table.
    pub fn punt_tracked(&mut self, ins: &BTreeMap<u32, String>, outs: &BTreeMap<u32, String>) {
        let of = [
            (Version::V4, &mut self.firewall.v4),
            (Version::V6, &mut self.firewall.v6),
        ];
        let all = ins.keys().flat_map(|a| outs.keys().map(move |b| (*a, *b)));
        let all: BTreeSet<(u32, u32)> = all.collect();
        for (i, (family, of)) in of.into_iter().enumerate() {
            let Some(who) = self.tracked[i].as_ref().filter(|_| self.connections[i]) else {
                continue;
            };
            of.pairs.clone_from(&all);
            of.ranges.clear();
            self.why.retain(|why| why.family != family);
            self.why.push(Why {
                family,
                pairs: all.clone(),
                range: None,
                rule: format!("{who}, and conntrack is to be punted"),
            });
        }
    }

    /// Whether no packet at all would be forwarded between these links, of the families that are forwarded (IPv4, IPv6).
    pub fn frees_nothing(
        &self,
        ins: &BTreeMap<u32, String>,
        outs: &BTreeMap<u32, String>,
        families: [bool; 2],
    ) -> bool {
        let pairs = || {
            let all = ins.keys().flat_map(|a| outs.keys().map(move |b| (*a, *b)));
            all.filter(|(a, b)| a != b)
        };
        let closed = |of: &Guarded| pairs().all(|pair| of.pairs.contains(&pair));
        let of = [&self.firewall.v4, &self.firewall.v6];
        let mut used = of.iter().zip(families).filter(|(_, used)| *used);
        pairs().next().is_some() && families.contains(&true) && used.all(|(of, _)| closed(of))
    }
}

fn packets(why: &Why, ins: &Links, outs: &Links) -> String {
    let mut by_in: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for &(a, b) in why.pairs.iter().filter(|(a, b)| a != b) {
        by_in.entry(a).or_default().insert(b);
    }
    // Of an in-link all others, whatever it is itself.
    let to_all = |a: u32, to: &BTreeSet<u32>| outs.keys().all(|b| *b == a || to.contains(b));
    let mut by_outs: BTreeMap<Option<BTreeSet<u32>>, BTreeSet<u32>> = BTreeMap::new();
    for (a, to) in by_in {
        let to = (!to_all(a, &to)).then_some(to);
        by_outs.entry(to).or_default().insert(a);
    }
    let names = |of: &BTreeSet<u32>, links: &Links| {
        let names: Vec<&str> = of
            .iter()
            .filter_map(|index| links.get(index).map(String::as_str))
            .collect();
        names.join(", ")
    };
    let mut parts: Vec<String> = by_outs
        .iter()
        .map(|(to, from)| {
            let all_ins = ins.keys().all(|a| from.contains(a));
            let from = match all_ins {
                true => "any link".to_owned(),
                false => names(from, ins),
            };
            match to {
                Some(to) => format!("from {from} to {}", names(to, outs)),
                None => format!("from {from}"),
            }
        })
        .collect();
    parts.sort();
    let addresses = why.range.as_ref().map(|range| addresses(why.family, range));
    let addresses = addresses.unwrap_or_default();
    format!("{}{addresses} {}", why.family, parts.join("; "))
        .trim_end()
        .to_owned()
}

fn addresses(version: Version, range: &Range) -> String {
    let show = |(first, last): (std::net::IpAddr, std::net::IpAddr)| {
        let ends = (Version::number(first).1, Version::number(last).1);
        (ends != (0, version.last())).then(|| version.show(ends))
    };
    match (show(range.src), show(range.dst)) {
        (None, None) => String::new(),
        (Some(src), None) => format!(" of {src}"),
        (None, Some(dst)) => format!(" to {dst}"),
        (Some(src), Some(dst)) => format!(" of {src} to {dst}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::firewall::Firewall;

    fn links(names: &[&str]) -> Links {
        let indices = 1..;
        indices
            .zip(names.iter().map(|name| (*name).to_owned()))
            .collect()
    }

    #[test]
    fn rules_are_told_with_their_packets() {
        let links = links(&["a", "b", "c"]);
        let all = |from: &[u32], to: &[u32]| {
            from.iter()
                .flat_map(|a| to.iter().map(move |b| (*a, *b)))
                .collect::<BTreeSet<_>>()
        };
        let range = Range {
            src: (
                "172.17.0.0".parse().unwrap(),
                "172.17.255.255".parse().unwrap(),
            ),
            dst: (
                "0.0.0.0".parse().unwrap(),
                "255.255.255.255".parse().unwrap(),
            ),
            ins: [1, 2].into(),
            outs: [3].into(),
        };
        let why = |pairs, range, rule: &str| Why {
            family: Version::V4,
            pairs,
            range,
            rule: rule.to_owned(),
        };
        let closed = all(&[1, 2], &[3]);
        let verdicts = Verdicts {
            firewall: Firewall {
                v4: Guarded {
                    pairs: closed.clone(),
                    fragments: true,
                    ..Guarded::default()
                },
                ..Firewall::default()
            },
            tracked: [Some("a rule turns on connection tracking".to_owned()), None],
            connections: [true, false],
            ends: Some(Ends {
                tunnels: ["gre1".to_owned(), "vxlan5".to_owned()].into(),
                rule: "nft inet t f has a rule".to_owned(),
            }),
            why: vec![
                why(closed.clone(), None, "to c"),
                why(all(&[1, 2, 3], &[1, 2, 3]), None, "all"),
                why(closed, Some(range), "a range"),
            ],
        };
        let punted = verdicts.punted(&links, &links);
        let said: Vec<String> = punted.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "IPv4 from a, b to c: to c",
                "IPv4 from any link: all",
                "IPv4 of 172.17.0.0/16 from a, b to c: a range",
                "IPv4 fragments and ICMP errors: a rule turns on connection tracking",
                "IPv4 and IPv6 that come in by gre1, vxlan5: nft inet t f has a rule (what comes in by tunnels may meet it on its way)",
            ]
        );
        assert!(!verdicts.frees_nothing(&links, &links, [true, true]));
        let mut left = verdicts.clone();
        left.punt_tracked(&links, &links);
        assert!(left.frees_nothing(&links, &links, [true, false]));
        assert!(!left.frees_nothing(&links, &links, [true, true]));
        let said = left.punted(&links, &links)[0].to_string();
        assert_eq!(
            said,
            "IPv4 from any link: a rule turns on connection tracking, and conntrack is to be punted"
        );
        let two: Links = [(1, "a".to_owned())].into();
        let out: Links = [(3, "c".to_owned())].into();
        assert!(verdicts.frees_nothing(&two, &out, [true, false]));
        assert!(!verdicts.frees_nothing(&two, &out, [true, true]));
        assert!(!verdicts.frees_nothing(&two, &two, [true, true]));
    }
}

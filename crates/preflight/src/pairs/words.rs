//! Verdicts in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Ends, Links, Verdicts, Version, Why};
use crate::Way;
use raddle_image::Reason;
use raddle_rib::firewall::{Block, Guarded, Pairs, Range};

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
        punted.extend(self.ends.iter().map(|ends| {
            let (packets, rule) = match ends {
                Ends::Tunnels { tunnels, rule } => {
                    let names = list(tunnels.iter().map(String::as_str));
                    (format!("IPv4 and IPv6 that come in by {names}"), rule)
                }
                Ends::Links { from, rule } => {
                    let names = list(from.iter().map(String::as_str));
                    (
                        format!("IPv4 and IPv6 that come in by tunnels from {names}"),
                        rule,
                    )
                }
            };
            Punted {
                packets,
                rule: rule.clone(),
                reason: of_firewall(),
            }
        }));
        punted
    }

    /// By name, the tunnels that nothing comes in by but by the kernel, and a rule that says so.
    pub fn not_in(&self) -> BTreeMap<String, String> {
        let of = self.ends.iter().filter_map(|ends| match ends {
            Ends::Tunnels { tunnels, rule } => Some((tunnels, rule)),
            Ends::Links { .. } => None,
        });
        let each = of.flat_map(|(tunnels, rule)| tunnels.iter().map(move |name| (name, rule)));
        each.map(|(name, rule)| (name.clone(), rule.clone()))
            .collect()
    }

    /// Leaves to the kernel all packets of families whose connections it tracks, so that they are in its table; where that is IPv4, which
    /// carries tunnels, all that comes in by these `tunnels` or leaves by one, too.
    pub fn punt_tracked(&mut self, ins: Way<'_>, outs: Way<'_>) {
        let tunnels = ins.each_tunnel();
        let by_tunnels = outs.by_tunnels();
        let (ins, outs) = (ins.links, outs.links);
        let of = [
            (Version::V4, &mut self.firewall.v4),
            (Version::V6, &mut self.firewall.v6),
        ];
        let all = |outs: BTreeSet<u32>| Block {
            ins: ins.keys().copied().collect(),
            outs,
        };
        let carried = self.connections[0];
        let carrier = self.tracked[0].clone();
        for (i, (family, of)) in of.into_iter().enumerate() {
            let (who, to) = match (&self.tracked[i], carried) {
                (Some(who), _) if self.connections[i] => (who, outs.keys().copied().collect()),
                // What leaves by a tunnel is IPv4 then, whatever is inside.
                (_, true) if !by_tunnels.is_empty() => match &carrier {
                    Some(who) => (who, by_tunnels.clone()),
                    None => continue,
                },
                _ => continue,
            };
            let closed = all(to);
            let keep = |block: &Block| Block {
                ins: block.ins.clone(),
                outs: block.outs.difference(&closed.outs).copied().collect(),
            };
            let kept = |pairs: &Pairs| pairs.blocks().iter().map(keep).collect::<Vec<Block>>();
            let blocks = kept(&of.pairs).into_iter().chain([closed.clone()]);
            of.pairs = Pairs::of_blocks(blocks);
            let rule = format!("{who}, and conntrack is to be punted");
            for range in &mut of.ranges {
                range.outs.retain(|out| !closed.outs.contains(out));
            }
            of.ranges.retain(|range| !range.outs.is_empty());
            for why in self.why.iter_mut().filter(|why| why.family == family) {
                why.pairs = Pairs::of_blocks(kept(&why.pairs));
            }
            self.why
                .retain(|why| why.family != family || !why.pairs.is_empty());
            self.why.push(Why {
                family,
                pairs: Pairs::of_blocks([closed]),
                range: None,
                rule,
            });
        }
        if let Some(who) = carrier.filter(|_| carried && !tunnels.is_empty()) {
            self.firewall.tunnels = tunnels.keys().copied().collect();
            self.ends = vec![Ends::Tunnels {
                tunnels: tunnels.into_values().collect(),
                rule: format!("{who}, and conntrack is to be punted"),
            }];
        }
    }

    /// Whether no packet at all would be forwarded between these links, of the families that are forwarded (IPv4, IPv6).
    pub fn frees_nothing(
        &self,
        ins: &BTreeMap<u32, String>,
        outs: &BTreeMap<u32, String>,
        families: [bool; 2],
    ) -> bool {
        let is_free = |of: &Guarded| {
            // Links that are in the same blocks are alike; a packet does not leave by the link that it came in by.
            let rows = alike(of, ins, |block| &block.ins);
            let columns = alike(of, outs, |block| &block.outs);
            rows.iter().any(|(row, from)| {
                columns.iter().any(|(column, to)| {
                    let closed = row.intersection(column).next().is_some();
                    let pairs = from.len() > 1 || to.len() > 1 || from != to;
                    !closed && pairs
                })
            })
        };
        let other = |a: &u32| outs.keys().any(|b| a != b);
        let of = [&self.firewall.v4, &self.firewall.v6];
        let mut used = of.iter().zip(families).filter(|(_, used)| *used);
        ins.keys().any(other) && families.contains(&true) && !used.any(|(of, _)| is_free(of))
    }
}

/// Links by the blocks of pairs that they are in.
fn alike(
    of: &Guarded,
    links: &Links,
    side: impl Fn(&Block) -> &BTreeSet<u32>,
) -> BTreeMap<BTreeSet<usize>, BTreeSet<u32>> {
    let mut alike: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for &index in links.keys() {
        let blocks = of.pairs.blocks().iter().enumerate();
        let blocks = blocks.filter(|(_, block)| side(block).contains(&index));
        alike
            .entry(blocks.map(|(i, _)| i).collect())
            .or_default()
            .insert(index);
    }
    alike
}

/// So many names are told, of more the first ones and how many others there are.
const NAMED_MOST: usize = 16;

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len().checked_sub(NAMED_MOST) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED_MOST].join(", ")),
    }
}

fn packets(why: &Why, ins: &Links, outs: &Links) -> String {
    // Of an in-link all others, whatever it is itself.
    let mut by_outs: BTreeMap<Option<BTreeSet<u32>>, BTreeSet<u32>> = BTreeMap::new();
    for block in why.pairs.blocks() {
        let missing: Vec<u32> = outs
            .keys()
            .copied()
            .filter(|b| !block.outs.contains(b))
            .collect();
        for &a in &block.ins {
            let to = match missing[..] {
                [] => None,
                [b] if b == a => None,
                _ => Some(&block.outs),
            };
            // It leaves by no link that it came in by, which is not said of hundreds.
            let to = to.map(|to| match to.contains(&a) {
                true if block.ins.len() <= NAMED_MOST => {
                    to.iter().copied().filter(|b| *b != a).collect()
                }
                _ => to.clone(),
            });
            if to.as_ref().is_none_or(|to: &BTreeSet<u32>| !to.is_empty()) {
                by_outs.entry(to).or_default().insert(a);
            }
        }
    }
    let names = |of: &BTreeSet<u32>, links: &Links| {
        list(
            of.iter()
                .filter_map(|index| links.get(index).map(String::as_str)),
        )
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
                .collect::<Pairs>()
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
            ends: vec![
                Ends::Tunnels {
                    tunnels: ["gre1".to_owned(), "vxlan5".to_owned()].into(),
                    rule: "a drop".to_owned(),
                },
                Ends::Links {
                    from: ["a".to_owned()].into(),
                    rule: "another".to_owned(),
                },
            ],
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
                "IPv4 and IPv6 that come in by gre1, vxlan5: a drop",
                "IPv4 and IPv6 that come in by tunnels from a: another",
            ]
        );
        assert!(!verdicts.frees_nothing(&links, &links, [true, true]));
        let none = crate::Beneath::new();
        let mut left = verdicts.clone();
        left.punt_tracked(Way::of(&links, &none), Way::of(&links, &none));
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

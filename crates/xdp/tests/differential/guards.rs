//! Drawn findings about a firewall, and what follows from them for a frame, reckoned from the frame and the finding alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::Ports;
use raddle_rib::event::{Event, RULE_OTHER_INVERT, Rule};
use raddle_rib::firewall::{Firewall, Guarded, Range};

use crate::state::{Indices, address};

/// What a look at these links has found, by number 1 to 4; none where nobody looked.
pub(crate) fn firewall() -> impl Strategy<Value = Option<(Vec<u32>, Firewall)>> {
    let out = || 1..=4u32;
    let range = |v6: bool| {
        let ends = (any::<u8>(), 0..40u8).prop_map(move |(first, more)| {
            let last = first.saturating_add(more);
            (address(v6, first), address(v6, last))
        });
        let all = match v6 {
            true => (
                Ipv6Addr::UNSPECIFIED.into(),
                Ipv6Addr::from([255; 16]).into(),
            ),
            false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        };
        let ends = prop_oneof![2 => ends, 1 => Just(all)];
        let ins = prop_oneof![4 => Just(vec![1u32]), 1 => Just(vec![2])];
        let outs = proptest::collection::btree_set(out(), 1..4);
        (ends.clone(), ends, ins, outs).prop_map(|(src, dst, ins, outs)| Range {
            src,
            dst,
            ins: ins.into_iter().collect(),
            outs,
        })
    };
    let guarded = move |v6: bool| {
        let pairs = proptest::collection::btree_set((1..=2u32, out()), 0..3);
        let ranges = prop_oneof![
            3 => proptest::collection::vec(range(v6), 0..3),
            1 => proptest::collection::vec(range(v6), 14..20),
        ];
        (pairs, ranges, any::<(bool, bool, bool)>()).prop_map(|(pairs, ranges, bits)| Guarded {
            pairs: pairs.into_iter().collect(),
            ranges,
            fragments: bits.0 && bits.2,
            icmp_errors: bits.1 && bits.2,
        })
    };
    let looked_at =
        prop_oneof![6 => Just(vec![1, 2, 3, 4]), 1 => Just(vec![1, 2, 4]), 1 => Just(vec![2, 3])];
    let found = (looked_at, guarded(false), guarded(true), any::<bool>());
    let found = found.prop_map(|(looked_at, v4, v6, segments)| {
        let firewall = Firewall {
            v4,
            v6,
            segments,
            ..Firewall::default()
        };
        Some((looked_at, firewall))
    });
    prop_oneof![1 => Just(None), 1 => found]
}

/// Routing rules by what packets show and by link, besides those that every machine has; mostly none.
pub(crate) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let net = |v6: bool| {
        let lengths = if v6 { 118..=128u8 } else { 24..=32 };
        let net = (any::<u8>(), lengths)
            .prop_map(move |(n, len)| IpNet::new(address(v6, n), len).unwrap().trunc());
        proptest::option::of(net)
    };
    let ports = || {
        let range =
            (any::<u16>(), any::<u16>()).prop_map(|(a, b)| (a.min(b).max(1), a.max(b).max(1)));
        proptest::option::weighted(0.3, range)
    };
    let proto = || proptest::sample::select(vec![6u8, 17, 17, 1, 58, 47, 50]);
    let shown = move || {
        let proto = proptest::option::weighted(0.3, proto());
        (
            ports(),
            ports(),
            proto,
            prop_oneof![4 => Just(0u8), 1 => any::<u8>()],
        )
    };
    let odd = || prop_oneof![8 => Just(false), 1 => Just(true)];
    let rule = any::<bool>().prop_flat_map(move |v6| {
        let nets = (net(v6), net(v6));
        (nets, any::<bool>(), odd(), 1..4u32, shown(), 100..104u32).prop_map(
            move |((from, to), not, odd, table, (sport, dport, ip_proto, tos), priority)| Rule {
                family: if v6 { 6 } else { 4 },
                priority,
                table,
                action: 1,
                from,
                to: to.or_else(|| {
                    from.is_none()
                        .then(|| IpNet::new(address(v6, 0), 24).unwrap().trunc())
                }),
                tos: if tos & 1 == 0 && !v6 { tos & 0x1c } else { 0 },
                dscp: (tos & 1 != 0 || tos != 0 && v6).then_some(tos >> 2),
                ip_proto,
                sport,
                dport,
                other: match (not, odd) {
                    (true, _) => vec![RULE_OTHER_INVERT],
                    (false, true) => vec![13],
                    (false, false) => Vec::new(),
                },
                ..Rule::default()
            },
        )
    });
    let all = |family, priority, table| Rule {
        family,
        priority,
        table,
        action: 1,
        ..Rule::default()
    };
    let usual = [(4, 0, 255), (4, 32766, 254), (6, 0, 255), (6, 32766, 254)];
    let usual = usual.map(|(family, priority, table)| all(family, priority, table));
    let some = proptest::collection::vec(rule, 1..6);
    // By these packets are filtered apart that leave by the link.
    let by_link = proptest::collection::btree_set(2..=4u32, 1..3).prop_map(move |links| {
        let rule = |n: &u32| Rule {
            iif: Some(format!("l{n}")),
            ..all(4, 90, 7)
        };
        links.iter().map(rule).collect::<Vec<Rule>>()
    });
    let some = (some, prop_oneof![Just(Vec::new()), by_link]).prop_map(move |(some, by_link)| {
        let all = usual.iter().cloned().chain(some);
        all.chain(by_link).collect()
    });
    prop_oneof![2 => Just(Vec::new()), 1 => some]
}

/// The tables of routes, of which rules lead to some.
pub(crate) fn tables() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(
        proptest::sample::select(vec![254u32, 254, 254, 1, 2, 3]),
        60,
    )
}

/// Has routes in these tables, one after the other.
pub(crate) fn spread(events: &mut [Event], tables: &[u32]) {
    let routes = events.iter_mut().filter_map(|event| match event {
        Event::Route(route, _) => Some(route),
        _ => None,
    });
    for (route, table) in routes.zip(tables) {
        route.table = *table;
    }
}

/// What a frame that has no tag shows, read from its bytes; none where it has extension headers or is cut off.
struct Shown {
    family: u8,
    src: IpAddr,
    dst: IpAddr,
    tos: u8,
    proto: u8,
    sport: u16,
    dport: u16,
}

fn shown(frame: &[u8]) -> Option<Shown> {
    let v4 = frame.get(12..14)? == [0x08, 0x00];
    let ip = &frame[14..];
    let (src, dst, tos, proto, behind, end, whole) = match v4 {
        true => {
            let at = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
            let whole = ip.get(6)? & 0x3f | ip.get(7)? == 0;
            let end = u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]);
            (
                at(12)?,
                at(16)?,
                ip[1],
                *ip.get(9)?,
                20,
                usize::from(end),
                whole,
            )
        }
        false => {
            let at = |at: usize| {
                Some(IpAddr::from(
                    <[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?,
                ))
            };
            let tos = ip.first()? << 4 | ip.get(1)? >> 4;
            let end = 40 + u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]);
            (
                at(8)?,
                at(24)?,
                tos,
                *ip.get(6)?,
                40,
                usize::from(end),
                true,
            )
        }
    };
    if [0, 43, 44, 60].contains(&proto) && !v4 {
        return None;
    }
    let has_ports = [6, 17, 33, 50, 132, 136].contains(&proto);
    let at = if proto == 51 { behind + 4 } else { behind };
    let ports = match (has_ports || proto == 51) && whole && at + 4 <= end {
        true => ip.get(at..at + 4)?,
        false => &[0; 4],
    };
    Some(Shown {
        family: if v4 { 4 } else { 6 },
        src,
        dst,
        tos,
        proto,
        sport: u16::from_be_bytes([ports[0], ports[1]]),
        dport: u16::from_be_bytes([ports[2], ports[3]]),
    })
}

/// The rules as they are for a frame that shows this: those that ask for what it shows ask for nothing, the others never hold.
fn for_packets_like(rules: &[Rule], shown: &Shown) -> Vec<Rule> {
    let inside = |net: Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
    let within =
        |range: Option<(u16, u16)>, port| range.is_none_or(|(a, b)| (a..=b).contains(&port));
    let decided = |rule: &Rule| {
        let asks = rule.from.is_some() || rule.to.is_some();
        if rule.family != shown.family || !asks {
            return rule.clone();
        }
        let bits = if rule.family == 4 { 0x1c } else { 0xfc };
        let holds = inside(rule.from, shown.src)
            && inside(rule.to, shown.dst)
            && (rule.tos == 0 || rule.tos == shown.tos & bits)
            && rule.dscp.is_none_or(|dscp| dscp == shown.tos >> 2)
            && rule.ip_proto.is_none_or(|proto| proto == shown.proto)
            && within(rule.sport, shown.sport)
            && within(rule.dport, shown.dport);
        let not = rule.other.contains(&RULE_OTHER_INVERT);
        Rule {
            family: rule.family,
            priority: rule.priority,
            table: rule.table,
            action: rule.action,
            oif: (holds == not).then(|| "nowhere".to_owned()),
            other: rule
                .other
                .iter()
                .copied()
                .filter(|other| *other == 13)
                .collect(),
            ..Rule::default()
        }
    };
    rules.iter().map(decided).collect()
}

/// Engines of states in which rules ask for no packets, by the rules.
#[derive(Default)]
pub(crate) struct ByRules {
    engines: Vec<(Vec<Rule>, raddle_forward::Engine)>,
}

impl ByRules {
    /// What becomes of a frame where rules lead all packets where `rules` lead this one; none where that is not known here. `make` is
    /// the state with other rules. With whether a rule asks for it.
    pub(crate) fn verdict(
        &mut self,
        rules: &[Rule],
        frame: &[u8],
        ingress: u32,
        make: impl FnOnce(&[Rule]) -> raddle_forward::Engine,
    ) -> Option<(raddle_forward::Verdict, bool)> {
        let asks = |rule: &Rule| rule.from.is_some() || rule.to.is_some();
        let before = rules;
        let rules = for_packets_like(rules, &shown(frame)?);
        let mut both = before.iter().zip(&rules);
        let asked = both.any(|(before, now)| asks(before) && !asks(now) && now.oif.is_none());
        let known = self.engines.iter().position(|(known, _)| *known == rules);
        let place = known.unwrap_or_else(|| {
            let engine = make(&rules);
            self.engines.push((rules, engine));
            self.engines.len() - 1
        });
        let engine = &mut self.engines[place].1;
        Some((engine.forward(&mut frame.to_vec(), ingress, 0), asked))
    }
}

/// The same of the real links.
pub(crate) fn of_links(
    found: &Option<(Vec<u32>, Firewall)>,
    indices: Indices,
) -> Option<(Ports, Firewall)> {
    let (looked_at, mut firewall) = found.clone()?;
    let real = |n: &u32| indices[*n as usize - 1];
    for of in [&mut firewall.v4, &mut firewall.v6] {
        of.pairs = of.pairs.iter().map(|(a, b)| (real(&a), real(&b))).collect();
        for range in &mut of.ranges {
            range.ins = range.ins.iter().map(real).collect();
            range.outs = range.outs.iter().map(real).collect();
        }
    }
    let links: std::collections::BTreeSet<u32> = looked_at.iter().map(real).collect();
    let ports = Ports {
        enabled: links.clone(),
        out: links,
    };
    Some((ports, firewall))
}

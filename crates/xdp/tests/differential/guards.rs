//! Drawn findings about a firewall, and what follows from them for a frame, reckoned from the frame and the finding alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::Ports;
use raddle_rib::event::{RULE_OTHER_INVERT, Rule};
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
            pairs,
            ranges,
            fragments: bits.0 && bits.2,
            icmp_errors: bits.1 && bits.2,
        })
    };
    let looked_at =
        prop_oneof![6 => Just(vec![1, 2, 3, 4]), 1 => Just(vec![1, 2, 4]), 1 => Just(vec![2, 3])];
    let found = (looked_at, guarded(false), guarded(true), any::<bool>());
    let found = found
        .prop_map(|(looked_at, v4, v6, segments)| Some((looked_at, Firewall { v4, v6, segments })));
    prop_oneof![1 => Just(None), 1 => found]
}

/// Routing rules by address and by link, besides those that every machine has; mostly none.
pub(crate) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let net = |v6: bool| {
        let lengths = if v6 { 118..=128u8 } else { 24..=32 };
        let net = (any::<u8>(), lengths)
            .prop_map(move |(n, len)| IpNet::new(address(v6, n), len).unwrap().trunc());
        proptest::option::of(net)
    };
    let rule = any::<bool>().prop_flat_map(move |v6| {
        (net(v6), net(v6), any::<bool>(), 1..4u32).prop_map(move |(from, to, not, table)| Rule {
            family: if v6 { 6 } else { 4 },
            priority: 100,
            table,
            action: 1,
            from,
            to: to.or_else(|| {
                from.is_none()
                    .then(|| IpNet::new(address(v6, 0), 24).unwrap().trunc())
            }),
            other: if not {
                vec![RULE_OTHER_INVERT]
            } else {
                Vec::new()
            },
            ..Rule::default()
        })
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
    let some = proptest::collection::vec(rule, 1..4);
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

/// Whether a rule asks for the addresses of a frame that has no tag.
pub(crate) fn is_asked_for(rules: &[Rule], frame: &[u8]) -> bool {
    let (family, src, dst) = match frame[12..14] {
        [0x08, 0x00] => {
            let at = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap());
            (4, at(26), at(30))
        }
        _ => {
            let at = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
            (6, at(22), at(38))
        }
    };
    let inside = |net: Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
    let of_family = rules.iter().filter(|rule| rule.family == family);
    let mut by_address = of_family.filter(|rule| rule.from.is_some() || rule.to.is_some());
    by_address.any(|rule| inside(rule.from, src) && inside(rule.to, dst))
}

/// The same of the real links.
pub(crate) fn of_links(
    found: &Option<(Vec<u32>, Firewall)>,
    indices: Indices,
) -> Option<(Ports, Firewall)> {
    let (looked_at, mut firewall) = found.clone()?;
    let real = |n: &u32| indices[*n as usize - 1];
    for of in [&mut firewall.v4, &mut firewall.v6] {
        of.pairs = of.pairs.iter().map(|(a, b)| (real(a), real(b))).collect();
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

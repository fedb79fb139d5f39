//! Rules as they are followed, and told.

use proptest::prelude::*;

use super::*;

fn rule(priority: u32, table: u32) -> Rule {
    Rule {
        family: 4,
        priority,
        table,
        action: TO_TABLE,
        ..Rule::default()
    }
}

const ETH0: Arrival<'_> = Arrival::Link("eth0", &[]);
const RED: Arrival<'_> = Arrival::Vrf {
    name: "red",
    slave: "eth1",
    table: Some(70),
    others: [&[], &[]],
};

fn all(tables: &[u32]) -> Result<Lookup, Reason> {
    Ok(Lookup::plain(tables.iter().copied()))
}

fn from() -> Rule {
    Rule {
        from: Some("10.0.0.0/8".parse().unwrap()),
        ..rule(50, 9)
    }
}

#[test]
fn plain_rules_name_their_tables_in_order() {
    let rules = [rule(32766, 254), rule(0, 255), rule(100, 7), rule(200, 254)];
    assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 7, 254]));
    assert_eq!(lookup_for(&rules, 6, ETH0), all(&[255, 254]));
}

#[test]
fn an_input_link_selects() {
    let iif = Rule {
        iif: Some("eth1".into()),
        ..rule(50, 9)
    };
    let not = Rule {
        other: vec![RULE_OTHER_INVERT],
        ..iif.clone()
    };
    let eth1 = Arrival::Link("eth1", &[]);
    let rules = [rule(0, 255), iif, rule(32766, 254)];
    assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 254]));
    assert_eq!(lookup_for(&rules, 4, eth1), all(&[255, 9, 254]));
    let rules = [rule(0, 255), not, rule(32766, 254)];
    assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 9, 254]));
    assert_eq!(lookup_for(&rules, 4, eth1), all(&[255, 254]));
}

/// Of one link, and of a VRF and its links.
#[test]
fn rules_for_alternative_names_are_the_kernels() {
    let iif = Rule {
        iif: Some("enp0s3".into()),
        ..rule(50, 9)
    };
    let rules = [rule(0, 255), iif, rule(32766, 254)];
    let others = ["enp0s3".to_owned()];
    let named = Arrival::Link("eth0", &others);
    assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 254]));
    assert_eq!(lookup_for(&rules, 4, named), Err(Reason::Rules));
    for others in [[&others[..], &[]], [&[], &others]] {
        let slave = Arrival::Vrf {
            name: "red",
            slave: "eth0",
            table: Some(77),
            others,
        };
        assert_eq!(lookup_for(&rules, 4, slave), Err(Reason::Rules));
    }
}

/// What the mirror tells of rules, as the state keeps them.
#[test]
fn rules_are_kept_as_the_kernel_has_them() {
    use crate::event::{Event, Sweep};
    let mut rib = crate::Rib::detached();
    let dst = "198.18.0.1".parse().unwrap();
    let tables = |rib: &crate::Rib| {
        rib.trace("eth0", dst)
            .lookup
            .map(|lookup| lookup.tables.iter().map(|t| t.table).collect::<Vec<_>>())
    };
    assert_eq!(
        tables(&rib),
        Ok(vec![255, 254, 253]),
        "nothing is known yet"
    );
    let sweep = |rib: &mut crate::Rib, rules: &[Rule]| {
        rib.apply(Event::SweepBegin(Sweep::Rules));
        rules
            .iter()
            .for_each(|rule| rib.apply(Event::Rule(rule.clone())));
        rib.apply(Event::SweepEnd(Sweep::Rules));
    };
    sweep(&mut rib, &[rule(7, 1), rule(7, 2)]);
    assert_eq!(tables(&rib), Ok(vec![1, 2]));
    // The first one went and came again, unseen.
    sweep(&mut rib, &[rule(7, 2), rule(7, 1)]);
    assert_eq!(tables(&rib), Ok(vec![2, 1]));
    // Two that differ by what is not kept: which one went, only a dump tells.
    let odd = Rule {
        other: vec![13],
        ..rule(6, 3)
    };
    rib.apply(Event::Rule(odd.clone()));
    rib.apply(Event::Rule(odd.clone()));
    rib.apply(Event::RuleGone(odd));
    assert_eq!(tables(&rib), Err(Reason::Rules));
    sweep(&mut rib, &[rule(7, 1)]);
    assert_eq!(tables(&rib), Ok(vec![1]));
    // The last one goes: nothing is looked up, and the same after a dump.
    rib.apply(Event::RuleGone(rule(7, 1)));
    assert_eq!(tables(&rib), Ok(vec![]));
    sweep(&mut rib, &[]);
    assert_eq!(tables(&rib), Ok(vec![]));
    rib.apply(Event::Rule(rule(7, 1)));
    assert_eq!(tables(&rib), Ok(vec![1]));
    assert_eq!(rib.rules(), [rule(7, 1), Rule::none(6)]);
}

/// Until a first rule has come, the kernel looks for the longest prefix of both tables.
#[test]
fn what_is_not_usual_in_table_local_is_the_kernels() {
    use crate::Resolved;
    use crate::event::{Event, Route, RouteKind, RouteOp};
    let mut rib = crate::Rib::detached();
    let mut route = |kind, table| {
        rib.apply(Event::Route(
            Route {
                dst: "198.18.0.0/15".parse().unwrap(),
                table,
                kind,
                ..Route::default()
            },
            RouteOp::Add,
        ));
        rib.trace("eth0", "198.18.0.1".parse().unwrap()).resolved
    };
    assert_eq!(
        route(RouteKind::Blackhole, 254),
        Resolved::Kernel(Reason::Blackhole)
    );
    assert_eq!(
        route(RouteKind::Blackhole, 255),
        Resolved::Kernel(Reason::RouteFeature)
    );
}

/// `wg-quick`'s: main's longer routes, then the tunnel's table for all that it has not sent itself.
#[test]
fn marks_are_zero_and_short_routes_are_passed_over() {
    let main = Rule {
        suppress_prefixlength: Some(0),
        ..rule(32764, 254)
    };
    let tunnel = Rule {
        fwmark: Some((0xca6c, u32::MAX)),
        other: vec![RULE_OTHER_INVERT],
        ..rule(32765, 51820)
    };
    let marked = Rule {
        fwmark: Some((0x80000, 0xff0000)),
        ..rule(5210, 52)
    };
    let unmarked = Rule {
        fwmark: Some((0, 0xff)),
        ..rule(5211, 53)
    };
    let rules = [
        rule(0, 255),
        marked,
        unmarked,
        main,
        tunnel,
        rule(32766, 254),
    ];
    let lookup = lookup_for(&rules, 4, ETH0).unwrap();
    let suppressed = TableLookup {
        table: 254,
        suppress: Some(0),
    };
    let expected = [
        TableLookup::all(255),
        TableLookup::all(53),
        suppressed,
        TableLookup::all(51820),
        TableLookup::all(254),
    ];
    assert_eq!(lookup.tables, expected);
    assert!(suppressed.passes_over(0, false));
    assert!(!suppressed.passes_over(0, true) && !suppressed.passes_over(1, false));
}

#[test]
fn a_vrf_has_its_table_and_its_name() {
    let rules = |family, iif: &str| {
        let l3mdev = Rule {
            other: vec![RULE_OTHER_L3MDEV],
            ..rule(1000, 0)
        };
        let iif = Rule {
            iif: Some(iif.into()),
            ..rule(2000, 9)
        };
        let all = [rule(0, 255), l3mdev, iif, rule(32766, 254)];
        all.map(|rule| Rule { family, ..rule })
    };
    // IPv6 comes in by the VRF, IPv4 by its link; whether a rule for the VRF is asked about IPv4 depends on the kernel.
    for (family, iif, by_link, in_red) in [
        (6, "red", all(&[255, 254]), all(&[255, 70, 9, 254])),
        (6, "eth1", all(&[255, 254]), all(&[255, 70, 254])),
        (4, "red", all(&[255, 254]), Err(Reason::Rules)),
        (4, "eth1", all(&[255, 254]), all(&[255, 70, 9, 254])),
        (4, "eth0", all(&[255, 9, 254]), all(&[255, 70, 254])),
    ] {
        let rules = rules(family, iif);
        assert_eq!(lookup_for(&rules, family, ETH0), by_link, "{iif}");
        assert_eq!(lookup_for(&rules, family, RED), in_red, "{iif}");
    }
    let rules = rules(4, "eth1");
    let unknown = Arrival::Vrf {
        name: "red",
        slave: "eth1",
        table: None,
        others: [&[], &[]],
    };
    assert_eq!(lookup_for(&rules, 4, unknown), Err(Reason::Rules));
    assert_eq!(rule_beyond_engines(&rules, 4, ETH0), None);
    let said = "1000: from all lookup [l3mdev-table]";
    assert_eq!(describe_rule(&rules[1]), said);
}

#[test]
fn goto_passes_over_what_lies_between() {
    let goto = |target| Rule {
        action: GOTO,
        goto: Some(target),
        ..rule(50, 0)
    };
    let nop = Rule {
        action: NOP,
        ..rule(300, 0)
    };
    let last = rule(32766, 254);
    let between = |goto| [rule(0, 255), goto, rule(100, 7), nop.clone(), last.clone()];
    let found = lookup_for(&between(goto(300)), 4, ETH0);
    assert_eq!(found, all(&[255, 254]));
    // There is no such rule.
    let found = lookup_for(&between(goto(200)), 4, ETH0);
    assert_eq!(found, all(&[255, 7, 254]));
    assert_eq!(describe_rule(&goto(300)), "50: from all goto 300");
}

#[test]
fn a_rule_that_refuses_ends_the_lookup() {
    for (action, end) in [(7, Reason::Unreachable), (8, Reason::Prohibit)] {
        let refuses = Rule {
            action,
            ..rule(100, 0)
        };
        let lookup = lookup_for(&[rule(0, 255), refuses, rule(32766, 254)], 4, ETH0).unwrap();
        let expected = (vec![TableLookup::all(255)], end);
        assert_eq!((lookup.tables, lookup.end), expected);
    }
}

#[test]
fn the_rule_that_stops_the_engines_is_named() {
    let by_protocol = |priority| Rule {
        other: vec![22],
        ..rule(priority, 9)
    };
    let rules = [
        rule(32766, 254),
        by_protocol(60),
        by_protocol(50),
        rule(0, 255),
    ];
    let found = rule_beyond_engines(&rules, 4, ETH0).unwrap();
    assert_eq!(found.priority, 50);
    assert_eq!(rule_beyond_engines(&rules, 6, ETH0), None);
    assert_eq!(rule_beyond_engines(&rules[..1], 4, ETH0), None);
}

#[test]
fn rules_that_ask_for_packets_set_them_apart() {
    let not = Rule {
        priority: 51,
        other: vec![RULE_OTHER_INVERT],
        ..from()
    };
    let ports = Rule {
        priority: 52,
        dport: Some((80, 80)),
        to: Some("10.9.0.0/16".parse().unwrap()),
        ..from()
    };
    let odd = Rule {
        other: vec![RULE_OTHER_INVERT, 13],
        ..ports.clone()
    };
    let rules = [rule(0, 255), from(), not, ports.clone(), rule(32766, 254)];
    let apart = lookup_apart(&rules, 4, ETH0).unwrap();
    assert_eq!(Ok(apart.lookup), all(&[255, 9, 254]));
    assert_eq!(apart.by_packet, [&rules[1], &rules[2], &rules[3]]);
    assert_eq!(lookup_for(&rules, 4, ETH0), Err(Reason::Rules));
    assert_eq!(lookup_apart(std::slice::from_ref(&odd), 4, ETH0), Err(&odd));
    let many: Vec<Rule> = (1..10)
        .map(|priority| Rule { priority, ..from() })
        .collect();
    assert!(lookup_apart(&many[..8], 4, ETH0).is_ok());
    assert_eq!(lookup_apart(&many, 4, ETH0), Err(&many[8]));
}

#[test]
fn what_several_rules_ask_for_is_a_cell_of_its_own() {
    let by_port = Rule {
        dport: Some((80, 443)),
        ip_proto: Some(6),
        ..rule(60, 10)
    };
    let end = Rule {
        action: 7,
        tos: 0x10,
        ..rule(70, 0)
    };
    // What this one leads to nobody knows.
    let odd = Rule {
        sport: Some((5, 5)),
        other: vec![13],
        ..rule(80, 11)
    };
    let rules = [rule(0, 255), from(), by_port, end, odd, rule(32766, 254)];
    let apart = lookup_apart(&rules, 4, ETH0).unwrap();
    assert_eq!(Ok(apart.lookup), all(&[255, 254]));
    let cells = cells(&rules, 4, ETH0, &apart.by_packet);
    let fields = |src: &str, tos, proto, sport, dport| Fields {
        src: src.parse().unwrap(),
        dst: "198.18.0.1".parse().unwrap(),
        tos,
        proto,
        sport,
        dport,
    };
    let of = |fields: Fields| {
        let cell = cells.iter().find(|cell| cell.asked.holds(&fields));
        let found = cell.map(|cell| cell.lookup.clone().ok_or(Reason::Rules));
        let itself = lookup_of(&rules, 4, ETH0, &fields).map_err(|_| Reason::Rules);
        assert_eq!(found.unwrap_or_else(|| all(&[255, 254])), itself);
        itself
    };
    let refused = |tables: &[u32]| {
        all(tables).map(|lookup| Lookup {
            end: Reason::Unreachable,
            ..lookup
        })
    };
    assert_eq!(of(fields("192.0.2.1", 0, 17, 1, 80)), all(&[255, 254]));
    assert_eq!(of(fields("10.0.0.1", 0, 17, 1, 80)), all(&[255, 9, 254]));
    assert_eq!(of(fields("10.0.0.1", 0, 6, 1, 80)), all(&[255, 9, 10, 254]));
    assert_eq!(of(fields("192.0.2.1", 0, 6, 1, 444)), all(&[255, 254]));
    // Two bits of ECN, and three that only IPv6 looks at.
    assert_eq!(
        of(fields("10.0.0.1", 0xf3, 6, 1, 80)),
        refused(&[255, 9, 10])
    );
    assert_eq!(of(fields("192.0.2.1", 0x14, 6, 1, 1)), all(&[255, 254]));
    assert_eq!(of(fields("192.0.2.1", 0, 6, 5, 1)), Err(Reason::Rules));
    // Whatever rules come before it: the end of the look-up is known.
    assert_eq!(of(fields("192.0.2.1", 0x10, 6, 5, 1)), refused(&[255]));
}

proptest! {
    /// The first cell that a packet is of says of it what the rules say that are asked one after the other.
    #[test]
    fn cells_are_what_rules_make_of_packets(rules in drawn::rules(), packets in proptest::collection::vec(drawn::fields(), 40)) {
        let Ok(apart) = lookup_apart(&rules, 4, ETH0) else { return Ok(()) };
        let cells = cells(&rules, 4, ETH0, &apart.by_packet);
        let many = cells.iter().all(|cell| cell.lookup.is_none());
        // Of a whole box nothing is said that is not true of each packet in it.
        for (asked, fields) in packets.iter().flat_map(|fields| [fields.src, fields.dst].map(|to| (Asked::to(to), fields))) {
            let said = asked.holds(fields).then(|| lookup_all(&rules, 4, ETH0, &asked).ok()).flatten();
            prop_assert!(said.is_none() || said == lookup_of(&rules, 4, ETH0, fields).ok(), "{:?}", fields);
        }
        for fields in packets {
            let expected = lookup_of(&rules, 4, ETH0, &fields).ok();
            let cell = cells.iter().find(|cell| cell.asked.holds(&fields));
            match cell {
                None => prop_assert_eq!(expected.as_ref(), Some(&apart.lookup), "{:?}", fields),
                Some(cell) if many => prop_assert_eq!(&cell.lookup, &None),
                Some(cell) => prop_assert_eq!(&cell.lookup, &expected, "{:?}", fields),
            }
            // Cells of several links stand in one order, where others that it is no part of may come first.
            let held = || cells.iter().filter(|cell| cell.asked.holds(&fields));
            for cell in held() {
                let mut others = held().filter(|other| other.asked != cell.asked);
                if !many && !others.any(|other| cell.asked.contains(&other.asked)) {
                    prop_assert_eq!(&cell.lookup, &expected, "{:?}", fields);
                }
            }
        }
    }
}

/// Rules and packets that meet often.
mod drawn {
    use super::*;

    pub(super) fn rules() -> impl Strategy<Value = Vec<Rule>> {
        let net = || proptest::option::weighted(0.3, (0..4u8, 22..=24u8));
        let net = move || {
            net().prop_map(|net| {
                let (n, len) = net?;
                Some(
                    ipnet::IpNet::new([10, 0, n, 0].into(), len)
                        .unwrap()
                        .trunc(),
                )
            })
        };
        let ports = || {
            let range = (0..4u16, 0..4u16).prop_map(|(first, more)| (first + 1, first + 1 + more));
            proptest::option::weighted(0.3, range)
        };
        let shown = (
            0..6u8,
            proptest::option::weighted(0.3, 0..2u8),
            ports(),
            ports(),
        );
        let action = proptest::sample::select(vec![1u8, 1, 1, 1, 2, 3, 7]);
        let other = proptest::sample::select(vec![
            vec![],
            vec![],
            vec![],
            vec![RULE_OTHER_INVERT],
            vec![13],
        ]);
        let rule = ((net(), net()), shown, action, other, 1..9u32, 1..5u32).prop_map(
            |((from, to), (tos, proto, sport, dport), action, other, priority, far)| Rule {
                from,
                to,
                tos: if tos < 2 { 4 * (tos + 1) } else { 0 },
                dscp: (tos == 2).then_some(3),
                ip_proto: proto.map(|proto| [6, 17][usize::from(proto)]),
                sport,
                dport,
                action,
                goto: (action == 2).then_some(priority + far),
                other,
                ..super::rule(priority, 10 + far)
            },
        );
        proptest::collection::vec(rule, 1..6).prop_map(|mut rules| {
            rules.push(super::rule(0, 255));
            rules.push(super::rule(32766, 254));
            rules
        })
    }

    pub(super) fn fields() -> impl Strategy<Value = Fields> {
        let address = || (0..5u8).prop_map(|n| [10, 0, n, 1].into());
        let rest = (
            0..16u8,
            proptest::sample::select(vec![1u8, 6, 17]),
            0..9u16,
            0..9u16,
        );
        (address(), address(), rest).prop_map(|(src, dst, (tos, proto, sport, dport))| Fields {
            src,
            dst,
            tos,
            proto,
            sport,
            dport,
        })
    }
}

#[test]
fn what_is_not_modelled_is_the_kernels() {
    let uids = |first| Rule {
        uidrange: Some((first, 2000)),
        ..rule(50, 9)
    };
    let odd = [
        from(),
        // A blackhole.
        Rule {
            action: 6,
            ..rule(50, 0)
        },
        Rule {
            other: vec![13],
            ..rule(50, 9)
        },
        uids(0),
        // Never, turned round, and with `suppress_ifgroup`.
        Rule {
            fwmark: Some((1, u32::MAX)),
            other: vec![RULE_OTHER_INVERT, 13],
            ..rule(50, 9)
        },
    ];
    for odd in odd {
        let rules = [rule(0, 255), odd];
        assert_eq!(lookup_for(&rules, 4, ETH0), Err(Reason::Rules));
    }
    // What never matches need not be known any better, and what always does not either.
    let output = Rule {
        oif: Some("eth1".into()),
        other: vec![13],
        ..rule(50, 9)
    };
    let not_output = Rule {
        other: vec![RULE_OTHER_INVERT],
        oif: Some("eth1".into()),
        ..from()
    };
    for (odd, tables) in [
        (output, &[255][..]),
        (uids(1000), &[255]),
        (not_output, &[255, 9]),
    ] {
        let rules = [rule(0, 255), odd];
        assert_eq!(lookup_for(&rules, 4, ETH0), all(tables));
    }
}

#[test]
fn rules_are_told_as_ip_does() {
    for (odd, said) in [
        (
            Rule {
                other: vec![RULE_OTHER_INVERT, 13],
                to: Some("10.0.0.7/32".parse().unwrap()),
                tos: 0x10,
                ip_proto: Some(6),
                sport: Some((5, 5)),
                dport: Some((80, 90)),
                ..rule(5, 7)
            },
            "5: not from all to 10.0.0.7 tos 0x10 ipproto tcp sport 5 dport 80-90 suppress_ifgroup ... lookup 7",
        ),
        (
            Rule {
                action: 7,
                from: Some("10.0.0.0/8".parse().unwrap()),
                ..rule(5, 0)
            },
            "5: from 10.0.0.0/8 unreachable",
        ),
        (
            Rule {
                uidrange: Some((5, 7)),
                suppress_prefixlength: Some(16),
                ..rule(5, 254)
            },
            "5: from all uidrange 5-7 lookup main suppress_prefixlength 16",
        ),
    ] {
        assert_eq!(describe_rule(&odd), said);
    }
}

//! Rules as they are followed, and told.

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

const ETH0: Arrival<'_> = Arrival::Link("eth0");
const RED: Arrival<'_> = Arrival::Vrf {
    name: "red",
    slave: "eth1",
    table: Some(70),
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
    let eth1 = Arrival::Link("eth1");
    let rules = [rule(0, 255), iif, rule(32766, 254)];
    assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 254]));
    assert_eq!(lookup_for(&rules, 4, eth1), all(&[255, 9, 254]));
    let rules = [rule(0, 255), not, rule(32766, 254)];
    assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 9, 254]));
    assert_eq!(lookup_for(&rules, 4, eth1), all(&[255, 254]));
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
fn rules_by_address_set_their_packets_apart() {
    let not = Rule {
        priority: 51,
        other: vec![RULE_OTHER_INVERT],
        ..from()
    };
    let ports = Rule {
        priority: 52,
        other: vec![23],
        to: Some("10.9.0.0/16".parse().unwrap()),
        ..from()
    };
    let odd = Rule {
        other: vec![RULE_OTHER_INVERT, 13],
        ..ports.clone()
    };
    let rules = [rule(0, 255), from(), not, ports, rule(32766, 254)];
    let apart = lookup_apart(&rules, 4, ETH0).unwrap();
    assert_eq!(Ok(apart.lookup), all(&[255, 9, 254]));
    assert_eq!(apart.by_address, [&rules[1], &rules[2], &rules[3]]);
    assert_eq!(lookup_for(&rules, 4, ETH0), Err(Reason::Rules));
    assert_eq!(lookup_apart(std::slice::from_ref(&odd), 4, ETH0), Err(&odd));
    let [inside, outside, other] =
        ["10.9.1.2", "11.0.0.1", "10.8.0.1"].map(|ip| ip.parse().unwrap());
    let asks = |src, dst| rules.each_ref().map(|rule| rule.asks_for(src, dst))[3];
    assert!(asks(other, inside));
    assert!(!asks(outside, inside) && !asks(other, outside) && !asks(inside, other));
    let many: Vec<Rule> = (1..10)
        .map(|priority| Rule { priority, ..from() })
        .collect();
    assert!(lookup_apart(&many[..8], 4, ETH0).is_ok());
    assert_eq!(lookup_apart(&many, 4, ETH0), Err(&many[8]));
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
            other: vec![22],
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
        other: vec![22],
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
                other: vec![RULE_OTHER_INVERT, 23],
                to: Some("10.0.0.7/32".parse().unwrap()),
                ..rule(5, 7)
            },
            "5: not from all to 10.0.0.7 sport ... lookup 7",
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

use super::*;

fn links(names: &[(u32, &str)]) -> Links {
    names.iter().map(|(i, n)| (*i, (*n).to_owned())).collect()
}

fn chain(family: Family, hook: Hook, devices: &[&str], rules: u32, drop: bool) -> BaseChain {
    BaseChain {
        family,
        table: "t".into(),
        name: "c".into(),
        kind: "filter".into(),
        hook,
        priority: 0,
        devices: devices.iter().map(|d| (*d).to_owned()).collect(),
        policy_drop: drop,
        rules,
    }
}

fn judged(hooks: &Hooks) -> Vec<String> {
    let (ins, outs) = (links(&[(2, "in0")]), links(&[(2, "in0"), (3, "out0")]));
    judge(hooks, &ins, &outs, Severity::Refuse)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn chains_on_the_way_count_when_they_do_something() {
    use Hook::{Egress, Forward, Ingress, Input, Output, Postrouting, Prerouting};
    for (chain, refused) in [
        (chain(Family::Inet, Forward, &[], 1, false), true),
        (chain(Family::Inet, Forward, &[], 0, true), true),
        (chain(Family::Inet, Forward, &[], 0, false), false),
        (chain(Family::Ip, Prerouting, &[], 1, false), true),
        (chain(Family::Ip6, Postrouting, &[], 1, false), true),
        (chain(Family::Inet, Input, &[], 9, true), false),
        (chain(Family::Ip, Output, &[], 9, true), false),
        (chain(Family::Netdev, Ingress, &["in0"], 1, false), true),
        (chain(Family::Netdev, Ingress, &["out0"], 1, false), false),
        (chain(Family::Inet, Ingress, &["in*"], 0, true), true),
        (chain(Family::Netdev, Egress, &["out0"], 1, false), true),
        (chain(Family::Netdev, Egress, &["eth9"], 1, false), false),
        (chain(Family::Bridge, Forward, &[], 1, true), false),
        (chain(Family::Arp, Hook::Other(0), &[], 1, true), false),
        (
            chain(Family::Other(99), Hook::Other(7), &[], 1, false),
            true,
        ),
    ] {
        let text = format!("{chain:?}");
        let hooks = Hooks {
            nft: vec![(chain, None)],
            ..Hooks::default()
        };
        assert_eq!(!judged(&hooks).is_empty(), refused, "{text}");
    }
}

#[test]
fn a_filter_is_told_once() {
    let filter = |kind: &str, priority, program: Option<(&str, u32)>| {
        let program = program.map(|(name, id)| (name.to_owned(), id));
        let kind = kind.to_owned();
        let filter = Filter {
            kind,
            priority,
            program,
        };
        ("in0".to_owned(), Direction::Ingress, filter)
    };
    let hooks = Hooks {
        filters: vec![
            filter("bpf", 1, None),
            filter("bpf", 1, Some(("police", 7))),
            filter("u32", 2, None),
            filter("u32", 2, None),
        ],
        ..Hooks::default()
    };
    let found = judged(&hooks);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("bpf (program police, id 7) pref 1"),
        "{found:?}"
    );
    assert!(found[1].contains("u32 pref 2"), "{found:?}");
}

#[test]
fn the_first_rule_is_named() {
    let rule = Rule {
        handle: 5,
        expressions: vec!["ct".into(), "drop".into()],
        comment: Some("no guests".into()),
    };
    let chain = chain(Family::Inet, Hook::Forward, &[], 2, true);
    let hooks = Hooks {
        nft: vec![(chain, Some(rule))],
        ..Hooks::default()
    };
    assert_eq!(
        judged(&hooks),
        [
            "nftables chain inet t c (hook forward) has policy drop and 2 rule(s), the first is handle 5 \
          \"no guests\": ct, drop: forwarded packets would no longer pass it"
        ]
    );
}

#[test]
fn legacy_chains_count_when_forwarded_packets_meet_them() {
    let chain = |hook, first: Option<&str>, drop| iptables::Chain {
        family: iptables::Family::Ipv4,
        table: "filter".into(),
        hook,
        has_rules: first.is_some(),
        policy_drop: drop,
        span: (0, 0),
        first: first.map(str::to_owned),
    };
    for (chain, text) in [
        (chain("INPUT", Some("-j DROP"), true), None),
        (chain("OUTPUT", Some("-j DROP"), true), None),
        (chain("FORWARD", None, false), None),
        (
            chain("FORWARD", None, true),
            Some("chain FORWARD has policy DROP"),
        ),
        (
            chain("POSTROUTING", Some("-j X"), false),
            Some("the first is: -j X"),
        ),
        (
            chain("PREROUTING", Some("-j X"), false),
            Some("iptables-legacy table filter"),
        ),
    ] {
        let hooks = Hooks {
            iptables: vec![chain],
            ..Hooks::default()
        };
        match (judged(&hooks).as_slice(), text) {
            ([], None) => {}
            ([found], Some(text)) => assert!(found.contains(text), "{found}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn policies_count_when_forwarded_packets_meet_them() {
    use xfrm::Direction::{Forward, In, Out, Socket};
    let any = (std::net::IpAddr::from([0, 0, 0, 0]), 0);
    for (direction, if_id, refused) in [
        (Out, 0, true),
        (Forward, 0, true),
        (In, 0, false),
        (Socket, 0, false),
        (Out, 5, false),
    ] {
        let policy = xfrm::Policy {
            direction,
            src: any,
            dst: any,
            protocol: 0,
            blocks: false,
            if_id,
        };
        let hooks = Hooks {
            policies: vec![policy],
            ..Hooks::default()
        };
        assert_eq!(
            judged(&hooks).len(),
            usize::from(refused),
            "{direction} {if_id}"
        );
    }
    let defaults = xfrm::Defaults {
        block_forward: true,
        ..xfrm::Defaults::default()
    };
    assert_eq!(
        judged(&Hooks {
            defaults,
            ..Hooks::default()
        })
        .len(),
        1
    );
}

#[test]
fn tracking_counts_wherever_it_is_asked_for() {
    let tracker = |families, does, who: &str| Tracker {
        families,
        does,
        who: who.to_owned(),
    };
    let hooks = Hooks {
        trackers: vec![
            tracker([true, true], Does::Tracks, "rule 1 (ct)"),
            tracker([true, true], Does::Tracks, "rule 2 (ct)"),
            tracker([false, true], Does::Reassembles, "rule 3 (socket)"),
        ],
        ..Hooks::default()
    };
    let found = judged(&hooks);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("rule 3 (socket) turns on reassembly for IPv6: "),
        "{found:?}"
    );
    let first = "rule 1 (ct) turns on connection tracking for IPv4 and IPv6, as do 1 more: ";
    assert!(found[1].starts_with(first), "{found:?}");
}

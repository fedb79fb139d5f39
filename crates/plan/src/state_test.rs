//! A small state that tests ask about.

use std::net::IpAddr;

use raddle_rib::event::{
    Event, GroupMember, Link, Nexthop, NexthopKind, Route, RouteNexthop, RouteOp, RouteTarget,
    Rule, Settings,
};
use raddle_rib::{AlgoRules, MpAlgo, Rib};

/// Links `eth1` to `eth4`, a gateway on each, and two destinations behind all of them: 198.51.100.0/24 by a
/// multipath route, 203.0.113.0/24 by nexthop group 100. 0.0.0.0/0 leads to `eth1` alone.
pub(crate) fn rib() -> Rib {
    let mut rib = Rib::detached();
    rib.apply(Event::Settings(Settings {
        hash_policy4: 1,
        hash_seed: 12345,
        ..Settings::default()
    }));
    for (priority, table) in [(0, 255), (32766, 254), (32767, 253)] {
        rib.apply(Event::Rule(Rule {
            family: 4,
            priority,
            table,
            action: 1,
            ..Rule::default()
        }));
    }
    for index in 1..=4 {
        rib.apply(Event::Link(Link {
            index,
            name: format!("eth{index}"),
            flags: 0x1_0041,
            ..Link::default()
        }));
        let kind = NexthopKind::Single {
            gateway: Some(gateway(index)),
            index,
            encap: None,
        };
        rib.apply(Event::Nexthop(Nexthop {
            protocol: 4,
            ..Nexthop::new(index, 2, kind)
        }));
    }
    let members = (1..=4).map(|id| GroupMember { id, weight: 1 });
    rib.apply(Event::Nexthop(Nexthop {
        protocol: 4,
        ..Nexthop::new(100, 0, NexthopKind::Group(members.collect()))
    }));
    let own = |index| RouteNexthop {
        gateway: Some(gateway(index)),
        index,
        weight: 1,
        ..RouteNexthop::default()
    };
    for (dst, target) in [
        (
            "198.51.100.0/24",
            RouteTarget::Multipath((1..=4).map(own).collect()),
        ),
        ("203.0.113.0/24", RouteTarget::Object(100)),
        ("0.0.0.0/0", RouteTarget::Single(own(1))),
    ] {
        let route = Route {
            dst: dst.parse().unwrap(),
            protocol: 4,
            target,
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib
}

fn gateway(index: u32) -> IpAddr {
    IpAddr::from([10, 0, index as u8, 1])
}

/// The state with a rule of the daemon, in its words: `PREFIX=ALGO` or `nhid:ID=ALGO`.
pub(crate) fn ruled(mut rib: Rib, rule: &str) -> Rib {
    let (what, algo) = rule.split_once('=').unwrap();
    let algo: MpAlgo = algo.parse().unwrap();
    let mut rules = AlgoRules::default();
    match what.strip_prefix("nhid:") {
        Some(id) => drop(rules.groups.insert(id.parse().unwrap(), algo)),
        None => rules.prefixes.push((what.parse().unwrap(), algo)),
    }
    rib.set_algos(rules);
    rib
}

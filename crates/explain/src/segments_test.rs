//! The way of packets through SIDs and encapsulations. The answers about the same state are held to the letter in
//! `tests/topologies/srv6`.

use std::net::IpAddr;
use std::sync::Arc;

use raddle_rib::event::{
    DeviceSettings, Encap, Event, Link, Neighbour, Route, RouteNexthop, RouteOp, RouteTarget,
    Settings,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};
use raddle_rib::{Rib, TABLE_MAIN};

use raddle_select::{BondMembers, HashKey, Steering};

use super::around::{Machine, Marks};
use super::confidence::Level;
use super::fate::What;
use super::made::Carried;
use super::tests::WellKnown;
use super::{Answer, FlowWords, Images, Question, Surroundings, View, answer};

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn hop(gateway: &str, index: u32, encap: Option<Encap>) -> RouteNexthop {
    RouteNexthop {
        gateway: (!gateway.is_empty()).then(|| ip(gateway)),
        index,
        encap,
        ..RouteNexthop::default()
    }
}

pub(super) fn route(dst: &str, table: u32, hops: Vec<RouteNexthop>) -> Event {
    let target = match <[RouteNexthop; 1]>::try_from(hops) {
        Ok([hop]) => RouteTarget::Single(hop),
        Err(hops) => RouteTarget::Multipath(hops),
    };
    let route = Route {
        dst: dst.parse().unwrap(),
        table,
        protocol: 4,
        metric: 1024,
        target,
        ..Route::default()
    };
    Event::Route(route, RouteOp::Add)
}

pub(super) fn sid(behaviour: Behaviour) -> Option<Encap> {
    Some(Seg6::Sid(Sid::new(behaviour)).encode())
}

/// Links in0, up1 and up2 with a neighbour each; SIDs fc00:1::/32, and fc00:2::/32 behind up1 and up2.
pub(super) fn rib() -> Rib {
    let mut rib = Rib::detached();
    rib.apply(Event::Settings(Settings {
        hash_policy4: 1,
        hash_policy6: 1,
        hash_seed: 7,
        tunsrc: Some("fd00::1".parse().unwrap()),
        ..Settings::default()
    }));
    for (index, name) in [(1, "in0"), (2, "up1"), (3, "up2")] {
        rib.apply(Event::Link(Link::ethernet(
            index,
            name,
            [2, 0, 0, 0, 1, index as u8],
        )));
        let device = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, device));
        for dst in [format!("fd00:{index}::2"), format!("10.0.{index}.2")] {
            rib.apply(Event::Neighbour(Neighbour {
                index,
                dst: dst.parse().unwrap(),
                mac: Some([2, 0, 0, 0, 0, index as u8]),
                state: 2,
                flags: 0,
                protocol: 0,
            }));
        }
    }
    let both = || vec![hop("fd00:2::2", 2, None), hop("fd00:3::2", 3, None)];
    let segments: Vec<_> = ["fc00:2::1", "fc00:2::6"]
        .map(|s| s.parse().unwrap())
        .to_vec();
    let encaps = Encaps::new(Mode::Encap, &segments).unwrap();
    let one = |dst, table, gateway, encap| route(dst, table, vec![hop(gateway, 2, encap)]);
    for event in [
        route("fc00:2::/32", TABLE_MAIN, both()),
        one("fc00:1::1/128", TABLE_MAIN, "", sid(Behaviour::End)),
        one(
            "fc00:1::6/128",
            TABLE_MAIN,
            "",
            sid(Behaviour::Dt6 {
                table: TableRef::Table(100),
            }),
        ),
        one(
            "fc00:1::4/128",
            TABLE_MAIN,
            "",
            sid(Behaviour::Dx4 {
                nh4: "10.0.2.2".parse().unwrap(),
            }),
        ),
        one("2001:db8:9::/48", 100, "fd00:2::2", None),
        one("10.0.2.0/24", TABLE_MAIN, "", None),
        one(
            "10.9.0.0/16",
            TABLE_MAIN,
            "",
            Some(Seg6::Encaps(encaps).encode()),
        ),
    ] {
        rib.apply(event);
    }
    rib
}

fn answered(flow: &str, srh: Option<&str>, inner: Option<&str>) -> Answer {
    answered_by(&rib(), flow, srh, inner)
}

fn answered_by(rib: &Rib, flow: &str, srh: Option<&str>, inner: Option<&str>) -> Answer {
    let around = Surroundings {
        kernel: "6.18.3".parse().ok(),
        ..Surroundings::default()
    };
    answered_around(rib, &around, flow, (srh, inner))
}

fn answered_around(
    rib: &Rib,
    around: &Surroundings,
    flow: &str,
    (srh, inner): (Option<&str>, Option<&str>),
) -> Answer {
    let words: Vec<String> = flow.split(' ').map(str::to_owned).collect();
    let words = FlowWords::parse(&words).unwrap();
    let carried = Carried::parse(srh, inner).unwrap();
    let packet = (!carried.is_empty()).then(|| carried.packet(&words).unwrap());
    let images = Images::default();
    let view = View::new(rib, &WellKnown, around, &images);
    let question = Question {
        words: &words,
        packet: packet.as_ref(),
    };
    answer(view, question)
}

const UDP6: &str = "2001:db8:9::1 from 2001:db8:8::1 ipproto udp sport 1000 dport 53";

#[test]
fn end_goes_on_by_the_next_segment() {
    let flow = "fc00:1::1 from fd00:9::9 iif in0";
    let answer = answered(flow, Some("fc00:1::1,fc00:2::6"), Some(UDP6));
    assert!(answer.link.is_some());
    let rules: Vec<_> = answer
        .steps
        .iter()
        .filter_map(|s| s.data["rule"].as_str())
        .collect();
    assert_eq!(rules, ["S1", "S7.2", "S10.1", "K16"]);
}

/// Whom the kernel tells of a packet that ends behind a SID, and by which error, is not said.
#[test]
fn what_ends_behind_a_sid_is_unknown() {
    let flow = "fc00:1::6 from fd00:9::9 iif in0";
    let lost = "2001:db8:7::1 from 2001:db8:8::1 ipproto udp sport 1000 dport 53";
    let answer = answered(flow, None, Some(lost));
    assert_eq!(answer.reason, Some("no-route"));
    assert_eq!(answer.confidence.level, Level::Unknown);
    assert_eq!(answer.fate.unwrap().what, What::Unknown);
}

/// A mirror that has been followed for a while knows of replacements.
#[test]
fn a_sid_that_was_replaced_is_found() {
    let mut rib = rib();
    let end = route(
        "fc00:1::1/128",
        TABLE_MAIN,
        vec![hop("", 2, sid(Behaviour::End))],
    );
    let Event::Route(end, _) = end else {
        unreachable!("it is a route");
    };
    rib.apply(Event::Route(end, RouteOp::Replace));
    let flow = "fc00:1::1 from fd00:9::9 iif in0";
    let srh = Some("fc00:1::1,fc00:2::6");
    let replaced = answered_by(&rib, flow, srh, Some(UDP6));
    assert_eq!(replaced, answered(flow, srh, Some(UDP6)));
}

#[test]
fn two_sids_of_one_machine_follow_each_other() {
    let flow = "fc00:1::1 from fd00:9::9 iif in0";
    let answer = answered(flow, Some("fc00:1::1,fc00:1::6"), Some(UDP6));
    assert_eq!(answer.link.as_deref(), Some("up1"));
}

#[test]
fn an_encapsulated_packet_chooses_by_its_flow() {
    let flow = |port| format!("10.9.0.7 from 10.0.8.1 iif in0 ipproto udp sport {port} dport 53");
    let links: std::collections::BTreeSet<_> = (1000..1032)
        .map(|port| answered(&flow(port), None, None).link)
        .collect();
    assert_eq!(links.len(), 2, "{links:?}");
}

#[test]
fn what_fails_says_by_which_rule() {
    let sid =
        |sid: &str, srh, inner| answered(&format!("{sid} from fd00:9::9 iif in0"), srh, inner);
    let answer = sid("fc00:1::1", None, Some(UDP6));
    assert_eq!((answer.link, answer.reason), (None, Some("no-srh")));
    let answer = sid("fc00:1::6", Some("fc00:1::6,fc00:2::1"), Some(UDP6));
    assert_eq!(answer.reason, Some("segments-left"));
    let answer = sid("fc00:1::6", None, Some("10.9.0.1 from 10.0.8.1"));
    assert_eq!(answer.reason, Some("payload"));
    let answer = sid("fc00:1::4", None, Some("10.9.0.1 from 10.0.8.1"));
    assert_eq!(answer.reason, Some("encap"));
}

/// A machine with receive packet steering, on which raddle runs, or not.
#[derive(Debug)]
struct Steered(Option<bool>);

impl Machine for Steered {
    fn marks(&self, _: &Link) -> Marks {
        Marks {
            steering: Some(Steering::On),
            software: Some(HashKey::new(3, 4)),
            rx_hash: Some(false),
            rss: None,
            ours: self.0,
        }
    }

    fn dissector(&self) -> Option<bool> {
        Some(false)
    }

    fn bond(&self, _: &Link) -> Option<BondMembers> {
        None
    }
}

/// The hash that a packet brings stays with it behind a SID, and raddle does not read it.
#[test]
fn what_packets_bring_to_a_sid_makes_unknown_where_they_go() {
    let mut rib = rib();
    let steered = |index: u32| Link {
        kind: Some("veth".to_owned()),
        ..Link::ethernet(index, "in0", [2, 0, 0, 0, 1, index as u8])
    };
    rib.apply(Event::Link(steered(1)));
    for ours in [Some(false), Some(true), None] {
        let around = Surroundings {
            kernel: "6.18.3".parse().ok(),
            machine: Some(Arc::new(Steered(ours))),
            ..Surroundings::default()
        };
        let carried = (Some("fc00:1::1,fc00:2::6"), Some(UDP6));
        let flow = "fc00:1::1 from fd00:9::9 iif in0";
        let confidence = answered_around(&rib, &around, flow, carried).confidence;
        assert_eq!(confidence.level, Level::Unknown, "{ours:?}");
        assert!(confidence.brought && confidence.why[0].contains("rps_cpus"));
    }
}

//! What answers said that was not what the engine did: found by `tests/forward`, one case each.

use raddle_packet::checksum::checksum;
use raddle_rib::event::{DeviceSettings, Event, Neighbour, ROUTE_STATIC, Route, RouteOp, Settings};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, TableRef};
use raddle_rib::{AlgoRules, Rib, TABLE_MAIN};

use super::confidence::Level;
use super::fate::What;
use super::segments_test::{hop, ip, rib, route, sid};
use super::tests::WellKnown;
use super::{Answer, Engine, Images, Packet, Question, Surroundings, View, answer};

use raddle_image::Reason;

const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];

fn asked(rib: &Rib, algos: AlgoRules, packet: &[u8]) -> Answer {
    let around = Surroundings {
        kernel: "6.18.44".parse().ok(),
        algos,
        ..Surroundings::default()
    };
    let kind: [u8; 2] = match packet[0] >> 4 {
        4 => [8, 0],
        _ => [0x86, 0xdd],
    };
    let frame = [&MAC[..], &[2, 0, 0, 0, 0, 9], &kind, packet].concat();
    let packet = Packet::of_frame(&frame, 0, "frame".to_owned());
    let words = packet.words("in0");
    let images = Images::default();
    let view = View::new(rib, &WellKnown, &around, &images);
    let question = Question {
        words: &words,
        packet: Some(&packet),
    };
    answer(view, question)
}

fn explained(rib: &Rib, packet: &[u8]) -> Answer {
    asked(rib, AlgoRules::default(), packet)
}

/// An IPv6 packet with this next header.
fn six(dst: &str, hop_limit: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, hop_limit];
    for address in ["2001:db8:77::7", dst] {
        let address: std::net::Ipv6Addr = address.parse().unwrap();
        bytes.extend(address.octets());
    }
    bytes.extend(payload);
    bytes
}

/// An IPv4 packet of UDP.
fn four(dst: [u8; 4], ttl: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 77, 0, 7];
    bytes.extend(dst);
    let sum = checksum(&bytes).to_be_bytes();
    bytes[10..12].copy_from_slice(&sum);
    bytes.extend([3, 0xe8, 0, 0x35, 0, 8, 0, 0]);
    bytes
}

const UDP: [u8; 8] = [3, 0xe8, 0, 0x35, 0, 8, 0, 0];

fn with(events: impl IntoIterator<Item = Event>) -> Rib {
    let mut rib = rib();
    events.into_iter().for_each(|event| rib.apply(event));
    rib
}

/// A route that is raddle's own.
fn own(event: Event) -> Event {
    let Event::Route(route, op) = event else {
        unreachable!("it is a route");
    };
    let flags = ROUTE_STATIC;
    Event::Route(Route { flags, ..route }, op)
}

fn seedless() -> Event {
    Event::Settings(Settings {
        hash_policy4: 1,
        hash_policy6: 1,
        tunsrc: Some("fd00::1".parse().unwrap()),
        ..Settings::default()
    })
}

fn what(answer: &Answer) -> What {
    answer.fate.as_ref().unwrap().what
}

fn punt(reason: Reason) -> Option<Engine> {
    Some(Engine::Punt { reason })
}

/// A route with members that encapsulate and members that do not: the TTL counts for the latter.
#[test]
fn a_plain_member_beside_segments_wants_a_ttl() {
    let list = Encaps::new(Mode::Encap, &["fc00:2::1".parse().unwrap()]).unwrap();
    let list = Some(Seg6::Encaps(list).encode());
    let rib = with([route(
        "10.8.0.0/16",
        TABLE_MAIN,
        vec![hop("10.0.2.2", 2, None), hop("", 3, list)],
    )]);
    let mut met = std::collections::BTreeSet::new();
    for host in 1..20 {
        let answer = explained(&rib, &four([10, 8, 0, host], 1));
        let encapsulated = answer.steps.iter().any(|step| step.name == "segment");
        met.insert(encapsulated);
        if !encapsulated {
            assert_eq!(answer.engine, punt(Reason::TtlExceeded));
            let reason = (what(&answer), answer.reason, answer.link);
            assert_eq!(reason, (What::Answered, Some("ttl-exceeded"), None));
        }
    }
    assert_eq!(met.len(), 2);
}

/// What comes to raddle's own SIDs and is not forwarded is dropped, whatever the reason.
#[test]
fn raddles_own_drop_what_they_do_not_forward() {
    let table = TableRef::Table(100);
    let rib = with([own(route(
        "fc00:1::9/128",
        TABLE_MAIN,
        vec![hop("", 2, sid(Behaviour::Dt6 { table }))],
    ))]);
    for (dst, limit, reason) in [
        ("2001:db8:5::1", 64, Reason::NoRoute),
        ("2001:db8:9::1", 1, Reason::TtlExceeded),
    ] {
        let inside = six(dst, limit, 17, &UDP);
        let answer = explained(&rib, &six("fc00:1::9", 64, 41, &inside));
        assert_eq!(answer.engine, Some(Engine::Drop { reason }));
        assert_eq!(
            (what(&answer), answer.reason, answer.link),
            (What::Dropped, Some(reason.name()), None)
        );
        assert_eq!(answer.confidence.level, Level::Exact);
    }
}

/// A frame that End.DX2 takes out leaves as it is: no neighbour is missing.
#[test]
fn a_frame_needs_no_neighbour() {
    let rib = with([route(
        "fc00:1::2/128",
        TABLE_MAIN,
        vec![hop("", 2, sid(Behaviour::Dx2 { oif: 3 }))],
    )]);
    let inside = [&[2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 8, 0][..], &[0; 46]].concat();
    let answer = explained(&rib, &six("fc00:1::2", 64, 143, &inside));
    let link = "up2".to_owned();
    let engine = Engine::Forward {
        link: link.clone(),
        via: None,
    };
    assert_eq!(answer.engine, Some(engine));
    assert_eq!((answer.link, answer.reason), (Some(link), None));
}

/// Where only one member has a share, no hash is asked for.
#[test]
fn one_member_with_a_share_needs_no_seed() {
    let mut down = rib().link(3).unwrap().clone();
    down.flags = 0;
    let both = || vec![hop("fd00:2::2", 2, None), hop("fd00:3::2", 3, None)];
    let routed = route("fc00:7::/32", TABLE_MAIN, both());
    let rib = with([seedless(), Event::Link(down), routed]);
    let answer = explained(&rib, &six("fc00:7::1", 64, 17, &UDP));
    assert_eq!(answer.link.as_deref(), Some("up1"));
    assert_eq!(answer.confidence.level, Level::Exact);
    assert!(matches!(answer.engine, Some(Engine::Forward { .. })));
    let member = answer.steps.iter().find(|step| step.name == "member");
    let member = member.unwrap();
    assert_eq!(
        (&member.data["member"], &member.data["rule"]),
        (&0.into(), &1.into())
    );
    assert!(!answer.steps.iter().any(|step| step.name == "seed"));
}

/// What a SID takes out is checked as a packet that comes in (S7.1), and its TTL before its hash (S7.5).
#[test]
fn what_is_inside_is_checked_as_what_comes_in() {
    let rib = with([route(
        "fc00:1::46/128",
        TABLE_MAIN,
        vec![hop(
            "",
            2,
            sid(Behaviour::Dx4 {
                nh4: "0.0.0.0".parse().unwrap(),
            }),
        )],
    )]);
    let mut bad = four([10, 0, 2, 2], 64);
    bad[10] ^= 0x55;
    let answer = explained(&rib, &six("fc00:1::46", 64, 4, &bad));
    assert_eq!(answer.engine, punt(Reason::BadChecksum));
    assert_eq!((answer.reason, answer.link), (Some("bad-checksum"), None));

    let rib = with([seedless()]);
    let inside = six("fc00:2::9", 1, 17, &UDP);
    let table = TableRef::Table(TABLE_MAIN);
    let mut rib = rib;
    rib.apply(route(
        "fc00:1::7/128",
        TABLE_MAIN,
        vec![hop("", 2, sid(Behaviour::Dt6 { table }))],
    ));
    let answer = explained(&rib, &six("fc00:1::7", 64, 41, &inside));
    assert_eq!(answer.engine, punt(Reason::TtlExceeded));
    assert_eq!(answer.reason, Some("ttl-exceeded"));
}

/// Behind raddle's own segments nobody looks at rp_filter.
#[test]
fn rp_filter_is_of_the_link_alone() {
    let table = TableRef::Table(TABLE_MAIN);
    let device = DeviceSettings {
        forwarding4: true,
        forwarding6: true,
        rp_filter: 1,
        ..DeviceSettings::default()
    };
    let rib = with([
        Event::Device(1, device),
        route("10.6.0.0/16", TABLE_MAIN, vec![hop("10.0.2.2", 2, None)]),
        own(route(
            "fc00:1::46/128",
            TABLE_MAIN,
            vec![hop("", 2, sid(Behaviour::Dt46 { table }))],
        )),
    ]);
    let answer = explained(&rib, &six("fc00:1::46", 64, 4, &four([10, 6, 0, 1], 64)));
    assert!(matches!(answer.engine, Some(Engine::Forward { .. })));
    assert_eq!(answer.confidence.level, Level::Exact, "{answer:?}");
}

/// One turn says nothing about the next: a member that cannot be sent to makes no answer.
#[test]
fn a_turn_is_no_answer() {
    let failed = Event::Neighbour(Neighbour {
        index: 3,
        dst: ip("10.0.3.2"),
        mac: None,
        state: 0x20,
        flags: 0,
        protocol: 0,
    });
    let hops = vec![hop("10.0.2.2", 2, None), hop("10.0.3.2", 3, None)];
    let rib = with([failed, route("10.8.0.0/16", TABLE_MAIN, hops)]);
    let algos = || AlgoRules {
        prefixes: vec![(
            "10.8.0.0/16".parse().unwrap(),
            "round-robin".parse().unwrap(),
        )],
        ..AlgoRules::default()
    };
    for host in 1..4 {
        let answer = asked(&rib, algos(), &four([10, 8, 0, host], 64));
        assert_eq!(answer.engine, Some(Engine::RoundRobin));
        assert_eq!((answer.reason, answer.link), (Some("round-robin"), None));
    }
    // What comes before the choice forbids all members.
    let answer = asked(&rib, algos(), &four([10, 8, 0, 1], 1));
    assert_eq!(answer.engine, punt(Reason::TtlExceeded));
}

/// By the kernel, for the reason that the engine gives.
#[test]
fn the_reason_is_that_of_the_engine() {
    let connected = Route {
        dst: "10.5.0.0/16".parse().unwrap(),
        ..Route::default()
    };
    let Event::Route(direct, _) = route("10.5.0.0/16", TABLE_MAIN, vec![hop("", 2, None)]) else {
        unreachable!("it is a route");
    };
    let rib = with([Event::Route(
        Route {
            target: direct.target,
            protocol: 2,
            ..connected
        },
        RouteOp::Add,
    )]);
    let mut packet = four([10, 5, 0, 9], 64);
    packet[0] = 0x46;
    packet.splice(20..20, [1, 1, 1, 0]);
    packet[3] = 32;
    packet[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum(&packet[..24]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let answer = explained(&rib, &packet);
    assert_eq!(answer.engine, punt(Reason::Options));
    assert_eq!(
        (answer.link.as_deref(), answer.reason),
        (Some("up1"), Some("options"))
    );
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["engine"]["verdict"], "punt");
    assert_eq!(json["engine"]["reason"], "options");
}

/// One reason has several rules: which it was, the function says that decided.
#[test]
fn a_segment_says_by_which_rule_it_stops() {
    let with_sid = |behaviour| {
        let hops = vec![hop("", 2, sid(behaviour))];
        with([route("fc00:1::2/128", TABLE_MAIN, hops)])
    };
    let rule = |rib: &Rib, next, inside: &[u8]| {
        let answer = explained(rib, &six("fc00:1::2", 64, next, inside));
        let mut steps = answer.steps.iter();
        let stopped = steps.rfind(|step| step.name == "behaviour");
        stopped.unwrap().data["rules"][0].clone()
    };
    let dx2 = with_sid(Behaviour::Dx2 { oif: 3 });
    let frame = |kind: [u8; 2]| [&[2; 12][..], &kind, &[0; 46]].concat();
    assert_eq!(rule(&dx2, 143, &frame([0, 46])), "S8.1");
    assert_eq!(rule(&dx2, 17, &UDP), "S6.3");
    assert_eq!(rule(&dx2, 143, &frame([8, 0])), "S6");
    assert_eq!(rule(&with_sid(Behaviour::End), 17, &UDP), "S3.1");
}

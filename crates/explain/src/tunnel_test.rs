//! Packets that leave by tunnels.

use std::net::Ipv4Addr;

use raddle_rib::Rib;
use raddle_rib::event::{
    Address, DeviceSettings, Event, Link, Neighbour, Route, RouteKind, RouteOp, RouteTarget,
    Settings, Tunnel, TunnelDf, TunnelFdb, TunnelKind,
};

use super::confidence::Level;
use super::segments_test::{hop, ip, route};
use super::tests::{IN0, WellKnown, frame, with_ttl};
use super::*;

const TABLE_MAIN: u32 = 254;
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 9, 9];
const TCP: &str = "198.18.0.9 from 192.0.2.1 iif in0 ipproto tcp sport 40000 dport 80";

const HERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 129);

fn tunnel(kind: TunnelKind) -> Tunnel {
    Tunnel {
        kind,
        local: Some(HERE),
        remote: Some(THERE),
        ttl: 64,
        tos: 0,
        df: TunnelDf::Set,
        link: 0,
        is_special: false,
    }
}

/// in0, two wires with a gateway each, and links 4 (GRE) and 5 (VXLAN); `out` is the one that the route leads over.
fn rib(out: u32, ways: &[(&str, u32)], fdb: bool) -> Rib {
    let mut rib = Rib::detached();
    let vxlan = TunnelKind::Vxlan {
        vni: 300,
        port: 4789,
        sports: (1000, 2000),
        learns: false,
        checksum: false,
        ttl_inner: false,
    };
    let gre = TunnelKind::Gre {
        ikey: None,
        okey: Some(7),
    };
    let links = [
        Link::ethernet(1, "in0", [2, 0, 0, 0, 0, 0x10]),
        Link::ethernet(2, "eth2", [2, 0, 0, 0, 0, 2]),
        Link::ethernet(3, "eth3", [2, 0, 0, 0, 0, 3]),
        Link {
            kind: Some("gre".to_owned()),
            mac: None,
            arp_type: 778,
            mtu: 1400,
            tunnel: Some(tunnel(gre)),
            ..Link::ethernet(4, "gre1", [0; 6])
        },
        Link {
            kind: Some("vxlan".to_owned()),
            mtu: 1400,
            tunnel: Some(Tunnel {
                remote: None,
                ..tunnel(vxlan)
            }),
            ..Link::ethernet(5, "vx5", [2, 0, 0, 0, 0, 5])
        },
    ];
    for link in links {
        let index = link.index;
        rib.apply(Event::Link(link));
        let device = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, device));
    }
    rib.apply(Event::Settings(Settings {
        hash_seed: 7,
        ..Settings::default()
    }));
    rib.apply(Event::Address(Address::new(2, HERE.into(), 25)));
    for (index, dst) in [(2, "10.0.0.2"), (3, "10.0.0.3"), (5, "10.0.0.5")] {
        rib.apply(Event::Neighbour(Neighbour {
            index,
            dst: ip(dst),
            mac: Some(GATEWAY),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
    }
    if fdb {
        rib.apply(Event::TunnelFdb(TunnelFdb {
            index: 5,
            mac: GATEWAY,
            dst: THERE.into(),
            is_special: false,
        }));
    }
    let ways = ways.iter().map(|(via, index)| hop(via, *index, None));
    rib.apply(route("203.0.113.128/25", TABLE_MAIN, ways.collect()));
    rib.apply(route(
        "0.0.0.0/0",
        TABLE_MAIN,
        vec![hop("10.0.0.5", out, None)],
    ));
    rib
}

fn ask(rib: &Rib, question: &str) -> Answer {
    let around = Surroundings {
        kernel: "6.18.3".parse().ok(),
        ..Surroundings::default()
    };
    let images = Images::default();
    let view = View::new(rib, &WellKnown, &around, &images);
    let words: Vec<String> = question.split_whitespace().map(str::to_owned).collect();
    let (words, packet) = match words.as_slice() {
        [word, hex, iif] if word == "hex" => {
            let packet = Packet::of_hex(hex).unwrap();
            (packet.words(iif), Some(packet))
        }
        _ => (FlowWords::parse(&words).unwrap(), None),
    };
    let question = Question {
        words: &words,
        packet: packet.as_ref(),
    };
    answer(view, question)
}

/// What the step says, and what is below it.
fn step(rib: &Rib) -> (String, Vec<String>) {
    let answer = ask(rib, TCP);
    let step = answer.steps.into_iter().find(|step| step.name == "tunnel");
    let step = step.unwrap();
    (step.text, step.details)
}

const ONE: &[(&str, u32)] = &[("10.0.0.2", 2)];
const TWO: &[(&str, u32)] = &[("10.0.0.2", 2), ("10.0.0.3", 3)];

#[test]
fn tunnels_lead_on() {
    let (text, details) = step(&rib(4, ONE, false));
    assert_eq!(
        text,
        "gre1: in IPv4 from 203.0.113.1 to 203.0.113.129, GRE key 7"
    );
    assert_eq!(
        details,
        ["203.0.113.129 by 203.0.113.128/25 via 10.0.0.2 dev eth2"]
    );
    let (text, details) = step(&rib(5, TWO, true));
    assert_eq!(
        text,
        "vx5: in IPv4 from 203.0.113.1 to 203.0.113.129, UDP port 4789, VXLAN 300"
    );
    assert_eq!(
        details,
        [
            "203.0.113.129 by 203.0.113.128/25 any of via 10.0.0.2 dev eth2, via 10.0.0.3 dev eth3: the kernel keeps a \
             route for each CPU; raddle goes by the flow inside"
        ]
    );
    let (text, details) = step(&rib(5, ONE, false));
    assert_eq!(
        text,
        "vx5 is a tunnel: what it puts the packet into is not known here"
    );
    assert_eq!(
        details,
        [
            "its FDB has no entry for 02:00:00:00:09:09, and the kernel drops the packet: bridge fdb replace 02:00:00:00:09:09 dev vx5 dst \
             ADDRESS self"
        ]
    );
}

#[test]
fn what_a_vxlans_own_fdb_lacks_is_named() {
    let said = |entries: &[([u8; 6], bool)]| {
        let mut rib = rib(5, ONE, false);
        for (n, (mac, is_special)) in (1_u8..).zip(entries) {
            rib.apply(Event::TunnelFdb(TunnelFdb {
                index: 5,
                mac: *mac,
                dst: [203, 0, 113, 200 + n].into(),
                is_special: *is_special,
            }));
        }
        step(&rib).1.concat()
    };
    assert!(said(&[([0; 6], false)]).starts_with("203.0.113.201 by "));
    let several = said(&[([0; 6], false), ([0; 6], false)]);
    assert!(several.contains("several for all others"), "{several}");
    let special = said(&[(GATEWAY, true)]);
    assert!(special.ends_with("bridge fdb show dev vx5"), "{special}");
}

/// The engine says by which link the outer packet leaves.
#[test]
fn engines_agree_about_tunnels() {
    let packet = frame(IN0, &with_ttl(64, 17, 0, "03e8003500080000"));
    for (out, ways) in [(4, ONE), (5, ONE), (4, TWO), (5, TWO)] {
        let answer = ask(&rib(out, ways, true), &format!("hex {packet} in0"));
        let says = |what: &str| answer.confidence.why.iter().any(|why| why.contains(what));
        assert!(!says("please report"), "{answer:?}");
        assert_eq!(answer.confidence.level, Level::ExactUnless, "{answer:?}");
        let link = if out == 4 { "gre1" } else { "vx5" };
        assert_eq!(answer.link.as_deref(), Some(link));
        let wanted = Engine::Forward {
            link: link.into(),
            via: Some(ip("10.0.0.5")),
        };
        assert_eq!(answer.engine, Some(wanted), "{answer:?}");
    }
}

/// An engine forwards what is inside of a packet to an end of a tunnel, of which nothing is said.
#[test]
fn what_comes_out_of_tunnels_is_no_contradiction() {
    let mut rib = rib(2, ONE, true);
    rib.apply(Event::Neighbour(Neighbour {
        index: 2,
        dst: ip("10.0.0.5"),
        mac: Some(GATEWAY),
        state: 2,
        flags: 0,
        protocol: 0,
    }));
    let RouteTarget::Single(local) = (match route("0.0.0.0/0", 255, vec![hop("10.0.0.5", 2, None)])
    {
        Event::Route(route, _) => route.target,
        _ => unreachable!(),
    }) else {
        unreachable!()
    };
    let local = Route {
        table: 255,
        dst: "203.0.113.1/32".parse().unwrap(),
        kind: RouteKind::Local,
        target: RouteTarget::Single(raddle_rib::event::RouteNexthop {
            gateway: None,
            ..local
        }),
        ..Route::default()
    };
    rib.apply(Event::Route(local, RouteOp::Add));
    let inside = with_ttl(64, 17, 0, "03e8003500080000");
    // GRE without a key, from the other end.
    let mut outer = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 47, 0, 0];
    outer.extend(THERE.octets());
    outer.extend(HERE.octets());
    let length = outer.len() + 4 + inside.len() / 2;
    outer[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    let sum = raddle_packet::checksum::checksum(&outer);
    outer[10..12].copy_from_slice(&sum.to_be_bytes());
    let outer: String = outer.iter().map(|byte| format!("{byte:02x}")).collect();
    let packet = frame(IN0, &format!("{outer}00000800{inside}"));
    let answer = ask(&rib, &format!("hex {packet} in0"));
    let engine = answer.steps.iter().find(|step| step.name == "engine");
    assert!(
        engine.unwrap().text.contains("takes out what is in it"),
        "{answer:?}"
    );
    let says = |what: &str| answer.confidence.why.iter().any(|why| why.contains(what));
    assert!(!says("please report"), "{answer:?}");
}

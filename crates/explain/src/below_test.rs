//! Links below bridges and macvlans: which one, and what comes in by them.

use raddle_rib::Rib;
use raddle_rib::event::{
    Address, Bond, Bridge, BridgePort, DeviceSettings, Event, FdbEntry, Link, Macvlan, Neighbour,
    PortVlan, Vlan,
};

use super::confidence::Level;
use super::segments_test::{hop, ip, route};
use super::tests::{WellKnown, frame, with_ttl};
use super::*;

const TABLE_MAIN: u32 = 254;

const MAC: [u8; 6] = [2, 0, 0, 0, 2, 10];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 9, 9];
const TCP: &str = "198.18.0.9 from 192.0.2.1 iif in0 ipproto tcp sport 40000 dport 80";
const UDP: &str = "03e8003500080000";

const BR0: u32 = 10;
const BR0_10: u32 = 11;
const MV0: u32 = 12;

/// Which link the route leads over, and what is below it.
struct Case {
    out: u32,
    filters: bool,
    /// Where the FDB has the gateway.
    at: Option<u32>,
    untagged: bool,
    resolved: bool,
    /// The MTU of the ports.
    mtu: u32,
    mode: u32,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            out: BR0_10,
            filters: true,
            at: Some(2),
            untagged: false,
            resolved: true,
            mtu: 1500,
            mode: 1,
        }
    }
}

fn vlan(index: u32, name: &str, id: u16, lower: u32) -> Link {
    Link {
        kind: Some("vlan".to_owned()),
        vlan: Some(Vlan {
            protocol: 0x8100,
            id,
            egress_qos: false,
        }),
        lower: Some(lower),
        ..Link::ethernet(index, name, MAC)
    }
}

impl Case {
    /// br0 has the ports eth2, a VLAN upon eth3, and a bond with one member; mv0 is upon eth3.
    fn links(&self) -> Vec<Link> {
        let port = |link: Link| Link {
            master: Some(BR0),
            mtu: self.mtu,
            port: Some(BridgePort {
                state: 3,
                learns: true,
                ..BridgePort::default()
            }),
            ..link
        };
        let bond = Bond {
            mode: 2,
            policy: 1,
            by_traffic: false,
            ..Bond::default()
        };
        vec![
            Link::ethernet(1, "in0", [2, 0, 0, 0, 2, 1]),
            port(Link::ethernet(2, "eth2", [2, 0, 0, 0, 2, 2])),
            Link::ethernet(3, "eth3", [2, 0, 0, 0, 2, 3]),
            port(vlan(4, "eth3.100", 100, 3)),
            port(Link {
                kind: Some("bond".to_owned()),
                bond: Some(bond),
                ..Link::ethernet(5, "bond0", [2, 0, 0, 0, 2, 5])
            }),
            Link {
                master: Some(5),
                bond_active: Some(true),
                ..Link::ethernet(6, "m1", [2, 0, 0, 0, 2, 5])
            },
            Link {
                kind: Some("bridge".to_owned()),
                bridge: Some(Bridge {
                    filters_vlans: self.filters,
                    protocol: 0x8100,
                    is_special: false,
                }),
                ..Link::ethernet(BR0, "br0", MAC)
            },
            vlan(BR0_10, "br0.10", 10, BR0),
            Link {
                kind: Some("macvlan".to_owned()),
                macvlan: Some(Macvlan { mode: self.mode }),
                lower: Some(3),
                ..Link::ethernet(MV0, "mv0", [2, 0, 0, 0, 2, 12])
            },
        ]
    }

    fn rib(&self) -> Rib {
        let mut rib = Rib::detached();
        for link in self.links() {
            let index = link.index;
            rib.apply(Event::Link(link));
            let device = DeviceSettings {
                forwarding4: true,
                forwarding6: true,
                ..DeviceSettings::default()
            };
            rib.apply(Event::Device(index, device));
        }
        for (index, id, untagged) in [(2, 10, self.untagged), (4, 10, false), (5, 10, false)]
            .into_iter()
            .chain([2, 4, 5].map(|port| (port, 1, true)))
            .chain([(BR0, 1, true), (BR0, 10, false)])
        {
            rib.apply(Event::PortVlan(PortVlan {
                index,
                id,
                pvid: id == 1,
                untagged,
                state: 3,
            }));
        }
        let own = [0, 1, 10].map(|vlan| (MAC, vlan, BR0, true));
        let learnt = self.at.into_iter();
        let learnt = learnt.flat_map(|port| [0, 1, 10].map(|vlan| (GATEWAY, vlan, port, false)));
        for (mac, vlan, port, local) in own.into_iter().chain(learnt) {
            rib.apply(Event::Fdb(FdbEntry {
                bridge: BR0,
                mac,
                vlan,
                port,
                local,
                is_special: false,
            }));
        }
        rib.apply(Event::Address(Address::new(self.out, ip("10.0.0.1"), 24)));
        if self.resolved {
            rib.apply(Event::Neighbour(Neighbour {
                index: self.out,
                dst: ip("10.0.0.2"),
                mac: Some(GATEWAY),
                state: 2,
                flags: 0,
                protocol: 0,
            }));
        }
        let by = hop("10.0.0.2", self.out, None);
        rib.apply(route("0.0.0.0/0", TABLE_MAIN, vec![by]));
        rib
    }

    fn ask(&self, question: &str) -> Answer {
        let around = Surroundings {
            kernel: "6.18.3".parse().ok(),
            ..Surroundings::default()
        };
        let rib = self.rib();
        let images = Images::default();
        let view = View::new(&rib, &WellKnown, &around, &images);
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

    /// What the step of this name says, and its data.
    fn step(&self, name: &str) -> (String, serde_json::Value) {
        let answer = self.ask(TCP);
        assert!(answer.link.is_some(), "{answer:?}");
        let step = answer.steps.into_iter().find(|step| step.name == name);
        let step = step.unwrap();
        (step.text, step.data)
    }
}

fn says(answer: &Answer, what: &str) -> bool {
    answer.confidence.why.iter().any(|why| why.contains(what))
}

#[test]
fn a_bridge_leads_to_the_port_that_its_fdb_names() {
    let of = |case: Case| case.step("bridge");
    let (text, data) = of(Case::default());
    assert_eq!(
        text,
        "br0 is a bridge: its FDB has 02:00:00:00:09:09 in VLAN 10: the packet leaves by eth2 with tag 802.1Q 10 (priority 0)"
    );
    assert_eq!(
        (&data["port"], &data["lower"]),
        (&"eth2".into(), &"eth2".into())
    );
    assert_eq!(
        (&data["vlan"], &data["tags"][0]["id"]),
        (&10.into(), &10.into())
    );
    let (text, data) = of(Case {
        untagged: true,
        ..Case::default()
    });
    assert!(text.ends_with("the packet leaves by eth2"), "{text}");
    assert_eq!(data["tags"], serde_json::json!([]));
    let (text, data) = of(Case {
        at: Some(4),
        ..Case::default()
    });
    assert!(
        text.ends_with(
            "leaves by eth3.100, and so by eth3 with tag 802.1Q 100 (priority 0), and 802.1Q 10 (priority 0) behind it"
        ),
        "{text}"
    );
    assert_eq!(
        (&data["port"], &data["lower"]),
        (&"eth3.100".into(), &"eth3".into())
    );
}

#[test]
fn the_bridge_itself_has_a_pvid_or_no_vlans() {
    let of = |filters| {
        let case = Case {
            out: BR0,
            filters,
            ..Case::default()
        };
        case.step("bridge").0
    };
    let (by_pvid, plain) = (of(true), of(false));
    assert!(by_pvid.contains(" in the VLAN of its own PVID: the packet leaves by eth2"));
    assert!(plain.ends_with("its FDB has 02:00:00:00:09:09: the packet leaves by eth2"));
}

#[test]
fn what_a_bridge_does_not_know_is_flooded() {
    let of = |at, resolved| {
        let case = Case {
            at,
            resolved,
            ..Case::default()
        };
        case.step("bridge")
    };
    let (text, data) = of(None, true);
    assert!(text.ends_with(
        "no entry for 02:00:00:00:09:09 in VLAN 10: the kernel floods it to all its ports"
    ));
    assert_eq!(data["floods"], true);
    let (text, _) = of(Some(2), false);
    assert!(text.contains("the MAC address of 10.0.0.2"), "{text}");
    assert!(text.ends_with("is not known yet"), "{text}");
    // The FDB leads to a port of another bridge, or to none.
    let (text, data) = of(Some(3), true);
    assert!(text.ends_with("by which port the packet leaves is not known here"));
    assert_eq!(data["port"], serde_json::Value::Null);
}

/// The member, and what is hashed, is told of a bond that is a port.
#[test]
fn a_bond_may_be_a_port() {
    let answer = Case {
        at: Some(5),
        ..Case::default()
    }
    .ask(TCP);
    assert_eq!(answer.link.as_deref(), Some("br0.10"));
    let names: Vec<&str> = answer.steps.iter().map(|step| step.name).collect();
    assert_eq!(names[names.len() - 4..], ["link", "vlan", "bridge", "bond"]);
    let of = answer.bond.unwrap();
    assert_eq!(
        (of.dev.as_str(), of.member.as_deref()),
        ("bond0", Some("m1"))
    );
}

#[test]
fn macvlans_leave_by_their_lower_link_but_in_mode_bridge() {
    let of = |mode| {
        let case = Case {
            out: MV0,
            mode,
            ..Case::default()
        };
        case.step("macvlan")
    };
    for (mode, word) in [(1, "private"), (2, "vepa"), (8, "passthru")] {
        let (text, data) = of(mode);
        let wanted = format!("mv0 is a macvlan in mode {word}: the packet leaves by eth3");
        assert_eq!(text, wanted);
        assert_eq!(
            (&data["lower"], &data["mode"]),
            (&"eth3".into(), &word.into())
        );
    }
    assert!(of(4).0.contains("leaves by eth3, or stays on this machine"));
}

/// A packet that a port refuses is gone, though the bridge takes it.
#[test]
fn a_port_may_take_less_than_its_bridge() {
    let body = format!("03e8003504b00000{}", "00".repeat(1192));
    let ask = |mtu, at| {
        let case = Case {
            mtu,
            at: Some(at),
            ..Case::default()
        };
        case.ask(&format!("hex {} in0", with_ttl(64, 17, 0, &body)))
    };
    assert!(!says(&ask(1500, 2), "too long"));
    assert!(says(&ask(1000, 2), "too long for eth2"));
    assert!(says(&ask(1500, 3), "br0 drops it"));
}

/// Engines take frames of bridges and macvlans by the links below them: the question is about the link above.
#[test]
fn what_comes_in_by_lower_links_comes_in_by_those_above() {
    let ask = |mac: &str, iif: &str, mode| {
        let case = Case {
            out: 1,
            filters: false,
            mode,
            ..Case::default()
        };
        let packet = frame(mac, &with_ttl(64, 17, 0, UDP));
        case.ask(&format!("hex {packet} {iif}"))
    };
    let answer = ask("02000000020a", "br0", 1);
    assert_eq!(answer.link.as_deref(), Some("in0"), "{answer:?}");
    assert_eq!(
        answer.engine,
        Some(Engine::Forward {
            link: "in0".into(),
            via: Some(ip("10.0.0.2"))
        })
    );
    assert!(render(&answer).contains("the FDB of br0 has its source there"));
    let answer = ask("02000000020a", "eth2", 1);
    assert_eq!(answer.confidence.level, Level::Unknown);
    assert!(says(&answer, "ask for iif br0, or for the VLAN upon it"));
    let (own, upper) = ("020000000203", "02000000020c");
    for (mac, mode, level) in [
        (own, 1, Level::Exact),
        (own, 4, Level::Exact),
        (own, 8, Level::Unknown),
        (own, 16, Level::ExactUnless),
        (upper, 1, Level::Unknown),
        (upper, 4, Level::Unknown),
    ] {
        let answer = ask(mac, "eth3", mode);
        assert_eq!(answer.confidence.level, level, "{mac} {mode}: {answer:?}");
        let takes = says(&answer, "mv0 above eth3 takes it: ask for iif mv0");
        assert_eq!(takes, level == Level::Unknown, "{mac} {mode}");
        assert!(!says(&answer, "please report"), "{answer:?}");
        let what = answer.fate.as_ref().map(|fate| fate.what);
        let lost = mac == upper;
        assert_eq!(what == Some(What::Unknown), lost, "{mac} {mode}");
        assert_eq!(says(&answer, "mv0"), mode == 16 || takes, "{mac} {mode}");
    }
}

//! Members of bonds: which one, and how sure that is.

use std::sync::Arc;

use raddle_rib::Rib;
use raddle_rib::event::{Address, Bond, DeviceSettings, Event, Link, Neighbour, Vlan};
use raddle_select::{
    BondMember, BondMembers, BondPolicy, Flow, HashKey, Steering, bond_hash, bond_hash_of_flow,
};

use super::around::Machine;
use super::confidence::Level;
use super::segments_test::{hop, ip, route};
use super::tests::WellKnown;
use super::*;

const TABLE_MAIN: u32 = 254;

const MAC: [u8; 6] = [2, 0, 0, 0, 2, 5];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// What a machine says: of its bond, and whether it steers what comes in.
#[derive(Clone, Debug)]
struct Told(Option<BondMembers>, Steering);

impl Machine for Told {
    fn marks(&self, _: &Link) -> Marks {
        Marks {
            steering: Some(self.1),
            software: Some(HashKey::new(3, 4)),
            rx_hash: Some(false),
            ..Marks::default()
        }
    }

    fn dissector(&self) -> Option<bool> {
        Some(false)
    }

    fn bond(&self, _: &Link) -> Option<BondMembers> {
        self.0.clone()
    }
}

/// Members in the order in which they joined, which is not that of their indices.
fn members() -> BondMembers {
    let member = |name: &str, aggregator| BondMember {
        name: name.into(),
        monitored_up: true,
        aggregator: Some(aggregator),
        queue: 0,
    };
    BondMembers {
        members: vec![member("m3", 1), member("m1", 1), member("m2", 2)],
        aggregator: Some(1),
    }
}

/// A router whose only route leads over a bond of three members.
struct Case {
    mode: u8,
    policy: u8,
    told: Option<Told>,
    /// Members that are no backups.
    active: &'static [&'static str],
    resolved: bool,
    kernel: &'static str,
    /// The routes lead over VLANs upon the bond, one upon the other.
    /// How many VLANs are upon the bond, one upon the other; the last is the link.
    vlans: u32,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            mode: 2,
            policy: 1,
            told: Some(Told(Some(members()), Steering::Off)),
            active: &["m1", "m2", "m3"],
            resolved: true,
            kernel: "6.18.3",
            vlans: 0,
        }
    }
}

impl Case {
    fn rib(&self) -> Rib {
        let mut rib = Rib::detached();
        rib.apply(Event::Link(Link::ethernet(1, "in0", [2, 0, 0, 0, 2, 1])));
        rib.apply(Event::Link(Link {
            kind: Some("bond".to_owned()),
            bond: Some(Bond {
                mode: self.mode,
                policy: self.policy,
                by_traffic: false,
                ..Bond::default()
            }),
            ..Link::ethernet(5, "bond0", MAC)
        }));
        for index in 11..14 {
            let name = format!("m{}", index - 10);
            rib.apply(Event::Link(Link {
                master: Some(5),
                bond_active: Some(self.active.contains(&name.as_str())),
                ..Link::ethernet(index, name, MAC)
            }));
        }
        let out = 5 + self.vlans;
        for (index, name, (protocol, id, egress_qos)) in [
            (6, "bond0.5", (0x88a8, 5, false)),
            (7, "bond0.5.6", (0x8100, 6, true)),
        ] {
            rib.apply(Event::Link(Link {
                kind: Some("vlan".to_owned()),
                vlan: Some(Vlan {
                    protocol,
                    id,
                    egress_qos,
                }),
                lower: Some(index - 1),
                ..Link::ethernet(index, name, MAC)
            }));
        }
        let device = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        for index in [1, out] {
            rib.apply(Event::Device(index, device));
        }
        let address = Address::new(out, ip("10.0.0.1"), 24);
        rib.apply(Event::Address(address));
        for (dst, gateway) in [("0.0.0.0/0", "10.0.0.2"), ("::/0", "fd00::2")] {
            if self.resolved {
                rib.apply(Event::Neighbour(Neighbour {
                    index: out,
                    dst: ip(gateway),
                    mac: Some(GATEWAY),
                    state: 2,
                    flags: 0,
                    protocol: 0,
                }));
            }
            rib.apply(route(dst, TABLE_MAIN, vec![hop(gateway, out, None)]));
        }
        rib
    }

    fn ask(&self, question: &str) -> Answer {
        let around = Surroundings {
            kernel: self.kernel.parse().ok(),
            machine: self
                .told
                .clone()
                .map(|told| Arc::new(told) as Arc<dyn Machine>),
            ..Surroundings::default()
        };
        let rib = self.rib();
        let images = Images::default();
        let view = View::new(&rib, &WellKnown, &around, &images);
        let words: Vec<String> = question.split_whitespace().map(str::to_owned).collect();
        let (words, packet) = match words.as_slice() {
            [word, hex] if word == "hex" => {
                let packet = Packet::of_hex(hex).unwrap();
                (packet.words("in0"), Some(packet))
            }
            _ => (FlowWords::parse(&words).unwrap(), None),
        };
        let question = Question {
            words: &words,
            packet: packet.as_ref(),
        };
        answer(view, question)
    }

    fn bond(&self, question: &str) -> OfBond {
        let answer = self.ask(question);
        assert_eq!(answer.link.as_deref(), Some("bond0"), "{answer:?}");
        answer.bond.unwrap()
    }
}

const TCP: &str = "198.18.0.9 from 192.0.2.1 iif in0 ipproto tcp sport 40000 dport 80";

fn flow(src: &str, dst: &str, proto: u8, sport: u16, dport: u16) -> Flow {
    Flow::new(ip(src), ip(dst))
        .unwrap()
        .ports(proto, sport, dport)
}

fn policy(number: u8) -> BondPolicy {
    BondPolicy::from_number(number).unwrap()
}

#[test]
fn the_hash_counts_members_in_the_order_in_which_they_joined() {
    let flow = flow("192.0.2.1", "198.18.0.9", 6, 40000, 80);
    for number in 0..6 {
        let of = Case {
            policy: number,
            ..Case::default()
        }
        .bond(TCP);
        let hash = bond_hash_of_flow(policy(number), &flow, GATEWAY, MAC).unwrap();
        let member = ["m3", "m1", "m2"][hash as usize % 3];
        assert_eq!(of.member.as_deref(), Some(member), "{number}");
        assert_eq!((of.hash, of.ordered), (Some(hash), true), "{number}");
        // That what nobody sees may give the packet a hash matters to encap3+4 alone.
        assert_eq!(of.confidence.level, Level::Exact, "{of:?}");
    }
}

#[test]
fn only_members_of_the_active_aggregator_count() {
    let lacp = |active| Case {
        mode: 4,
        active,
        ..Case::default()
    };
    let of = lacp(&["m1", "m2", "m3"]).bond(TCP);
    assert_eq!(of.members, ["m3", "m1"]);
    let place = of.hash.unwrap() as usize % 2;
    assert_eq!(of.member, Some(of.members[place].clone()));
    let of = lacp(&["m1", "m2"]).bond(TCP);
    assert_eq!((of.member.as_deref(), of.members.len()), (Some("m1"), 1));
    let of = lacp(&["m2"]).bond(TCP);
    assert_eq!((of.member, of.members.len()), (None, 0));
    assert_eq!(of.confidence.level, Level::Exact);
}

#[test]
fn a_snapshot_has_the_hash_and_no_order() {
    let snapshot = |active| Case {
        told: None,
        active,
        ..Case::default()
    };
    let of = snapshot(&["m1", "m2", "m3"]).bond(TCP);
    assert_eq!((of.member, of.ordered), (None, false));
    assert!(of.hash.is_some());
    assert_eq!(of.confidence.level, Level::Unknown);
    assert!(of.confidence.why[0].contains("/sys/class/net/bond0/bonding/slaves"));
    // Of one there is no order.
    let of = snapshot(&["m2"]).bond(TCP);
    assert_eq!(of.member.as_deref(), Some("m2"));
    assert_eq!(of.confidence.level, Level::ExactUnless);
}

#[test]
fn members_that_sys_and_netlink_disagree_about_are_unknown() {
    let mut told = members();
    told.members.pop();
    let of = Case {
        told: Some(Told(Some(told), Steering::Off)),
        ..Case::default()
    }
    .bond(TCP);
    assert_eq!((of.member, of.confidence.level), (None, Level::Unknown));
}

#[test]
fn other_modes_do_not_hash() {
    let mode = |mode, active| {
        Case {
            mode,
            active,
            ..Case::default()
        }
        .bond(TCP)
    };
    let of = mode(1, &["m2"]);
    assert_eq!(of.member.as_deref(), Some("m2"));
    assert_eq!((of.confidence.level, of.hash), (Level::Exact, None));
    let of = mode(1, &[]);
    assert_eq!((of.member, of.confidence.level), (None, Level::Exact));
    for (number, said) in [
        (0, "in turn"),
        (3, "by all members"),
        (5, "have sent"),
        (6, "have sent"),
        (9, "is not modelled"),
    ] {
        let of = mode(number, &["m1", "m2", "m3"]);
        assert_eq!((of.member, of.policy), (None, None));
        assert_eq!(of.confidence.level, Level::Unknown);
        assert!(of.confidence.why[0].contains(said), "{number}");
    }
}

#[test]
fn what_a_flow_leaves_open_is_unknown() {
    let ask = |policy, question: &str| {
        let of = Case {
            policy,
            ..Case::default()
        }
        .bond(question);
        (of.confidence.level, of.confidence.why)
    };
    for (number, question, said) in [
        (
            1,
            "198.18.0.9 iif in0 ipproto tcp sport 1 dport 2",
            "no source",
        ),
        (
            1,
            "198.18.0.9 from 192.0.2.1 iif in0",
            "no protocol and ports",
        ),
        (
            1,
            "198.18.0.9 from 192.0.2.1 iif in0 ipproto tcp sport 1",
            "not both",
        ),
        (
            1,
            "198.18.0.9 from 192.0.2.1 iif in0 ipproto icmp",
            "identifier",
        ),
        (4, "198.18.0.9 from 192.0.2.1 iif in0 ipproto gre", "inside"),
        (4, "198.18.0.9 ipproto tcp sport 1 dport 2", "random"),
    ] {
        let (level, why) = ask(number, question);
        assert_eq!(level, Level::Unknown, "{question}");
        assert!(why[0].contains(said), "{why:?}");
    }
    let (level, why) = ask(2, "198.18.0.9 from 192.0.2.1 iif in0 ipproto icmp");
    assert_eq!(level, Level::ExactUnless);
    assert!(why[0].contains("ICMP error"));
}

#[test]
fn a_neighbour_that_is_not_known_matters_where_its_address_is_hashed() {
    for number in 0..6 {
        let of = Case {
            policy: number,
            resolved: false,
            ..Case::default()
        }
        .bond(TCP);
        let unknown = matches!(number, 0 | 2 | 3);
        assert_eq!(of.confidence.level == Level::Unknown, unknown, "{number}");
    }
}

/// What this machine sends has the source that the path gives it.
#[test]
fn a_flow_of_this_machine_has_the_source_that_it_gets() {
    for question in [
        "198.18.0.9 ipproto udp sport 1000 dport 53",
        "198.18.0.9 ipproto tcp sport 1000 dport 53",
    ] {
        let answer = Case::default().ask(question);
        let proto = answer.flow.proto;
        let flow = flow("10.0.0.1", "198.18.0.9", proto, 1000, 53);
        let hash = bond_hash_of_flow(policy(1), &flow, GATEWAY, MAC);
        let of = answer.bond.unwrap();
        assert_eq!((of.hash, of.confidence.level), (hash, Level::Exact));
        let step = answer.steps.iter().find(|step| step.name == "bond");
        assert!(
            step.unwrap()
                .text
                .contains(&format!("{:#010x}", hash.unwrap()))
        );
    }
}

/// encap3+4 takes the hash that receive packet steering gives, the other policies do not.
#[test]
fn a_hash_that_packets_bring_counts_with_encap34() {
    let steered = |policy| Case {
        policy,
        told: Some(Told(Some(members()), Steering::On)),
        ..Case::default()
    };
    let answer = steered(4).ask(TCP);
    let of = answer.bond.as_ref().unwrap();
    assert!(of.member.is_some() && of.hash.is_none());
    assert!(render(&answer).contains("not shown (--show-key)"));
    let of = steered(1).bond(TCP);
    assert!(of.member.is_some() && of.hash.is_some());
    assert_eq!(of.confidence.level, Level::Exact);
    let unseen = Case {
        policy: 4,
        told: None,
        active: &["m1"],
        ..Case::default()
    };
    assert_eq!(unseen.bond(TCP).member.as_deref(), Some("m1"));
}

/// A fragment that the kernel makes has no ports.
#[test]
fn packets_are_hashed_as_they_leave() {
    let udp = |length: usize| {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet.extend([192, 0, 2, 1, 198, 18, 0, 9]);
        let sum = raddle_packet::checksum::checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([3, 232, 0, 53]);
        packet.extend(((length - 20) as u16).to_be_bytes());
        packet.resize(length, 0);
        packet
    };
    let ask = |packet: &[u8]| {
        let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        Case::default().bond(&format!("hex {hex}")).hash
    };
    let hashed = |packet: &[u8]| {
        let frame = [&GATEWAY[..], &MAC, &[8, 0], packet].concat();
        bond_hash(policy(1), &frame, 0)
    };
    let whole = udp(100);
    assert_eq!(ask(&whole), hashed(&whole));
    let long = udp(2000);
    let mut fragment = long.clone();
    fragment[6] = 0x20;
    assert_eq!(ask(&long), hashed(&fragment));
    assert_ne!(hashed(&long), hashed(&fragment));
}

/// ICMPv6 type 135, whatever its checksum.
#[test]
fn neighbour_discovery_may_leave_by_every_member() {
    let hex = format!(
        "6000000000183aff{}{}8700000000000000{}",
        "20010db8000000000000000000000001",
        "20010db8005100000000000000000007",
        "20010db8005100000000000000000007"
    );
    let ask = |mode, kernel| {
        let case = Case {
            mode,
            kernel,
            ..Case::default()
        };
        case.bond(&format!("hex {hex}")).confidence
    };
    assert!(ask(4, "6.18.3").why[0].contains("broadcast_neighbor"));
    for (mode, kernel) in [(2, "6.18.3"), (4, "6.16.9")] {
        assert_eq!(ask(mode, kernel).level, Level::Exact);
    }
}

#[test]
fn older_kernels_may_hash_other_bytes() {
    let of = |kernel| {
        let of = Case {
            kernel,
            ..Case::default()
        }
        .bond(TCP);
        of.confidence
    };
    assert!(of("6.1.59").why[0].contains("first buffer"));
    assert_eq!(of("6.1.60").level, Level::Exact);
    assert!(of("7.2").why[0].contains("newer than"));
}

#[test]
fn the_answer_names_the_member_behind_the_link() {
    let answer = Case::default().ask(TCP);
    let text = render(&answer);
    let member = answer.bond.as_ref().unwrap().member.clone().unwrap();
    assert!(text.contains("=> dev bond0 via 10.0.0.2"), "{text}");
    assert!(
        text.ends_with(&format!("   member {member} of bond0: exact\n")),
        "{text}"
    );
    assert!(text.contains("can send, in the order in which they joined: m3, m1, m2"));
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["bond"]["mode"], "balance-xor");
    assert_eq!(json["bond"]["policy"], "layer3+4");
    assert_eq!(json["bond"]["member"], member.as_str());
    assert_eq!(json["bond"]["confidence"]["level"], "exact");
}

/// The link below a VLAN and its tags are named; with two tags, the bond's member only where no hash chooses.
#[test]
fn vlans_leave_by_what_is_below() {
    let ask = |mode, active| {
        Case {
            mode,
            active,
            vlans: 2,
            ..Case::default()
        }
        .ask(TCP)
    };
    let answer = ask(2, &["m1", "m2"]);
    assert_eq!(answer.link.as_deref(), Some("bond0.5.6"));
    let steps: Vec<&str> = answer.steps.iter().map(|step| step.name).collect();
    let at = steps.iter().position(|name| *name == "vlan").unwrap();
    assert_eq!(steps[at - 1..at + 2], ["link", "vlan", "bond"]);
    let step = &answer.steps[at];
    assert_eq!(
        step.text,
        "bond0.5.6 is a VLAN: the packet leaves by bond0 with tag 802.1ad 5 (priority 0), and 802.1Q 6 (priority by its \
         egress-qos-map) behind it"
    );
    assert_eq!(step.data["lower"], "bond0");
    assert_eq!(step.data["tags"][0]["id"], 5);
    let of = answer.bond.unwrap();
    assert_eq!((of.dev.as_str(), of.member, of.hash), ("bond0", None, None));
    assert_eq!(of.confidence.level, Level::Unknown);
    let only = ask(2, &["m2"]).bond.unwrap();
    assert_eq!(only.member.as_deref(), Some("m2"));
    assert_eq!(only.confidence.level, Level::Exact);
    let active = ask(1, &["m2"]).bond.unwrap();
    assert_eq!(active.member.as_deref(), Some("m2"));
}

/// The kernel has one tag beside the packet, and hashes the packet as without it.
#[test]
fn one_tag_is_not_hashed() {
    let ask = |policy, vlans| {
        let case = Case {
            policy,
            vlans,
            ..Case::default()
        };
        case.ask(TCP).bond.unwrap()
    };
    for policy in 0..=3 {
        let (with, without) = (ask(policy, 1), ask(policy, 0));
        assert!(with.member.is_some());
        assert_eq!(
            (with.member, with.hash),
            (without.member, without.hash),
            "{policy}"
        );
        assert_eq!(with.confidence.level, Level::ExactUnless);
        let why = with.confidence.why.join("; ");
        assert!(why.contains("tx-vlan-hw-insert"), "{why}");
    }
    let by_tag = ask(5, 1);
    assert_eq!(by_tag.confidence.level, Level::Unknown);
}

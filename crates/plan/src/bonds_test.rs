//! Members of bonds, held against [`raddle_select::bond_hash`] of frames that are written here by hand.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use raddle_netlink::probe::sockets::Connected;
use raddle_rib::Rib;
use raddle_rib::event::{
    Address, Bond, Event, Link, Neighbour, Route, RouteNexthop, RouteOp, RouteTarget, Rule,
    Settings, Vlan,
};
use raddle_select::{BondMember, BondMembers, BondPolicy, HashKey, bond_hash};
use raddle_sim::Predictor;
use raddle_sim::sample::{self, Sample};

use crate::bonds::Bonds;
use crate::paths;
use crate::ports::{Certificate, Question, audit, plan};
use crate::spread::over_links;
use crate::what_if;

const BOND: [u8; 6] = [2, 0, 0, 0, 2, 5];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 9, 9];
const SOURCE: &str = "192.0.2.1";

/// Two bonds, `bond0` (index 10) of `m1` to `m4` and `bond1` (20) of `n1` and `n2`; 198.51.100.0/24 leads over the first, or a VLAN
/// upon it, and 203.0.113.0/24 over both.
struct Case {
    mode: u8,
    policy: u8,
    seed: u32,
    hash_policy: u8,
    /// Members of the first in the order in which they joined it.
    order: Vec<&'static str>,
    /// Those that are no backups.
    active: Vec<&'static str>,
    vlans: u32,
    weights: [u16; 2],
}

impl Default for Case {
    fn default() -> Case {
        let all = vec!["m3", "m1", "m4", "m2"];
        Case {
            mode: 2,
            policy: 1,
            seed: 12345,
            hash_policy: 1,
            active: all.clone(),
            order: all,
            vlans: 0,
            weights: [1, 1],
        }
    }
}

/// The members of the second.
const SECOND: [&str; 2] = ["n2", "n1"];

impl Case {
    fn rib(&self) -> Rib {
        let mut rib = Rib::detached();
        rib.apply(Event::Settings(Settings {
            hash_policy4: self.hash_policy,
            hash_seed: self.seed,
            ..Settings::default()
        }));
        for (priority, table) in [(0, 255), (32766, 254)] {
            rib.apply(Event::Rule(Rule {
                family: 4,
                priority,
                table,
                action: 1,
                ..Rule::default()
            }));
        }
        rib.apply(Event::Link(Link::ethernet(1, "in0", [2, 0, 0, 0, 2, 1])));
        let bond = |index, name: &str| {
            Event::Link(Link {
                kind: Some("bond".to_owned()),
                bond: Some(Bond {
                    mode: self.mode,
                    policy: self.policy,
                    by_traffic: false,
                    ..Bond::default()
                }),
                ..Link::ethernet(index, name, BOND)
            })
        };
        let part = |index, name: &str, master, active| {
            Event::Link(Link {
                master: Some(master),
                bond_active: Some(active),
                ..Link::ethernet(index, name, BOND)
            })
        };
        rib.apply(bond(10, "bond0"));
        for name in &self.order {
            let index = 10 + u32::from(name.as_bytes()[1] - b'0');
            rib.apply(part(index, name, 10, self.active.contains(name)));
        }
        rib.apply(bond(20, "bond1"));
        for (index, name) in [(21, "n1"), (22, "n2")] {
            rib.apply(part(index, name, 20, true));
        }
        for n in 0..self.vlans {
            rib.apply(Event::Link(Link {
                kind: Some("vlan".to_owned()),
                vlan: Some(Vlan {
                    protocol: 0x8100,
                    id: 5,
                    egress_qos: false,
                }),
                lower: Some(if n == 0 { 10 } else { 29 + n }),
                ..Link::ethernet(30 + n, format!("vlan{n}"), BOND)
            }));
        }
        let first = if self.vlans == 0 { 10 } else { 29 + self.vlans };
        let hop = |index: u32, gateway: &str, weight| RouteNexthop {
            gateway: Some(gateway.parse().unwrap()),
            index,
            weight,
            ..RouteNexthop::default()
        };
        let [a, b] = self.weights;
        let (one, two) = (hop(first, "10.0.1.1", a), hop(20, "10.0.2.1", b));
        for (dst, target) in [
            ("198.51.100.0/24", RouteTarget::Single(one.clone())),
            ("203.0.113.0/24", RouteTarget::Multipath(vec![one, two])),
        ] {
            let route = Route {
                dst: dst.parse().unwrap(),
                protocol: 4,
                target,
                ..Route::default()
            };
            rib.apply(Event::Route(route, RouteOp::Add));
        }
        for (index, gateway) in [(first, "10.0.1.1"), (20, "10.0.2.1")] {
            rib.apply(Event::Neighbour(Neighbour {
                index,
                dst: gateway.parse().unwrap(),
                mac: Some(GATEWAY),
                state: 2,
                flags: 0,
                protocol: 0,
            }));
        }
        let local = Address::new(1, SOURCE.parse().unwrap(), 24);
        rib.apply(Event::Address(local));
        rib
    }

    /// What the machine tells.
    fn bonds(&self, rib: &Rib) -> Bonds {
        Bonds::told(rib, |bond| {
            let names = match bond.index {
                10 => self.order.clone(),
                _ => SECOND.to_vec(),
            };
            let member = |name: &&str| BondMember {
                name: (*name).to_owned(),
                monitored_up: true,
                aggregator: Some(1),
                queue: 0,
            };
            Some(BondMembers {
                members: names.iter().map(member).collect(),
                aggregator: Some(1),
            })
        })
    }

    fn plan(&self, question: &Question) -> Result<Certificate, String> {
        let rib = self.rib();
        plan(&rib, None, &self.bonds(&rib), question).map_err(|e| e.to_string())
    }

    fn what_if(&self, words: &str, samples: &[Sample]) -> what_if::Report {
        let rib = self.rib();
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let question = what_if::Question::parse(&words).unwrap();
        let bonds = self.bonds(&rib);
        what_if::answer(&rib, &bonds, &question, Some(samples), None).unwrap()
    }

    fn judge(&self, dst: &str) -> Judge<'_> {
        let rib = self.rib();
        let to: IpAddr = dst.parse().unwrap();
        let choice = paths::choice(&rib, "", &paths::packets_to(to)).unwrap();
        Judge {
            case: self,
            dst: dst.to_owned(),
            predictor: choice.is_many().then(|| {
                let hashing = paths::hashing(&rib, "", to, None).unwrap();
                Predictor::new(hashing, choice.layout.clone())
            }),
        }
    }

    fn way(&self, src: &str, dst: &str, sport: u16, without: &str) -> (String, String) {
        self.judge(dst).way(src, sport, without)
    }
}

/// The reference: the nexthop by the route's layout, the member by the rest of the hash of a frame.
struct Judge<'a> {
    case: &'a Case,
    dst: String,
    predictor: Option<Predictor>,
}

impl Judge<'_> {
    fn way(&self, src: &str, sport: u16, without: &str) -> (String, String) {
        let case = self.case;
        let to = self.dst.parse().unwrap();
        let flow = raddle_select::Flow::new(src.parse().unwrap(), to).unwrap();
        let flow = flow.ports(6, sport, 2049);
        let hop = self.predictor.as_ref();
        let hop = hop.map_or(0, |predictor| predictor.flow(&flow).unwrap());
        let hash = bond_hash(policy(case.policy), &frame(src, &self.dst, sport), 0).unwrap();
        let (dev, order) = match hop {
            0 => ("bond0", case.order.clone()),
            _ => ("bond1", SECOND.to_vec()),
        };
        let active = |name: &&str| dev == "bond1" || case.active.contains(name);
        let left = order.into_iter().filter(active);
        let left: Vec<&str> = left.filter(|name| *name != without).collect();
        (dev.to_owned(), left[hash as usize % left.len()].to_owned())
    }
}

fn policy(number: u8) -> BondPolicy {
    BondPolicy::from_number(number).unwrap()
}

/// A TCP segment to port 2049, byte by byte.
fn frame(src: &str, dst: &str, sport: u16) -> Vec<u8> {
    let address = |text: &str| match text.parse().unwrap() {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => panic!("{text}"),
    };
    let mut frame = [&GATEWAY[..], &BOND, &[8, 0]].concat();
    frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(address(src));
    frame.extend(address(dst));
    frame.extend(sport.to_be_bytes());
    frame.extend(2049_u16.to_be_bytes());
    frame.resize(14 + 40, 0);
    frame
}

fn question(dst: &str, count: usize) -> Question {
    Question {
        dport: 2049,
        from: Some(SOURCE.parse().unwrap()),
        first: Some(10_000),
        last: Some(14_000),
        ..Question::new(dst.parse().unwrap(), count)
    }
}

/// Nexthop and member of each connection.
fn ways(plan: &Certificate) -> Vec<(u16, String, String)> {
    let connections = plan.connections.iter();
    let way = connections.map(|c| {
        let path = &plan.paths[c.path].path;
        let member = path.member.clone().unwrap();
        (c.value as u16, path.dev.clone(), member)
    });
    way.collect()
}

fn flows(dst: &str, count: usize) -> Vec<Sample> {
    let hosts = "10.9.0.0/16".parse().unwrap();
    let flows = sample::synthetic(hosts, Some(dst.parse().unwrap()), count, 7).unwrap();
    let to_nfs = flows
        .into_iter()
        .map(|flow| flow.ports(6, flow.sport, 2049));
    to_nfs.map(Sample::of).collect()
}

fn end(sample: &Sample) -> (String, u16) {
    let (src, _) = sample.flow.addresses.ends();
    (src.to_string(), sample.flow.sport)
}

/// A key that nobody knows does not matter: the bond's hash has none.
#[test]
fn four_connections_over_a_bond_of_four_use_four() {
    for (mode, seed) in [(2, 0), (4, 0), (2, 9)] {
        let case = Case {
            mode,
            seed,
            ..Case::default()
        };
        let plan = case.plan(&question("198.51.100.7", 4)).unwrap();
        assert_eq!(plan.loads(), [1; 4]);
        for (port, dev, member) in ways(&plan) {
            assert_eq!(case.way(SOURCE, "198.51.100.7", port, ""), (dev, member));
        }
        let members: Vec<_> = plan.paths.iter().map(|path| path.path.link()).collect();
        assert_eq!(members, ["m3", "m1", "m4", "m2"]);
        assert_eq!(
            plan.paths.iter().map(|path| path.hashes).sum::<u64>(),
            1 << 31
        );
        let hashes = plan.connections.iter().map(|c| c.hash);
        assert!(hashes.into_iter().all(|hash| hash.is_none() == (seed == 0)));
    }
}

#[test]
fn a_plan_over_a_bond_is_told_in_full() {
    let plan = Case::default().plan(&question("198.51.100.7", 4)).unwrap();
    let text = plan.to_string();
    assert!(
        text.contains(
            ": 4 of 4 paths (random ones: 2.7 on average)\n\
             bond0 balance-xor layer3+4: 4 members, in the order in which they joined: m3, m1, m4, m2\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("via 10.0.1.1 dev bond0 member m3    25.00 %            1"),
        "{text}"
    );
    assert!(text.contains("\n  m1: open "), "{text}");
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(Certificate::parse("again", json.as_bytes()).unwrap(), plan);
    // One that was made when bonds were one path.
    let mut value = serde_json::to_value(&plan).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.remove("bonds");
    fields["spares"] = serde_json::json!([]);
    for path in fields["paths"].as_array_mut().unwrap() {
        path.as_object_mut().unwrap().remove("member");
    }
    let read = Certificate::parse("old", value.to_string().as_bytes()).unwrap();
    assert!(read.paths[0].path.is(&plan.paths[0].path));
    assert!(!plan.paths[0].path.is(&plan.paths[1].path));
}

/// What differs is not hashed, or nobody knows how: one path, and a word about it.
#[test]
fn a_bond_that_does_not_tell_ports_apart_is_one_path() {
    let one = |case: Case, said: &str| {
        let plan = case.plan(&question("198.51.100.7", 4)).unwrap();
        assert_eq!(plan.loads(), [4], "{said}");
        let why = plan.bonds[0].why.clone().unwrap_or_default();
        assert!(why.contains(said), "{why}");
        assert!(plan.to_string().contains("bond0"), "{plan}");
        plan.paths[0].path.member.clone()
    };
    for number in [0, 2, 3, 5] {
        let case = Case {
            policy: number,
            ..Case::default()
        };
        let (_, member) = case.way(SOURCE, "198.51.100.7", 1, "");
        assert_eq!(one(case, "does not hash what differs"), Some(member));
    }
    let of = |mode, policy, vlans| Case {
        mode,
        policy,
        vlans,
        ..Case::default()
    };
    assert_eq!(one(of(0, 0, 0), "in turn"), None);
    assert_eq!(one(of(3, 0, 0), "by all of its members"), None);
    assert_eq!(one(of(6, 0, 0), "have sent before"), None);
    assert_eq!(one(of(9, 0, 0), "mode is not known"), None);
    assert_eq!(one(of(2, 9, 0), "xmit_hash_policy is not known"), None);
    assert_eq!(one(of(2, 4, 0), "a hash that is random"), None);
    assert_eq!(one(of(2, 1, 2), "frames with such tags"), None);
    assert_eq!(one(of(2, 5, 1), "frames with such tags"), None);
    assert_eq!(one(of(1, 1, 0), "no one member"), None);
    let active = Case {
        mode: 1,
        active: vec!["m2"],
        ..Case::default()
    };
    assert_eq!(one(active, ""), Some("m2".to_owned()));
}

#[test]
fn a_snapshot_has_no_order_of_members() {
    let case = Case::default();
    let rib = case.rib();
    let plan = plan(&rib, None, &Bonds::default(), &question("198.51.100.7", 4)).unwrap();
    assert_eq!(
        (plan.loads(), plan.paths[0].path.member.clone()),
        (vec![4], None)
    );
    let text = plan.to_string();
    assert!(text.contains("bond0 balance-xor layer3+4 is one path: the order in which its members joined is not known"), "{text}");
    let words = "198.51.100.7 link-down m1".split(' ').map(str::to_owned);
    let asked = what_if::Question::parse(&words.collect::<Vec<_>>()).unwrap();
    let report = what_if::answer(&rib, &Bonds::default(), &asked, None, None).unwrap();
    assert!(report.moved.abs() < 1e-12 && report.bonds[0].why.is_some());
}

/// A tag is beside the packet and is not hashed.
#[test]
fn a_vlan_upon_a_bond_is_as_wide_as_the_bond() {
    let (plain, tagged) = (
        Case::default(),
        Case {
            vlans: 1,
            ..Case::default()
        },
    );
    let ask = |case: &Case| case.plan(&question("198.51.100.7", 8)).unwrap();
    let (plain, tagged) = (ask(&plain), ask(&tagged));
    assert_eq!(
        tagged.paths[0].path.text(),
        "via 10.0.1.1 dev vlan0 member m3"
    );
    assert_eq!(plain.connections, tagged.connections);
}

/// What comes in by a link and brings no hash is hashed with encap3+4, and what brings one by that.
#[test]
fn forwarded_packets_go_by_what_they_bring() {
    let case = Case {
        policy: 4,
        ..Case::default()
    };
    let forwarded = Question {
        iif: Some("in0".to_owned()),
        ..question("198.51.100.7", 4)
    };
    let plain = case.plan(&forwarded).unwrap();
    for (port, dev, member) in ways(&plain) {
        assert_eq!(case.way(SOURCE, "198.51.100.7", port, ""), (dev, member));
    }
    let mut rib = case.rib();
    let brings = raddle_select::Brings {
        nic: None,
        software: Some(HashKey::new(3, 4)),
    };
    rib.set_brings(1, brings.clone());
    let steered = plan(&rib, None, &case.bonds(&rib), &forwarded).unwrap();
    assert_eq!(steered.loads(), [1; 4]);
    for (port, _, member) in ways(&steered) {
        let flow = raddle_select::Flow::new(SOURCE.parse().unwrap(), steered.flow.dst).unwrap();
        let raddle_select::Brought::Hash { hash, .. } = brings.of_flow(&flow.ports(6, port, 2049))
        else {
            panic!("{port}");
        };
        assert_eq!(member, case.order[hash as usize % 4]);
    }
    assert_ne!(plain.connections, steered.connections);
}

#[test]
fn ports_that_the_route_does_not_hash_reach_one_bond_of_two() {
    let case = Case {
        hash_policy: 0,
        ..Case::default()
    };
    let error = case.plan(&question("203.0.113.7", 6)).unwrap_err();
    assert!(error.contains("fib_multipath_hash_policy=1"), "{error}");
    assert!(
        case.plan(&question("198.51.100.7", 4)).is_ok(),
        "nothing is chosen"
    );
}

#[test]
fn connections_are_counted_by_member() {
    let case = Case::default();
    let rib = case.rib();
    let socket = |sport| Connected {
        protocol: 6,
        local: SOURCE.parse().unwrap(),
        sport,
        remote: "198.51.100.7".parse().unwrap(),
        dport: 2049,
    };
    let sockets: Vec<Connected> = (1000..1200).map(socket).collect();
    let [of] = audit(&rib, None, &case.bonds(&rib), &sockets, &[])
        .unwrap()
        .0
        .try_into()
        .unwrap();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for socket in &sockets {
        let (_, member) = case.way(SOURCE, "198.51.100.7", socket.sport, "");
        *expected.entry(member).or_default() += 1;
    }
    for load in &of.paths {
        assert_eq!(load.connections, expected[load.path.link()]);
    }
    let by_snapshot = audit(&rib, None, &Bonds::default(), &sockets, &[]).unwrap();
    assert!(by_snapshot.0.is_empty(), "one path");
}

#[test]
fn loads_are_those_of_members() {
    for number in 0..=3 {
        let case = Case {
            policy: number,
            weights: [3, 1],
            ..Case::default()
        };
        let rib = case.rib();
        let samples = flows("203.0.113.7", 3000);
        let judge = case.judge("203.0.113.7");
        let report = over_links(&rib, &case.bonds(&rib), "", &samples).unwrap();
        let links = report.links.as_ref().unwrap();
        let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
        for sample in &samples {
            let (src, sport) = end(sample);
            *expected.entry(judge.way(&src, sport, "")).or_default() += 1;
        }
        let found = links.loads.iter().filter(|link| link.load > 0);
        let found = found.map(|link| {
            let member = link.member.clone().unwrap();
            ((link.dev.clone(), member), link.load)
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{number}");
        let all: f64 = links.loads.iter().map(|link| link.expected).sum();
        assert!((all - 3000.0).abs() < 1e-3, "{all}");
        // With layer2 one member has all of its bond.
        assert_eq!(links.loads.len(), if number == 0 { 2 } else { 6 });
        let text = report.to_string();
        assert!(text.contains(" of bond0 "), "{text}");
    }
}

/// Flows of a capture go by their packets.
#[test]
fn packets_are_hashed_as_they_are() {
    let case = Case::default();
    let rib = case.rib();
    let samples: Vec<Sample> = (1..=500)
        .map(|sport| {
            let mut packet = frame("10.9.1.1", "198.51.100.7", sport)[14..].to_vec();
            // A fragment has no ports.
            packet[6] = 0x20;
            Sample::of_packet(raddle_packet::Family::V4, &packet, 1).unwrap()
        })
        .collect();
    let used = |iif| {
        let report = over_links(&rib, &case.bonds(&rib), iif, &samples).unwrap();
        let links = report.links.unwrap().loads;
        links.iter().filter(|link| link.load > 0).count()
    };
    assert_eq!(used("in0"), 1);
}

/// One of four goes: whose hash leaves another rest now. `h mod 4` and `h mod 3` have the same member for 2 of 12 rests, or more, by
/// which member it is.
#[test]
fn a_member_that_goes_moves_what_the_rests_say() {
    let case = Case::default();
    let samples = flows("198.51.100.7", 4000);
    let judge = case.judge("198.51.100.7");
    for (at, gone) in case.order.iter().enumerate() {
        let report = case.what_if(&format!("198.51.100.7 link-down {gone}"), &samples);
        let left: Vec<&str> = case
            .order
            .iter()
            .copied()
            .filter(|name| name != gone)
            .collect();
        let stays = (0..12).filter(|h| case.order[h % 4] == left[h % 3]).count();
        let moves = 1.0 - stays as f64 / 12.0;
        assert!(
            (report.moved - moves).abs() < 1e-9,
            "{at}: {}",
            report.moved
        );
        assert_eq!(report.moved_hashes, None);
        assert!((report.least - 0.25).abs() < 1e-9, "{}", report.least);
        let moved = samples.iter().filter(|sample| {
            let (src, sport) = end(sample);
            judge.way(&src, sport, "") != judge.way(&src, sport, gone)
        });
        let flows = report.flows.as_ref().unwrap();
        assert_eq!((flows.on_route, flows.moved), (4000, moved.count()));
        for share in &report.paths {
            let after = if share.path.link() == *gone {
                0.0
            } else {
                1.0 / 3.0
            };
            assert!((share.before - 0.25).abs() < 1e-9 && (share.after - after).abs() < 1e-9);
        }
        let text = report.text(false);
        assert!(
            text.contains("as expected of very many, whose hash"),
            "{text}"
        );
        assert!(
            text.contains("then bond0 balance-xor layer3+4: 3 members"),
            "{text}"
        );
    }
}

#[test]
fn a_bond_that_goes_moves_all_that_it_had() {
    let case = Case::default();
    for words in ["link-down bond0", "nexthop-del dev bond0"] {
        let report = case.what_if(&format!("203.0.113.7 {words}"), &flows("203.0.113.7", 2000));
        assert!(
            (report.moved - 0.5).abs() < 1e-8,
            "{words}: {}",
            report.moved
        );
        let flows = report.flows.as_ref().unwrap();
        assert!(flows.list.iter().all(|flow| {
            let to = flow.to.as_ref().unwrap();
            flow.from.as_ref().unwrap().dev == "bond0" && to.dev == "bond1" && to.member.is_some()
        }));
        // 4 members to 2: the rest by 4 says the rest by 2.
        let moves: Vec<_> = report
            .moves
            .iter()
            .filter(|step| step.share > 0.0)
            .collect();
        assert_eq!(moves.len(), 4, "{moves:?}");
    }
    // So does its last member.
    let all = "link-down m1 link-down m2 link-down m3 link-down m4";
    let report = case.what_if(&format!("198.51.100.7 {all}"), &[]);
    assert!((report.moved - 1.0).abs() < 1e-8, "{}", report.text(true));
}

#[test]
fn a_backup_takes_over_where_only_one_can() {
    let two = |order: Vec<&'static str>| Case {
        mode: 1,
        active: vec!["m1"],
        order,
        ..Case::default()
    };
    let report = two(vec!["m1", "m2"]).what_if("198.51.100.7 link-down m1", &[]);
    assert!((report.moved - 1.0).abs() < 1e-12);
    let to = report.moves[0].to.clone().unwrap();
    assert_eq!(to.member.as_deref(), Some("m2"));
    let report = two(vec!["m1", "m2", "m3"]).what_if("198.51.100.7 link-down m1", &[]);
    assert_eq!(report.moves[0].to.clone().unwrap().member, None);
    let report = two(vec!["m1", "m2"]).what_if("198.51.100.7 link-down m2", &[]);
    assert!(report.moved.abs() < 1e-12);
}

/// A VLAN goes down with what it is upon.
#[test]
fn vlans_go_down_with_their_bond() {
    let case = Case {
        vlans: 1,
        ..Case::default()
    };
    let report = case.what_if("203.0.113.7 link-down bond0", &[]);
    assert!((report.moved - 0.5).abs() < 1e-8, "{}", report.moved);
}

/// The key of the route's hash has nothing to do with what bonds hash.
#[test]
fn another_seed_leaves_the_rest_of_bonds_hashes() {
    let case = Case::default();
    let samples = flows("203.0.113.7", 6000);
    let report = case.what_if("203.0.113.7 seed 77", &samples);
    // Half stays on its nexthop, and so by its member.
    assert!((report.moved - 0.5).abs() < 1e-6, "{}", report.moved);
    let flows = report.flows.unwrap();
    let share = flows.moved as f64 / flows.on_route as f64;
    assert!((share - 0.5).abs() < 0.03, "{share}");
}

/// Whatever source the question names.
#[test]
fn flows_of_other_sources_leave_by_their_own_members() {
    let case = Case {
        policy: 2,
        ..Case::default()
    };
    let samples = flows("198.51.100.7", 2000);
    let judge = case.judge("198.51.100.7");
    let words = format!("198.51.100.7 from {SOURCE} link-down m1");
    let flows = case.what_if(&words, &samples).flows.unwrap();
    let moved = samples.iter().filter(|sample| {
        let (src, sport) = end(sample);
        judge.way(&src, sport, "") != judge.way(&src, sport, "m1")
    });
    assert_eq!((flows.on_route, flows.moved), (2000, moved.count()));
    assert!(flows.moved > 500);
}

#[test]
fn flows_over_one_nexthop_want_no_key() {
    let known = Case::default();
    let unknown = Case {
        seed: 0,
        ..Case::default()
    };
    let samples = flows("198.51.100.7", 1000);
    let moved = |case: &Case| {
        let flows = case.what_if("198.51.100.7 link-down m1", &samples).flows;
        flows.unwrap().moved
    };
    assert!(moved(&known) > 0);
    assert_eq!(moved(&known), moved(&unknown));
    let rib = unknown.rib();
    let words = "203.0.113.7 link-down m1".split(' ').map(str::to_owned);
    let asked = what_if::Question::parse(&words.collect::<Vec<_>>()).unwrap();
    let told = what_if::answer(&rib, &unknown.bonds(&rib), &asked, Some(&samples), None);
    assert!(matches!(told, Err(what_if::Error::FlowsNotHashed(_))));
}

/// 10.7.0.0/24 is connected over the first bond, with neighbours 1 to 8.
fn connected(case: &Case) -> Rib {
    let mut rib = case.rib();
    let route = Route {
        dst: "10.7.0.0/24".parse().unwrap(),
        protocol: 2,
        target: RouteTarget::Single(RouteNexthop {
            index: 10,
            weight: 1,
            ..RouteNexthop::default()
        }),
        ..Route::default()
    };
    rib.apply(Event::Route(route, RouteOp::Add));
    for last in 1..=8 {
        rib.apply(Event::Neighbour(Neighbour {
            index: 10,
            dst: [10, 7, 0, last].into(),
            mac: Some([2, 0, 0, 0, 9, last]),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
    }
    rib
}

/// The bond's hash of a packet from [`SOURCE`] to such a neighbour.
fn hash_to(case: &Case, last: u8) -> usize {
    let mut frame = frame(SOURCE, &format!("10.7.0.{last}"), 1000);
    frame[5] = last;
    bond_hash(policy(case.policy), &frame, 0).unwrap() as usize
}

fn to_neighbours(numbers: std::ops::RangeInclusive<u8>) -> Vec<Connected> {
    let socket = |last| Connected {
        protocol: 6,
        local: SOURCE.parse().unwrap(),
        sport: 1000,
        remote: [10, 7, 0, last].into(),
        dport: 2049,
    };
    numbers.map(socket).collect()
}

/// A destination that is a neighbour has its own MAC address, which layer2+3 hashes.
#[test]
fn connections_to_neighbours_are_counted_for_each() {
    let case = Case {
        policy: 2,
        ..Case::default()
    };
    let rib = connected(&case);
    let audits = audit(&rib, None, &case.bonds(&rib), &to_neighbours(1..=8), &[]).unwrap();
    assert_eq!(audits.0.len(), 8);
    assert!(
        audits.to_string().contains("10.7.0.0/24 to 10.7.0.3: 1 "),
        "{audits}"
    );
    for (audit, last) in audits.0.iter().zip(1..) {
        assert_eq!(audit.to, Some([10, 7, 0, last].into()));
        let mut used = audit.paths.iter().filter(|load| load.connections > 0);
        let member = used.next().unwrap().path.link();
        assert_eq!(member, case.order[hash_to(&case, last) % 4]);
    }
}

#[test]
fn flows_to_neighbours_go_by_their_own_addresses() {
    for policy in [0, 2] {
        let case = Case {
            policy,
            ..Case::default()
        };
        let rib = connected(&case);
        let words = "10.7.0.1 link-down m3".split(' ').map(str::to_owned);
        let asked = what_if::Question::parse(&words.collect::<Vec<_>>()).unwrap();
        let samples = to_neighbours(1..=8).into_iter().map(|socket| {
            let flow = raddle_select::Flow::new(socket.local, socket.remote).unwrap();
            Sample::of(flow.ports(socket.protocol, socket.sport, socket.dport))
        });
        let samples: Vec<Sample> = samples.collect();
        let report = what_if::answer(&rib, &case.bonds(&rib), &asked, Some(&samples), None);
        let flows = report.unwrap().flows.unwrap();
        let moved = (1..=8).filter_map(|last| {
            let hash = hash_to(&case, last);
            let (from, to) = (case.order[hash % 4], case.order[1..][hash % 3]);
            (from != to).then_some((last, from, to))
        });
        assert_eq!(flows.on_route, 8);
        let told: Vec<_> = flows
            .list
            .iter()
            .map(|flow| {
                let member = |of: &Option<paths::Named>| of.as_ref().unwrap().link().to_owned();
                (flow.flow.clone(), member(&flow.from), member(&flow.to))
            })
            .collect();
        let expected: Vec<_> = moved
            .map(|(last, from, to)| {
                let flow = format!("{SOURCE}:1000 -> 10.7.0.{last}:2049 tcp");
                (flow, from.to_owned(), to.to_owned())
            })
            .collect();
        assert_eq!(told, expected, "{policy}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Every pair of nexthop and member is a path, and has its connections; when one fails, what is opened and kept lies where the
    /// reference says.
    #[test]
    fn both_levels_are_covered(
        seed in 1..u32::MAX, count in 6..20_usize, weights in [1..4_u16, 1..4_u16],
        order in Just(vec!["m1", "m2", "m3", "m4"]).prop_shuffle(), members in 2..5_usize, lacp: bool,
    ) {
        let order: Vec<&str> = order.into_iter().take(members).collect();
        let case = Case { seed, weights, active: order.clone(), order, mode: if lacp { 4 } else { 2 }, ..Case::default() };
        let plan = case.plan(&question("203.0.113.7", count)).unwrap();
        let loads = plan.loads();
        prop_assert_eq!(loads.len(), members + 2);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
        for (port, dev, member) in ways(&plan) {
            prop_assert_eq!(case.way(SOURCE, "203.0.113.7", port, ""), (dev, member));
        }
        for spare in plan.spares.iter().filter(|spare| !spare.dev.starts_with("bond")) {
            let mut on: BTreeMap<(String, String), usize> = BTreeMap::new();
            let live = plan.connections.iter().filter(|c| {
                plan.paths[c.path].path.member.as_ref() != Some(&spare.dev) && !spare.close.contains(&c.value)
            });
            let opened = spare.connections.iter();
            for connection in live.chain(opened) {
                let way = case.way(SOURCE, "203.0.113.7", connection.value as u16, &spare.dev);
                *on.entry(way).or_default() += 1;
            }
            for (path, load) in plan.paths.iter().zip(&spare.loads) {
                let way = (path.path.dev.clone(), path.path.member.clone().unwrap());
                prop_assert_eq!(on.get(&way).copied().unwrap_or(0), *load, "{}: {:?}", spare.dev, way);
            }
        }
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(Certificate::parse("again", json.as_bytes()).unwrap(), plan);
    }

    /// Shares before and after are sums of moves, and given flows move as often.
    #[test]
    fn moves_over_bonds_add_up(
        seed in 1..u32::MAX, weights in [1..4_u16, 1..4_u16], gone in 0..6_usize, number in 1..4_u8,
    ) {
        let case = Case { seed, weights, policy: number, ..Case::default() };
        let gone = ["m1", "m2", "m3", "m4", "n1", "n2"][gone];
        let samples = flows("203.0.113.7", 2000);
        let judge = case.judge("203.0.113.7");
        let report = case.what_if(&format!("203.0.113.7 link-down {gone}"), &samples);
        let sum = |of: fn(&what_if::PathShare) -> f64| report.paths.iter().map(of).sum::<f64>();
        prop_assert!((sum(|p| p.before) - 1.0).abs() < 1e-9 && (sum(|p| p.after) - 1.0).abs() < 1e-9);
        prop_assert!(report.least <= report.moved + 1e-12);
        let moved = samples.iter().filter(|sample| {
            let (src, sport) = end(sample);
            judge.way(&src, sport, "") != judge.way(&src, sport, gone)
        }).count();
        let flows = report.flows.unwrap();
        prop_assert_eq!(flows.moved, moved);
        prop_assert!((moved as f64 / 2000.0 - report.moved).abs() < 0.06, "{moved} {}", report.moved);
    }
}

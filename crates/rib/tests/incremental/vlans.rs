//! VLANs upon links: by which of them frames come in, whatever comes in which order, and when engines see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use raddle_image::{LinkEntry, Memory, Upon, Vlan, link_flags};
use raddle_rib::event::{self, Event, Link, RouteNexthop, RouteOp, RouteTarget};
use raddle_rib::{Ports, Rib};

use super::common;
use super::small;

/// Links that are no VLANs: the second may be a bond, and the last two its members.
const WIRES: std::ops::Range<u32> = 1..5;
const BOND: u32 = 2;
const MEMBERS: std::ops::Range<u32> = 3..5;
const VLANS: std::ops::Range<u32> = 10..16;

/// The tags that VLANs are drawn with.
const TAGS: [Vlan; 4] = [
    Vlan {
        service: false,
        id: 5,
    },
    Vlan {
        service: true,
        id: 5,
    },
    Vlan {
        service: false,
        id: 6,
    },
    Vlan {
        service: false,
        id: 0,
    },
];

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a few of them in a test")]
enum Change {
    Event(Event),
    Enable(BTreeSet<u32>),
    Commit,
    Links,
}

fn vlan(index: u32, lower: u32, tag: Vlan, up: bool) -> Link {
    Link {
        kind: Some("vlan".to_owned()),
        vlan: Some(event::Vlan {
            protocol: (tag.tag() >> 16) as u16,
            id: tag.id,
            egress_qos: false,
        }),
        lower: Some(lower),
        ..common::link(index, up, true)
    }
}

fn wire(index: u32, is_bond: bool, bonded: bool) -> Link {
    let of_bond = MEMBERS.contains(&index) && bonded;
    Link {
        kind: (index == BOND && is_bond).then(|| "bond".to_owned()),
        master: of_bond.then_some(BOND),
        bond_active: of_bond.then_some(index == MEMBERS.start),
        ..common::link(index, true, true)
    }
}

fn change() -> impl Strategy<Value = Change> {
    let tag = proptest::sample::select(TAGS.to_vec());
    let up = prop::bool::weighted(0.8);
    let any_vlan = (VLANS, any::<u32>(), tag, up).prop_map(|(index, n, tag, up)| {
        // Upon a wire, or a VLAN with a smaller index; now and then upon nothing.
        let count = WIRES.end - WIRES.start + index - VLANS.start;
        let lower = match n % (count + 1) {
            n if n < WIRES.end - WIRES.start => WIRES.start + n,
            n if n < count => VLANS.start + n - (WIRES.end - WIRES.start),
            _ => 99,
        };
        let odd = n / 64 % 16 == 0;
        Event::Link(Link {
            lower_netns: odd.then_some(0),
            ..vlan(index, lower, tag, up)
        })
    });
    let wires = (WIRES, prop::bool::weighted(0.8), any::<bool>());
    let event = prop_oneof![
        8 => any_vlan,
        2 => VLANS.prop_map(Event::LinkGone),
        3 => wires.prop_map(|(index, is_bond, bonded)| Event::Link(wire(index, is_bond, bonded))),
        1 => WIRES.prop_map(Event::LinkGone),
    ];
    let some = prop_oneof![WIRES, VLANS, VLANS];
    let enabled = proptest::collection::btree_set(some, 2..9);
    prop_oneof![
        8 => event.prop_map(Change::Event),
        2 => enabled.prop_map(Change::Enable),
        4 => Just(Change::Commit),
        1 => Just(Change::Links),
    ]
}

/// A link whose tag another one upon the same link has takes its place: the kernel has no two of them.
fn apply(rib: &mut Rib, event: Event) {
    if let Event::Link(link) = &event
        && let Some(vlan) = link.vlan
    {
        let same = |other: &&Link| other.vlan == Some(vlan) && other.lower == link.lower;
        let mut same: Vec<u32> = rib.links().filter(same).map(|other| other.index).collect();
        same.retain(|index| *index != link.index);
        same.into_iter()
            .for_each(|index| rib.apply(Event::LinkGone(index)));
    }
    rib.apply(event);
}

/// By which link the kernel has a frame with these tags come in, by a link that XDP runs on; none where nobody takes it. And whether
/// it is by the last tag that it comes to that.
/// Tag by tag (`vlan_do_receive`, then `bond_handle_frame`): the link itself is asked first, then the bond that it is part of.
fn kernel_takes(links: &BTreeMap<u32, Link>, by: u32, tags: &[Vlan]) -> Option<(u32, bool)> {
    let mut by_tag = true;
    let mut at = links.get(&by)?;
    let mut left = tags.iter();
    let mut tag = left.next();
    loop {
        let is_it = |link: &&Link| {
            let of = link.vlan.and_then(|vlan| Vlan::of(vlan.protocol, vlan.id));
            of.is_some()
                && of == tag.copied()
                && link.lower == Some(at.index)
                && link.lower_netns.is_none()
        };
        if let Some(vlan) = links.values().find(is_it) {
            if !vlan.is_up() {
                return None;
            }
            (at, tag, by_tag) = (vlan, left.next(), true);
            continue;
        }
        let bond = at.master.and_then(|master| links.get(&master));
        match bond.filter(|bond| bond.kind.as_deref() == Some("bond")) {
            Some(_) if at.bond_active != Some(true) => return None,
            Some(bond) => at = bond,
            // Priorities, and no VLAN: what is behind them is looked at.
            None => match tag {
                None => return Some((at.index, by_tag)),
                Some(Vlan { id: 0, .. }) => (tag, by_tag) = (left.next(), false),
                Some(_) => return None,
            },
        }
    }
}

/// By which link an engine has it come in; none where it is punted.
fn engine_takes(memory: &Memory, by: u32, tags: &[Vlan]) -> Option<LinkEntry> {
    let mut entry = memory.link(by);
    let mut at = entry.index;
    if !tags.is_empty() && entry.flags & link_flags::VLANS == 0 {
        return None;
    }
    for tag in tags {
        match memory.step(at, Upon::Tag(*tag)).map(|to| to.index) {
            Some(index) => (entry, at) = (memory.link(index), index),
            None if tag.id == 0 => {}
            None => return None,
        }
    }
    (entry.flags & link_flags::ENABLED != 0).then_some(entry)
}

fn tag_lists() -> Vec<Vec<Vlan>> {
    let one = TAGS.iter().map(|tag| vec![*tag]);
    let two = TAGS.iter().flat_map(|a| TAGS.map(|b| vec![*a, b]));
    one.chain(two).collect()
}

/// Whether engines leave to the kernel what comes in by this link or by one below it, for what bonds they know.
fn is_beyond_engines(links: &BTreeMap<u32, Link>, index: u32) -> bool {
    // Masters that may take its frames are all but VRFs, and there are none here.
    let is_part = |link: &Link| link.master.is_some();
    let Some(mut at) = links.get(&index) else {
        return true;
    };
    loop {
        // Whether a tag with 0 is a VLAN's, the kernel knows.
        let is_upon = |link: &&Link| link.lower == Some(at.index) && link.lower_netns.is_none();
        let mut upon = links.values().filter(is_upon);
        if is_part(at) || upon.any(|link| link.vlan.is_some_and(|vlan| vlan.id == 0)) {
            return true;
        }
        let Some(lower) = at.vlan.and(at.lower).filter(|_| at.lower_netns.is_none()) else {
            break;
        };
        match links.get(&lower) {
            Some(lower) => at = lower,
            None => return true,
        }
    }
    let upon = |part: &&Link| {
        let mut vlans = links.values().filter(|link| link.vlan.is_some());
        vlans.any(|vlan| vlan.lower == Some(part.index) && vlan.lower_netns.is_none())
    };
    let parts = links.values().filter(|link| link.master == Some(at.index));
    at.kind.as_deref() == Some("bond") && parts.filter(upon).count() > 0
}

/// Engines take every frame as the kernel does or punt it, and take those that they can.
fn compare(rib: &Rib) {
    let links: BTreeMap<u32, Link> = rib.links().map(|link| (link.index, link.clone())).collect();
    let enabled = &rib.ports().enabled;
    let is_vlan = |index: u32| links.get(&index).is_some_and(|link| link.vlan.is_some());
    for by in WIRES {
        for tags in tag_lists() {
            let kernel = kernel_takes(&links, by, &tags);
            let engine = engine_takes(rib.memory(), by, &tags);
            let context = || {
                let told = |link: &Link| {
                    let bond = link.kind.as_deref() == Some("bond");
                    (
                        link.index,
                        bond,
                        (link.master, link.bond_active),
                        (link.vlan, link.lower),
                    )
                };
                let links: Vec<_> = links.values().map(told).collect();
                format!("by {by} with {tags:?}: {kernel:?} {links:?} {enabled:?}")
            };
            if let Some(entry) = engine {
                assert_eq!(
                    Some(entry.index),
                    kernel.map(|(index, _)| index),
                    "{}",
                    context()
                );
                assert!(enabled.contains(&entry.index), "{}", context());
                let mac = links[&entry.index].mac.unwrap();
                assert!(!is_vlan(entry.index) || entry.mac == mac, "{}", context());
            } else if let Some((index, by_tag)) = kernel
                && is_vlan(index)
            {
                // A part that engines forward from itself has its own entry.
                let apart = enabled.contains(&by) && links[&by].master.is_some();
                let known = enabled.contains(&index) && !apart && !is_beyond_engines(&links, index);
                assert!(!known || !by_tag, "{}", context());
            }
        }
    }
    for index in 0..20 {
        let entry = rib.memory().link(index);
        let other = entry.flags & !link_flags::VLANS;
        assert!(
            other == 0 || other & link_flags::ENABLED != 0,
            "{index}: {entry:?}"
        );
    }
}

/// What engines may see at any moment: who comes to a link by a tag finds the entry of a link that is enabled, or one that is
/// closed or only passed; never the entry of another than the tag belonged to.
fn watch(memory: &Memory, seen: &Mutex<BTreeMap<(u32, Vlan), u32>>) {
    let mut now = BTreeMap::new();
    for lower in WIRES.chain(VLANS) {
        for tag in TAGS {
            let Some(index) = memory.step(lower, Upon::Tag(tag)).map(|to| to.index) else {
                continue;
            };
            let entry = memory.link(index);
            assert!(
                entry.flags == 0 || entry.index == index,
                "{index}: {entry:?}"
            );
            now.insert((lower, tag), index);
        }
    }
    *seen.lock().unwrap() = now;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn frames_come_in_by_the_vlan_of_their_tags(
        changes in proptest::collection::vec(change(), 1..60),
    ) {
        let memory = Arc::new(Memory::heap(&small()));
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let (image, waits) = (Arc::clone(&memory), Arc::clone(&seen));
        let mut rib = Rib::new(memory, &small(), move || watch(&image, &waits));
        for index in WIRES {
            rib.apply(Event::Link(wire(index, true, false)));
        }
        for change in changes {
            match change {
                Change::Event(event) => apply(&mut rib, event),
                Change::Enable(enabled) => rib.set_ports(Ports {
                    enabled,
                    out: [1].into(),
                }),
                Change::Links => {
                    rib.commit_links();
                }
                Change::Commit => {
                    rib.commit();
                    compare(&rib);
                }
            }
        }
        rib.commit();
        compare(&rib);
        watch(rib.memory(), &seen);
    }
}

/// A VLAN that goes takes its tag with it before another link gets its entry, and one that comes is led to when its entry is there.
#[test]
fn a_tag_leads_nowhere_while_its_entry_becomes_anothers() {
    let memory = Arc::new(Memory::heap(&small()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (image, waits) = (Arc::clone(&memory), Arc::clone(&seen));
    let [tag, ..] = TAGS;
    let grace = move || {
        let to = image.step(1, Upon::Tag(tag));
        let now = (to.map(|to| to.index), image.link(10));
        waits.lock().unwrap().push(now);
    };
    let mut rib = Rib::new(memory, &small(), grace);
    rib.apply(Event::Link(wire(1, false, false)));
    rib.apply(Event::Link(vlan(10, 1, tag, true)));
    let ports = |enabled: &[u32]| Ports {
        enabled: enabled.iter().copied().collect(),
        out: [1].into(),
    };
    rib.set_ports(ports(&[10]));
    rib.commit();
    let taken = |rib: &Rib| engine_takes(rib.memory(), 1, &[tag]).map(|entry| entry.index);
    assert_eq!(taken(&rib), Some(10));
    assert_eq!(rib.memory().link(1).flags, link_flags::VLANS);
    assert_eq!(rib.memory().link(1).index, 1);
    seen.lock().unwrap().clear();
    rib.apply(Event::LinkGone(10));
    rib.apply(Event::Link(Link {
        mac: Some([6; 6]),
        ..wire(10, false, false)
    }));
    rib.commit();
    assert_eq!(taken(&rib), None);
    assert_eq!(rib.memory().link(1).flags, 0);
    let was = |(led, entry): &(Option<u32>, LinkEntry)| {
        led.is_none() && entry.flags == 0 && entry.index == 10
    };
    assert!(seen.lock().unwrap().iter().any(was));
    // Under another index.
    rib.apply(Event::Link(vlan(11, 1, tag, true)));
    rib.set_ports(ports(&[1, 11]));
    rib.commit();
    assert_eq!(taken(&rib), Some(11));
    let flags = rib.memory().link(1).flags;
    assert_eq!(flags & link_flags::VLANS, link_flags::VLANS);
    assert_eq!(flags & link_flags::ENABLED, link_flags::ENABLED);
    // Nobody forwards by one that is down.
    rib.apply(Event::Link(vlan(11, 1, tag, false)));
    rib.commit();
    assert_eq!(taken(&rib), None);
}

/// Nexthops by two VLANs, one upon the other, follow all that is below them.
#[test]
fn nexthops_by_vlans_follow_what_is_below() {
    let mut rib = super::new_rib(&small());
    let gateway = super::address(false, 1);
    let outer = |up, egress_qos| {
        let mut link = vlan(2, 1, TAGS[1], up);
        link.vlan.as_mut().unwrap().egress_qos = egress_qos;
        Event::Link(link)
    };
    let sized = |index, mtu| {
        let link = match index {
            1 => wire(1, false, false),
            _ => vlan(2, 1, TAGS[1], true),
        };
        Event::Link(Link { mtu, ..link })
    };
    rib.apply(outer(true, false));
    rib.apply(Event::Link(vlan(3, 2, TAGS[0], true)));
    rib.apply(Event::Neighbour(common::neighbour(3, gateway)));
    let hop = RouteNexthop {
        gateway: Some(gateway),
        index: 3,
        ..RouteNexthop::default()
    };
    let target = RouteTarget::Single(hop);
    rib.apply(Event::Route(
        common::route(super::address(false, 0), 1, target),
        RouteOp::Add,
    ));
    rib.commit();
    let sent = |rib: &common::Mirror| {
        let (number, index, ..) = rib.adjacencies().next().unwrap();
        let adjacency = rib.memory().adjacency(number);
        assert_eq!(index, 3);
        adjacency.forwards().then(|| {
            (
                adjacency.leaves_by(),
                adjacency.put_tags().to_vec(),
                adjacency.mtu,
            )
        })
    };
    let tagged = |mtu| Some((1, vec![0x88a8_0005, 0x8100_0005], mtu));
    // One tag more than its MTU is all that the link below takes.
    assert_eq!(sent(&rib), tagged(1496));
    let ports = |out: &[u32]| Ports {
        enabled: [1].into(),
        out: out.iter().copied().collect(),
    };
    for (event, expected) in [
        (sized(1, 9000), tagged(1500)),
        (sized(2, 1400), tagged(1400)),
        (outer(true, true), None),
        (outer(true, false), tagged(1500)),
        (outer(false, false), None),
        (outer(true, false), tagged(1500)),
        (Event::Link(common::link(1, true, false)), None),
        (sized(1, 1500), tagged(1496)),
        (Event::LinkGone(1), None),
        (sized(1, 1504), tagged(1500)),
        (
            Event::Link(vlan(2, 1, TAGS[2], true)),
            Some((1, vec![0x8100_0006, 0x8100_0005], 1500)),
        ),
        (outer(true, false), tagged(1500)),
    ] {
        let text = format!("{event:?}");
        let loses = matches!(&event, Event::LinkGone(_))
            || matches!(&event, Event::Link(link) if !link.has_carrier() || !link.is_up());
        rib.apply(event);
        if loses {
            assert!(rib.commit_links().is_some());
            assert_eq!(sent(&rib), None, "{text}");
        }
        rib.commit();
        assert_eq!(sent(&rib), expected, "{text}");
        super::compare(&rib);
    }
    for (out, expected) in [(&[3, 1][..], true), (&[3, 2], false), (&[1, 2], false)] {
        rib.set_ports(ports(out));
        rib.commit();
        assert_eq!(sent(&rib).is_some(), expected, "{out:?}");
    }
    // Who hears first that the link below is lost punts, and the mirror knows better.
    rib.set_ports(ports(&[1, 3]));
    rib.commit();
    assert_eq!(rib.memory().punt_link(1), 1);
    assert_eq!(sent(&rib), None);
    for carrier in [false, true] {
        rib.apply(Event::Link(common::link(1, true, carrier)));
        rib.commit();
    }
    assert_eq!(sent(&rib), tagged(1496));
}

//! Drawn links, bridges and what these know.

use proptest::prelude::*;
use proptest::sample::select;
use raddle_image::Vlan;
use raddle_rib::event::{
    self, Bridge, BridgePort, Event, FdbEntry, Link, Macvlan, Neighbour, PortVlan,
};

use raddle_rib::Rib;

use super::kernel::Mac;
use super::{common, gateway};

pub(super) const WIRES: std::ops::Range<u32> = 1..4;
pub(super) const BOND: u32 = 4;
pub(super) const MEMBERS: std::ops::Range<u32> = 5..7;
/// A VLAN that is a port most often.
const PORT_VLAN: u32 = 7;
pub(super) const BRIDGES: std::ops::Range<u32> = 10..12;
pub(super) const VLANS: std::ops::Range<u32> = 20..24;
pub(super) const MACVLANS: std::ops::Range<u32> = 30..32;

/// All addresses of links. The last three are other hosts'.
pub(super) const MACS: [Mac; 6] = [
    [2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 2],
    [2, 0, 0, 0, 0, 3],
    [4, 0, 0, 0, 0, 4],
    [4, 0, 0, 0, 0, 5],
    [5, 0, 0, 0, 0, 6],
];

/// Tags: of VLANs 5 and 6, which bridges know, of the port that is one, and what is none of these.
pub(super) const TAGS: [Vlan; 5] = [
    Vlan {
        service: false,
        id: 5,
    },
    Vlan {
        service: false,
        id: 6,
    },
    Vlan {
        service: true,
        id: 5,
    },
    Vlan {
        service: false,
        id: 100,
    },
    Vlan {
        service: false,
        id: 0,
    },
];

#[derive(Clone, Debug)]
pub(super) enum Change {
    Event(Event),
    Enable(Vec<u32>, Vec<u32>),
    Commit,
    Links,
}

/// Links that frames may come in by for the machine, and be sent by.
pub(super) fn uppers() -> impl Iterator<Item = u32> + Clone {
    (1..5).chain(BRIDGES).chain(VLANS).chain(MACVLANS)
}

/// A link that is up and has this address of [`MACS`].
fn link(index: u32, mac: usize, up: bool) -> Link {
    Link {
        mac: Some(MACS[mac]),
        ..common::link(index, up, true)
    }
}

/// Mostly yes.
fn mostly() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.92)
}

/// Now and then.
fn seldom() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.05)
}

fn port() -> impl Strategy<Value = BridgePort> {
    let state = prop_oneof![9 => Just(3u8), 1 => 0..5u8];
    (state, mostly(), seldom(), seldom()).prop_map(|(state, learns, is_locked, is_special)| {
        BridgePort {
            state,
            learns,
            is_locked,
            is_special,
        }
    })
}

/// A bridge, mostly the first, for a link that may be a port of it.
fn master() -> impl Strategy<Value = Option<u32>> {
    select(vec![None, Some(10), Some(10), Some(10), Some(11)])
}

pub(super) fn as_port(link: Link, master: Option<u32>, port: BridgePort) -> Link {
    Link {
        master,
        port: master.map(|_| port),
        ..link
    }
}

fn wire() -> impl Strategy<Value = Event> {
    (1..5u32, 0..2usize, mostly(), master(), port()).prop_map(|(index, mac, up, master, port)| {
        // The members of the bond have its address.
        let mac = if index == BOND { 0 } else { mac };
        let kind = (index == BOND).then(|| "bond".to_owned());
        let link = Link {
            kind,
            ..link(index, mac, up)
        };
        Event::Link(as_port(link, master, port))
    })
}

pub(super) fn member(index: u32, active: bool) -> Event {
    Event::Link(Link {
        master: Some(BOND),
        bond_active: Some(active),
        ..link(index, 0, true)
    })
}

pub(super) fn bridge(index: u32, mac: usize, up: bool, set: Bridge) -> Event {
    Event::Link(Link {
        kind: Some("bridge".to_owned()),
        bridge: Some(set),
        ..link(index, mac, up)
    })
}

fn any_bridge() -> impl Strategy<Value = Event> {
    let mac = prop_oneof![5 => Just(0usize), 1 => Just(1)];
    let protocol = prop_oneof![6 => Just(0x8100u16), 1 => Just(0x88a8)];
    (BRIDGES, mac, mostly(), any::<bool>(), protocol, seldom()).prop_map(
        |(index, mac, up, filters_vlans, protocol, is_special)| {
            let set = Bridge {
                filters_vlans,
                protocol,
                is_special,
            };
            bridge(index, mac, up, set)
        },
    )
}

pub(super) fn vlan(index: u32, lower: u32, tag: Vlan, (mac, up): (usize, bool)) -> Link {
    Link {
        kind: Some("vlan".to_owned()),
        vlan: Some(event::Vlan {
            protocol: (tag.tag() >> 16) as u16,
            id: tag.id,
            egress_qos: false,
        }),
        lower: Some(lower),
        ..link(index, mac, up)
    }
}

fn any_vlan() -> impl Strategy<Value = Event> {
    let lower = select(vec![1, 3, BOND, 10, 10, 10, 10, 11, 20, 20, 21, PORT_VLAN]);
    let tag = prop_oneof![12 => select(TAGS[..4].to_vec()), 1 => Just(TAGS[4])];
    let mac = prop_oneof![5 => Just(0usize), 1 => 1..3usize];
    (VLANS, lower, tag, mac, mostly(), seldom()).prop_map(|(index, lower, tag, mac, up, odd)| {
        Event::Link(Link {
            lower_netns: odd.then_some(0),
            ..vlan(index, lower, tag, (mac, up))
        })
    })
}

fn port_vlan() -> impl Strategy<Value = Event> {
    let lower = select(vec![1, 3, 3, 3, BOND, 10, 20]);
    (lower, mostly(), master(), port()).prop_map(|(lower, up, master, port)| {
        let link = vlan(PORT_VLAN, lower, TAGS[3], (0, up));
        Event::Link(as_port(link, master, port))
    })
}

fn macvlan() -> impl Strategy<Value = Event> {
    let lower = select(vec![1, 1, 2, BOND, 20, 10]);
    let mode = prop_oneof![8 => select(vec![1u32, 2, 4]), 1 => select(vec![0u32, 8, 16])];
    let mac = prop_oneof![1 => 0..2usize, 5 => 2..4usize];
    (MACVLANS, lower, mode, mac, mostly()).prop_map(|(index, lower, mode, mac, up)| {
        Event::Link(Link {
            kind: Some("macvlan".to_owned()),
            macvlan: Some(Macvlan { mode }),
            lower: Some(lower),
            ..link(index, mac, up)
        })
    })
}

fn of_port() -> impl Strategy<Value = Event> {
    let index = select(vec![1, 2, 3, BOND, PORT_VLAN, 10, 10, 11]);
    let id = select(vec![5u16, 5, 6]);
    (index, id, any::<bool>(), any::<bool>(), mostly()).prop_map(
        |(index, id, pvid, untagged, forwards)| {
            let state = if forwards { 3 } else { 1 };
            Event::PortVlan(PortVlan {
                index,
                id,
                pvid,
                untagged,
                state,
            })
        },
    )
}

fn fdb() -> impl Strategy<Value = Event> {
    let bridge = prop_oneof![6 => Just(10u32), 1 => Just(11)];
    let port = select(vec![1, 2, 3, BOND, PORT_VLAN]);
    let vlan = select(vec![0u16, 0, 5, 5, 6]);
    (bridge, port, vlan, 0..MACS.len(), seldom(), seldom()).prop_map(
        |(bridge, port, vlan, mac, odd, is_special)| {
            Event::Fdb(FdbEntry {
                bridge,
                mac: MACS[mac],
                vlan,
                port,
                local: (mac < 2) != odd,
                is_special,
            })
        },
    )
}

fn neighbour() -> impl Strategy<Value = Event> {
    let at = select(uppers().collect::<Vec<u32>>());
    (at, 0..MACS.len(), mostly()).prop_map(|(index, mac, valid)| {
        let state = if valid { 2 } else { 0x20 };
        Event::Neighbour(Neighbour {
            mac: Some(MACS[mac]),
            state,
            ..common::neighbour(index, gateway(index))
        })
    })
}

/// What most is drawn around: VLANs upon the first bridge, a VLAN upon the bond as its port, a macvlan, and hosts.
pub(super) fn usual() -> Vec<Event> {
    let port = BridgePort {
        state: 3,
        learns: true,
        ..BridgePort::default()
    };
    let of_port = |index, id, untagged| {
        Event::PortVlan(PortVlan {
            index,
            id,
            pvid: untagged,
            untagged,
            state: 3,
        })
    };
    let host = |vlan, mac: usize, port| {
        Event::Fdb(FdbEntry {
            bridge: 10,
            mac: MACS[mac],
            vlan,
            port,
            local: false,
            is_special: false,
        })
    };
    let near = |index, mac: usize| {
        Event::Neighbour(Neighbour {
            mac: Some(MACS[mac]),
            ..common::neighbour(index, gateway(index))
        })
    };
    vec![
        Event::Link(vlan(20, 10, TAGS[0], (0, true))),
        Event::Link(vlan(21, 10, TAGS[1], (0, true))),
        Event::Link(as_port(
            vlan(PORT_VLAN, BOND, TAGS[3], (0, true)),
            Some(10),
            port,
        )),
        Event::Link(Link {
            kind: Some("macvlan".to_owned()),
            macvlan: Some(Macvlan { mode: 1 }),
            lower: Some(3),
            ..link(30, 2, true)
        }),
        of_port(1, 5, true),
        of_port(1, 6, false),
        of_port(2, 5, false),
        of_port(PORT_VLAN, 5, true),
        of_port(10, 5, false),
        of_port(10, 6, false),
        host(5, 4, 1),
        host(6, 3, 1),
        host(0, 3, PORT_VLAN),
        near(10, 4),
        near(20, 3),
        near(21, 3),
        near(30, 4),
    ]
}

/// A link whose tag another one upon the same link has takes its place: the kernel has no two of them.
pub(super) fn apply(rib: &mut Rib, event: Event) {
    if let Event::Link(link) = &event
        && let Some(vlan) = link.vlan
    {
        let same = |other: &&Link| other.vlan == Some(vlan) && other.lower == link.lower;
        let same = rib.links().filter(same).map(|other| other.index);
        let mut same: Vec<u32> = same.collect();
        same.retain(|index| *index != link.index);
        same.into_iter()
            .for_each(|index| rib.apply(Event::LinkGone(index)));
    }
    rib.apply(event);
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let event = prop_oneof![
        6 => wire(),
        1 => (MEMBERS, any::<bool>()).prop_map(|(index, active)| member(index, active)),
        4 => any_bridge(),
        6 => any_vlan(),
        3 => port_vlan(),
        4 => macvlan(),
        6 => of_port(),
        1 => (select(vec![1, 2, 10]), select(vec![5u16, 6])).prop_map(|(i, id)| Event::PortVlanGone(i, id)),
        10 => fdb(),
        2 => (select(vec![0u16, 5, 6]), 0..MACS.len()).prop_map(|(vlan, mac)| Event::FdbGone(10, MACS[mac], vlan)),
        4 => neighbour(),
        1 => select(uppers().chain([PORT_VLAN]).collect::<Vec<u32>>()).prop_map(Event::LinkGone),
    ];
    let all: Vec<u32> = uppers().collect();
    let some = |least| proptest::sample::subsequence(all.clone(), least..=all.len());
    let enable = (some(6), some(9)).prop_map(|(enabled, out)| Change::Enable(enabled, out));
    prop_oneof![
        20 => event.prop_map(Change::Event),
        1 => enable,
        3 => Just(Change::Commit),
        1 => Just(Change::Links),
    ]
}

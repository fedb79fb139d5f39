//! What is forwarded by bridges and macvlans, one case after the other.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use raddle_image::{LinkEntry, Memory, Reason, Vlan, link_flags};
use raddle_rib::Rib;
use raddle_rib::event::{Bridge, BridgePort, Event, FdbEntry, Link, Macvlan, Neighbour, PortVlan};

use super::draw::{MACS, TAGS, as_port, bridge, vlan};
use super::{common, engine, gateway, ports, started};

const OWN: [u8; 6] = MACS[0];
const HOST: [u8; 6] = MACS[4];

const PORT: BridgePort = BridgePort {
    state: 3,
    learns: true,
    is_locked: false,
    is_special: false,
};

fn set(filters_vlans: bool) -> Bridge {
    Bridge {
        filters_vlans,
        protocol: Vlan::CUSTOMER,
        is_special: false,
    }
}

fn wire(index: u32, master: Option<u32>) -> Link {
    let link = Link {
        mac: Some(OWN),
        ..common::link(index, true, true)
    };
    as_port(link, master, PORT)
}

fn fdb(vlan: u16, mac: [u8; 6], port: u32) -> Event {
    Event::Fdb(FdbEntry {
        bridge: 10,
        mac,
        vlan,
        port,
        local: mac == OWN,
        is_special: false,
    })
}

fn at(index: u32, id: u16, (pvid, untagged): (bool, bool)) -> Event {
    Event::PortVlan(PortVlan {
        index,
        id,
        pvid,
        untagged,
        state: 3,
    })
}

fn neighbour(index: u32) -> Event {
    Event::Neighbour(Neighbour {
        mac: Some(HOST),
        ..common::neighbour(index, gateway(index))
    })
}

/// By which link what is sent to the neighbour on a link leaves, with which tags, and how long it may be; or why it is punted. Of a link
/// that is gone there is no adjacency.
fn sent(rib: &Rib, index: u32) -> Result<(u32, Vec<u32>, u32), u8> {
    let mut all = rib.adjacencies();
    let number = all.find(|(_, on, ..)| *on == index).map(|(n, ..)| n);
    let number = number.ok_or(Reason::OutLink as u8)?;
    let adjacency = rib.memory().adjacency(number);
    match adjacency.forwards() {
        true => Ok((
            adjacency.leaves_by(),
            adjacency.put_tags().to_vec(),
            adjacency.mtu,
        )),
        false => Err(adjacency.reason),
    }
}

fn taken(rib: &Rib, by: u32, tags: &[Vlan]) -> Option<u32> {
    let entry = engine::takes(rib.memory(), by, tags, OWN, HOST);
    entry.map(|LinkEntry { index, .. }| index)
}

/// A bridge that filters no VLANs, with one upon it; hosts come, move and go.
#[test]
fn hosts_move_between_the_ports_of_a_bridge() {
    let [tag, ..] = TAGS;
    let mut rib = started(|| ());
    rib.apply(Event::Link(vlan(20, 10, tag, (0, true))));
    rib.apply(neighbour(10));
    rib.apply(neighbour(20));
    rib.commit();
    let all = |rib: &Rib| {
        [1, 2].map(|by| {
            let lists: [&[Vlan]; 3] = [&[], &[tag], &[TAGS[4]]];
            lists.map(|tags| taken(rib, by, tags))
        })
    };
    let here = [Some(10), Some(20), Some(10)];
    assert_eq!(all(&rib), [here, [None; 3]]);
    assert_eq!(sent(&rib, 10), Ok((1, vec![], 1500)));
    assert_eq!(sent(&rib, 20), Ok((1, vec![0x8100_0005], 1500)));
    assert_eq!(rib.memory().link(1).flags, link_flags::PORT);
    rib.apply(fdb(0, HOST, 2));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3], here]);
    assert_eq!(sent(&rib, 20), Ok((2, vec![0x8100_0005], 1500)));
    // Nobody knows where it is.
    rib.apply(Event::FdbGone(10, HOST, 0));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3]; 2]);
    assert_eq!(sent(&rib, 10), Err(Reason::Unresolved as u8));
    rib.apply(fdb(0, HOST, 2));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3], here]);
    // Without the bridge's own address as one of the machine frames are bridged.
    rib.apply(Event::FdbGone(10, OWN, 0));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3]; 2]);
    assert_eq!(sent(&rib, 10), Ok((2, vec![], 1500)));
    rib.apply(fdb(0, OWN, 1));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3], here]);
    // A VLAN upon the port is asked first.
    rib.apply(Event::Link(vlan(21, 2, TAGS[1], (0, true))));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3]; 2]);
    rib.apply(Event::LinkGone(21));
    rib.commit();
    assert_eq!(all(&rib), [[None; 3], here]);
}

/// A host that moves between ports, and of which its neighbour tells as well: nobody is sent by what is not written yet.
#[test]
fn an_adjacency_that_two_things_tell_of_is_written_once() {
    let image: Arc<OnceLock<Arc<Memory>>> = Arc::default();
    let sent_meanwhile = Arc::new(Mutex::new(Vec::new()));
    let (memory, seen) = (Arc::clone(&image), Arc::clone(&sent_meanwhile));
    let mut rib = started(move || {
        let all = memory.get().into_iter().flat_map(|memory| {
            let numbers = 0..memory.adjacencies_used.load(Ordering::Acquire) as u32;
            numbers.map(|number| memory.adjacency(number))
        });
        let by_bridge = all.filter(|adjacency| adjacency.index == 10 && adjacency.forwards());
        seen.lock().unwrap().extend(by_bridge);
    });
    rib.apply(neighbour(10));
    rib.commit();
    assert_eq!(sent(&rib, 10), Ok((1, vec![], 1500)));
    assert!(image.set(Arc::clone(rib.memory())).is_ok());
    rib.apply(fdb(0, HOST, 2));
    rib.apply(Event::NeighbourGone(10, gateway(10)));
    rib.apply(neighbour(10));
    rib.commit();
    assert_eq!(sent(&rib, 10), Ok((2, vec![], 1500)));
    assert_eq!(*sent_meanwhile.lock().unwrap(), []);
}

/// What leaves by a port that is lost is punted at once, by who hears of it first, and by the mirror, whatever is between.
#[test]
fn nothing_is_sent_by_a_port_that_is_lost() {
    let out = Err(Reason::OutLink as u8);
    let mut rib = started(|| ());
    // The second port is a VLAN upon link 3.
    let port = |up| {
        let link = vlan(7, 3, TAGS[3], (0, up));
        Event::Link(as_port(link, Some(10), PORT))
    };
    rib.apply(port(true));
    rib.apply(Event::Link(vlan(20, 10, TAGS[0], (0, true))));
    [10, 20].into_iter().for_each(|on| rib.apply(neighbour(on)));
    rib.commit();
    let by_first = Ok((1, vec![0x8100_0005], 1500));
    let by_second = Ok((3, vec![0x8100_0064, 0x8100_0005], 1496));
    assert_eq!(sent(&rib, 20), by_first);
    assert_eq!(rib.memory().punt_link(1), 2);
    assert_eq!([sent(&rib, 10), sent(&rib, 20)], [out.clone(), out.clone()]);
    rib.refresh();
    rib.commit();
    assert_eq!(sent(&rib, 20), by_first);
    rib.apply(fdb(0, HOST, 7));
    rib.commit();
    assert_eq!(sent(&rib, 20), by_second);
    assert_eq!(taken(&rib, 3, &[TAGS[3]]), Some(10));
    assert_eq!(taken(&rib, 3, &[TAGS[3], TAGS[0]]), Some(20));
    for lost in [
        port(false),
        Event::Link(Link {
            flags: 1,
            ..wire(3, None)
        }),
        Event::LinkGone(10),
    ] {
        let text = format!("{lost:?}");
        rib.apply(lost);
        assert!(rib.commit_links().is_some(), "{text}");
        assert_eq!(
            [sent(&rib, 10), sent(&rib, 20)],
            [out.clone(), out.clone()],
            "{text}"
        );
        rib.commit();
        assert_eq!(
            taken(&rib, 3, &[TAGS[3]]).filter(|_| text.contains("Gone")),
            None
        );
        for again in [
            port(true),
            Event::Link(wire(3, None)),
            bridge(10, 0, true, set(false)),
            fdb(0, HOST, 7),
            fdb(0, OWN, 10),
        ] {
            rib.apply(again);
        }
        rib.commit();
        assert_eq!(sent(&rib, 20), by_second, "{text}");
        assert_eq!(taken(&rib, 3, &[TAGS[3], TAGS[0]]), Some(20), "{text}");
    }
    // Links that are not to be sent by.
    for (out, expected) in [
        (&[10, 3, 7][..], true),
        (&[10, 3], false),
        (&[10, 7], false),
        (&[3, 7], false),
    ] {
        rib.set_ports(ports([10], out.iter().copied()));
        rib.commit();
        assert_eq!(sent(&rib, 10).is_ok(), expected, "{out:?}");
    }
}

/// A bridge that filters VLANs: 5 is the access VLAN of port 1 and tagged at port 2, and 6 is tagged at both.
#[test]
fn vlans_of_a_bridge_come_out_upon_it() {
    let mut rib = started(|| ());
    rib.apply(bridge(10, 0, true, set(true)));
    for (index, tag) in [(20, TAGS[0]), (21, TAGS[1])] {
        rib.apply(Event::Link(vlan(index, 10, tag, (0, true))));
        rib.apply(neighbour(index));
    }
    rib.apply(neighbour(10));
    for event in [
        at(10, 5, (false, false)),
        at(10, 6, (false, false)),
        at(1, 5, (true, true)),
        at(1, 6, (false, false)),
        at(2, 5, (false, false)),
        fdb(5, HOST, 1),
        fdb(6, HOST, 1),
    ] {
        rib.apply(event);
    }
    rib.commit();
    let [five, six, service, _, priority] = TAGS;
    assert_eq!(taken(&rib, 1, &[]), Some(20));
    assert_eq!(taken(&rib, 1, &[priority]), Some(20));
    assert_eq!(taken(&rib, 1, &[five]), Some(20));
    assert_eq!(taken(&rib, 1, &[six]), Some(21));
    assert_eq!(taken(&rib, 1, &[service]), None);
    assert_eq!(taken(&rib, 2, &[five]), None);
    assert_eq!(sent(&rib, 20), Ok((1, vec![], 1500)));
    assert_eq!(sent(&rib, 21), Ok((1, vec![0x8100_0006], 1500)));
    assert_eq!(sent(&rib, 10), Err(Reason::OutLink as u8));
    rib.apply(fdb(5, HOST, 2));
    rib.commit();
    assert_eq!(taken(&rib, 2, &[five]), Some(20));
    assert_eq!(taken(&rib, 2, &[]), None);
    assert_eq!(sent(&rib, 20), Ok((2, vec![0x8100_0005], 1500)));
    // The bridge's own PVID leads to the bridge itself, and a tag behind it on.
    rib.apply(at(10, 5, (true, true)));
    rib.commit();
    assert_eq!(taken(&rib, 2, &[five]), Some(10));
    assert_eq!(taken(&rib, 2, &[five, six]), Some(21));
    assert_eq!(sent(&rib, 10), Ok((2, vec![0x8100_0005], 1500)));
    // The port is no longer in it.
    rib.apply(Event::PortVlanGone(2, 5));
    rib.commit();
    assert_eq!(taken(&rib, 2, &[five]), None);
    assert_eq!(sent(&rib, 10), Err(Reason::OutLink as u8));
}

/// A macvlan takes what is for its address, beside the link and a VLAN upon that.
#[test]
fn macvlans_take_their_own() {
    let mut rib = started(|| ());
    let macvlan = |index, lower, mode, mac| {
        Event::Link(Link {
            kind: Some("macvlan".to_owned()),
            macvlan: Some(Macvlan { mode }),
            lower: Some(lower),
            mac: Some(mac),
            ..common::link(index, true, true)
        })
    };
    rib.apply(macvlan(30, 3, 4, MACS[2]));
    rib.apply(neighbour(30));
    rib.commit();
    let to = |rib: &Rib, mac, tags: &[Vlan]| {
        let entry = engine::takes(rib.memory(), 3, tags, mac, HOST);
        entry.map(|LinkEntry { index, .. }| index)
    };
    assert_eq!(to(&rib, MACS[2], &[]), Some(30));
    assert_eq!(to(&rib, MACS[2], &[TAGS[4]]), Some(30));
    assert_eq!(to(&rib, OWN, &[]), Some(3));
    assert_eq!(to(&rib, MACS[1], &[]), None);
    assert_eq!(sent(&rib, 30), Err(Reason::OutLink as u8), "in mode bridge");
    for mode in [1, 2] {
        rib.apply(macvlan(30, 3, mode, MACS[2]));
        rib.commit();
        assert_eq!(to(&rib, MACS[2], &[]), Some(30));
        assert_eq!(sent(&rib, 30), Ok((3, vec![], 1500)));
    }
    // Upon a VLAN.
    rib.apply(Event::Link(vlan(20, 3, TAGS[0], (0, true))));
    rib.apply(macvlan(30, 20, 1, MACS[2]));
    rib.commit();
    assert_eq!(to(&rib, MACS[2], &[TAGS[0]]), Some(30));
    assert_eq!(to(&rib, OWN, &[TAGS[0]]), Some(20));
    assert_eq!(sent(&rib, 30), Ok((3, vec![0x8100_0005], 1500)));
    // One that takes all, or copies some, leaves nothing to be sure of.
    for mode in [8, 16, 0] {
        rib.apply(macvlan(31, 3, mode, MACS[3]));
        rib.commit();
        assert_eq!(to(&rib, OWN, &[]), None);
        assert_eq!(to(&rib, MACS[2], &[TAGS[0]]), None);
    }
}

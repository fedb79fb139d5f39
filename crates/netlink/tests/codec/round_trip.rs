//! What is encoded decodes to the same, and nothing that is decoded makes the decoder panic.

use proptest::prelude::*;
use raddle_netlink::codec::{Builder, Counts, Decoded, Messages, decode, decode_message, encode};
use raddle_rib::event::{
    Bridge, BridgePort, Event, FdbEntry, Link, PortVlan, Tunnel, TunnelDf, TunnelFdb, TunnelKind,
};

/// `NLM_F_REQUEST`: group weights have both bytes in requests.
const REQUEST: u16 = 1;

fn message(event: &Event) -> Vec<u8> {
    let mut builder = Builder::new();
    encode(&mut builder, event, REQUEST).unwrap();
    builder.as_bytes().to_vec()
}

fn decoded(bytes: &[u8]) -> (Vec<Event>, Counts) {
    let mut events = Vec::new();
    let counts = decode(bytes, &mut |event| events.push(event));
    (events, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn events_survive(events in prop::collection::vec(crate::events::event(), 1..5)) {
        let bytes: Vec<u8> = events.iter().flat_map(message).collect();
        let (got, counts) = decoded(&bytes);
        prop_assert_eq!(&got, &events);
        prop_assert_eq!((counts.events, counts.malformed), (events.len() as u64, 0));
    }

    #[test]
    fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decoded(&bytes);
    }

    /// Random bytes hardly get past the first length; damaged messages do.
    #[test]
    fn damaged_messages_will_do(
        event in crate::events::event(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = message(&event);
        let kind = [bytes[4], bytes[5]];
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        // Keep the frame whole, so that the damage is inside.
        if let Some(head) = bytes.first_chunk_mut::<16>() {
            let length = head.len() as u32;
            head[4..6].copy_from_slice(&kind);
            head[..4].copy_from_slice(&length.to_ne_bytes());
        }
        let length = bytes.len() as u32;
        if length >= 16 {
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
        }
        let (events, counts) = decoded(&bytes);
        let messages = Messages::new(&bytes).count() as u64;
        let counted = counts.events + counts.skipped + counts.malformed;
        // A message may tell of several VLANs.
        let is_vlan = |event: &Event| matches!(event, Event::PortVlan(_) | Event::PortVlanGone(..));
        prop_assert!(counted == messages || events.iter().all(is_vlan));
        prop_assert!(counted >= messages);
    }
}

/// A message of VLANs of link 5, each entry with its flags, identifier and last identifier.
fn vlans(entries: &[(u16, u16, Option<u16>)]) -> Result<Vec<Event>, Counts> {
    let mut b = Builder::new();
    b.begin(112, 0, &[7, 0, 0, 0, 5, 0, 0, 0]);
    for (flags, id, last) in entries {
        let entry = b.open(1);
        b.put(1, &[*flags, *id].map(u16::to_ne_bytes).concat());
        if let Some(last) = last {
            b.put_u16(2, *last);
        }
        b.put_u8(3, 3);
        b.close(entry);
    }
    b.end().unwrap();
    match decoded(b.as_bytes()) {
        (events, counts) if counts.malformed == 0 => Ok(events),
        (_, counts) => Err(counts),
    }
}

#[test]
fn ranges_of_vlans() {
    let vlan = |id, pvid, untagged| {
        Event::PortVlan(PortVlan {
            index: 5,
            id,
            pvid,
            untagged,
            state: 3,
        })
    };
    let told = vlans(&[(6, 1, None), (0, 10, Some(12)), (4, 4094, Some(4094))]);
    let events = vec![
        vlan(1, true, true),
        vlan(10, false, false),
        vlan(11, false, false),
        vlan(12, false, false),
        vlan(4094, false, true),
    ];
    assert_eq!(told, Ok(events));
    let all = vlans(&[(0, 1, Some(4094))]).unwrap();
    assert_eq!(all.len(), 4094);
    // No VLANs, or not in order.
    let wrong: [&[_]; 6] = [
        &[(0, 0, None)],
        &[(0, 4095, None)],
        &[(0, 1, Some(u16::MAX))],
        &[(0, 9, Some(8))],
        &[(0, 1, Some(9)), (0, 9, None)],
        &[(0, 9, None), (0, 8, None)],
    ];
    for entries in wrong {
        assert_eq!(vlans(entries).unwrap_err().malformed, 1, "{entries:?}");
    }
    // Options of the bridge as a whole have none.
    assert_eq!(vlans(&[]), Ok(Vec::new()));
}

/// A message of `kind` from a bridge about its port 5: its `IFLA_PROTINFO`.
fn of_port(kind: u16, protinfo: &[(u16, &[u8])]) -> Decoded {
    let mut b = Builder::new();
    let mut head = [0; 16];
    (head[0], head[4]) = (7, 5);
    b.begin(kind, 0, &head).put_u32(10, 9);
    let nest = b.open(12);
    for (attribute, value) in protinfo {
        b.put(*attribute, value);
    }
    b.close(nest);
    b.end().unwrap();
    let message = Messages::new(b.as_bytes()).next().unwrap().unwrap();
    decode_message(&message).unwrap()
}

#[test]
fn what_bridges_tell_of_their_ports() {
    let told = |attributes: &[(u16, &[u8])]| match of_port(16, attributes) {
        Decoded::Port(change) => {
            assert_eq!((change.index, change.bridge), (5, 9));
            change.port
        }
        other => panic!("{other:?}"),
    };
    let plain = BridgePort {
        state: 3,
        learns: true,
        is_locked: false,
        is_special: false,
    };
    let forwarding: (u16, &[u8]) = (1, &[3]);
    assert_eq!(told(&[forwarding, (8, &[1])]), plain);
    assert_eq!(told(&[forwarding, (8, &[0]), (39, &[1])]), {
        BridgePort {
            learns: false,
            is_locked: true,
            ..plain
        }
    });
    let special = BridgePort {
        is_special: true,
        ..plain
    };
    for (attribute, value) in [(29, &[1][..]), (40, &[1]), (34, &[7, 0, 0, 0])] {
        assert_eq!(told(&[forwarding, (attribute, value)]), special);
    }
    // It leaves its bridge, of which the link tells.
    assert_eq!(of_port(17, &[forwarding]), Decoded::Other);
}

/// A link of this kind with these attributes of its own.
fn link(kind: &str, attributes: &[(u16, &[u8])]) -> Link {
    let mut b = Builder::new();
    b.begin(16, 0, &[0; 16]).put_str(3, "it");
    let info = b.open(18);
    b.put_str(1, kind);
    let data = b.open(2);
    for (attribute, value) in attributes {
        b.put(*attribute, value);
    }
    b.close(data);
    b.close(info).end().unwrap();
    match decoded(b.as_bytes()).0.pop() {
        Some(Event::Link(link)) => link,
        other => panic!("{other:?}"),
    }
}

fn tunnel(kind: &str, attributes: &[(u16, &[u8])]) -> Tunnel {
    link(kind, attributes).tunnel.unwrap()
}

#[test]
fn what_tunnels_are_set_to() {
    // As `ip link add type gre local 10.0.0.1 remote 10.0.0.2 ikey 7 ttl 9 tos inherit dev v0` is told.
    let gre: [(u16, &[u8]); 15] = [
        (1, &[3, 0, 0, 0]),
        (2, &[0x20, 0]),
        (3, &[0, 0]),
        (4, &[0, 0, 0, 7]),
        (5, &[0; 4]),
        (6, &[10, 0, 0, 1]),
        (7, &[10, 0, 0, 2]),
        (8, &[9]),
        (9, &[1]),
        (10, &[1]),
        (20, &[0; 4]),
        (14, &[0, 0]),
        (16, &[0, 0]),
        (17, &[0, 0]),
        (15, &[0, 0]),
    ];
    let wanted = Tunnel {
        kind: TunnelKind::Gre {
            ikey: Some(7),
            okey: None,
        },
        local: Some([10, 0, 0, 1].into()),
        remote: Some([10, 0, 0, 2].into()),
        ttl: 9,
        tos: 1,
        df: TunnelDf::Set,
        link: 3,
        is_special: false,
    };
    assert_eq!(tunnel("gre", &gre), wanted);
    let df = |more: &[(u16, &[u8])]| tunnel("gre", &[&gre, more].concat()).df;
    assert_eq!(df(&[(10, &[0])]), TunnelDf::Inner);
    assert_eq!(df(&[(10, &[0]), (19, &[1])]), TunnelDf::Unset);
    // A tunnel of any name is of no kind that is known.
    assert_eq!(link("gretap", &gre).tunnel, None);
    // 6RD's prefix is that of all sits.
    let sit = tunnel("sit", &[(9, &[41]), (11, &[0x20, 2]), (13, &[16, 0])]);
    assert_eq!((sit.kind, sit.remote), (TunnelKind::Sit, None));
    assert!(!sit.is_special);
    let vxlan = tunnel(
        "vxlan",
        &[
            (1, &[0x12, 0x34, 0x56, 0]),
            (10, &[0x10, 0, 0x20, 0]),
            (15, &[0x12, 0xb5]),
            (18, &[1]),
            (28, &[1]),
        ],
    );
    let kind = TunnelKind::Vxlan {
        vni: u32::from_ne_bytes([0x12, 0x34, 0x56, 0]),
        port: 4789,
        sports: (0x1000, 0x2000),
        learns: false,
        checksum: true,
        ttl_inner: true,
    };
    assert_eq!((vxlan.kind, vxlan.is_special), (kind, false));
    // An empty range of ports is none.
    for range in [[0x10, 0, 0x10, 0], [0x10, 0, 0, 1]] {
        let TunnelKind::Vxlan { sports, .. } = tunnel("vxlan", &[(10, &range)]).kind else {
            panic!("no VXLAN");
        };
        assert_eq!(sports, (0, 0));
    }
}

#[test]
fn what_makes_a_tunnel_special() {
    let is_special = |kind, attribute, value: &[u8]| tunnel(kind, &[(attribute, value)]).is_special;
    let group: &[u8] = &[239, 1, 1, 1];
    type Attributes<'a> = &'a [(u16, &'a [u8])];
    let special: [(&str, Attributes<'_>); 4] = [
        (
            "ipip",
            &[
                (3, group),
                (5, &[3]),
                (9, &[137]),
                (15, &[1, 0]),
                (19, &[]),
                (20, &[1, 0, 0, 0]),
                (21, &[]),
            ],
        ),
        ("sit", &[(8, &[1, 0]), (9, &[4])]),
        (
            "gre",
            &[
                (2, &[0x80, 0]),
                (3, &[0x30, 0]),
                (7, group),
                (14, &[2, 0]),
                (18, &[]),
                (20, &[0, 0, 0, 1]),
                (21, &[1, 0, 0, 0]),
            ],
        ),
        (
            "vxlan",
            &[
                (2, group),
                (11, &[1]),
                (12, &[1]),
                (13, &[1]),
                (14, &[1]),
                (16, &[1; 16]),
                (17, &[1; 16]),
                (21, &[1]),
                (22, &[1]),
                (23, &[]),
                (24, &[]),
                (25, &[1]),
                (27, &[]),
                (29, &[2]),
                (30, &[1]),
                (35, &[]),
            ],
        ),
    ];
    for (kind, attributes) in special {
        for (attribute, value) in attributes {
            assert!(is_special(kind, *attribute, value), "{kind} {attribute}");
        }
    }
    let plain: [(&str, u16, &[u8]); 12] = [
        ("ipip", 9, &[0]),
        ("ipip", 5, &[1]),
        ("sit", 9, &[0]),
        ("gre", 2, &[0x20, 0]),
        ("gre", 20, &[0; 4]),
        ("vxlan", 7, &[1]),
        ("vxlan", 11, &[0]),
        ("vxlan", 26, &[0, 0, 0, 1]),
        ("vxlan", 29, &[1]),
        ("vxlan", 31, &[1]),
        ("vxlan", 33, &[8, 0, 0, 0, 0, 0, 0, 0]),
        ("vxlan", 34, &[0]),
    ];
    for (kind, attribute, value) in plain {
        assert!(!is_special(kind, attribute, value), "{kind} {attribute}");
    }
}

#[test]
fn what_makes_a_bridge_special() {
    let bridge =
        |attribute: u16, value: &[u8]| link("bridge", &[(attribute, value)]).bridge.unwrap();
    let options = |bits: u32| [bits, u32::MAX].map(u32::to_ne_bytes).concat();
    let plain = Bridge {
        filters_vlans: false,
        protocol: 0x8100,
        is_special: false,
    };
    assert_eq!(bridge(46, &options(0b1011)), plain);
    assert_eq!(bridge(8, &[0x88, 0xa8]).protocol, 0x88a8);
    assert!(bridge(7, &[1]).filters_vlans);
    // `mst_enable`, and what is not known yet.
    for bit in [2, 4, 31] {
        assert!(bridge(46, &options(1 << bit)).is_special);
    }
    for attribute in 36..=38 {
        assert!(!bridge(attribute, &[0]).is_special);
        assert!(bridge(attribute, &[1]).is_special);
    }
}

/// An entry of an FDB as this kernel tells it: its state, and attributes beside the address.
fn fdb(state: u16, attributes: &[(u16, &[u8])]) -> Option<Event> {
    let mut b = Builder::new();
    let mut head = [0; 12];
    (head[0], head[4]) = (7, 5);
    head[8..10].copy_from_slice(&state.to_ne_bytes());
    b.begin(28, 0, &head).put(2, &[2, 0, 0, 0, 0, 1]);
    for (attribute, value) in attributes {
        b.put(*attribute, value);
    }
    b.end().unwrap();
    let (mut events, counts) = decoded(b.as_bytes());
    assert_eq!(counts.malformed, 0);
    events.pop()
}

#[test]
fn entries_of_fdbs() {
    let plain = FdbEntry {
        bridge: 9,
        mac: [2, 0, 0, 0, 0, 1],
        vlan: 0,
        port: 5,
        local: false,
        is_special: false,
    };
    let master: (u16, &[u8]) = (9, &[9, 0, 0, 0]);
    // Reachable, stale, and `static`.
    for state in [0x02, 0x04, 0x40] {
        assert_eq!(fdb(state, &[master]), Some(Event::Fdb(plain)));
    }
    let local = FdbEntry {
        local: true,
        vlan: 258,
        ..plain
    };
    let vlan = 258_u16.to_ne_bytes();
    assert_eq!(fdb(0x80, &[master, (5, &vlan)]), Some(Event::Fdb(local)));
    let locked = FdbEntry {
        is_special: true,
        ..plain
    };
    let flags = 2_u32.to_ne_bytes();
    assert_eq!(fdb(0x02, &[master, (15, &flags)]), Some(Event::Fdb(locked)));
    // A device's own.
    assert_eq!(fdb(0x80, &[]), None);
}

#[test]
fn entries_of_fdbs_of_vxlans() {
    let plain = TunnelFdb {
        index: 5,
        mac: [2, 0, 0, 0, 0, 1],
        dst: [10, 0, 0, 2].into(),
        is_special: false,
    };
    let dst: (u16, &[u8]) = (1, &[10, 0, 0, 2]);
    for state in [0x02, 0x80] {
        assert_eq!(fdb(state, &[dst]), Some(Event::TunnelFdb(plain)));
    }
    let special = TunnelFdb {
        is_special: true,
        ..plain
    };
    let more: [(u16, &[u8]); 5] = [
        (6, &[0x12, 0xb6]),
        (7, &[9, 0, 0, 0]),
        (8, &[2, 0, 0, 0]),
        (10, &[0; 4]),
        (11, &[9, 0, 0, 0]),
    ];
    for attribute in more {
        assert_eq!(
            fdb(0x80, &[dst, attribute]),
            Some(Event::TunnelFdb(special))
        );
    }
    let by_object = TunnelFdb {
        dst: [0; 4].into(),
        ..special
    };
    assert_eq!(
        fdb(0x80, &[(13, &[9, 0, 0, 0])]),
        Some(Event::TunnelFdb(by_object))
    );
    let by_ipv6 = TunnelFdb {
        dst: [1; 16].into(),
        ..plain
    };
    assert_eq!(fdb(0x80, &[(1, &[1; 16])]), Some(Event::TunnelFdb(by_ipv6)));
}

#[test]
fn when_a_route_expires() {
    // What `expires` of struct rta_cacheinfo makes of a route of this family.
    let told = |family, expires: &[u8]| {
        let mut b = Builder::new();
        let prefix = u8::from(family == 10) * 32;
        b.begin(24, 0, &[family, prefix, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        if family == 10 {
            b.put_ip(1, "2001:db8::".parse().unwrap());
        }
        b.put(12, &[&[0; 8], expires, &[0; 20]].concat());
        b.end().unwrap();
        let mut events = Vec::new();
        let counts = decode(b.as_bytes(), &mut |event| events.push(event));
        assert_eq!(counts.malformed, 0);
        match events.pop() {
            Some(Event::Route(route, _)) => route.expires,
            other => panic!("{other:?}"),
        }
    };
    let ticks = |n: i32| n.to_ne_bytes();
    assert_eq!(told(10, &ticks(9_950)), Some(99_500));
    assert_eq!(told(10, &ticks(-203)), Some(-2_030));
    assert_eq!(told(10, &ticks(i32::MIN)), Some(-21_474_836_480));
    assert_eq!(told(10, &ticks(0)), None);
    // Entries of a cache.
    assert_eq!(told(2, &ticks(9_950)), None);
}

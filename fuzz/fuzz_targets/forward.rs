//! Any frame over a fixed image: a punt leaves it alone, and what is forwarded is what the
//! mirror would send, changed where a router changes it and nowhere else.
#![no_main]

use std::cell::RefCell;
use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use raddle_forward::{Engine, Verdict};
use raddle_fuzz::{Mirror, address, link, neighbour, new_rib, object, route};
use raddle_image::Capacity;
use raddle_packet::{Family, Ipv4, Ipv6};
use raddle_rib::Resolved;
use raddle_rib::event::{
    Address, DeviceSettings, Event, GroupMember, NexthopKind, Route, RouteKind, RouteNexthop,
    RouteOp, RouteTarget, Settings,
};
use raddle_select::{HashConfig, Hasher, Policy, Seed, keys_of_packet};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 256,
    members: 1024,
    adjacencies: 256,
    segments: 64,
    templates: 1 << 10,
};
const SEED: u32 = 0x1234_abcd;

thread_local! {
    /// Under each hash policy.
    static ROUTERS: RefCell<[Router; 4]> = RefCell::new([router(0), router(1), router(2), router(3)]);
}

struct Router {
    rib: Mirror,
    engine: Engine,
    config: HashConfig,
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, frame)) = data.split_first() else {
        return;
    };
    let mut frame = frame.to_vec();
    let ingress = u32::from(mode >> 4 & 1) + 1;
    if mode & 4 != 0 {
        mend(&mut frame, ingress);
    }
    ROUTERS.with_borrow_mut(|routers| check(&mut routers[usize::from(mode & 3)], frame, ingress));
});

/// What a fuzzer finds hard to come by: our MAC address, and the checksum of the IPv4 header.
fn mend(frame: &mut [u8], ingress: u32) {
    let Some(head) = frame.first_chunk_mut::<34>() else {
        return;
    };
    head[..6].copy_from_slice(&[2, 0, 0, 0, 0, ingress as u8]);
    if head[12..14] == [8, 0] {
        head[24..26].fill(0);
        // Written out, so that frames do not depend on the code under test.
        let pairs = head[14..].as_chunks::<2>().0;
        let sum: u32 = pairs
            .iter()
            .map(|p| u32::from(u16::from_be_bytes(*p)))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let check = !((folded & 0xffff) + (folded >> 16)) as u16;
        head[24..26].copy_from_slice(&check.to_be_bytes());
    }
}

fn check(router: &mut Router, frame: Vec<u8>, ingress: u32) {
    let mut sent = frame.clone();
    let verdict = router.engine.forward(&mut sent, ingress, 0);
    let mut again = frame.clone();
    assert_eq!(router.engine.forward(&mut again, ingress, 0), verdict);
    assert_eq!(again, sent);
    let Verdict::Forward {
        index,
        adjacency,
        start: 0,
        len,
    } = verdict
    else {
        assert_eq!(sent, frame, "{verdict:?}");
        return;
    };
    assert!(len <= frame.len() && index != ingress);
    let chosen = router.rib.memory().adjacency(adjacency);
    assert_eq!(index, chosen.index);
    // What a router changes, changed by hand.
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&chosen.dst_mac);
    expected[6..12].copy_from_slice(&[2, 0, 0, 0, 0, index as u8]);
    let packet = &frame[14..];
    let (family, l3, dst) = if frame[12..14] == [8, 0] {
        let (before, after) = (Ipv4::new_checked(packet), Ipv4::new_checked(&sent[14..]));
        let (Ok(before), Ok(after)) = (before, after) else {
            panic!("forwarded without a header")
        };
        assert!(after.is_checksum_valid());
        assert!(before.ttl() > 1);
        expected[22] -= 1;
        expected[24..26].copy_from_slice(&sent[24..26]);
        let total = usize::from(before.total_len());
        (Family::V4, &packet[..total], IpAddr::V4(before.dst()))
    } else {
        let Ok(before) = Ipv6::new_checked(packet) else {
            panic!("forwarded without a header")
        };
        assert!(before.hop_limit() > 1);
        expected[21] -= 1;
        let total = 40 + usize::from(before.payload_len());
        (Family::V6, &packet[..total], IpAddr::V6(before.dst()))
    };
    assert_eq!(sent, expected);
    assert!(l3.len() <= chosen.mtu as usize && l3.len() + 14 <= len);
    assert_eq!(by_the_mirror(router, ingress, family, l3, dst), index);
}

/// The out-link by the numbered rules.
fn by_the_mirror(router: &Router, ingress: u32, family: Family, l3: &[u8], dst: IpAddr) -> u32 {
    let trace = router.rib.trace(&format!("l{ingress}"), dst);
    let hash = || {
        let keys = keys_of_packet(&router.config, family, l3);
        let (Ok(keys), Some(seed)) = (keys, Seed::new(SEED)) else {
            panic!("forwarded without a flow key")
        };
        Hasher::new(seed).hash31(&keys)
    };
    match trace.resolved {
        Resolved::One(hop) => hop.index,
        Resolved::Many { hops, ranges, .. } => {
            let hash = hash();
            match ranges.iter().find(|(upper, _)| hash <= *upper) {
                Some((_, place)) => hops[*place].index,
                None => panic!("no range holds {hash}"),
            }
        }
        Resolved::Resilient { hops, buckets, .. } => {
            hops[usize::from(buckets[hash() as usize % buckets.len()])].index
        }
        Resolved::Kernel(reason) => panic!("forwarded {dst} in spite of {reason:?}"),
    }
}

/// Of both headers, for policy 3.
const FIELDS: u32 = 0xdf7;

/// Two links in and out, two more out; every address of [`address`] under some kind of route.
fn router(policy: u8) -> Router {
    let mut rib = new_rib(&CAPACITY);
    let mut apply = |event| rib.apply(event);
    apply(Event::Settings(Settings {
        hash_policy4: policy,
        hash_policy6: policy,
        hash_fields4: FIELDS,
        hash_fields6: FIELDS,
        hash_seed: SEED,
        ..Settings::default()
    }));
    for index in 1..=4 {
        apply(Event::Link(link(index, true, true)));
        let device = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        apply(Event::Device(index, device));
        for v6 in [false, true] {
            for n in [index as u8, 8 + index as u8] {
                apply(Event::Neighbour(neighbour(index, address(v6, n))));
            }
        }
    }
    apply(object(1, single(address(false, 3), 3)));
    apply(object(2, single(address(false, 4), 4)));
    let weights = [(1, 3), (2, 60_000)];
    let members = weights.map(|(id, weight)| GroupMember { id, weight });
    apply(object(3, NexthopKind::Group(members.to_vec())));
    for v6 in [false, true] {
        routes(v6).into_iter().for_each(&mut apply);
    }
    rib.commit();
    assert!(!rib.usage().full);
    Router {
        engine: Engine::new(rib.memory().clone()),
        rib,
        config: HashConfig::kernel(policy, FIELDS).unwrap_or(Policy::L3.into()),
    }
}

/// One route of each kind, by subnet.
fn routes(v6: bool) -> Vec<Event> {
    let hop = |n: u8, index, weight| RouteNexthop {
        gateway: Some(address(v6, n)),
        index,
        weight,
        ..RouteNexthop::default()
    };
    let direct = |index| {
        RouteTarget::Single(RouteNexthop {
            index,
            weight: 1,
            ..RouteNexthop::default()
        })
    };
    let several = vec![hop(1, 1, 1), hop(2, 2, 2), hop(3, 3, 3), hop(60, 4, 1)];
    let many: Vec<_> = (0..20)
        .map(|i| hop(1 + i % 4, 1 + u32::from(i % 4), 1))
        .collect();
    let host = if v6 { 128 } else { 32 };
    let net = if v6 { 64 } else { 24 };
    let unicast = RouteKind::Unicast;
    let own = Event::Address(Address::new(1, address(v6, 7), net));
    let mut events = vec![own];
    for (table, n, len, kind, target) in [
        (255, 7, host, RouteKind::Local, RouteTarget::None),
        (254, 0, 0, unicast, RouteTarget::Single(hop(2, 2, 1))),
        (254, 0, net, unicast, direct(1)),
        (254, 8, net, unicast, direct(2)),
        (254, 16, net, unicast, RouteTarget::Multipath(several)),
        (254, 24, net, unicast, RouteTarget::Multipath(many)),
        (254, 32, net, unicast, RouteTarget::Object(3)),
        (254, 40, net, RouteKind::Blackhole, RouteTarget::None),
        (254, 48, net, RouteKind::Prohibit, RouteTarget::None),
        (254, 50, host, unicast, RouteTarget::Single(hop(4, 4, 1))),
    ] {
        let route = Route {
            table,
            kind,
            ..route(address(v6, n), len, target)
        };
        events.push(Event::Route(route, RouteOp::Add));
    }
    events
}

fn single(gateway: IpAddr, index: u32) -> NexthopKind {
    NexthopKind::Single {
        gateway: Some(gateway),
        index,
        encap: None,
    }
}

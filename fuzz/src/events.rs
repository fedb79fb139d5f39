//! Events of the kernel from bytes: few addresses, links and objects, so that they meet.

use ipnet::IpNet;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use raddle_rib::MpAlgo;
use raddle_rib::event::{
    Address, Bridge, BridgePort, Bucket, DeviceSettings, Encap, Event, FdbEntry, Fpm, GroupMember,
    Link, Macvlan, Neighbour, Nexthop, NexthopKind, PortVlan, Route, RouteKind, RouteNexthop,
    RouteOp, RouteTarget, Rule, Settings, Sweep,
};

use crate::{address, link};

/// Links are numbered from 1 to this.
const LINKS: u32 = 4;

type Bytes<'a, 'b> = &'a mut Unstructured<'b>;

/// An event; the bytes that are used up give zeros.
pub fn event(u: Bytes<'_, '_>) -> Result<Event> {
    let v6 = u.arbitrary()?;
    Ok(match u.int_in_range(0..=19u8)? {
        0..=4 => Event::Route(any_route(u, v6)?, op(u)?),
        5 | 6 => Event::RouteGone(any_route(u, v6)?),
        7 | 8 => Event::Neighbour(any_neighbour(u, v6)?),
        9 => Event::NeighbourGone(index(u)?, address(v6, u.arbitrary()?)),
        10 | 11 => Event::Nexthop(any_nexthop(u, v6)?),
        12 => Event::NexthopGone(any_id(u)?),
        13 => Event::Link(any_link(u)?),
        14 => match u.arbitrary()? {
            true => Event::LinkGone(index(u)?),
            false => Event::Device(index(u)?, device(u)?),
        },
        15 => match u.arbitrary()? {
            true => Event::Address(local(u, v6)?),
            false => Event::AddressGone(local(u, v6)?),
        },
        16 => match u.arbitrary()? {
            true => Event::Rule(rule(u, v6)?),
            false => Event::RuleGone(rule(u, v6)?),
        },
        17 => Event::Settings(settings(u)?),
        18 => Event::Bucket(Bucket {
            group: any_id(u)?,
            index: u.int_in_range(0..=7)?,
            nexthop: any_id(u)?,
            idle_time: u.arbitrary::<u8>()?.into(),
            flags: 0,
        }),
        _ => match u.arbitrary::<u8>()? {
            n if n & 0x30 == 0x30 => Event::Fpm(told(u, v6)?),
            n if n & 0x30 == 0x20 => Event::Clock(time(u)?),
            n if n & 0x30 == 0x10 => of_bridge(u)?,
            n if n & 1 == 1 => Event::SweepBegin(sweep(u)?),
            _ => Event::SweepEnd(sweep(u)?),
        },
    })
}

/// Entries of FDBs and VLANs of ports: few of each.
fn of_bridge(u: Bytes<'_, '_>) -> Result<Event> {
    let (odd, n) = (u.arbitrary::<u8>()?, u.arbitrary::<u8>()?);
    let (bridge, port) = (index(u)?, index(u)?);
    let vlan = u16::from(odd & 3);
    // Neighbours have such addresses.
    let mac = [4, 0, 0, odd >> 2 & 1, bridge as u8, n];
    Ok(match odd >> 3 & 7 {
        0..=2 => Event::Fdb(FdbEntry {
            bridge,
            mac,
            vlan,
            port,
            local: odd & 0xc0 == 0x40,
            is_special: odd & 0xc0 == 0x80,
        }),
        3 => Event::FdbGone(bridge, mac, vlan),
        4..=6 => Event::PortVlan(PortVlan {
            index: port,
            id: vlan + 1,
            pvid: n & 1 != 0,
            untagged: n & 2 != 0,
            state: if n < 240 { 3 } else { n & 7 },
        }),
        _ => Event::PortVlanGone(port, vlan + 1),
    })
}

/// What a routing daemon tells by FPM.
fn told(u: Bytes<'_, '_>, v6: bool) -> Result<Fpm> {
    Ok(match u.int_in_range(0..=7u8)? {
        0..=2 => Fpm::Route(any_route(u, v6)?),
        3 => {
            let Route { table, dst, .. } = any_route(u, v6)?;
            Fpm::RouteGone { table, dst }
        }
        4 => Fpm::Nexthop(any_nexthop(u, v6)?),
        5 => Fpm::NexthopGone(any_id(u)?),
        6 => Fpm::ResyncBegin,
        _ => Fpm::ResyncEnd,
    })
}

/// Times that are near each other, and some that are not.
fn time(u: Bytes<'_, '_>) -> Result<i64> {
    Ok(match u.arbitrary::<u8>()? {
        255 => i64::MAX,
        254 => i64::MIN,
        n => 100 * i64::from(n),
    })
}

fn index(u: Bytes<'_, '_>) -> Result<u32> {
    Ok(match u.arbitrary::<u8>()? {
        // What no link has, and what no array of the image can be indexed with.
        255 => u32::MAX,
        254 => 0,
        n => u32::from(n) % LINKS + 1,
    })
}

fn any_id(u: Bytes<'_, '_>) -> Result<u32> {
    u.int_in_range(1..=8)
}

fn prefix(u: Bytes<'_, '_>, v6: bool) -> Result<IpNet> {
    let (address, len) = (address(v6, u.arbitrary()?), u.arbitrary::<u8>()?);
    let len = if v6 {
        [0, 16, 47, 61, 64, 65, 126, 128][usize::from(len % 8)]
    } else {
        [0, 1, 8, 21, 24, 25, 30, 32][usize::from(len % 8)]
    };
    IpNet::new(address, len)
        .map(|net| net.trunc())
        .map_err(|_| libfuzzer_sys::arbitrary::Error::IncorrectFormat)
}

fn hop(u: Bytes<'_, '_>, v6: bool) -> Result<RouteNexthop> {
    let odd = u.arbitrary::<u8>()?;
    Ok(RouteNexthop {
        gateway: match odd % 8 {
            0 => None,
            // An IPv4 route by way of an IPv6 gateway.
            1 => Some(address(true, u.arbitrary()?)),
            _ => Some(address(v6, u.arbitrary()?)),
        },
        index: index(u)?,
        weight: u.arbitrary::<u8>()?.into(),
        flags: odd / 8,
        encap: (odd == 255).then(|| Encap {
            kind: 5,
            data: vec![0; 8],
        }),
    })
}

fn some<'b, T>(
    u: Bytes<'_, 'b>,
    most: usize,
    one: impl Fn(Bytes<'_, 'b>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = u.int_in_range(0..=most)?;
    (0..count).map(|_| one(u)).collect()
}

fn any_route(u: Bytes<'_, '_>, v6: bool) -> Result<Route> {
    let odd = u.arbitrary::<u8>()?;
    let kind = match odd % 32 {
        n @ 0..=11 => RouteKind::from_number(n).unwrap_or_default(),
        _ => RouteKind::Unicast,
    };
    let target = match u.arbitrary::<u8>()? % 8 {
        0 => RouteTarget::None,
        1 | 2 => RouteTarget::Object(any_id(u)?),
        3 | 4 => RouteTarget::Multipath(some(u, 20, |u| hop(u, v6))?),
        _ => RouteTarget::Single(hop(u, v6)?),
    };
    Ok(Route {
        table: [254, 254, 254, 255, 253, 100, 0, u32::MAX][usize::from(odd / 32)],
        dst: prefix(u, v6)?,
        src: match odd {
            77 => Some(prefix(u, v6)?),
            _ => None,
        },
        tos: if odd == 78 && !v6 { 4 } else { 0 },
        protocol: 4,
        scope: 0,
        kind,
        metric: u.int_in_range(0..=2)?,
        prefsrc: None,
        flags: 0,
        pref: None,
        mp_algo: match odd {
            // The members are the same then.
            80 => MpAlgo::from_attribute(0).ok(),
            _ => None,
        },
        metrics: match odd {
            79 => vec![(2, u.arbitrary()?)],
            _ => Vec::new(),
        },
        expires: match odd {
            81 if v6 => Some(time(u)?),
            _ => None,
        },
        target,
    })
}

fn op(u: Bytes<'_, '_>) -> Result<RouteOp> {
    use RouteOp::{Add, Append, Prepend, Replace};
    u.choose(&[Add, Replace, Append, Prepend]).copied()
}

fn any_neighbour(u: Bytes<'_, '_>, v6: bool) -> Result<Neighbour> {
    let (n, odd) = (u.arbitrary()?, u.arbitrary::<u8>()?);
    let index = index(u)?;
    Ok(Neighbour {
        index,
        dst: address(v6, n),
        mac: (odd % 16 != 15).then_some([4, 0, 0, v6.into(), index as u8, n]),
        state: 1 << (odd % 9),
        flags: odd & 0x80,
        protocol: 0,
    })
}

fn any_nexthop(u: Bytes<'_, '_>, v6: bool) -> Result<Nexthop> {
    let odd = u.arbitrary::<u8>()?;
    let member = |u: Bytes<'_, '_>| {
        Ok(GroupMember {
            id: any_id(u)?,
            weight: u16::from(u.arbitrary::<u8>()?) & 0xf,
        })
    };
    let kind = match odd % 16 {
        0 => NexthopKind::Blackhole,
        1 => NexthopKind::Resilient {
            members: some(u, 4, member)?,
            buckets: 8,
            idle_timer: 0,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        },
        2..=8 => NexthopKind::Group(some(u, 12, member)?),
        _ => {
            let hop = hop(u, v6)?;
            NexthopKind::Single {
                gateway: hop.gateway,
                index: hop.index,
                encap: hop.encap,
            }
        }
    };
    Ok(Nexthop {
        fdb: odd == 255,
        ..Nexthop::new(any_id(u)?, 2, kind)
    })
}

fn any_link(u: Bytes<'_, '_>) -> Result<Link> {
    let odd = u.arbitrary::<u8>()?;
    let mut link = link(index(u)?, odd & 1 == 0, odd & 2 == 0);
    match odd >> 4 {
        1 => link.mac = None,
        2 => link.mtu = u.arbitrary()?,
        3 => link.arp_type = 772,
        4 => link.name = "l1".into(),
        5 => {
            link.kind = Some("bridge".into());
            link.bridge = Some(Bridge {
                filters_vlans: odd & 4 != 0,
                protocol: if odd & 8 == 0 { 0x8100 } else { 0x88a8 },
                is_special: u.arbitrary::<u8>()? == 255,
            });
        }
        6..=8 => {
            link.master = Some(index(u)?);
            link.port = Some(BridgePort {
                state: if odd & 4 == 0 { 3 } else { odd >> 4 },
                learns: odd & 8 == 0,
                is_locked: odd >> 4 == 7,
                is_special: u.arbitrary::<u8>()? == 255,
            });
        }
        9 => {
            link.kind = Some("macvlan".into());
            link.lower = Some(index(u)?);
            let mode = u.arbitrary::<u8>()? % 5;
            link.macvlan = Some(Macvlan { mode: 1 << mode });
        }
        _ => {}
    }
    Ok(link)
}

fn device(u: Bytes<'_, '_>) -> Result<DeviceSettings> {
    let bits = u.arbitrary::<u8>()?;
    Ok(DeviceSettings {
        forwarding4: bits & 1 != 0,
        forwarding6: bits & 2 != 0,
        rp_filter: bits >> 6,
        ignore_linkdown4: bits & 4 != 0,
        ignore_linkdown6: bits & 8 != 0,
        send_redirects: bits & 16 != 0,
        accept_local: bits & 32 != 0,
        mtu6: [0, 1280, 1500, 9000][usize::from(bits & 3)],
        seg6_require_hmac: u.int_in_range(-1..=1)?,
        hop_limit: u.arbitrary()?,
    })
}

fn local(u: Bytes<'_, '_>, v6: bool) -> Result<Address> {
    Ok(Address::new(
        index(u)?,
        address(v6, u.arbitrary()?),
        if v6 { 64 } else { 24 },
    ))
}

fn rule(u: Bytes<'_, '_>, v6: bool) -> Result<Rule> {
    let odd = u.arbitrary::<u8>()?;
    Ok(Rule {
        family: if v6 { 6 } else { 4 },
        priority: u.int_in_range(0..=3)?,
        table: [255, 254, 253, 100][usize::from(odd % 4)],
        action: if odd < 16 { odd } else { 1 },
        from: match odd {
            16 => Some(prefix(u, v6)?),
            _ => None,
        },
        iif: match odd {
            17..=40 => Some(format!("l{}", odd % 6)),
            _ => None,
        },
        fwmark: (odd == 41).then_some((1, 1)),
        other: if odd == 42 { vec![9] } else { Vec::new() },
        ..Rule::default()
    })
}

fn settings(u: Bytes<'_, '_>) -> Result<Settings> {
    let bits = u.arbitrary::<u8>()?;
    Ok(Settings {
        hash_policy4: bits & 3,
        hash_policy6: bits >> 2 & 3,
        hash_seed: (bits >> 4 & 3).into(),
        use_neigh: bits & 64 != 0,
        forward_use_pmtu: bits & 128 != 0,
        ..Settings::default()
    })
}

fn sweep(u: Bytes<'_, '_>) -> Result<Sweep> {
    use Sweep::{Addresses, Buckets, Links, Neighbours, Nexthops, Routes4, Routes6, Rules};
    use Sweep::{Fdb, PortVlans};
    let of = Sweep::BucketsOf(any_id(u)?);
    u.choose(&[
        Links, Addresses, Neighbours, Nexthops, Buckets, of, Routes4, Routes6, Rules, Fdb,
        PortVlans,
    ])
    .copied()
}

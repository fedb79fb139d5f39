//! Small states, and what engines read in the image and what the reference says of them, in one form.
//!
//! The fuzz targets use this as well, so everything is public.
#![allow(unreachable_pub, reason = "the fuzz targets hand it on")]

mod mirror;
mod parts;
mod reference;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
pub use mirror::{Mirror, new_rib};
pub use parts::{link, neighbour, object};
use raddle_image::{ADJ_SEGMENT, Group, Memory, Reason, link_flags};
use raddle_rib::event::{Route, RouteTarget};
use raddle_rib::{Fields, Hop, Resolved, Rib};
#[allow(unused_imports, reason = "one test uses it")]
pub use reference::Filter;

/// Out-link, destination and source MAC address, MTU; the link that frames leave by, and their VLAN tags from the outermost on (0 for none).
type Out = (u32, [u8; 6], [u8; 6], u32, (u32, [u32; 2]));

/// Where packets leave; or the reason why the kernel gets them.
type Leaves = Result<Out, u8>;

/// The ranges of a destination, each with its upper bound; or the reason why there are none.
pub type Seen = Result<Vec<(u32, Leaves)>, Reason>;

/// One of 64 addresses of a family, in eight subnets.
pub fn address(v6: bool, n: u8) -> IpAddr {
    let (net, host) = (n / 8 % 8, n % 8);
    if v6 {
        IpAddr::V6(Ipv6Addr::new(
            0xfd00,
            0,
            0,
            net.into(),
            0,
            0,
            0,
            host.into(),
        ))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, net, host))
    }
}

/// A unicast route of the main table to the prefix of `len` bits that `dst` is in.
///
/// # Panics
/// When the family has no such prefix.
pub fn route(dst: IpAddr, len: u8, target: RouteTarget) -> Route {
    let Ok(dst) = IpNet::new(dst, len) else {
        panic!("{dst}/{len}")
    };
    Route {
        dst: dst.trunc(),
        protocol: 4,
        target,
        ..Route::default()
    }
}

/// A segment in the form of a neighbour: its number, marks, and its kind.
fn segment_leaves(memory: &Memory, number: u32) -> Out {
    let segment = memory.segment(number);
    segment_as_out(number, segment.flags, segment.kind)
}

/// The same of one with this number, these marks and of this kind.
fn segment_as_out(number: u32, flags: u8, kind: u8) -> Out {
    let by = (0, [0; 2]);
    (number, [0xff; 6], [flags; 6], kind.into(), by)
}

/// Tags from the outermost on.
fn tags_of(tags: impl Iterator<Item = u32>) -> [u32; 2] {
    let mut all = [0; 2];
    all.iter_mut().zip(tags).for_each(|(to, tag)| *to = tag);
    all
}

/// What becomes of packets to a route that is one segment: where that is the kernel's, it is as good as a group that is.
fn alone(segment: Out, reason: u8) -> Seen {
    match segment.3 {
        0 => Err(Reason::from_number(reason).unwrap()),
        _ => Ok(vec![(0x7fff_ffff, Ok(segment))]),
    }
}

/// What engines read for packets to `dst` that come in by link `iif`; none when they hand them to
/// the kernel without a look at the tables.
pub fn seen_by_engines(rib: &Rib, iif: u32, dst: IpAddr) -> Option<Seen> {
    let memory = rib.memory();
    let entry = memory.link(iif);
    let rules = match dst {
        IpAddr::V4(_) => link_flags::RULES4,
        IpAddr::V6(_) => link_flags::RULES6,
    };
    if entry.flags & link_flags::ENABLED == 0 || entry.flags & rules != 0 {
        return None;
    }
    let number = match dst {
        IpAddr::V4(ip) => memory.route4(entry.table4, ip.to_bits()),
        IpAddr::V6(ip) => memory.route6(entry.table6, ip.to_bits()),
    };
    let adjacency = |n| {
        let a = memory.adjacency(n);
        match a.state {
            _ if a.forwards() => {
                let by = (a.leaves_by(), tags_of(a.put_tags().iter().copied()));
                Ok((a.index, a.dst_mac, a.src_mac, a.mtu, by))
            }
            ADJ_SEGMENT => Ok(segment_leaves(memory, a.index)),
            _ => Err(a.reason),
        }
    };
    Some(match memory.group(number) {
        Group::Kernel(reason) => Err(reason),
        Group::Segment(n) => alone(segment_leaves(memory, n), memory.segment(n).reason),
        Group::Single(n) | Group::Neighbour(n) => Ok(vec![(0x7fff_ffff, adjacency(n))]),
        Group::RoundRobin { .. } | Group::Flowlet { .. } => {
            panic!("nothing here asks for {:?}", memory.group(number))
        }
        // By bucket.
        Group::Resilient { first, count, .. } => Ok((0..u32::from(count))
            .map(|i| (i, adjacency(memory.member(first + 1 + i).adjacency)))
            .collect()),
        Group::Threshold { first, count, .. } => Ok((first..first + u32::from(count))
            .map(|place| {
                let member = memory.member(place);
                (member.upper, adjacency(member.adjacency))
            })
            .collect()),
    })
}

/// A source that no rule asks for.
fn source(dst: IpAddr) -> IpAddr {
    match dst {
        IpAddr::V4(_) => IpAddr::from([255, 255, 255, 254]),
        IpAddr::V6(_) => IpAddr::from([0xfffe; 8]),
    }
}

/// The same from what `explain` goes by: the steps of [`Rib::trace`].
pub fn seen_by_trace(rib: &Rib, iif: u32, dst: IpAddr) -> Option<Seen> {
    let link = rib.link(iif)?;
    let fields = Fields {
        src: source(dst),
        dst,
        tos: 0,
        proto: 0,
        sport: 0,
        dport: 0,
    };
    let trace = rib.trace_of(&link.name, &fields);
    trace.lookup.as_ref().ok()?;
    let adjacency = |hop: &Hop| {
        if let Some(what) = &hop.segment {
            let number = rib.segment_number(what);
            return match number.and_then(|n| Some((n, rib.segment(n)?.1))) {
                Some((n, s)) => Ok(segment_as_out(n, s.flags, s.kind)),
                None => Err(Reason::ImageFull as u8),
            };
        }
        let out = rib.link(hop.index).filter(|out| {
            out.is_up()
                && out.has_carrier()
                && out.is_ethernet()
                && rib.ports().out.contains(&out.index)
        });
        let Some((out, src_mac)) = out.and_then(|out| Some((out, out.mac?))) else {
            return Err(Reason::OutLink as u8);
        };
        let neighbour = hop.gateway.and_then(|g| rib.neighbour(hop.index, g));
        let mac = neighbour.filter(|n| n.is_valid()).and_then(|n| n.mac);
        let by = match rib.egress(out, mac) {
            Ok(by) if rib.ports().out.contains(&by.lower) => {
                (by.lower, tags_of(by.tags.iter().map(|vlan| vlan.tag())))
            }
            Ok(_) => return Err(Reason::OutLink as u8),
            Err(reason) => return Err(reason as u8),
        };
        let path = rib.path_mtu_to(hop.index, hop.gateway, hop.mtu);
        let mtu = path.map_or(0, |path| path.engine);
        match mac {
            Some(mac) => Ok((hop.index, mac, src_mac, mtu, by)),
            None => Err(Reason::Unresolved as u8),
        }
    };
    Some(match trace.resolved {
        Resolved::Kernel(reason) => Err(reason),
        Resolved::One(hop) => match (hop.segment.as_ref(), adjacency(&hop)) {
            (Some(what), Ok(leaves)) => {
                let number = rib.segment_number(what)?;
                alone(leaves, rib.segment(number)?.1.reason)
            }
            (_, leaves) => Ok(vec![(0x7fff_ffff, leaves)]),
        },
        Resolved::Many { hops, ranges, .. } => Ok(ranges
            .iter()
            .map(|(upper, place)| (*upper, adjacency(&hops[*place])))
            .collect()),
        // Too short a timer to show the kernel every bucket often enough.
        Resolved::Resilient { idle_timer, .. } if idle_timer < 20 => Err(Reason::Resilient),
        Resolved::Resilient { hops, buckets, .. } => Ok((0..)
            .zip(&buckets)
            .map(|(i, place)| (i, adjacency(&hops[usize::from(*place)])))
            .collect()),
    })
}

/// Holds the image, and what `explain` says, against the reference at these addresses, for packets from the links in turn.
///
/// Where there was no room in the image, engines may punt what they could forward.
///
/// # Panics
/// When they differ.
pub fn compare(mirror: &Mirror, addresses: impl IntoIterator<Item = IpAddr>) {
    let full = mirror.usage().full;
    for (dst, iif) in addresses.into_iter().zip((1..=4).cycle()) {
        let expected = mirror.expected(iif, dst);
        let Some(engines) = seen_by_engines(mirror, iif, dst) else {
            assert!(
                full || expected.is_none(),
                "{dst} from link {iif}: {expected:?}"
            );
            continue;
        };
        if full && matches!(engines, Err(Reason::ImageFull | Reason::NoRoute)) {
            continue;
        }
        assert_eq!(Some(engines), expected, "{dst} from link {iif}");
        let explained = seen_by_trace(mirror, iif, dst);
        assert_eq!(explained, expected, "explained: {dst} from link {iif}");
    }
}

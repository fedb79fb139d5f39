//! A segment as engines read it: what a SID or an encapsulation comes to, now.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_packet::srh::{FIXED, FLAG_HMAC};

use super::{Meaning, Owner, SegmentUse, Tables};
use crate::adjacency::Ports;
use crate::egress::is_bridge;
use crate::event::Link;
use crate::resolve::has_share;
use crate::rules::{Arrival, TABLE_LOCAL, TableLookup, lookup_for};
use crate::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef, hmac_key};
use crate::source6::source_for;
use crate::state::State;
use raddle_image::{
    LINK_TABLE, Reason, Segment, TunnelEnd, VlanEntry, flavours, lost_dx2, segment_flags as flag,
    segment_kind as kind,
};
use raddle_select::HashKey;
use raddle_srv6::sign;

/// A segment, and the template that it refers to (its place is not filled in yet).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Built {
    pub(super) segment: Segment,
    pub(super) words: Vec<u64>,
}

/// What building needs to know.
pub(super) struct Around<'a> {
    pub(super) state: &'a State,
    pub(super) ports: &'a Ports,
    pub(super) tables: &'a Tables,
}

/// Bytes of an IPv6 header.
const IPV6: usize = 40;
/// `NEXTHDR_ROUTING`.
const ROUTING: u8 = 43;
/// Bytes of a segment in an SRH.
const ADDRESS: usize = 16;

/// Builds a segment.
///
/// 1. A SID that engines do not model, or that is not usable now, is the kernel's; [`kernel_only`] and
///    [`out_link`] say when.
/// 2. Flavours of the kernel's SIDs are those that it heeds; raddle's own have all that they say.
/// 3. A table that there is no room for: the kernel's.
/// 4. The only nexthop of a route whose link is down, as `resolve` has it: the kernel's. Tables lead to such a
///    segment without a group that could say so. Among several nexthops none is chosen then.
/// 5. An encapsulation takes its source from itself, else from `ip sr tunsrc`, else by
///    [`source_for`]; without one it is the kernel's.
/// 6. Ends of tunnels, see [`State::tunnel_ends`]: without any the kernel's, as its address is.
pub(super) fn build(around: &Around<'_>, what: &Meaning) -> Built {
    match what {
        Meaning::Srv6(what) => build_srv6(around, what),
        Meaning::TunnelEnds(local) => build_ends(around, *local),
    }
}

fn build_ends(around: &Around<'_>, local: Ipv4Addr) -> Built {
    let ends = around.state.tunnel_ends(local, around.ports);
    let segment = match ends.len() {
        0 => Segment {
            reason: Reason::Local as u8,
            ..Segment::default()
        },
        count => Segment {
            kind: kind::TUNNEL_END,
            out: count as u32,
            ..Segment::default()
        },
    };
    let words = ends.iter().flat_map(TunnelEnd::to_words).collect();
    Built { segment, words }
}

fn build_srv6(around: &Around<'_>, what: &SegmentUse) -> Built {
    let down = |index| !has_share(around.state, index, true);
    let mut built = match &what.what {
        Seg6::Sid(_) if what.needs_link().is_some_and(down) => Err(Reason::OutLink),
        Seg6::Sid(sid) => build_sid(around, what, sid),
        Seg6::Encaps(encaps) => build_encaps(around, what, encaps),
    }
    .unwrap_or_else(|reason| Built {
        segment: Segment {
            reason: reason as u8,
            ..Segment::default()
        },
        words: Vec::new(),
    });
    let counts = match &what.what {
        Seg6::Sid(sid) => sid.counters,
        Seg6::Encaps(_) => true,
    };
    for (yes, bit) in [(counts, flag::HAS_COUNTERS), (what.own, flag::NO_PUNT)] {
        if yes {
            built.segment.flags |= bit;
        }
    }
    built
}

fn build_sid(around: &Around<'_>, what: &SegmentUse, sid: &Sid) -> Result<Built, Reason> {
    let flavours = match what.own {
        true => sid.flavours,
        false => sid.kernel_flavours(),
    };
    let compressed = flavours & (flavours::NEXT_CSID | flavours::REPLACE_CSID) != 0;
    let bytes = |bits: u8| if compressed { bits / 8 } else { 0 };
    let mut segment = Segment {
        kind: sid.behaviour.number() as u8,
        flavours,
        block: bytes(sid.block),
        csid: bytes(sid.csid),
        table4: LINK_TABLE,
        table6: LINK_TABLE,
        ..Segment::default()
    };
    let mut words = Vec::new();
    let [lookup4, lookup6] = [4, 6].map(|family| what.lookup(family));
    match &sid.behaviour {
        Behaviour::End => {}
        Behaviour::X { nh6, oif: None } | Behaviour::Dx6 { nh6 } => segment.target = nh6.octets(),
        Behaviour::T { .. } => {}
        Behaviour::Dx4 { nh4 } => {
            segment.target[..4].copy_from_slice(&nh4.octets());
            if what.own {
                segment.flags |= flag::DIRECT_NH4;
            }
        }
        Behaviour::Dt6 { table } | Behaviour::Dt4 { table } | Behaviour::Dt46 { table } => {
            for (family, looks) in [(4, &lookup4), (6, &lookup6)] {
                if looks.is_some() {
                    usable_table(around, *table, family, what.own)?;
                }
            }
        }
        Behaviour::Dx2 { oif } => {
            let link = out_link(around, *oif).ok_or(lost_dx2(what.own))?;
            segment.out = link.index;
            segment.mtu = link.mtu;
        }
        Behaviour::Dx2v { vlans } => {
            words = vlans
                .iter()
                .map(|entry| vlan_word(around, *entry))
                .collect();
            segment.out = words.len() as u32;
        }
        Behaviour::B6 { srh } => {
            if has_hmac(srh) {
                return Err(Reason::Encap);
            }
            words = to_words(srh);
            segment.flags |= flag::HAS_SRH;
        }
        Behaviour::B6Encaps { srh, reduced } => {
            let outer = outer(around, what, None, (srh, *reduced))?;
            segment.flags |= outer.flags | label_flags(around.state);
            words = to_words(&outer.bytes);
        }
        Behaviour::X { oif: Some(_), .. } | Behaviour::Other(_) => return Err(Reason::Encap),
    }
    segment.table4 = around.tables.of4(lookup4.as_ref())?;
    segment.table6 = around.tables.of6(lookup6.as_ref())?;
    segment.size = (words.len() * 8) as u16;
    // Of the others nothing is to be spread anew, and they are to stay the same when the seed changes.
    if matches!(
        sid.behaviour,
        Behaviour::B6 { .. } | Behaviour::B6Encaps { .. }
    ) {
        segment.salt = salt(around.state);
    }
    Ok(Built { segment, words })
}

fn build_encaps(around: &Around<'_>, what: &SegmentUse, encaps: &Encaps) -> Result<Built, Reason> {
    let mut segment = Segment {
        table4: LINK_TABLE,
        table6: LINK_TABLE,
        salt: salt(around.state),
        ..Segment::default()
    };
    let bytes = match encaps.mode {
        Mode::Inline => {
            if has_hmac(encaps.srh()) {
                return Err(Reason::Encap);
            }
            segment.kind = kind::INSERT;
            segment.flags = flag::HAS_SRH;
            encaps.srh().to_vec()
        }
        mode => {
            segment.kind = match mode.is_l2() {
                true => kind::ENCAPS_L2,
                false => kind::ENCAPS,
            };
            let reduced = mode.is_reduced();
            let outer = outer(around, what, encaps.source, (encaps.srh(), reduced))?;
            segment.flags = outer.flags | label_flags(around.state);
            outer.bytes
        }
    };
    let words = to_words(&bytes);
    segment.size = (words.len() * 8) as u16;
    Ok(Built { segment, words })
}

/// Whether a SID is left to the kernel for good, whatever the state: not one of raddle's own, and its
/// behaviour or its use of an out-link is not modelled.
pub(crate) fn kernel_only(sid: &Sid) -> bool {
    matches!(
        sid.behaviour,
        Behaviour::Other(_) | Behaviour::X { oif: Some(_), .. }
    )
}

/// Whether packets of a family that come out can be looked up in this table. Of a VRF they come in by it in the kernel
/// (`end_dt_vrf_core`): there has to be one that is up, and only one, of this table; rules have to lead from it to the table, behind
/// no other than local; and its settings have to forward, with no filter of sources. What the kernel does not have (`own`) goes by the
/// number: it may lack VRFs altogether.
fn usable_table(around: &Around<'_>, table: TableRef, family: u8, own: bool) -> Result<(), Reason> {
    let TableRef::Vrf(number) = table else {
        return Ok(());
    };
    if own {
        return Ok(());
    }
    let state = around.state;
    let is_it = |link: &&Link| {
        let is_vrf = link.kind.as_deref() == Some("vrf");
        is_vrf && link.is_up() && link.vrf_table == Some(number)
    };
    let mut vrfs = state.links.values().filter(is_it);
    let (Some(vrf), None) = (vrfs.next(), vrfs.next()) else {
        return Err(Reason::Encap);
    };
    let arrival = Arrival::Vrf {
        name: &vrf.name,
        slave: &vrf.name,
        table: Some(number),
        others: [&vrf.altnames, &[]],
    };
    let lookup = lookup_for(&state.rules, family, arrival)?;
    let tables = lookup.tables.iter();
    let mut tables = tables.skip_while(|look| **look == TableLookup::all(TABLE_LOCAL));
    if tables.next() != Some(&TableLookup::all(number)) {
        return Err(Reason::Rules);
    }
    let settings = state.devices.get(&vrf.index).copied().unwrap_or_default();
    match family {
        4 if !settings.forwarding4 => Err(Reason::ForwardingOff),
        4 if settings.rp_filter > 0 => Err(Reason::RpFilter),
        6 if !settings.forwarding6 => Err(Reason::ForwardingOff),
        _ => Ok(()),
    }
}

/// The link that frames go out by: it must exist, be up with carrier, be Ethernet, and be allowed as an
/// out-link (`input_action_end_dx2`). It must be no VLAN, bridge or macvlan: engines send
/// a frame as it is by the link itself, by its index, and by these nothing is sent so.
fn out_link<'a>(around: &Around<'a>, index: u32) -> Option<&'a Link> {
    let link = around.state.links.get(&index)?;
    let usable = link.is_up()
        && link.has_carrier()
        && link.is_ethernet()
        && !link.is_vlan()
        && !is_bridge(link)
        && link.macvlan.is_none()
        && around.ports.out.contains(&index);
    usable.then_some(link)
}

/// The entry of a VLAN; an MTU of 0, which no frame fits, where its link is not usable.
fn vlan_word(around: &Around<'_>, (vlan, out): (u16, u32)) -> u64 {
    let link = out_link(around, out);
    let mtu = link.map_or(0, |link| u16::try_from(link.mtu).unwrap_or(u16::MAX));
    VlanEntry { vlan, mtu, out }.to_word()
}

/// What stands in front of an encapsulated packet.
struct Outer {
    bytes: Vec<u8>,
    flags: u8,
}

/// The IPv6 header, and the SRH where there is one (`seg6_do_srh_encap`, `seg6_do_srh_encap_red`).
///
/// 1. Payload length, class and flow label are 0, and so is the next header that stands for the payload. The
///    hop limit is that for IPv4, [`hop_limit`]. The destination is the segment that is visited first.
/// 2. Reduced, with one segment and without HMAC: no SRH. With more segments: without the one that is
///    visited first. With one segment and an HMAC: the kernel's.
/// 3. An HMAC is computed here, as nothing of a packet is part of it. Without its key, or with more
///    than the 14 segments that it can cover: the kernel's, which drops.
fn outer(
    around: &Around<'_>,
    what: &SegmentUse,
    source: Option<Ipv6Addr>,
    (srh, reduced): (&[u8], bool),
) -> Result<Outer, Reason> {
    let last = usize::from(srh[4]);
    let first_visited = FIXED + last * ADDRESS;
    let mut segment = [0; ADDRESS];
    segment.copy_from_slice(&srh[first_visited..first_visited + ADDRESS]);
    let target = Ipv6Addr::from(segment);
    let settings = &around.state.settings;
    let source = source
        .or(settings.tunsrc)
        .or_else(|| source_for(around.state, what.index, target))
        .ok_or(Reason::Encap)?;
    let mut bytes = vec![0; IPV6];
    bytes[0] = 0x60;
    bytes[7] = hop_limit(around.state, what);
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..40].copy_from_slice(&target.octets());
    let mut flags = if reduced { flag::REDUCED } else { 0 };
    let key = hmac_key(srh);
    if reduced && last == 0 {
        return match has_hmac(srh) {
            true => Err(Reason::Encap),
            false => Ok(Outer { bytes, flags }),
        };
    }
    flags |= flag::HAS_SRH;
    bytes[6] = ROUTING;
    let begin = bytes.len();
    bytes.extend(srh);
    bytes[begin] = 0;
    if reduced {
        bytes.drain(begin + first_visited..begin + first_visited + ADDRESS);
        bytes[begin + 1] -= (ADDRESS / 8) as u8;
        bytes[begin + 4] -= 1;
    }
    if has_hmac(srh) {
        let key = key.and_then(|id| around.state.hmac_keys.get(&id));
        let key = key.and_then(|key| raddle_srv6::Key::new(key.algorithm, &key.secret));
        let signed = key.and_then(|key| sign(&mut bytes[begin..], &source.octets(), &key));
        signed.ok_or(Reason::Encap)?;
    }
    Ok(Outer { bytes, flags })
}

/// What is put around IPv4 (`ip6_dst_hoplimit` of the encapsulating route): the route's hop limit, else that of its
/// link, else the default of all (`IPV6_DEFAULT_HOPLIMIT`). Of 0 the engines see packets at their end, as the
/// kernel does.
fn hop_limit(state: &State, what: &SegmentUse) -> u8 {
    const DEFAULT: u8 = 64;
    match what.hop_limit {
        0 => state
            .devices
            .get(&what.index)
            .and_then(|device| device.hop_limit)
            .unwrap_or(DEFAULT),
        limit => limit,
    }
}

/// `sr_has_hmac`.
fn has_hmac(srh: &[u8]) -> bool {
    srh.get(5).is_some_and(|flags| flags & FLAG_HMAC != 0)
}

fn label_flags(state: &State) -> u8 {
    match state.settings.seg6_flowlabel {
        0 => flag::LABEL_FROM_INNER,
        1 => flag::LABEL_FROM_FLOW,
        _ => 0,
    }
}

/// The key's, so that two machines in a row choose independently of each other, and not the key
/// itself, by which the next header's hash is made.
pub(crate) fn salt(state: &State) -> u32 {
    /// Any constant does.
    const APART: u32 = 0x5352_7636;
    let mut h = state.hash_key().map_or(0, HashKey::number) ^ APART;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// Words of the image, in the order of the wire. Both headers are multiples of 8 bytes long.
fn to_words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().copied().map(u64::from_ne_bytes).collect()
}

/// The link that a segment's route or nexthop names, for who shows it.
impl SegmentUse {
    /// The address that packets are looked up by instead of their own destination, if it is fixed.
    pub fn target(&self) -> Option<IpAddr> {
        match &self.what {
            Seg6::Sid(sid) => match &sid.behaviour {
                Behaviour::X { nh6, .. } | Behaviour::Dx6 { nh6 } => {
                    Some(IpAddr::V6(*nh6)).filter(|ip| !ip.is_unspecified())
                }
                Behaviour::Dx4 { nh4 } => Some(IpAddr::V4(*nh4)).filter(|ip| !ip.is_unspecified()),
                Behaviour::B6 { .. } | Behaviour::B6Encaps { .. } => {
                    sid.behaviour.segments().first().copied().map(IpAddr::V6)
                }
                _ => None,
            },
            Seg6::Encaps(encaps) => encaps.segments().first().copied().map(IpAddr::V6),
        }
    }

    /// Whether it is a SID of a route, of a nexthop object, or an encapsulation.
    pub fn is_sid(&self) -> bool {
        !matches!(self.owner, Owner::Shared)
    }
}

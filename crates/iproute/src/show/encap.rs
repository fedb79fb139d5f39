//! Lightweight tunnels: `encap seg6 ...` and `encap seg6local ...`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_netlink::codec::SidCounters;

use super::Context;
use super::figures::{print_list, print_sid, total};
use super::lookup::Carried;
use super::out::Out;

/// `LWTUNNEL_ENCAP_*` by number.
pub(crate) const KINDS: [&str; 11] = [
    "none",
    "mpls",
    "ip",
    "ila",
    "ip6",
    "seg6",
    "bpf",
    "seg6local",
    "rpl",
    "ioam6",
    "xfrm",
];
pub(crate) const SEG6: u16 = 5;
pub(crate) const SEG6LOCAL: u16 = 7;

/// `SEG6_IPTUN_MODE_*` by number.
const MODES: [&str; 5] = ["inline", "encap", "l2encap", "encap.red", "l2encap.red"];
/// `SEG6_LOCAL_ACTION_*` by number.
const ACTIONS: [&str; 25] = [
    "unspec",
    "End",
    "End.X",
    "End.T",
    "End.DX2",
    "End.DX6",
    "End.DX4",
    "End.DT6",
    "End.DT4",
    "End.B6",
    "End.B6.Encaps",
    "End.BM",
    "End.S",
    "End.AS",
    "End.AM",
    "End.BPF",
    "End.DT46",
    "unknown",
    "unknown",
    "unknown",
    "unknown",
    "unknown",
    "unknown",
    "unknown",
    // Ours, by the numbers of `segment_kind`: the kernel has none.
    "End.DX2V",
];
/// `SEG6_LOCAL_FLV_OP_*`, from bit 1 on; the last is ours.
const FLAVOURS: [&str; 5] = ["psp", "usp", "usd", "next-csid", "replace-csid"];
/// Attributes of ours: VLAN entries of End.DX2V, and that End.B6.Encaps is reduced.
const VLANS: u16 = 0x1001;
const REDUCED: u16 = 0x1002;

/// Prints what a route or nexthop wraps its packets in, and with `-statistics` what has been counted
/// of it. The space before it is `ip`'s.
pub(crate) fn print(out: &mut Out<'_>, context: &Context<'_>, carried: &Carried<'_>) {
    let encap = carried.encap;
    out.text(' ');
    out.string(
        "encap",
        "encap",
        KINDS.get(usize::from(encap.kind)).unwrap_or(&"unknown"),
    );
    match encap.kind {
        SEG6 => {
            print_seg6(out, &encap.data);
            let engine = context.figures.and_then(|figures| figures.engine(carried));
            if let Some(counts) = engine {
                print_list(out, total(counts));
            }
        }
        SEG6LOCAL => print_seg6local(out, context, carried),
        _ => {}
    }
}

/// `SEG6_IPTUNNEL_SRH`: the mode, in host byte order, then a segment routing header.
fn print_seg6(out: &mut Out<'_>, data: &[u8]) {
    let Some((_, value)) = attributes(data).find(|(number, _)| *number == 1) else {
        return;
    };
    let Some((mode, srh)) = value.split_first_chunk() else {
        return;
    };
    let mode = u32::from_ne_bytes(*mode) as usize;
    out.string("mode", "mode", MODES.get(mode).unwrap_or(&"unknown"));
    print_segments(out, srh);
}

/// The segments in the order of travel; the header has the last one first (RFC 8754, section 2).
fn print_segments(out: &mut Out<'_>, srh: &[u8]) {
    let Some((header, rest)) = srh.split_first_chunk::<8>() else {
        return;
    };
    let (segments, _) = rest.as_chunks::<16>();
    let count = (usize::from(header[4]) + 1).min(segments.len());
    out.text(format_args!("segs {count} [ "));
    out.words(
        "segs",
        segments[..count]
            .iter()
            .rev()
            .map(|segment| Ipv6Addr::from(*segment)),
    );
    out.text("] ");
}

/// `SEG6_LOCAL_*` attributes, in `ip`'s order. Counters only come with `-statistics`, and only where the
/// SID counts.
fn print_seg6local(out: &mut Out<'_>, context: &Context<'_>, carried: &Carried<'_>) {
    let data = carried.encap.data.as_slice();
    let find = |wanted| {
        attributes(data)
            .find(|(number, _)| *number == wanted)
            .map(|(_, v)| v)
    };
    let word = |wanted| {
        find(wanted)
            .and_then(|v| v.try_into().ok())
            .map(u32::from_ne_bytes)
    };
    let Some(action) = word(1) else { return };
    let red = if find(REDUCED).is_some() { ".Red" } else { "" };
    let name = ACTIONS.get(action as usize).unwrap_or(&"unknown");
    out.string("action", "action", format_args!("{name}{red}"));
    if let Some(srh) = find(2) {
        out.begin_object("srh");
        print_segments(out, srh);
        out.end_object();
    }
    for (number, name) in [(3, "table"), (9, "vrftable")] {
        if let Some(table) = word(number) {
            out.string(name, name, context.names.table(table));
        }
    }
    if let Some(address) = find(4).and_then(|v| <[u8; 4]>::try_from(v).ok()) {
        out.string("nh4", "nh4", IpAddr::from(Ipv4Addr::from(address)));
    }
    if let Some(address) = find(5).and_then(|v| <[u8; 16]>::try_from(v).ok()) {
        out.string("nh6", "nh6", IpAddr::from(Ipv6Addr::from(address)));
    }
    for (number, name) in [(6, "iif"), (7, "oif")] {
        if let Some(index) = word(number) {
            out.string(name, name, context.lookup.link(index));
        }
    }
    if let Some(vlans) = find(VLANS) {
        print_vlans(out, context, vlans);
    }
    if let Some(figures) = context.figures
        && let Ok(Some(own)) = SidCounters::find(data)
    {
        print_sid(out, figures.total(carried).unwrap_or(own));
    }
    if let Some(flavours) = find(11) {
        print_flavours(out, flavours);
    }
}

/// VLAN, two bytes of nothing, out-link: `vlans [ vlan 5 oif eth1 vlan 6 oif eth2 ]`.
fn print_vlans(out: &mut Out<'_>, context: &Context<'_>, data: &[u8]) {
    out.text("vlans [ ");
    out.begin_array("vlans");
    for &[a, b, _, _, c, d, e, f] in data.as_chunks::<8>().0 {
        out.begin_object("");
        out.number("vlan", "vlan", u64::from(u16::from_ne_bytes([a, b])));
        let link = context.lookup.link(u32::from_ne_bytes([c, d, e, f]));
        out.string("oif", "oif", link);
        out.end_object();
    }
    out.end_array();
    out.text("] ");
}

/// `SEG6_LOCAL_FLV_*`: a set of operations, and the lengths of next-csid in bits.
fn print_flavours(out: &mut Out<'_>, data: &[u8]) {
    let find = |wanted| {
        attributes(data)
            .find(|(number, _)| *number == wanted)
            .map(|(_, v)| v)
    };
    let operations = find(1)
        .and_then(|v| v.try_into().ok())
        .map_or(0, u32::from_ne_bytes);
    let known: Vec<&str> = FLAVOURS
        .iter()
        .enumerate()
        .filter(|(i, _)| operations & (2 << i) != 0)
        .map(|(_, name)| *name)
        .collect();
    if out.is_json() {
        out.words("flavors", known);
    } else {
        out.text(format_args!("flavors {} ", known.join(",")));
    }
    for (number, name) in [(2, "lblen"), (3, "nflen")] {
        if let Some([bits]) = find(number) {
            out.number(name, name, u64::from(*bits));
        }
    }
}

/// Netlink attributes: number and payload. Ends at the first that does not fit.
fn attributes(data: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (header, _) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        // The upper two bits say "nested" and "network byte order".
        let number = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((number, value))
    })
}

//! What follows from a finding about a firewall for a frame, reckoned from the two alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_rib::Ports;
use raddle_rib::firewall::{Firewall, Range};

/// Whether a frame that comes in by one link may leave by the other without the kernel.
pub(crate) fn is_free(
    found: &Option<(Ports, Firewall)>,
    frame: &[u8],
    (from, to): (u32, u32),
) -> bool {
    let Some((looked_at, firewall)) = found else {
        return true;
    };
    let l3 = &frame[14..];
    let v6 = l3[0] >> 4 == 6;
    let (src, dst, next, behind): (IpAddr, IpAddr, u8, usize) = if v6 {
        let ip = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&l3[at..at + 16]).unwrap());
        (ip(8).into(), ip(24).into(), l3[6], 40)
    } else {
        let ip = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&l3[at..at + 4]).unwrap());
        (ip(12).into(), ip(16).into(), l3[9], 20)
    };
    let of = if v6 { &firewall.v6 } else { &firewall.v4 };
    let kind = l3.get(behind).copied();
    let tracked = match v6 {
        true => {
            [0, 43, 44, 51, 60, 135, 139, 140].contains(&next)
                || next == 58 && kind.is_none_or(|kind| kind < 128)
        }
        false => {
            l3[6] & 0x3f != 0
                || l3[7] != 0
                || next == 1 && kind.is_none_or(|kind| [3, 4, 5, 11, 12].contains(&kind))
        }
    };
    let in_range = |range: &Range| {
        range.ins.contains(&from)
            && (range.src.0..=range.src.1).contains(&src)
            && (range.dst.0..=range.dst.1).contains(&dst)
            && range.outs.contains(&to)
    };
    looked_at.enabled.contains(&from)
        && looked_at.out.contains(&to)
        && !of.pairs.contains(&(from, to))
        && !(tracked && (of.fragments || of.icmp_errors))
        && !of.ranges.iter().any(in_range)
}

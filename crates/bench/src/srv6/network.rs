//! What the router of [`super::router`] has besides: SIDs and an encapsulating route.

use std::net::Ipv6Addr;

/// A behaviour or an encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// End, one segment left.
    End,
    /// End.X.
    EndX,
    /// End.DX2.
    Dx2,
    /// End.DX4.
    Dx4,
    /// End.DX6.
    Dx6,
    /// H.Encaps of IPv6, one segment.
    Encaps,
}

impl What {
    pub(super) const ALL: [What; 6] = [
        What::End,
        What::EndX,
        What::Dx2,
        What::Dx4,
        What::Dx6,
        What::Encaps,
    ];

    /// As RFC 8986 calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            What::End => "End",
            What::EndX => "End.X",
            What::Dx2 => "End.DX2",
            What::Dx4 => "End.DX4",
            What::Dx6 => "End.DX6",
            What::Encaps => "H.Encaps",
        }
    }
}

/// Whether SIDs are counted: the three scenarios of the patch that gave Linux counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// The program has no code for it.
    Absent,
    /// The SID has no counters.
    Off,
    /// The SID has counters.
    On,
}

impl Counting {
    pub(super) const ALL: [Counting; 3] = [Counting::Absent, Counting::Off, Counting::On];

    pub(super) fn name(self) -> &'static str {
        match self {
            Counting::Absent => "absent",
            Counting::Off => "off",
            Counting::On => "on",
        }
    }
}

const fn sid(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 0, number, 0, 0, 0, 0, 1)
}

/// End.DX2 with counters.
pub(super) const DX2: Ipv6Addr = sid(3);
/// End.DX2 without.
pub(super) const DX2_UNCOUNTED: Ipv6Addr = sid(0x13);
/// Where plain IPv6 packets go to be encapsulated.
const TO_ENCAPSULATE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xe0, 0, 0, 0, 0, 9);
/// Behind a neighbour of `out0`, in both families.
pub(super) const BEHIND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf1, 0, 0, 0, 0, 9);

/// The destination of the packets of a measurement.
pub(super) fn sid_of(what: What) -> Ipv6Addr {
    match what {
        What::End => sid(1),
        What::EndX => sid(2),
        What::Dx2 => DX2,
        What::Dx4 => sid(4),
        What::Dx6 => sid(5),
        What::Encaps => TO_ENCAPSULATE,
    }
}

/// SIDs, all with counters but one, for a batch of `ip`.
pub(super) fn routes() -> Vec<String> {
    let local = |sid: Ipv6Addr, action: &str| {
        format!("route add {sid} encap seg6local action {action} dev out0")
    };
    vec![
        // Of a neighbour on a connected prefix the kernel would ask for the inner destination.
        "route add 192.0.2.1/32 via 10.1.0.2".to_owned(),
        local(sid(1), "End count"),
        local(sid(2), "End.X nh6 2001:db8:1:0::2 count"),
        local(DX2, "End.DX2 oif out0 count"),
        local(DX2_UNCOUNTED, "End.DX2 oif out0"),
        local(sid(4), "End.DX4 nh4 192.0.2.1 count"),
        local(sid(5), "End.DX6 nh6 2001:db8:1:0::2 count"),
        format!("route add {TO_ENCAPSULATE} encap seg6 mode encap segs {BEHIND6} dev out0"),
        "sr tunsrc set 2001:db8::1".to_owned(),
    ]
}

/// Many SIDs, without order: End.DX2 with counters.
pub(super) fn many_sids(count: u32) -> impl Iterator<Item = Ipv6Addr> {
    (0..count).map(|i| {
        // An odd factor permutes, so no SID comes twice.
        let bits = i.wrapping_mul(0x9e37_79b1);
        Ipv6Addr::new(0x5f00, 1, (bits >> 16) as u16, bits as u16, 0, 0, 0, 0)
    })
}

/// Their routes, for a batch of `ip`.
pub(super) fn many(count: u32) -> Vec<String> {
    let line = |sid: Ipv6Addr| {
        format!("route add {sid} encap seg6local action End.DX2 oif out0 count dev out0")
    };
    many_sids(count).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sids_are_different() {
        let all: std::collections::HashSet<_> = many_sids(100_000).collect();
        assert_eq!(all.len(), 100_000);
    }
}

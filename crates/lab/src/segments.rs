//! SRv6 on a node: SIDs and encapsulations, as the kernel takes them.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// SRv6 on a node; none by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SegmentRouting {
    /// Source address of encapsulated packets (`ip sr tunsrc`); without one, an address of the
    /// route's device.
    pub source: Option<Ipv6Addr>,
    /// SIDs and encapsulating routes, added behind the node's other routes.
    pub routes: Vec<SegmentRoute>,
}

/// A route with a behaviour or an encapsulation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRoute {
    /// The SID, or the destinations that are encapsulated.
    pub prefix: IpNet,
    /// The device that the kernel wants such a route to name. It must not be the loopback.
    pub dev: String,
    /// What is done.
    pub action: SegmentAction,
}

/// What an SRv6 route does. Its text is that of `ip route`; SIDs have counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SegmentAction {
    /// H.Encaps: these segments, the first to visit first.
    Encap(Vec<Ipv6Addr>),
    /// H.Encaps.L2, of frames that this node routes.
    L2Encap(Vec<Ipv6Addr>),
    /// End.
    End,
    /// End.DX2 out of this device.
    EndDx2(String),
    /// End.DX4 by way of this address, which has to be behind a gateway: of a neighbour on a
    /// connected prefix the kernel takes the link only, and asks there for the inner destination.
    EndDx4(Ipv4Addr),
    /// End.DT6 with look-ups in this table.
    EndDt6(u32),
}

impl fmt::Display for SegmentAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encap = |f: &mut fmt::Formatter<'_>, mode, segments: &[Ipv6Addr]| {
            let list: Vec<String> = segments.iter().map(ToString::to_string).collect();
            write!(f, "encap seg6 mode {mode} segs {}", list.join(","))
        };
        match self {
            Self::Encap(segments) => encap(f, "encap", segments),
            Self::L2Encap(segments) => encap(f, "l2encap", segments),
            Self::End => write!(f, "encap seg6local action End count"),
            Self::EndDx2(out) => write!(f, "encap seg6local action End.DX2 oif {out} count"),
            Self::EndDx4(via) => write!(f, "encap seg6local action End.DX4 nh4 {via} count"),
            Self::EndDt6(table) => write!(f, "encap seg6local action End.DT6 table {table} count"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_iproute2_takes_them() {
        let sid = |text: &str| text.parse().unwrap();
        let list = SegmentAction::L2Encap(vec![sid("5f00:c::"), sid("5f00:2::")]);
        assert_eq!(
            list.to_string(),
            "encap seg6 mode l2encap segs 5f00:c::,5f00:2::"
        );
        let cross_connect = SegmentAction::EndDx2("ce1".into());
        assert_eq!(
            cross_connect.to_string(),
            "encap seg6local action End.DX2 oif ce1 count"
        );
    }
}

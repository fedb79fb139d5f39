//! Tunnels whose packets are too long for all links that could carry them.

use std::collections::BTreeMap;

use raddle_image::{TUNNEL_GRE, TUNNEL_IPV4, TUNNEL_MOST};
use raddle_rib::event::{Link, Tunnel, TunnelKind};

use super::beneath::is_bridge;
use super::{Finding, Role, Scene, Severity};

/// `IFF_LOOPBACK`.
const LOOPBACK: u32 = 8;

/// Says which of the tunnels that are sent through, `outs`, leave their full-sized packets to the kernel: with what the tunnel puts in front
/// they are longer than any link takes that is no tunnel, bridge, or made of nothing. So is a VXLAN that was made without `dev`, whose MTU is
/// 1500 whatever the links below have (`vxlan_config_apply`).
pub(super) fn judge(scene: &Scene, outs: &BTreeMap<u32, String>) -> Vec<Finding> {
    let carriers = scene.links.iter().filter(|link| carries(link));
    let Some(most) = carriers.map(|link| link.mtu).max() else {
        return Vec::new();
    };
    let tunnels = scene.links.iter();
    let tunnels = tunnels.filter(|link| outs.contains_key(&link.index));
    let tunnels = tunnels.filter_map(|link| Some((link, longer(&link.tunnel?))));
    let too_long = tunnels.filter(|(link, longer)| link.mtu.saturating_add(*longer) > most);
    too_long
        .map(|(link, longer)| {
            let fits = most.saturating_sub(longer);
            let what = format!(
                "its MTU of {} and {longer} bytes of headers are more than any link takes ({most})",
                link.mtu
            );
            let why =
                "packets that are longer are left to the kernel, which fragments or drops them";
            Finding::new(Severity::Warning, what, why)
                .on(&link.name, Role::Out)
                .fix(format!("ip link set dev {} mtu {fits}", link.name))
        })
        .collect()
}

/// Whether outer packets may leave by a link itself.
fn carries(link: &Link) -> bool {
    let is_made_up = matches!(link.kind.as_deref(), Some("dummy" | "ifb" | "vrf"));
    link.is_ethernet()
        && link.flags & LOOPBACK == 0
        && link.tunnel.is_none()
        && !is_bridge(link)
        && !is_made_up
}

/// Bytes that a tunnel puts in front of a packet.
fn longer(tunnel: &Tunnel) -> u32 {
    let longer = match tunnel.kind {
        TunnelKind::Ipip | TunnelKind::Sit => TUNNEL_IPV4,
        TunnelKind::Gre { okey: None, .. } => TUNNEL_IPV4 + TUNNEL_GRE,
        TunnelKind::Gre { okey: Some(_), .. } => TUNNEL_IPV4 + 2 * TUNNEL_GRE,
        TunnelKind::Vxlan { .. } => TUNNEL_MOST,
    };
    longer as u32
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{Bridge, TunnelDf};

    use super::*;

    fn tunnel(index: u32, mtu: u32, kind: TunnelKind) -> Link {
        Link {
            mtu,
            tunnel: Some(Tunnel {
                kind,
                local: Some([192, 0, 2, 1].into()),
                remote: None,
                ttl: 0,
                tos: 0,
                df: TunnelDf::Unset,
                link: 0,
                is_special: false,
            }),
            ..Link::ethernet(index, format!("t{index}"), [2; 6])
        }
    }

    fn vxlan(index: u32, mtu: u32) -> Link {
        let kind = TunnelKind::Vxlan {
            vni: 1,
            port: 4789,
            sports: (0, 0),
            learns: false,
            checksum: false,
            ttl_inner: false,
        };
        tunnel(index, mtu, kind)
    }

    /// The commands.
    fn said(links: &[Link]) -> Vec<String> {
        let scene = Scene {
            links: links.to_vec(),
            ..Scene::default()
        };
        let outs = links.iter().map(|link| (link.index, link.name.clone()));
        let found = judge(&scene, &outs.collect());
        found
            .into_iter()
            .filter_map(|finding| finding.fix)
            .collect()
    }

    #[test]
    fn tunnels_that_fit_no_link_are_told() {
        let wire = |index, mtu| Link {
            mtu,
            ..Link::ethernet(index, format!("e{index}"), [2; 6])
        };
        assert_eq!(
            said(&[wire(2, 1500), vxlan(3, 1500)]),
            ["ip link set dev t3 mtu 1450"]
        );
        assert!(said(&[wire(2, 1500), vxlan(3, 1450)]).is_empty());
        // It may leave by the one that takes more.
        assert!(said(&[wire(2, 1500), wire(4, 1550), vxlan(3, 1500)]).is_empty());
        assert!(said(&[vxlan(3, 1500)]).is_empty());
        let gre = |okey| tunnel(5, 1476, TunnelKind::Gre { ikey: None, okey });
        assert!(said(&[wire(2, 1500), gre(None)]).is_empty());
        assert_eq!(
            said(&[wire(2, 1500), gre(Some(7))]),
            ["ip link set dev t5 mtu 1472"]
        );
        let bridge = Link {
            bridge: Some(Bridge::default()),
            ..wire(6, 9000)
        };
        let dummy = Link {
            kind: Some("dummy".into()),
            ..wire(7, 9000)
        };
        let all = [wire(2, 1500), bridge, dummy, vxlan(3, 1500)];
        assert_eq!(said(&all).len(), 1);
        let not_sent = judge(
            &Scene {
                links: all.to_vec(),
                ..Scene::default()
            },
            &BTreeMap::new(),
        );
        assert!(not_sent.is_empty());
    }
}

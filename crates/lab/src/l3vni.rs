//! Tenants' networks over a fabric, by EVPN and VXLAN.

use std::net::Ipv4Addr;

use ipnet::IpNet;

use crate::{
    Device, DeviceKind, Evpn, Expectation, HashPolicy, Rate, Role, StaticRoute, Tenant, Topology,
    TopologyBuilder, TopologyError,
    clos::{SPINE_AS, add_router, documentation, everything, loopbacks, net4, net6, nth_address},
    topology::{VXLAN_ROOM, in_range},
};

/// Two tenants with the same addresses on two leaves, routed by EVPN with symmetric IRB (RFC 9136, section
/// 4.4.1): a network of its own (L3VNI) for each tenant.
///
/// ```text
///        spine1   spine2               AS 65000
///          |  \   /  |
///          |   / \   |
///        leaf1     leaf2               AS 65001, 65002
///        /  \       /  \
///    red1  blue1  red2  blue2          10.LEAF.0.2/24, 2001:db8:LEAF::2/64, of either tenant
/// ```
///
/// Routers have the addresses of a [`Clos`](crate::Clos) on loopback. The leaves speak EVPN with each other,
/// from loopback to loopback; the spines know nothing of it. Of each tenant, red and blue, a leaf
/// has four devices:
///
/// | device | what |
/// |---|---|
/// | `red` | the VRF: table 1001, of blue 1002 |
/// | `vni-red` | the VXLAN from the leaf's loopback: 4001, of blue 4002 |
/// | `br-red` | the bridge that `vni-red` is the only port of: the SVI, whose MAC address is the leaf's in that network |
/// | `red1` | the link to its host, with `.1` and `::1` |
///
/// The VRF has the last two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L3vni {
    /// The rate of the fabric's links; `None` does not shape.
    pub rate: Option<Rate>,
    /// The MTU of the fabric's links in bytes, 1330 to 65535; those to the hosts carry 50 less.
    pub mtu: u32,
    /// The multipath hash policy at start.
    pub policy: HashPolicy,
}

impl Default for L3vni {
    fn default() -> Self {
        Self {
            rate: None,
            mtu: Topology::DEFAULT_MTU,
            policy: HashPolicy::default(),
        }
    }
}

/// A tenant, the table of its VRF, and the number of its network.
struct Network {
    tenant: &'static str,
    table: u32,
    vni: u32,
}

const NETWORKS: [Network; 2] = [
    Network {
        tenant: "red",
        table: 1001,
        vni: 4001,
    },
    Network {
        tenant: "blue",
        table: 1002,
        vni: 4002,
    },
];
const LEAVES: [u32; 2] = [1, 2];
const SPINES: [u32; 2] = [1, 2];

impl L3vni {
    /// The fabric and its tenants as a topology.
    ///
    /// # Errors
    /// When the MTU is out of its range.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        let least = u64::from(1280 + VXLAN_ROOM);
        in_range("the MTU", self.mtu.into(), least, 65535)?;
        let mut b = TopologyBuilder {
            mtu: self.mtu,
            policy: self.policy,
            ..TopologyBuilder::default()
        };
        for leaf in LEAVES {
            self.add_leaf(&mut b, leaf);
        }
        for n in SPINES {
            let own = loopbacks(2, n);
            add_router(&mut b, format!("spine{n}"), Role::Spine, SPINE_AS, own);
        }
        for leaf in LEAVES {
            for network in &NETWORKS {
                self.add_host(&mut b, network.tenant, leaf);
            }
        }
        for leaf in LEAVES {
            for spine in SPINES {
                let link = b.link(&format!("leaf{leaf}"), &format!("spine{spine}"));
                link.rate = self.rate;
                link.bgp = true;
            }
        }
        expect(&mut b);
        b.build()
    }

    fn add_leaf(&self, b: &mut TopologyBuilder, leaf: u32) {
        let own = loopbacks(1, leaf);
        let name = format!("leaf{leaf}");
        let node = add_router(b, name, Role::Leaf, SPINE_AS + leaf, own);
        for network in &NETWORKS {
            node.made.extend(self.made_for(network, leaf));
        }
        let tenants = NETWORKS.iter().map(|network| Tenant {
            vrf: network.tenant.into(),
            vni: network.vni,
            networks: subnets(leaf).into(),
        });
        let others = LEAVES.into_iter().filter(|other| *other != leaf);
        let evpn = Evpn {
            peers: others.map(loopback).collect(),
            tenants: tenants.collect(),
        };
        if let Some(bgp) = &mut node.bgp {
            bgp.evpn = Some(evpn);
        }
    }

    /// A leaf's devices for a tenant.
    fn made_for(&self, network: &Network, leaf: u32) -> [Device; 3] {
        let &Network { tenant, table, vni } = network;
        let local = loopback(leaf);
        let (vxlan, bridge) = (format!("vni-{tenant}"), format!("br-{tenant}"));
        [
            Device {
                mtu: Some(self.mtu - VXLAN_ROOM),
                ..Device::new(&*vxlan, DeviceKind::Vxlan { vni, local })
            },
            Device {
                members: vec![vxlan],
                ..Device::new(&*bridge, DeviceKind::Bridge)
            },
            Device {
                members: vec![bridge, format!("{tenant}{leaf}")],
                ..Device::new(tenant, DeviceKind::Vrf { table })
            },
        ]
    }

    fn add_host(&self, b: &mut TopologyBuilder, tenant: &str, leaf: u32) {
        let host = format!("{tenant}{leaf}");
        let gateways = subnets(leaf).map(|subnet| nth_address(subnet, 1));
        b.node(&*host, Role::Host).routes = gateways
            .map(|gateway| StaticRoute::new(everything(gateway), vec![gateway.addr()]))
            .into();
        let link = b.link(&host, &format!("leaf{leaf}"));
        link.mtu = Some(self.mtu - VXLAN_ROOM);
        link.ends[0].addresses = subnets(leaf).map(|s| nth_address(s, 2)).into();
        link.ends[1].addresses = gateways.into();
    }
}

/// The address that a leaf's tunnels and its EVPN are from.
fn loopback(leaf: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 255, 1, leaf as u8)
}

/// A tenant's subnets on a leaf.
fn subnets(leaf: u32) -> [IpNet; 2] {
    let four = Ipv4Addr::new(10, leaf as u8, 0, 0);
    [net4(four, 24), net6(documentation([leaf as u16, 0], 0), 64)]
}

/// The leaves must reach each other over all spines, which carries the tunnels, and have the subnets of
/// each other's tenants; the spines must reach the leaves.
fn expect(b: &mut TopologyBuilder) {
    let mut expect = |node: String, prefixes: [IpNet; 2], nexthops, vrf: Option<&str>| {
        let vrf = vrf.map(str::to_owned);
        b.expectations.extend(prefixes.map(|prefix| Expectation {
            node: node.clone(),
            prefix,
            nexthops,
            vrf: vrf.clone(),
        }));
    };
    for leaf in LEAVES {
        for spine in SPINES {
            expect(format!("spine{spine}"), loopbacks(1, leaf), 1, None);
        }
        for other in LEAVES.into_iter().filter(|other| *other != leaf) {
            let node = || format!("leaf{leaf}");
            expect(node(), loopbacks(1, other), SPINES.len(), None);
            for network in &NETWORKS {
                expect(node(), subnets(other), 1, Some(network.tenant));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tenants_on_two_leaves() {
        let t = L3vni::default().topology().unwrap();
        let devices: Vec<_> = t.devices("leaf2").collect();
        assert_eq!(devices, ["red2", "blue2", "spine1", "spine2"]);
        let leaf = t.node("leaf2").unwrap();
        let lines = leaf.made.iter().flat_map(|device| device.lines("MAC"));
        let lines: Vec<_> = lines.filter(|line| line.contains("blue")).collect();
        assert_eq!(
            lines,
            [
                "link add name vni-blue mtu 8950 type vxlan id 4002 local 10.255.1.2 dstport 4789 \
                 nolearning",
                "link add name br-blue address MAC type bridge",
                "link set br-blue addrgenmode none",
                "link set vni-blue master br-blue",
                "link set vni-blue addrgenmode none",
                "link set vni-blue type bridge_slave learning off",
                "link add name blue type vrf table 1002",
                "link set br-blue master blue",
                "link set blue2 master blue",
            ]
        );
        let (access, _) = t.link_of("red1", "leaf1").unwrap();
        assert_eq!(t.links()[access.0].mtu, Some(8950));
        // Both tenants' hosts have the same addresses.
        let addresses = |host: &str, leaf: &str| {
            let (link, end) = t.link_of(host, leaf).unwrap();
            t.links()[link.0].ends[end].addresses.clone()
        };
        assert_eq!(addresses("red1", "leaf1"), addresses("blue1", "leaf1"));
        let expected = |vrf: &str| {
            let of = |e: &&Expectation| e.node == "leaf1" && e.vrf.as_deref() == Some(vrf);
            let found = t.expectations().iter().filter(of);
            found.map(|e| e.prefix.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(expected("red"), ["10.2.0.0/24", "2001:db8:2::/64"]);
        assert_eq!(expected("blue"), expected("red"));
    }

    #[test]
    fn a_tunnel_has_to_fit() {
        let small = L3vni {
            mtu: 1329,
            ..L3vni::default()
        };
        assert!(small.topology().is_err());
    }
}

//! Clos fabrics: leaves, spines, hosts.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    Bgp, BondHash, Device, DeviceKind, Expectation, HashPolicy, Node, Rate, Role, StaticRoute,
    Topology, TopologyBuilder, TopologyError, topology::in_range,
};

/// The AS number that all spines share (RFC 7938, section 5.2.1): a path never crosses two spines.
pub(crate) const SPINE_AS: u32 = 65000;
/// Hosts that speak BGP count from here, in the private range of RFC 6996.
const HOST_AS: u32 = 4_200_000_000;

/// A two-stage Clos fabric: every leaf has a link to every spine.
///
/// ```text
///     spine1   spine2            AS 65000
///       |  \   /  |
///       |   \ /   |
///       |   / \   |
///     leaf1    leaf2             AS 65001, 65002, ...
///       |        |
///     host1    host2             10.LEAF.N.2/24, 2001:db8:LEAF:N::2/64
/// ```
///
/// Hosts are numbered through the fabric; the Nth host of a leaf has the subnets 10.LEAF.N.0/24 and
/// 2001:db8:LEAF:N::/64 (decimal digits in both), itself as `.2`, its leaf as `.1`. Routers have
/// 10.255.TIER.N/32 and 2001:db8:0:TIER::N/128 on loopback. Links between routers are unnumbered.
///
/// With `hosts_speak_bgp` the hosts do the routing themselves and stand where the leaves stood: each
/// has a link to every spine (two, by default), an AS of its own and its addresses, as above, on
/// loopback. There are no leaf routers then; `leaves` times `hosts_per_leaf` is the number of hosts.
///
/// With `bond` there are two cables between a leaf and a spine, `spine1-1` and `spine1-2` at the leaf, and
/// the bond `spine1` of them; with `vlan` BGP is spoken on the VLAN `spine1.ID` upon the link, or upon the
/// bond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clos {
    /// Leaves, 1 to 99.
    pub leaves: u32,
    /// Spines, 1 to 64 (the most nexthops that the routers are told to use).
    pub spines: u32,
    /// Hosts behind each leaf, 0 to 99.
    pub hosts_per_leaf: u32,
    /// The rate of the fabric's links; `None` does not shape.
    pub rate: Option<Rate>,
    /// The rate of the links between hosts and leaves. Unshaped by default, so that the fabric alone
    /// is what limits.
    pub host_rate: Option<Rate>,
    /// The MTU of every link in bytes, 1280 to 65535.
    pub mtu: u32,
    /// "Routing on the host": see above.
    pub hosts_speak_bgp: bool,
    /// The number of the VLANs that the routers' links are, 1 to 4094; without it, frames have no tags.
    pub vlan: Option<u16>,
    /// Whether the routers' links are bonds of two cables each.
    pub bond: bool,
    /// The multipath hash policy at start.
    pub policy: HashPolicy,
    /// Whether FRR installs nexthop groups, or routes that list their nexthops.
    pub nexthop_groups: bool,
}

impl Default for Clos {
    fn default() -> Self {
        Self {
            leaves: 2,
            spines: 2,
            hosts_per_leaf: 1,
            rate: None,
            host_rate: None,
            mtu: Topology::DEFAULT_MTU,
            hosts_speak_bgp: false,
            vlan: None,
            bond: false,
            policy: HashPolicy::default(),
            nexthop_groups: true,
        }
    }
}

/// A host's place: which leaf, and which of the leaf's hosts; both from 1.
#[derive(Clone, Copy)]
struct Place {
    leaf: u32,
    nth: u32,
}

impl Clos {
    /// The fabric as a topology.
    ///
    /// # Errors
    /// When a number is out of its range.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        in_range("the number of leaves", self.leaves.into(), 1, 99)?;
        in_range("the number of spines", self.spines.into(), 1, 64)?;
        in_range(
            "the number of hosts per leaf",
            self.hosts_per_leaf.into(),
            0,
            99,
        )?;
        let mut b = TopologyBuilder {
            mtu: self.mtu,
            policy: self.policy,
            nexthop_groups: self.nexthop_groups,
            ..TopologyBuilder::default()
        };
        if !self.hosts_speak_bgp {
            (1..=self.leaves).for_each(|leaf| self.add_leaf(&mut b, leaf));
        }
        for n in 1..=self.spines {
            add_router(
                &mut b,
                format!("spine{n}"),
                Role::Spine,
                SPINE_AS,
                loopbacks(2, n),
            );
        }
        for (place, n) in self.places().zip(1..) {
            self.add_host(&mut b, place, n);
        }
        self.join_fabric(&mut b);
        self.expect(&mut b);
        b.build()
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let per_leaf = self.hosts_per_leaf;
        (1..=self.leaves).flat_map(move |leaf| (1..=per_leaf).map(move |nth| Place { leaf, nth }))
    }

    fn add_leaf(&self, b: &mut TopologyBuilder, leaf: u32) {
        let networks = (1..=self.hosts_per_leaf).flat_map(|nth| Place { leaf, nth }.subnets());
        let name = format!("leaf{leaf}");
        let node = add_router(b, name, Role::Leaf, SPINE_AS + leaf, loopbacks(1, leaf));
        if let Some(bgp) = &mut node.bgp {
            bgp.networks.extend(networks);
        }
    }

    fn add_host(&self, b: &mut TopologyBuilder, place: Place, n: u32) {
        let host = format!("host{n}");
        if self.hosts_speak_bgp {
            let addresses = place.subnets().map(|s| full_length(nth_address(s, 2)));
            add_router(b, host, Role::Host, HOST_AS + n, addresses);
            return;
        }
        let leaf = format!("leaf{}", place.leaf);
        b.node(&*host, Role::Host).routes = place
            .subnets()
            .map(|s| StaticRoute::new(everything(s), vec![nth_address(s, 1).addr()]))
            .into();
        let link = b.link(&host, &leaf);
        link.rate = self.host_rate;
        link.ends[0].addresses = place.subnets().map(|s| nth_address(s, 2)).into();
        link.ends[1].addresses = place.subnets().map(|s| nth_address(s, 1)).into();
    }

    /// Links every node of the lower stage with every spine.
    fn join_fabric(&self, b: &mut TopologyBuilder) {
        for low in self.lower_stage() {
            for n in 1..=self.spines {
                self.join(b, &low, &format!("spine{n}"));
            }
        }
    }

    /// Links two routers, by as many cables and by what is made of them.
    fn join(&self, b: &mut TopologyBuilder, low: &str, spine: &str) {
        let cables = if self.bond { 2 } else { 1 };
        for n in 1..=cables {
            let link = b.link(low, spine);
            link.rate = self.rate;
            link.bgp = !self.bond && self.vlan.is_none();
            if self.bond {
                for (end, far) in link.ends.iter_mut().zip([spine, low]) {
                    end.dev = format!("{far}-{n}");
                }
            }
        }
        for (near, far) in [(low, spine), (spine, low)] {
            let made = self.made_towards(far);
            let node = b.nodes.iter_mut().find(|node| node.name == near);
            node.into_iter().for_each(|n| n.made.extend(made.clone()));
        }
    }

    /// The devices that a router makes of its cables to another, the uppermost last, which BGP is on.
    ///
    /// A bond that has VLANs upon it looks behind their tags for ports: what XDP sends has them in its
    /// bytes, and all of it would leave by one member.
    fn made_towards(&self, far: &str) -> Vec<Device> {
        let hash = match self.vlan {
            None => BondHash::Layer34,
            Some(_) => BondHash::Encap34,
        };
        let bond = self.bond.then(|| Device {
            members: vec![format!("{far}-1"), format!("{far}-2")],
            mtu: Some(self.mtu),
            ..Device::new(far, DeviceKind::Bond { hash })
        });
        let vlan = self.vlan.map(|id| {
            let on = far.to_owned();
            Device::new(format!("{far}.{id}"), DeviceKind::Vlan { on, id })
        });
        let mut made: Vec<Device> = bond.into_iter().chain(vlan).collect();
        if let Some(uppermost) = made.last_mut() {
            uppermost.bgp = true;
        }
        made
    }

    /// The nodes under the spines: leaves, or hosts that speak BGP.
    fn lower_stage(&self) -> Vec<String> {
        if self.hosts_speak_bgp {
            (1..)
                .take(self.places().count())
                .map(|n| format!("host{n}"))
                .collect()
        } else {
            (1..=self.leaves).map(|n| format!("leaf{n}")).collect()
        }
    }

    /// Every node of the lower stage must reach what the others announce over all spines; every spine
    /// over one link.
    fn expect(&self, b: &mut TopologyBuilder) {
        let announced: Vec<(String, Vec<IpNet>)> = b
            .nodes
            .iter()
            .filter(|n| n.role != Role::Spine)
            .filter_map(|n| Some((n.name.clone(), n.bgp.as_ref()?.networks.clone())))
            .collect();
        for node in b.nodes.iter().filter(|n| n.bgp.is_some()) {
            let nexthops = if node.role == Role::Spine {
                1
            } else {
                self.spines as usize
            };
            let others = announced.iter().filter(|(name, _)| *name != node.name);
            b.expectations
                .extend(
                    others
                        .flat_map(|(_, prefixes)| prefixes)
                        .map(|&prefix| Expectation {
                            node: node.name.clone(),
                            prefix,
                            nexthops,
                            vrf: None,
                        }),
                );
        }
    }
}

impl Place {
    /// The IPv4 and the IPv6 subnet.
    fn subnets(self) -> [IpNet; 2] {
        let v4 = Ipv4Addr::new(10, self.leaf as u8, self.nth as u8, 0);
        let v6 = documentation([digits(self.leaf), digits(self.nth)], 0);
        [net4(v4, 24), net6(v6, 64)]
    }
}

/// A node that speaks BGP, with its addresses on loopback, announcing them.
pub(crate) fn add_router(
    b: &mut TopologyBuilder,
    name: String,
    role: Role,
    asn: u32,
    own: [IpNet; 2],
) -> &mut Node {
    let IpNet::V4(v4) = own[0] else {
        unreachable!("the IPv4 address comes first")
    };
    let node = b.node(name, role);
    node.addresses = own.into();
    node.bgp = Some(Bgp {
        asn,
        router_id: v4.addr(),
        networks: own.into(),
        evpn: None,
    });
    node
}

/// The addresses of a router itself.
pub(crate) fn loopbacks(tier: u32, n: u32) -> [IpNet; 2] {
    let v4 = Ipv4Addr::new(10, 255, tier as u8, n as u8);
    [
        net4(v4, 32),
        net6(documentation([0, tier as u16], digits(n)), 128),
    ]
}

/// An address of the prefix for documentation (RFC 3849).
pub(crate) fn documentation([a, b]: [u16; 2], host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, 0, host)
}

/// A number of at most 99 whose hexadecimal digits are the decimal digits of `n`, so that both
/// families' addresses read alike.
fn digits(n: u32) -> u16 {
    (n / 10 * 16 + n % 10) as u16
}

pub(crate) fn net4(addr: Ipv4Addr, len: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(addr, len))
}

pub(crate) fn net6(addr: Ipv6Addr, len: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(addr, len))
}

/// The nth address of a subnet, with its length.
pub(crate) fn nth_address(subnet: IpNet, n: u8) -> IpNet {
    match subnet {
        IpNet::V4(s) => net4(
            Ipv4Addr::from_bits(s.addr().to_bits() | u32::from(n)),
            s.prefix_len(),
        ),
        IpNet::V6(s) => net6(
            Ipv6Addr::from_bits(s.addr().to_bits() | u128::from(n)),
            s.prefix_len(),
        ),
    }
}

fn full_length(net: IpNet) -> IpNet {
    IpNet::from(net.addr())
}

pub(crate) fn everything(net: IpNet) -> IpNet {
    match net {
        IpNet::V4(_) => net4(Ipv4Addr::UNSPECIFIED, 0),
        IpNet::V6(_) => net6(Ipv6Addr::UNSPECIFIED, 0),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn text(nets: &[IpNet]) -> Vec<String> {
        nets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn two_by_two() {
        let t = Clos::default().topology().unwrap();
        let names: Vec<_> = t.nodes().iter().map(|n| &*n.name).collect();
        assert_eq!(
            names,
            ["leaf1", "leaf2", "spine1", "spine2", "host1", "host2"]
        );
        assert_eq!(t.links().len(), 6);
        let host2 = t.node("host2").unwrap();
        assert_eq!(
            host2.routes[1].via,
            ["2001:db8:2:1::1".parse::<std::net::IpAddr>().unwrap()]
        );
        let (link, end) = t.link_of("host2", "leaf2").unwrap();
        assert_eq!(
            text(&t.links()[link.0].ends[end].addresses),
            ["10.2.1.2/24", "2001:db8:2:1::2/64"]
        );
        let leaf1 = t.node("leaf1").unwrap().bgp.as_ref().unwrap();
        assert_eq!(leaf1.asn, 65001);
        assert_eq!(
            text(&leaf1.networks),
            [
                "10.255.1.1/32",
                "2001:db8:0:1::1/128",
                "10.1.1.0/24",
                "2001:db8:1:1::/64"
            ]
        );
        let expected = |node: &str, prefix: &str| {
            let found = t
                .expectations()
                .iter()
                .find(|e| e.node == node && e.prefix == prefix.parse().unwrap());
            found.map(|e| e.nexthops)
        };
        assert_eq!(expected("leaf1", "10.2.1.0/24"), Some(2));
        assert_eq!(expected("leaf2", "2001:db8:1:1::/64"), Some(2));
        assert_eq!(expected("spine1", "10.2.1.0/24"), Some(1));
        assert_eq!(expected("leaf1", "10.1.1.0/24"), None);
    }

    #[test]
    fn only_the_fabric_is_shaped() {
        let rate = "1gbit".parse().ok();
        let t = Clos {
            rate,
            ..Clos::default()
        }
        .topology()
        .unwrap();
        for link in t.links() {
            assert_eq!(link.rate.is_some(), link.bgp);
        }
    }

    #[test]
    fn hosts_that_route() {
        let t = Clos {
            hosts_speak_bgp: true,
            ..Clos::default()
        }
        .topology()
        .unwrap();
        let names: Vec<_> = t.nodes().iter().map(|n| &*n.name).collect();
        assert_eq!(names, ["spine1", "spine2", "host1", "host2"]);
        assert_eq!(t.links().len(), 4);
        assert!(t.links().iter().all(|l| l.bgp));
        let host2 = t.node("host2").unwrap();
        assert_eq!(
            text(&host2.addresses),
            ["10.2.1.2/32", "2001:db8:2:1::2/128"]
        );
        assert_eq!(host2.bgp.as_ref().unwrap().asn, 4_200_000_002);
        assert!(t.expectations().iter().any(|e| e.node == "host1"
            && e.prefix == "10.2.1.2/32".parse().unwrap()
            && e.nexthops == 2));
    }

    #[test]
    fn vlans_upon_bonds() {
        let t = Clos {
            vlan: Some(20),
            bond: true,
            ..Clos::default()
        }
        .topology()
        .unwrap();
        let devices: Vec<_> = t.devices("leaf1").collect();
        assert_eq!(
            devices,
            ["host1", "spine1-1", "spine1-2", "spine2-1", "spine2-2"]
        );
        let made = &t.node("spine2").unwrap().made;
        let shown: Vec<_> = made.iter().map(|d| (&*d.name, d.upon(), d.bgp)).collect();
        assert_eq!(
            shown,
            [
                ("leaf1", vec!["leaf1-1", "leaf1-2"], false),
                ("leaf1.20", vec!["leaf1"], true),
                ("leaf2", vec!["leaf2-1", "leaf2-2"], false),
                ("leaf2.20", vec!["leaf2"], true),
            ]
        );
        let hash = BondHash::Encap34;
        assert_eq!(made[0].kind, DeviceKind::Bond { hash });
        assert!(t.links().iter().all(|link| !link.bgp));
        assert_eq!(t.links_beneath("leaf2", "spine1.20").len(), 2);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for clos in [
            Clos {
                leaves: 0,
                ..Clos::default()
            },
            Clos {
                spines: 65,
                ..Clos::default()
            },
            Clos {
                hosts_per_leaf: 100,
                ..Clos::default()
            },
            Clos {
                mtu: 500,
                ..Clos::default()
            },
            Clos {
                vlan: Some(4095),
                ..Clos::default()
            },
        ] {
            assert!(matches!(
                clos.topology(),
                Err(TopologyError::OutOfRange { .. })
            ));
        }
    }

    proptest! {
        #[test]
        fn addresses_are_unique_and_counts_right(
            leaves in 1u32..=16, spines in 1u32..=12, hosts in 0u32..=4, bgp: bool, bond: bool,
            vlan in proptest::option::of(1u16..=4094)
        ) {
            let clos = Clos {
                leaves, spines, hosts_per_leaf: hosts, hosts_speak_bgp: bgp, vlan, bond, ..Clos::default()
            };
            let t = clos.topology().unwrap();
            let cables = if bond { 2 } else { 1 };
            let (low, access) =
                if bgp { (leaves * hosts, 0) } else { (leaves, leaves * hosts) };
            prop_assert_eq!(t.links().len() as u32, low * spines * cables + access);
            let own = t.nodes().iter().flat_map(|n| &n.addresses);
            let all: Vec<_> =
                own.chain(t.links().iter().flat_map(|l| &l.ends).flat_map(|e| &e.addresses)).collect();
            prop_assert_eq!(all.iter().map(|a| a.addr()).collect::<HashSet<_>>().len(), all.len());
        }
    }
}

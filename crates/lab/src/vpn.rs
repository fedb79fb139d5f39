//! Two sites over an SRv6 core.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    HashPolicy, LinkId, Neighbour, Rate, Role, SegmentAction, SegmentRoute, StaticRoute, Topology,
    TopologyBuilder, TopologyError, topology::in_range,
};

/// Two sites, joined by an SRv6 VPN over a core with two equal paths.
///
/// ```text
///               p1
///             /    \
/// ce1 --- pe1        pe2 --- ce2
///             \    /
///               p2
/// ```
///
/// Locators are from 5f00::/16 (RFC 9602): `5f00:0:1::/48` and `5f00:0:2::/48` of the PEs, and
/// `5f00:0:c::/48` of both P routers, so that a packet may visit either. SIDs, all with counters:
///
/// | SID | behaviour |
/// |---|---|
/// | `5f00:0:c:e::` | End, on `p1` and `p2` |
/// | `5f00:0:N:d4::` | End.DX4 to `ceN` |
/// | `5f00:0:N:d6::` | End.DT6, main table |
/// | `5f00:0:N:d2::` | End.DX2 to `ceN` |
///
/// # Layer 3
///
/// `ceN` is 10.N.0.2 and 2001:db8:N::2, its PE `.1`. IPv4 is encapsulated straight to the other
/// PE's End.DX4, IPv6 by way of the P routers' End to its End.DT6.
///
/// # Layer 2
///
/// `ce1` is 10.0.0.1 and 2001:db8::1, `ce2` the same with `2`, in one subnet. The kernel encapsulates
/// frames only when it routes them, and takes in frames to its own MAC address only. So a PE's port has
/// the MAC address of the far site's router, and a route to its addresses with `l2encap`; the frame
/// goes to End.DX2 as it came. What is not routed stays behind: ARP and neighbour discovery, which
/// the sites do without (permanent neighbours), and other broadcasts and multicasts. The port receives
/// without GRO: the kernel does not split again what it has merged and put into an Ethernet payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Srv6Vpn {
    /// Whether the sites are one Ethernet, not two subnets.
    pub layer2: bool,
    /// The rate of each of the core's links; `None` does not shape.
    pub rate: Option<Rate>,
    /// The MTU of the core's links in bytes, 1480 to 65535; those to the sites carry 200 less.
    pub mtu: u32,
    /// The multipath hash policy at start.
    pub policy: HashPolicy,
}

impl Default for Srv6Vpn {
    fn default() -> Self {
        Self {
            layer2: false,
            rate: None,
            mtu: Topology::DEFAULT_MTU,
            policy: HashPolicy::default(),
        }
    }
}

/// What the headers around a site's packet may take: outer IPv6, an SRH and a MAC header, and some.
const ROOM: u32 = 200;
/// The main routing table.
const MAIN: u32 = 254;
/// `ce1`'s and `ce2`'s links are the first.
const ACCESS: [LinkId; 2] = [LinkId(0), LinkId(1)];

impl Srv6Vpn {
    /// The VPN as a topology.
    ///
    /// # Errors
    /// When the MTU is out of its range.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        in_range("the MTU", self.mtu.into(), 1280 + u64::from(ROOM), 65535)?;
        let mut b = TopologyBuilder {
            mtu: self.mtu,
            policy: self.policy,
            ..TopologyBuilder::default()
        };
        for site in [1, 2] {
            self.add_site(&mut b, site);
        }
        for site in [1, 2] {
            self.add_provider_edge(&mut b, site);
        }
        for p in [1, 2] {
            add_core(&mut b, p);
        }
        for site in [1, 2] {
            self.add_access(&mut b, site);
        }
        for site in [1, 2] {
            for p in [1, 2] {
                let link = b.link(&format!("pe{site}"), &format!("p{p}"));
                link.rate = self.rate;
                link.ends[0].addresses = vec![on_core(site, p, 1)];
                link.ends[1].addresses = vec![on_core(site, p, 2)];
            }
        }
        b.build()
    }

    fn add_site(&self, b: &mut TopologyBuilder, site: u16) {
        let far = other(site);
        let node = b.node(format!("ce{site}"), Role::Host);
        if self.layer2 {
            let far_end = (ACCESS[usize::from(far) - 1], 0);
            node.neighbours = site_addresses(true, far)
                .into_iter()
                .map(|address| Neighbour {
                    address: address.addr(),
                    dev: format!("pe{site}"),
                    end: far_end,
                })
                .collect();
        } else {
            let [four, six] = provider_addresses(site);
            node.routes = vec![route(all4(), &[four.addr()]), route(all6(), &[six.addr()])];
        }
    }

    fn add_provider_edge(&self, b: &mut TopologyBuilder, site: u16) {
        let far = other(site);
        let (port, core) = (format!("ce{site}"), "p1".to_owned());
        let node = b.node(format!("pe{site}"), Role::Router);
        let loopback = sid(site, 0, 1);
        node.addresses = vec![IpAddr::V6(loopback).into()];
        let over_core = [1, 2].map(|p| on_core(site, p, 2).addr());
        node.routes = vec![
            route(locator(far), &over_core),
            route(locator(CORE), &over_core),
        ];
        node.segments.source = Some(loopback);
        let mut add = |prefix: IpNet, dev: &str, action| {
            let dev = dev.to_owned();
            node.segments.routes.push(SegmentRoute {
                prefix,
                dev,
                action,
            });
        };
        let own = |function| IpNet::from(IpAddr::V6(sid(site, function, 0)));
        let theirs = |function| sid(far, function, 0);
        let by_core = |function| vec![sid(CORE, END, 0), theirs(function)];
        if self.layer2 {
            add(own(DX2), &port, SegmentAction::EndDx2(port.clone()));
            for address in site_addresses(true, far) {
                let host = IpNet::from(address.addr());
                add(host, &core, SegmentAction::L2Encap(by_core(DX2)));
            }
        } else {
            let [customer, _] = site_addresses(false, site);
            // Not an address of anybody, but a name for the way to the customer's router.
            let way = Ipv4Addr::new(192, 0, 2, site as u8);
            add(own(DX4), &core, SegmentAction::EndDx4(way));
            add(own(DT6), &core, SegmentAction::EndDt6(MAIN));
            let [far4, far6] = site_addresses(false, far);
            let to4 = SegmentAction::Encap(vec![theirs(DX4)]);
            add(far4.trunc(), &core, to4);
            add(far6.trunc(), &core, SegmentAction::Encap(by_core(DT6)));
            node.routes
                .push(route(IpAddr::V4(way).into(), &[customer.addr()]));
        }
    }

    fn add_access(&self, b: &mut TopologyBuilder, site: u16) {
        let link = b.link(&format!("ce{site}"), &format!("pe{site}"));
        link.mtu = Some(self.mtu - ROOM);
        link.ends[0].addresses = site_addresses(self.layer2, site).to_vec();
        if self.layer2 {
            let far = usize::from(other(site)) - 1;
            link.ends[1].poses_as = Some((ACCESS[far], 0));
            link.ends[1].gro_off = true;
        } else {
            link.ends[1].addresses = provider_addresses(site).to_vec();
        }
    }
}

fn add_core(b: &mut TopologyBuilder, p: u16) {
    let node = b.node(format!("p{p}"), Role::Router);
    node.routes = [1, 2]
        .map(|site| route(locator(site), &[on_core(site, p, 1).addr()]))
        .to_vec();
    node.segments.routes = vec![SegmentRoute {
        prefix: IpAddr::V6(sid(CORE, END, 0)).into(),
        dev: "pe1".into(),
        action: SegmentAction::End,
    }];
}

/// The P routers' place in the locators.
const CORE: u16 = 0xc;
const END: u16 = 0xe;
const DX2: u16 = 0xd2;
const DX4: u16 = 0xd4;
const DT6: u16 = 0xd6;

fn sid(node: u16, function: u16, rest: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x5f00, 0, node, function, 0, 0, 0, rest)
}

fn locator(node: u16) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(sid(node, 0, 0), 48))
}

fn other(site: u16) -> u16 {
    3 - site
}

fn route(prefix: IpNet, via: &[IpAddr]) -> StaticRoute {
    let via = via.to_vec();
    StaticRoute::new(prefix, via)
}

/// Addresses of a site's router.
fn site_addresses(layer2: bool, site: u16) -> [IpNet; 2] {
    let (net, host) = if layer2 { (0, site) } else { (site, 2) };
    addresses(net, host)
}

/// Addresses of the PE on a site's link.
fn provider_addresses(site: u16) -> [IpNet; 2] {
    addresses(site, 1)
}

fn addresses(net: u16, host: u16) -> [IpNet; 2] {
    let four = Ipv4Addr::new(10, net as u8, 0, host as u8);
    let six = Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host);
    [
        IpNet::V4(Ipv4Net::new_assert(four, 24)),
        IpNet::V6(Ipv6Net::new_assert(six, 64)),
    ]
}

/// The address of an end of the link between a PE and a P router.
fn on_core(site: u16, p: u16, end: u16) -> IpNet {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0xc0, site << 4 | p, 0, 0, 0, end);
    IpNet::V6(Ipv6Net::new_assert(address, 64))
}

fn all4() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0))
}

fn all6() -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_3() {
        let t = Srv6Vpn::default().topology().unwrap();
        let pe1 = t.node("pe1").unwrap();
        let shown: Vec<String> = pe1
            .segments
            .routes
            .iter()
            .map(|r| format!("{} {}", r.prefix, r.action))
            .collect();
        assert_eq!(
            shown,
            [
                "5f00:0:1:d4::/128 encap seg6local action End.DX4 nh4 192.0.2.1 count",
                "5f00:0:1:d6::/128 encap seg6local action End.DT6 table 254 count",
                "10.2.0.0/24 encap seg6 mode encap segs 5f00:0:2:d4::",
                "2001:db8:2::/64 encap seg6 mode encap segs 5f00:0:c:e::,5f00:0:2:d6::",
            ]
        );
        let way = pe1.routes.last().unwrap();
        assert_eq!(way.prefix, "192.0.2.1/32".parse().unwrap());
        assert_eq!(way.via, ["10.1.0.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(t.links()[0].mtu, Some(8800));
    }

    #[test]
    fn layer_2() {
        let vpn = Srv6Vpn {
            layer2: true,
            ..Srv6Vpn::default()
        };
        let t = vpn.topology().unwrap();
        let (link, end) = t.link_of("pe1", "ce1").unwrap();
        assert_eq!(
            t.links()[link.0].ends[end].poses_as,
            t.link_of("ce2", "pe2")
        );
        assert_eq!(t.node("ce1").unwrap().neighbours.len(), 2);
        let small = Srv6Vpn { mtu: 1400, ..vpn };
        assert!(small.topology().is_err());
    }
}

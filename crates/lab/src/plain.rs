//! Small topologies without routing daemons, for tests and benchmarks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    HashPolicy, Rate, Role, StaticRoute, Topology, TopologyBuilder, TopologyError,
    topology::in_range,
};

/// A source, a router and a sink: `source -- router == sink`, with one or several links to the sink.
///
/// ```text
///     source --- router ===== sink     router's devices: source, sink, sink-2, ...
///     10.1.1.2   10.1.1.1 | 10.2.I.1   10.2.I.2 on link I; 10.9.0.1 on loopback
/// ```
///
/// The router reaches 10.9.0.0/16 and 2001:db8:9::/48 over all links to the sink; the sink owns
/// 10.9.0.1 and 2001:db8:9::1. IPv6 follows IPv4: 2001:db8:1:1::/64 and 2001:db8:2:I::/64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Parallel links from router to sink, 1 to 64.
    pub links: u32,
    /// The rate of each of them; the source's link is unshaped.
    pub rate: Option<Rate>,
    /// The MTU of every link in bytes, 1280 to 65535.
    pub mtu: u32,
    /// The multipath hash policy at start.
    pub policy: HashPolicy,
}

impl Default for Chain {
    fn default() -> Self {
        let policy = HashPolicy::default();
        Self {
            links: 1,
            rate: None,
            mtu: Topology::DEFAULT_MTU,
            policy,
        }
    }
}

/// Two hosts joined by parallel links: `client == server`.
///
/// Link I has 10.2.I.0/24 and 2001:db8:2:I::/64, the client as `.1`, the server as `.2`. The client
/// owns 10.8.0.1 and 2001:db8:8::1, the server 10.9.0.1 and 2001:db8:9::1, on loopback; each reaches
/// the other's over all links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Parallel links, 1 to 64.
    pub links: u32,
    /// The rate of each of them.
    pub rate: Option<Rate>,
    /// The MTU of every link in bytes, 1280 to 65535.
    pub mtu: u32,
    /// The multipath hash policy at start.
    pub policy: HashPolicy,
}

impl Default for Pair {
    fn default() -> Self {
        let policy = HashPolicy::default();
        Self {
            links: 2,
            rate: None,
            mtu: Topology::DEFAULT_MTU,
            policy,
        }
    }
}

impl Chain {
    /// The chain as a topology.
    ///
    /// # Errors
    /// When a number is out of its range.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        in_range("the number of links", self.links.into(), 1, 64)?;
        let mut b = TopologyBuilder {
            mtu: self.mtu,
            policy: self.policy,
            ..Default::default()
        };
        b.node("source", Role::Host).routes = default_routes((1, 1, 1));
        let router = b.node("router", Role::Router);
        router.routes = routes(service(9), self.links, 2);
        let sink = b.node("sink", Role::Host);
        sink.addresses = own(9);
        sink.routes = default_routes((2, 1, 1));
        let link = b.link("source", "router");
        link.ends[0].addresses = on_link(1, 1, 2);
        link.ends[1].addresses = on_link(1, 1, 1);
        parallel(&mut b, ["router", "sink"], self.links, self.rate);
        b.build()
    }
}

impl Pair {
    /// The pair as a topology.
    ///
    /// # Errors
    /// When a number is out of its range.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        in_range("the number of links", self.links.into(), 1, 64)?;
        let mut b = TopologyBuilder {
            mtu: self.mtu,
            policy: self.policy,
            ..Default::default()
        };
        for (name, mine, theirs, far) in [("client", 8, 9, 2), ("server", 9, 8, 1)] {
            let node = b.node(name, Role::Host);
            node.addresses = own(mine);
            node.routes = routes(service(theirs), self.links, far);
        }
        parallel(&mut b, ["client", "server"], self.links, self.rate);
        b.build()
    }
}

pub(crate) fn parallel(
    b: &mut TopologyBuilder,
    [near, far]: [&str; 2],
    links: u32,
    rate: Option<Rate>,
) {
    for n in 1..=links {
        let link = b.link(near, far);
        link.rate = rate;
        link.ends[0].addresses = on_link(2, n, 1);
        link.ends[1].addresses = on_link(2, n, 2);
    }
}

/// The addresses of one end of a link.
pub(crate) fn on_link(net: u32, link: u32, host: u32) -> Vec<IpNet> {
    vec![
        IpNet::V4(Ipv4Net::new_assert(v4(net, link, host), 24)),
        IpNet::V6(Ipv6Net::new_assert(v6(net, link, host), 64)),
    ]
}

/// The addresses that a node owns apart from its links.
pub(crate) fn own(net: u32) -> Vec<IpNet> {
    vec![
        IpAddr::V4(v4(net, 0, 1)).into(),
        IpAddr::V6(v6(net, 0, 1)).into(),
    ]
}

/// The prefixes in which these lie.
pub(crate) fn service(net: u32) -> [IpNet; 2] {
    [
        IpNet::V4(Ipv4Net::new_assert(v4(net, 0, 0), 16)),
        IpNet::V6(Ipv6Net::new_assert(v6(net, 0, 0), 48)),
    ]
}

/// Routes over all parallel links, to their far ends.
pub(crate) fn routes([prefix4, prefix6]: [IpNet; 2], links: u32, far: u32) -> Vec<StaticRoute> {
    let via4 = (1..=links).map(|n| IpAddr::V4(v4(2, n, far))).collect();
    let via6 = (1..=links).map(|n| IpAddr::V6(v6(2, n, far))).collect();
    vec![
        StaticRoute::new(prefix4, via4),
        StaticRoute::new(prefix6, via6),
    ]
}

fn default_routes((net, link, host): (u32, u32, u32)) -> Vec<StaticRoute> {
    let all4 = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));
    let all6 = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));
    vec![
        StaticRoute::new(all4, vec![IpAddr::V4(v4(net, link, host))]),
        StaticRoute::new(all6, vec![IpAddr::V6(v6(net, link, host))]),
    ]
}

fn v4(net: u32, link: u32, host: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, net as u8, link as u8, host as u8)
}

/// As [`v4`], link numbers in decimal digits (they are below 100).
fn v6(net: u32, link: u32, host: u32) -> Ipv6Addr {
    let link = link / 10 * 16 + link % 10;
    Ipv6Addr::new(0x2001, 0xdb8, net as u16, link as u16, 0, 0, 0, host as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_two_links() {
        let t = Chain {
            links: 2,
            ..Chain::default()
        }
        .topology()
        .unwrap();
        assert_eq!(
            t.devices("router").collect::<Vec<_>>(),
            ["source", "sink", "sink-2"]
        );
        let router = t.node("router").unwrap();
        assert_eq!(router.routes[0].prefix, "10.9.0.0/16".parse().unwrap());
        assert_eq!(router.routes[0].via.len(), 2);
        assert_eq!(router.routes[1].prefix, "2001:db8:9::/48".parse().unwrap());
        assert_eq!(
            router.routes[1].via[1],
            "2001:db8:2:2::2".parse::<IpAddr>().unwrap()
        );
    }

    #[test]
    fn a_pair_is_symmetric() {
        let t = Pair {
            links: 4,
            ..Pair::default()
        }
        .topology()
        .unwrap();
        let route = |node: &str| t.node(node).unwrap().routes[0].clone();
        assert_eq!(route("client").prefix, "10.9.0.0/16".parse().unwrap());
        assert_eq!(
            route("server").via[3],
            "10.2.4.1".parse::<IpAddr>().unwrap()
        );
        assert!(
            Pair {
                links: 0,
                ..Pair::default()
            }
            .topology()
            .is_err()
        );
    }
}

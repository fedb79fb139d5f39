//! A client and a server with several links between them, for what uses many paths at once.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{
    Rate, Role, Topology, TopologyBuilder, TopologyError,
    plain::{on_link, own, routes, service},
    topology::in_range,
};

/// Two hosts joined by parallel links, for transports over several paths: `client == server`.
///
/// As [`Pair`](crate::Pair), with devices `link1`, `link2`, ... at both ends, and with what such
/// transports meet between hosts: packets of each carry the address of its loopback, so that the answer
/// comes by any link; the hosts hash by different seeds, so that it comes by another link than the
/// question.
///
/// ```text
///     client ===== server              link I: 10.2.I.1 and 10.2.I.2, 2001:db8:2:I::1 and ::2
///     10.8.0.1     10.9.0.1            2001:db8:8::1 and 2001:db8:9::1 on the loopbacks
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    /// Parallel links, 1 to 64.
    pub links: u32,
    /// The rate of each of them.
    pub rate: Option<Rate>,
    /// The MTU of every link in bytes, 1280 to 65535.
    pub mtu: u32,
    /// The congestion control of TCP between them; `None` is that of the machine.
    pub congestion: Option<String>,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            links: 4,
            rate: None,
            mtu: Topology::DEFAULT_MTU,
            congestion: Some("cubic".into()),
        }
    }
}

impl Links {
    /// The links as a topology.
    ///
    /// # Errors
    /// When a number is out of its range, or the name of the congestion control is none.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        in_range("the number of links", self.links.into(), 1, 64)?;
        let mut b = TopologyBuilder {
            mtu: self.mtu,
            ..Default::default()
        };
        for (name, mine, theirs, far) in [("client", 8, 9, 2), ("server", 9, 8, 1)] {
            let node = b.node(name, Role::Host);
            node.addresses = own(mine);
            let sources: Vec<IpAddr> = node.addresses.iter().map(IpNet::addr).collect();
            let routes = routes(service(theirs), self.links, far);
            for (mut route, source) in routes.into_iter().zip(sources) {
                route.source = Some(source);
                route.congestion.clone_from(&self.congestion);
                node.routes.push(route);
            }
        }
        for n in 1..=self.links {
            let link = b.link("client", "server");
            link.rate = self.rate;
            for (end, host) in link.ends.iter_mut().zip([1, 2]) {
                end.dev = format!("link{n}");
                end.addresses = on_link(2, n, host);
            }
        }
        b.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_to_the_hosts_own_addresses() {
        let links = Links {
            links: 3,
            ..Links::default()
        };
        let t = links.topology().unwrap();
        let [v4, v6] = &t.node("server").unwrap().routes[..] else {
            panic!("two routes");
        };
        assert_eq!(v4.prefix, "10.8.0.0/16".parse().unwrap());
        assert_eq!(v4.source, Some("10.9.0.1".parse().unwrap()));
        assert_eq!(v6.source, Some("2001:db8:9::1".parse().unwrap()));
        assert_eq!((v4.via.len(), v6.via.len()), (3, 3));
        assert_eq!(v4.congestion.as_deref(), Some("cubic"));
        let devices: Vec<&str> = t.devices("server").collect();
        assert_eq!(devices, ["link1", "link2", "link3"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (links, congestion) in [(0, "cubic"), (65, "cubic"), (2, "Cubic"), (2, "")] {
            let congestion = Some(congestion.to_owned());
            let links = Links {
                links,
                congestion,
                ..Links::default()
            };
            assert!(links.topology().is_err());
        }
    }
}

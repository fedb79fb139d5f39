//! Hosts behind the networks of [`World::networks`](crate::World::networks), and packets between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::frame::{Addresses, Flow};
use crate::{Crafted, Random, gateway};

/// A host behind a network's gateway.
pub fn behind4(net: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 20, net, host)
}

/// The same of IPv6.
pub fn behind6(net: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 4, net.into(), 0, 0, 0, host.into())
}

/// The gateway of a network itself, and hosts behind it.
pub fn sources(net: u8) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let (four, six) = gateway(net);
    let fours = (2..30).map(|host| behind4(net, host));
    let sixes = (2..30).map(|host| behind6(net, host));
    (
        [four].into_iter().chain(fours).collect(),
        [six].into_iter().chain(sixes).collect(),
    )
}

/// A few hosts behind each of some networks.
pub fn hosts(nets: &[u8]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let of = |net: &u8| {
        let net = *net;
        (200..205).map(move |host| (net, host))
    };
    (
        nets.iter()
            .flat_map(of)
            .map(|(net, host)| behind4(net, host))
            .collect(),
        nets.iter()
            .flat_map(of)
            .map(|(net, host)| behind6(net, host))
            .collect(),
    )
}

/// Which network a frame of a flow is for; none where that is another address.
pub fn network_of(frame: &Crafted) -> Option<u8> {
    match frame.flow?.dst {
        IpAddr::V4(to) => (to.octets()[..2] == [172, 20]).then_some(to.octets()[2]),
        IpAddr::V6(to) => {
            (to.segments()[..3] == [0x2001, 0xdb8, 4]).then_some(to.segments()[3] as u8)
        }
    }
}

/// A flow between addresses of one family, of UDP or TCP.
pub fn flow(rng: &mut Random, addresses: &Addresses, four: bool) -> Flow {
    let [src, dst] = [0, 1].map(|end| -> IpAddr {
        match four {
            true => (*rng.pick(&addresses.v4[end])).into(),
            false => (*rng.pick(&addresses.v6[end])).into(),
        }
    });
    Flow {
        src,
        dst,
        proto: *rng.pick(&[6, 17]),
        sport: rng.bits() as u16,
        dport: rng.bits() as u16,
    }
}

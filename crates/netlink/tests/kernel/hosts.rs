//! Destinations for which the kernel goes by more than its routes.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use nix::sys::socket::{SockaddrIn6, sendto, socket};
use raddle_rib::event::KernelHosts;

use crate::support::{Follower, in_namespace, ip, links, sysctl};

fn follow_to(follower: &mut Follower, what: &str, hosts: &[&str]) {
    let expected = KernelHosts {
        hosts: hosts.iter().map(|ip| ip.parse().unwrap()).collect(),
        more_mtus: false,
    };
    follower.until(what, |state| match state.hosts == expected {
        true => Ok(()),
        false => Err(format!("{:?}", state.hosts)),
    });
}

#[test]
fn proxied_neighbours_are_read_where_they_count() {
    in_namespace("proxied_neighbours_are_read_where_they_count", || {
        links(2);
        ip("-6 neigh add proxy 2001:db8:1::77 dev v0");
        ip("neigh add proxy 10.0.1.77 dev v0");
        let mut follower = Follower::new();
        follow_to(&mut follower, "off", &[]);
        sysctl("ipv6/conf/v0/proxy_ndp", "1");
        ip("-6 neigh add proxy 2001:db8:1::78 dev v1");
        follow_to(&mut follower, "off for forwarded packets", &[]);
        sysctl("ipv6/conf/all/proxy_ndp", "1");
        let both = ["2001:db8:1::77", "2001:db8:1::78"];
        follow_to(&mut follower, "on", &both);
        follow_to(&mut Follower::new(), "on before", &both);
        ip("-6 neigh del proxy 2001:db8:1::77 dev v0");
        follow_to(&mut follower, "one less", &both[1..]);
        sysctl("ipv6/conf/all/proxy_ndp", "0");
        follow_to(&mut follower, "off again", &[]);
    });
}

/// "Packet too big" about an echo request to `dst`, sent to this machine by itself.
fn too_big(dst: &str, mtu: u32) {
    let own: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let dst: Ipv6Addr = dst.parse().unwrap();
    let mut error = vec![2, 0, 0, 0];
    error.extend(mtu.to_be_bytes());
    error.extend([0x60, 0, 0, 0, 0, 8, 58, 64]);
    error.extend(own.octets());
    error.extend(dst.octets());
    error.extend([128, 0, 0, 0, 0, 1, 0, 1]);
    let (family, flags) = (AddressFamily::Inet6, SockFlag::SOCK_CLOEXEC);
    let raw = socket(family, SockType::Raw, flags, SockProtocol::IcmpV6).unwrap();
    let to = SockaddrIn6::from(SocketAddrV6::new(own, 0, 0, 0));
    sendto(raw.as_raw_fd(), &error, &to, MsgFlags::empty()).unwrap();
}

#[test]
fn learnt_path_mtus_are_read() {
    in_namespace("learnt_path_mtus_are_read", || {
        links(2);
        ip("-6 route add 2001:db8:9::/64 via 2001:db8:1::2");
        ip("-6 route add 2001:db8:a::/64 via 2001:db8:1::2 table 77");
        let mut follower = Follower::new();
        too_big("2001:db8:9::5", 1400);
        follow_to(&mut follower, "one", &["2001:db8:9::5"]);
        follow_to(&mut Follower::new(), "known before", &["2001:db8:9::5"]);
        too_big("2001:db8:9::6", 1300);
        let both = ["2001:db8:9::5", "2001:db8:9::6"];
        follow_to(&mut follower, "two", &both);
        ip("-6 route flush cache");
        follow_to(&mut follower, "none", &[]);
        follower.agrees("they are no routes");
    });
}

//! Destinations for which the kernel goes by more than its routes.

use raddle_rib::event::KernelHosts;

use crate::support::{Follower, in_namespace, ip, links, sysctl};

fn follow_to(follower: &mut Follower, what: &str, hosts: &[&str]) {
    let expected = KernelHosts {
        hosts: hosts.iter().map(|ip| ip.parse().unwrap()).collect(),
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

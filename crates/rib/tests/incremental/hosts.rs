//! Destinations for which the kernel goes by more than its routes.

use std::net::IpAddr;

use raddle_image::Reason;
use raddle_rib::Resolved;
use raddle_rib::event::{
    Event, KernelHosts, ROUTE_STATIC, Route, RouteNexthop, RouteOp, RouteTarget,
};

use super::{compare, small};
use crate::common::{self, Mirror, address, neighbour, new_rib};

fn told(hosts: &[u8]) -> Event {
    let ip = |n: &u8| match address(true, *n) {
        IpAddr::V6(ip) => ip,
        IpAddr::V4(ip) => panic!("{ip}"),
    };
    Event::KernelHosts(KernelHosts {
        hosts: hosts.iter().map(ip).collect(),
    })
}

fn route(n: u8, len: u8) -> Route {
    let hop = RouteNexthop {
        gateway: Some(address(true, 1)),
        index: 1,
        ..RouteNexthop::default()
    };
    common::route(address(true, n), len, RouteTarget::Single(hop))
}

/// Which of these are the kernel's, as mirror and image say.
fn kernels(rib: &mut Mirror, hosts: [u8; 4]) -> [bool; 4] {
    rib.commit();
    compare(rib);
    hosts.map(|n| match rib.trace("l1", address(true, n)).resolved {
        Resolved::Kernel(Reason::RouteFeature) => true,
        Resolved::One(_) => false,
        other => panic!("{n}: {other:?}"),
    })
}

#[test]
fn hosts_of_the_kernels_are_its_and_nobody_elses() {
    let mut rib = new_rib(&small());
    for index in 1..=4 {
        rib.apply(Event::Link(common::link(index, true, true)));
    }
    rib.apply(Event::Neighbour(neighbour(1, address(true, 1))));
    let add = |rib: &mut Mirror, route: Route| rib.apply(Event::Route(route, RouteOp::Add));
    // A prefix, a host route in it, and one of raddle's own.
    add(&mut rib, route(16, 125));
    add(&mut rib, route(18, 128));
    let own = Route {
        flags: ROUTE_STATIC,
        ..route(19, 128)
    };
    add(&mut rib, own);
    let hosts = [16, 17, 18, 19];
    let no = [false; 4];
    assert_eq!(kernels(&mut rib, hosts), no);
    rib.apply(told(&[17, 18, 19]));
    let some = [false, true, true, false];
    assert_eq!(kernels(&mut rib, hosts), some);
    // In a table that is built from nothing as well, and under routes that come later.
    let snapshot = rib.snapshot();
    let mut other = new_rib(&small());
    snapshot.into_events().for_each(|event| other.apply(event));
    assert_eq!(kernels(&mut other, hosts), some);
    rib.apply(told(&[17, 40]));
    add(&mut rib, route(40, 125));
    assert_eq!(
        kernels(&mut rib, [17, 18, 40, 41]),
        [true, false, true, false]
    );
    rib.apply(Event::RouteGone(route(40, 125)));
    rib.apply(told(&[]));
    assert_eq!(kernels(&mut rib, hosts), no);
}

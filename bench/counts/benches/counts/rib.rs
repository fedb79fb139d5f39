//! Changes with 100,000 routes of each family behind them, each applied and committed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gungraun::{library_benchmark, library_benchmark_group};
use ipnet::IpNet;
use raddle_rib::Rib;
use raddle_rib::event::{Event, Route, RouteOp, RouteTarget};

use crate::invented::{invented4, invented6};
use crate::router::{OUT, hops, route, router};
use crate::tables::Dice;

const ROUTES: usize = 100_000;
const CHANGES: usize = 64;

fn prefixes(v6: bool) -> Vec<IpNet> {
    let mut dice = Dice(0x5eed);
    let net = |address: IpAddr, len| IpNet::new(address, len).expect("a prefix of a table");
    match v6 {
        true => invented6(&mut dice, ROUTES)
            .into_iter()
            .map(|p| net(Ipv6Addr::from_bits(p.addr()).into(), p.len()))
            .collect(),
        false => invented4(&mut dice, ROUTES)
            .into_iter()
            .map(|p| net(Ipv4Addr::from_bits(p.addr()).into(), p.len()))
            .collect(),
    }
}

/// A router with a full table in three groups, and changes from two nexthops to the first of them.
fn full(v6: bool) -> (Rib, Vec<Event>) {
    let targets: [RouteTarget; 3] = [hops(v6, &OUT), hops(v6, &OUT[..1]), hops(v6, &OUT[1..])];
    let routes: Vec<Route> = prefixes(v6)
        .into_iter()
        .zip(targets.iter().cycle())
        .map(|(dst, target)| route(dst, target.clone()))
        .collect();
    let changes = routes
        .iter()
        .filter(|route| route.target == targets[0])
        .step_by(routes.len() / 3 / CHANGES)
        .take(CHANGES)
        .map(|changed| {
            let changed = route(changed.dst, targets[1].clone());
            Event::Route(changed, RouteOp::Replace)
        })
        .collect();
    let mut rib = router();
    for route in routes {
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    assert!(!rib.commit().full, "the routes fit");
    (rib, changes)
}

#[library_benchmark(setup = full)]
#[bench::ipv4(false)]
#[bench::ipv6(true)]
fn route_change((mut rib, changes): (Rib, Vec<Event>)) -> Rib {
    for change in changes {
        rib.apply(change);
        let commit = rib.commit();
        assert_eq!((commit.entries, commit.full), (1, false));
    }
    rib
}

library_benchmark_group!(name = changes, benchmarks = route_change);

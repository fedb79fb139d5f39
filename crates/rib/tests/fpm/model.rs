//! Which of the kernel's routes and those by FPM count, against a list of each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::event::{Event, Fpm, Nexthop, NexthopKind, Route, RouteKind, RouteOp, RouteTarget};

use crate::common::route;
use crate::{by, group, links, single, world};

/// What is drawn: tables 254 and 253, prefixes that nest, targets by link or object.
fn any_route() -> impl Strategy<Value = Route> {
    let target = prop_oneof![
        (1..5u32).prop_map(by),
        (11..15u32).prop_map(RouteTarget::Object),
    ];
    let blackhole = proptest::bool::weighted(0.1);
    (
        prop_oneof![Just(254u32), Just(253)],
        0..3u8,
        0..3usize,
        target,
        blackhole,
    )
        .prop_map(|(table, net, len, target, blackhole)| {
            let dst = IpAddr::V4([10, 64 + net * 16, 0, 0].into());
            Route {
                table,
                kind: if blackhole {
                    RouteKind::Blackhole
                } else {
                    RouteKind::Unicast
                },
                target: if blackhole {
                    RouteTarget::None
                } else {
                    target.clone()
                },
                ..route(dst, [8, 10, 12][len], target)
            }
        })
}

#[derive(Clone, Debug)]
enum Step {
    Kernel(Route, bool),
    Told(Fpm),
}

fn step() -> impl Strategy<Value = Step> {
    let kernel = (any_route(), any::<bool>()).prop_filter_map("an object", |(route, there)| {
        let own = !matches!(route.target, RouteTarget::Object(_));
        own.then_some(Step::Kernel(route, there))
    });
    let told = prop_oneof![
        4 => any_route().prop_map(Fpm::Route),
        2 => any_route().prop_map(|r| Fpm::RouteGone { table: r.table, dst: r.dst }),
        2 => (11..13u32, 1..5u32).prop_map(|(id, index)| single(id, index)),
        1 => (13..15u32).prop_map(|id| group(id, &[(11, 1), (12, 2)])),
        1 => (11..15u32).prop_map(Fpm::NexthopGone),
    ];
    prop_oneof![1 => kernel, 2 => told.prop_map(Step::Told)]
}

/// The slow way: all routes in a list each.
#[derive(Default)]
struct Model {
    kernel: BTreeMap<(u32, IpNet), Route>,
    told: BTreeMap<(u32, IpNet), Route>,
    objects: BTreeMap<u32, Nexthop>,
}

impl Model {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Kernel(route, true) => {
                self.kernel.insert((route.table, route.dst), route);
            }
            Step::Kernel(route, false) => {
                self.kernel.remove(&(route.table, route.dst));
            }
            Step::Told(Fpm::Route(route)) => {
                self.told.insert((route.table, route.dst), route);
            }
            Step::Told(Fpm::RouteGone { table, dst }) => {
                self.told.remove(&(table, dst));
            }
            Step::Told(Fpm::Nexthop(nexthop)) => {
                self.objects.insert(nexthop.id, nexthop);
            }
            Step::Told(Fpm::NexthopGone(id)) => {
                self.objects.remove(&id);
            }
            Step::Told(Fpm::ResyncBegin | Fpm::ResyncEnd) => {}
        }
    }

    /// The links that a packet may take; an error when it is the kernel's or dropped.
    fn links(&self, dst: IpAddr) -> Result<Vec<u32>, ()> {
        for table in [254, 253] {
            for len in [12, 10, 8] {
                let key = (table, IpNet::new(dst, len).unwrap().trunc());
                if let Some(route) = self.kernel.get(&key) {
                    return self.links_of(&route.target).ok_or(());
                }
                // One whose object leads nowhere is none.
                if let Some(route) = self.told.get(&key) {
                    match (&route.target, self.links_of(&route.target)) {
                        (RouteTarget::Object(_), None) => {}
                        (_, links) => return links.ok_or(()),
                    }
                }
            }
        }
        Err(())
    }

    fn links_of(&self, target: &RouteTarget) -> Option<Vec<u32>> {
        let one = |id: &u32| match self.objects.get(id)?.kind {
            NexthopKind::Single { index, .. } => Some(index),
            _ => None,
        };
        match target {
            RouteTarget::Single(hop) => Some(vec![hop.index]),
            RouteTarget::Object(id) => match &self.objects.get(id)?.kind {
                NexthopKind::Group(members) => {
                    let links: Vec<u32> = members.iter().filter_map(|m| one(&m.id)).collect();
                    (!links.is_empty()).then_some(links)
                }
                _ => Some(vec![one(id)?]),
            },
            _ => None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn which_routes_count(steps in proptest::collection::vec(step(), 0..40)) {
        let mut rib = world();
        let mut model = Model::default();
        for step in steps {
            match step.clone() {
                Step::Kernel(route, true) => rib.apply(Event::Route(route, RouteOp::Replace)),
                // A deletion takes one of the kernel's, and there is one at most.
                Step::Kernel(route, false) => match model.kernel.get(&(route.table, route.dst)) {
                    Some(known) => rib.apply(Event::RouteGone(known.clone())),
                    None => rib.apply(Event::RouteGone(route)),
                },
                Step::Told(told) => rib.apply(Event::Fpm(told)),
            }
            model.apply(step);
            rib.commit();
            for net in 0..3u8 {
                let dst = IpAddr::V4([10, 64 + net * 16, 1, 1].into());
                let got = links(&rib, &dst.to_string()).map_err(|_| ());
                let got = got.map(|seen| seen.into_iter().map(|(_, index)| index).collect::<Vec<_>>());
                prop_assert_eq!(got, model.links(dst), "{}", dst);
            }
            let only = |key: &&(u32, IpNet)| !model.kernel.contains_key(*key);
            prop_assert_eq!(rib.fpm_stats().alone4, model.told.keys().filter(only).count());
            prop_assert_eq!(rib.fpm_stats().routes4, model.told.len());
        }
    }
}

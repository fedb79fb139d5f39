//! Resilient groups: the mirror has the kernel's buckets, the model predicts them, and the kernel
//! chooses by them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use raddle_netlink::codec::number::nlm;
use raddle_netlink::mirror::snapshot;
use raddle_netlink::{Mirror, RouteQuery, Socket};
use raddle_rib::event::*;
use raddle_rib::{Resolved, Rib};
use raddle_select::{Flow, HashConfig, Hasher, Policy, ResilientTable, Seed, Timers, keys_of_flow};

use crate::shown;
use crate::state::State;
use crate::support::{Follower, in_namespace, index_of, ip, links, sysctl};

const SEED: u32 = 0x5eed_1234;

/// Three links; nexthops 1 to 3 by IPv4, 4 to 6 by IPv6.
fn nexthops() {
    links(3);
    for n in 0..3 {
        ip(&format!("nexthop add id {} via 10.0.{n}.2 dev v{n}", n + 1));
        ip(&format!(
            "nexthop add id {} via 2001:db8:{n}::2 dev v{n}",
            n + 4
        ));
    }
    sysctl("ipv4/fib_multipath_hash_policy", "1");
    sysctl("ipv6/fib_multipath_hash_policy", "1");
    sysctl("ipv4/fib_multipath_hash_seed", &SEED.to_string());
    sysctl("ipv4/conf/all/forwarding", "1");
    sysctl("ipv6/conf/all/forwarding", "1");
}

fn same_buckets(state: &State) -> Result<(), String> {
    let (ours, theirs) = (state.buckets_text(), shown::buckets());
    match ours == theirs {
        true => Ok(()),
        false => Err(format!("{ours:?} are not {theirs:?}")),
    }
}

/// Follows until the buckets are the kernel's, which takes less than a second.
fn agrees(follower: &mut Follower, what: &str) {
    let start = Instant::now();
    follower.until(what, same_buckets);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{what} took {took:?}");
}

/// How many buckets of a group each nexthop owns.
fn owned(state: &State, group: u32) -> BTreeMap<u32, usize> {
    let mut owned = BTreeMap::new();
    for ((of, _), nexthop) in &state.buckets {
        if *of == group {
            *owned.entry(*nexthop).or_default() += 1;
        }
    }
    owned
}

/// Has packets of so many flows go by buckets behind a route.
fn use_buckets(dst: &str, flows: u16) {
    let mut socket = Socket::open().unwrap();
    for sport in 1..=flows {
        let query = RouteQuery {
            ip_proto: Some(17),
            sport: Some(sport),
            dport: Some(9),
            ..RouteQuery::default()
        };
        socket.get_route(dst.parse().unwrap(), &query).unwrap();
    }
}

#[test]
fn every_change_is_followed() {
    in_namespace("every_change_is_followed", || {
        nexthops();
        let mut follower = Follower::new();
        for command in [
            "nexthop add id 11 group 1/2 type resilient buckets 8",
            "nexthop add id 12 group 4/5,3/6 type resilient buckets 64 idle_timer 1",
            "route add 10.9.0.0/16 nhid 11",
            "nexthop replace id 11 group 1/3 type resilient",
            "nexthop replace id 11 group 1,5/3 type resilient",
            "nexthop replace id 12 group 6/5/4 type resilient idle_timer 2",
            "nexthop del id 3",
            "nexthop add id 3 via 10.0.2.2 dev v2",
            "nexthop replace id 11 group 3/1/2 type resilient",
            "link set v2 down",
            "link set v2 up",
            "link set p1 down",
            "nexthop del id 11",
            "nexthop add id 11 group 1 type resilient buckets 3",
            "link del v0",
        ] {
            ip(command);
            agrees(&mut follower, command);
        }
        assert_eq!(follower.state.buckets.len(), 0);
        let stats = follower.mirror.stats();
        assert_eq!((stats.malformed, stats.overruns), (0, 0));
    });
}

/// The kernel announces buckets that move because time has passed; no dump is needed for them.
#[test]
fn timers_move_buckets() {
    in_namespace("timers_move_buckets", || {
        nexthops();
        ip("nexthop add id 11 group 1/2 type resilient buckets 8 idle_timer 1");
        ip(
            "nexthop add id 12 group 1/2 type resilient buckets 8 idle_timer 100 unbalanced_timer 1",
        );
        ip("route add 10.9.0.0/16 nhid 11");
        ip("route add 10.8.0.0/16 nhid 12");
        let mut follower = Follower::new();
        for (group, dst) in [(11, "10.9.0.1"), (12, "10.8.0.1")] {
            let even = BTreeMap::from([(1, 4), (2, 4)]);
            agrees(&mut follower, "before");
            use_buckets(dst, 200);
            ip(&format!(
                "nexthop replace id {group} group 1/2,3 type resilient"
            ));
            agrees(&mut follower, "weights changed");
            assert_eq!(owned(&follower.state, group), even, "buckets in use moved");
            let runs = follower.mirror.stats().runs;
            follower.until("the timer", |state| {
                let now = owned(state, group);
                match now == BTreeMap::from([(1, 2), (2, 6)]) {
                    true => Ok(()),
                    false => Err(format!("{now:?}")),
                }
            });
            agrees(&mut follower, "buckets moved");
            assert_eq!(follower.mirror.stats().runs, runs);
        }
    });
}

/// A hundred groups that change as fast as they can be told to.
#[test]
fn groups_are_followed_under_load() {
    in_namespace("groups_are_followed_under_load", || {
        nexthops();
        let group = |id: u32, weight: u16| {
            let members = [(1, 7), (2, weight)].map(|(id, weight)| GroupMember { id, weight });
            let kind = NexthopKind::Resilient {
                members: members.to_vec(),
                buckets: 64,
                idle_timer: 0,
                unbalanced_timer: 0,
                unbalanced_time: 0,
            };
            Event::Nexthop(Nexthop {
                protocol: 186,
                ..Nexthop::new(id, 0, kind)
            })
        };
        let mut follower = Follower::new();
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut socket = Socket::open().unwrap();
                for round in 0..20 {
                    for id in 100..200 {
                        let flags = if round == 0 {
                            nlm::CREATE
                        } else {
                            nlm::REPLACE
                        };
                        let weight = 1 + (id as u16 * 31 + round * 17) % 50;
                        let event = group(id, weight);
                        socket.apply(&event, nlm::CREATE | flags).unwrap();
                    }
                }
            });
            while !changes.is_finished() {
                follower.follow(Duration::from_millis(10));
            }
        });
        agrees(&mut follower, "after the load");
        assert_eq!(follower.state.buckets.len(), 6400);
        assert_eq!(follower.mirror.stats().malformed, 0);
    });
}

/// Groups of drawn members and weights: what the model says is what the kernel does, as long as no
/// bucket is in use.
#[test]
fn the_model_predicts_the_kernels_table() {
    in_namespace("the_model_predicts_the_kernels_table", || {
        nexthops();
        let timers = Timers {
            idle: Duration::from_secs(120),
            unbalanced: Duration::ZERO,
        };
        let mut random = 7_u32;
        let mut below = |n: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % n
        };
        let mut members = || -> Vec<(u32, u32)> {
            let mut ids: Vec<u32> = (1..=6).collect();
            (0..1 + below(4))
                .map(|_| (ids.remove(below(ids.len() as u32) as usize), 1 + below(256)))
                .collect()
        };
        let text = |members: &[(u32, u32)]| -> String {
            let one = |(id, weight): &(u32, u32)| format!("{id},{weight}");
            members.iter().map(one).collect::<Vec<_>>().join("/")
        };
        let kernel = || -> Vec<u32> {
            let lines = shown::buckets();
            let mut buckets: Vec<(u16, u32)> = lines
                .iter()
                .map(|line| {
                    let words: Vec<&str> = line.split(' ').collect();
                    (words[1].parse().unwrap(), words[2].parse().unwrap())
                })
                .collect();
            buckets.sort_unstable();
            buckets.into_iter().map(|(_, id)| id).collect()
        };
        for size in [1, 2, 7, 8, 31, 64, 100, 256, 1000] {
            let first = members();
            let now = Duration::from_secs(1);
            let count = NonZeroU16::new(size).unwrap();
            let mut model = ResilientTable::new(&first, count, timers, now).unwrap();
            let group = text(&first);
            ip(&format!(
                "nexthop add id 50 group {group} type resilient buckets {size}"
            ));
            assert_eq!(kernel(), model.owners().collect::<Vec<_>>(), "{group}");
            for _ in 0..8 {
                let next = members();
                let group = text(&next);
                model.replace(&next, timers, now).unwrap();
                ip(&format!(
                    "nexthop replace id 50 group {group} type resilient"
                ));
                assert_eq!(kernel(), model.owners().collect::<Vec<_>>(), "{group}");
                assert_eq!(model.next_upkeep(), None);
            }
            ip("nexthop del id 50");
        }
    });
}

/// The bucket that the hash falls into says which link a packet takes, in both families.
#[test]
fn the_kernel_chooses_by_bucket() {
    in_namespace("the_kernel_chooses_by_bucket", || {
        nexthops();
        ip("nexthop add id 11 group 1,3/2/3,2 type resilient buckets 37");
        ip("nexthop add id 12 group 6,3/5/4,2 type resilient buckets 128");
        ip("route add 10.9.0.0/16 nhid 11");
        ip("-6 route add 2001:db8:9::/48 nhid 12");
        // Known, failed, or not there: it does not matter.
        ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev v0");
        ip("neigh add 10.0.1.2 dev v1 nud failed");
        ip("neigh add 2001:db8:1::2 dev v1 nud failed");
        let mut rib = Rib::detached();
        snapshot().unwrap().into_iter().for_each(|e| rib.apply(e));
        let hasher = Hasher::new(Seed::new(SEED).unwrap());
        let mut socket = Socket::open().unwrap();
        let iif = index_of("v0");
        for (src, dst) in [("10.0.0.77", "10.9.3.4"), ("2001:db8::77", "2001:db8:9::4")] {
            let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
            let resolved = rib.trace("v0", dst).resolved;
            let Resolved::Resilient { hops, buckets, .. } = resolved else {
                panic!("{resolved:?}");
            };
            let mut links = [0; 3];
            for sport in 1..=500 {
                let flow = Flow::new(src, dst).unwrap().ports(17, sport, 53);
                let keys = keys_of_flow(&HashConfig::from(Policy::L4), &flow);
                let bucket = hasher.hash31(&keys) as usize % buckets.len();
                let place = usize::from(buckets[bucket]);
                let query = RouteQuery {
                    src: Some(src),
                    iif: Some(iif),
                    ip_proto: Some(17),
                    sport: Some(sport),
                    dport: Some(53),
                    ..RouteQuery::default()
                };
                let answer = socket.get_route(dst, &query).unwrap();
                let ours = (hops[place].index, hops[place].gateway);
                assert_eq!((answer.index, answer.gateway), ours, "sport {sport}");
                links[place] += 1;
            }
            assert!(links.iter().all(|n| *n > 20), "{links:?}");
        }
    });
}

/// Thousands of buckets move at once, each with a notification of its own.
#[test]
fn a_flood_of_buckets_is_followed() {
    in_namespace("a_flood_of_buckets_is_followed", || {
        nexthops();
        let mut follower = Follower::with(Mirror::with_receive_buffer(1).unwrap());
        ip("nexthop add id 12 group 1/2 type resilient buckets 20000 idle_timer 2");
        ip("route add 10.8.0.0/16 nhid 12");
        use_buckets("10.8.0.1", 4000);
        ip("nexthop replace id 12 group 1/2,249 type resilient");
        let own = |follower: &Follower| owned(&follower.state, 12).get(&1).copied();
        follower.follow(Duration::from_millis(500));
        assert!(own(&follower) > Some(1000), "{:?}", own(&follower));
        // Buckets go one after the other, and slowly where others want the processor, too.
        for _ in 0..20 {
            follower.follow(Duration::from_millis(1000));
            if own(&follower) == Some(80) {
                break;
            }
        }
        assert_eq!(own(&follower), Some(80));
        follower.until("after the flood", same_buckets);
    });
}

//! What was forwarded by nexthop and by link never gets less, whatever comes and goes: engines that count by the
//! numbers of adjacencies, also by those that they still hold after these were given back.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, unused_imports, reason = "other tests use the rest of it")]
mod common;
#[path = "incremental/draw.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod draw;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use common::{address, link, neighbour, route};
use draw::{LINKS, event};
use proptest::prelude::*;
use raddle_image::Counter;
use raddle_image::{Capacity, LINK_COUNTERS, Memory};
use raddle_rib::event::{Event, RouteNexthop, RouteOp, RouteTarget};
use raddle_rib::{Ports, Rib};

/// A nexthop: name of the link and neighbour. (Routes with an MTU of their own are not drawn.)
type Nexthop = (String, Option<IpAddr>);

/// What engines have.
#[derive(Default)]
struct Engines {
    counters: HashMap<u32, Counter>,
    /// The numbers that they may hold and have forwarded by.
    held: BTreeSet<u32>,
}

/// A mirror whose image engines forward by.
struct World {
    rib: Rib,
    engines: Arc<Mutex<Engines>>,
    /// Whom each number was published for last.
    published: BTreeMap<u32, Nexthop>,
    /// What was really counted.
    nexthops: HashMap<Nexthop, Counter>,
    links: BTreeMap<String, Counter>,
    /// What was told of nexthops when it was last asked for.
    told: HashMap<Nexthop, Counter>,
}

impl World {
    fn new(adjacencies: usize) -> World {
        let capacity = Capacity {
            nodes4: 1 << 16,
            leaves4: 1 << 16,
            words6: 1 << 16,
            groups: 4096,
            members: 4096,
            adjacencies,
            segments: 64,
            templates: 1 << 10,
        };
        let engines: Arc<Mutex<Engines>> = Arc::default();
        let grace = {
            let engines = Arc::clone(&engines);
            move || engines.lock().unwrap().held.clear()
        };
        let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, grace);
        rib.on_passed_on({
            let engines = Arc::clone(&engines);
            move |number| {
                let mut engines = engines.lock().unwrap();
                assert!(!engines.held.contains(&number), "{number} is still held");
                engines.counters.remove(&number).unwrap_or_default()
            }
        });
        let all = 1..=LINKS;
        rib.on_renamed({
            let engines = Arc::clone(&engines);
            move |number| {
                let engines = engines.lock().unwrap();
                engines.counters.get(&number).copied().unwrap_or_default()
            }
        });
        rib.set_ports(Ports {
            enabled: all.clone().collect(),
            out: all.clone().collect(),
        });
        for index in all {
            rib.apply(draw::link(index, true, true));
        }
        rib.commit();
        World {
            rib,
            engines,
            published: BTreeMap::new(),
            nexthops: HashMap::new(),
            links: BTreeMap::new(),
            told: HashMap::new(),
        }
    }

    fn commit(&mut self) {
        self.rib.commit();
        let mut engines = self.engines.lock().unwrap();
        for (number, index, neighbour, adjacency) in self.rib.adjacencies() {
            // Of a link that is gone nothing more is known, but what it was called.
            if let Some(link) = self.rib.link(index) {
                let nexthop = (link.name.clone(), neighbour);
                self.published.insert(number, nexthop);
            }
            if adjacency.forwards() {
                engines.held.insert(number);
            }
        }
    }

    /// Counts packets by one of the numbers that engines may hold.
    fn forward(&mut self, which: usize, packets: u64) {
        let mut engines = self.engines.lock().unwrap();
        let numbers: Vec<u32> = engines.held.iter().copied().collect();
        let Some(number) = which.checked_rem(numbers.len()).map(|at| numbers[at]) else {
            return;
        };
        let count = Counter {
            packets,
            bytes: 100 * packets,
        };
        let nexthop = self.published[&number].clone();
        *engines.counters.entry(number).or_default() += count;
        *self.links.entry(nexthop.0.clone()).or_default() += count;
        *self.nexthops.entry(nexthop).or_default() += count;
    }

    /// Holds what is told against what was counted. `forgets`: nexthops may have started anew after they were gone.
    fn check(&mut self, forgets: bool) {
        let engines = self.engines.lock().unwrap();
        let read = |number| engines.counters.get(&number).copied().unwrap_or_default();
        let mut sent = self.rib.sent(read);
        sent.links.retain(|_, count| count.packets > 0);
        assert_eq!(sent.links, self.links);
        let before = std::mem::take(&mut self.told);
        for (number, index, neighbour, _) in self.rib.adjacencies() {
            let Some(link) = self.rib.link(index) else {
                continue;
            };
            let nexthop = (link.name.clone(), neighbour);
            let (told, counted) = (sent.nexthop(number), self.nexthops.get(&nexthop));
            let counted = counted.copied().unwrap_or_default();
            let least = before.get(&nexthop).copied().unwrap_or_default();
            let fits = match forgets {
                true => (least.packets..=counted.packets).contains(&told.packets),
                false => told == counted,
            };
            assert!(
                fits,
                "{nexthop:?}: {told:?}, before {least:?}, counted {counted:?}"
            );
            self.told.insert(nexthop, told);
        }
    }
}

/// Events, links that go among them, and packets by some of the numbers.
type Batch = (Vec<Event>, Vec<(usize, u64)>);

/// A link that is up, whatever it was called before.
fn named(index: u32, name: &str) -> Event {
    let mut link = link(index, true, true);
    link.name = name.to_owned();
    Event::Link(link)
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let event = prop_oneof![
        12 => event(),
        1 => (1..=LINKS).prop_map(Event::LinkGone),
        1 => (1..=LINKS, 1..=2 * LINKS).prop_map(|(index, name)| named(index, &format!("l{name}"))),
        1 => (1..=LINKS).prop_map(|index| draw::link(index, true, true)),
    ];
    let packets = (any::<usize>(), 1..100u64);
    let batch = (
        proptest::collection::vec(event, 0..12),
        proptest::collection::vec(packets, 0..8),
    );
    proptest::collection::vec(batch, 1..24)
}

fn follow(mut world: World, batches: Vec<Batch>, forgets: bool) {
    for (events, packets) in batches {
        events.into_iter().for_each(|event| world.rib.apply(event));
        world.commit();
        world.check(forgets);
        for (which, count) in packets {
            world.forward(which, count);
        }
        world.check(forgets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_is_told_while_numbers_last(batches in batches()) {
        follow(World::new(4096), batches, false);
    }

    #[test]
    fn nothing_gets_less_where_numbers_pass_from_one_to_another(batches in batches()) {
        follow(World::new(16), batches, true);
    }
}

/// Routes to two hosts by turns leave 1 of 8 numbers in use: each number has passed through many hands.
#[test]
fn who_comes_back_soon_has_what_it_had() {
    let mut world = World::new(8);
    let host = |n: u32| address(false, n as u8);
    let to = |n: u32| {
        let hop = RouteNexthop {
            gateway: Some(host(n)),
            index: 1,
            ..RouteNexthop::default()
        };
        route(address(false, 63), 32, RouteTarget::Single(hop))
    };
    for n in 1..=40 {
        for n in [n, 50] {
            world.rib.apply(Event::Neighbour(neighbour(1, host(n))));
            world.rib.apply(Event::Route(to(n), RouteOp::Replace));
            world.commit();
            // No more than one that is there, and one that was before.
            for which in 0..2 {
                world.forward(which, 3);
            }
            world.check(n != 50);
        }
    }
    assert!(world.links["l1"].packets >= 120, "{:?}", world.links);
}

/// One after the other, links that share an index, or a name, or swap their names: each name has what was counted while
/// a link bore it, and so have the nexthops behind it.
#[test]
fn a_name_keeps_what_was_counted_under_it() {
    let mut world = World::new(64);
    let host = address(true, 1);
    let gateway = |index| RouteNexthop {
        gateway: Some(host),
        index,
        ..RouteNexthop::default()
    };
    let to = |index: u32| {
        let dst = address(true, 32 + index as u8);
        route(dst, 128, RouteTarget::Single(gateway(index)))
    };
    let settle = |world: &mut World, links: &[(u32, &str)]| {
        for (index, name) in links {
            world.rib.apply(named(*index, name));
            world.rib.apply(Event::Neighbour(neighbour(*index, host)));
            let event = Event::Route(to(*index), RouteOp::Replace);
            world.rib.apply(event);
        }
        world.commit();
    };
    // By all that engines hold.
    let forward = |world: &mut World| {
        let held = world.engines.lock().unwrap().held.len();
        (0..held).for_each(|which| world.forward(which, 10));
        world.check(false);
    };
    let sent = |world: &World, name: &str| world.links.get(name).map_or(0, |count| count.packets);
    settle(&mut world, &[(1, "a"), (2, "b")]);
    forward(&mut world);
    // Renamed, and the names swapped.
    settle(&mut world, &[(1, "c")]);
    forward(&mut world);
    settle(&mut world, &[(1, "b"), (2, "c")]);
    forward(&mut world);
    assert_eq!(["a", "b", "c"].map(|name| sent(&world, name)), [10, 30, 20]);
    // Another link has the index: at once, and after a while.
    world.rib.apply(Event::LinkGone(1));
    settle(&mut world, &[(1, "d")]);
    forward(&mut world);
    world.rib.apply(Event::LinkGone(1));
    world.commit();
    world.check(false);
    settle(&mut world, &[(1, "e")]);
    forward(&mut world);
    let told = ["b", "c", "d"].map(|name| sent(&world, name));
    assert_eq!(told, [30, 40, 10]);
    assert!(sent(&world, "e") >= 10);
}

/// A link of the same name goes on from what the last one had, and the names of a great many are not kept.
#[test]
fn links_that_have_gone_keep_their_names() {
    let mut world = World::new(64);
    let host = address(false, 1);
    let last = 2200;
    world.rib.set_ports(Ports {
        enabled: BTreeSet::from([1]),
        out: (1..=last).collect(),
    });
    for index in 10..=last {
        let name = match index % 2 {
            0 => "ppp0".to_owned(),
            _ => format!("veth{index}"),
        };
        let hop = RouteNexthop {
            gateway: Some(host),
            index,
            ..RouteNexthop::default()
        };
        let route = route(address(false, 63), 32, RouteTarget::Single(hop));
        world.rib.apply(named(index, &name));
        world.rib.apply(Event::Neighbour(neighbour(index, host)));
        world.rib.apply(Event::Route(route, RouteOp::Replace));
        world.commit();
        let mut engines = world.engines.lock().unwrap();
        let live: Vec<u32> = world.rib.adjacencies().map(|(number, ..)| number).collect();
        assert_eq!(live.len(), 1);
        engines.counters.entry(live[0]).or_default().packets += 1;
        drop(engines);
        world.rib.apply(Event::LinkGone(index));
        world.commit();
    }
    let engines = world.engines.lock().unwrap();
    let sent = world
        .rib
        .sent(|number| engines.counters.get(&number).copied().unwrap_or_default());
    let packets = |name: &str| sent.links.get(name).map_or(0, |count| count.packets);
    let all: u64 = sent.links.values().map(|count| count.packets).sum();
    assert_eq!(all, u64::from(last - 9));
    // One name of 1096, and 1095 others: 1023 of these are remembered.
    let told = ["ppp0", "veth2199", "veth11", ""].map(packets);
    assert_eq!(told, [1096, 1, 0, 1095 - 1023]);
}

/// Far more links than there are slots come and go: none begins with what another received, and one that comes back
/// while nobody had its slot goes on.
#[test]
fn no_link_has_what_another_received() {
    let received: Arc<Mutex<HashMap<u32, u64>>> = Arc::default();
    let mut world = World::new(64);
    world.rib.on_slot_passed_on({
        let received = Arc::clone(&received);
        move |slot| {
            received.lock().unwrap().remove(&slot);
        }
    });
    let mut enable = |index: u32, on: bool| {
        if on {
            world.rib.apply(Event::Link(link(index, true, true)));
        } else {
            world.rib.apply(Event::LinkGone(index));
        }
        let enabled = BTreeSet::from_iter(on.then_some(index));
        world.rib.set_ports(Ports {
            out: enabled.clone(),
            enabled,
        });
        world.rib.commit();
        world.rib.memory().link(index).slot
    };
    for index in 10..2 * LINK_COUNTERS as u32 {
        let slot = enable(index, true);
        let before = received.lock().unwrap().insert(slot, 7);
        assert_eq!(before, None, "link {index}, slot {slot}");
        enable(index, false);
        let slot = enable(index, true);
        assert_eq!(received.lock().unwrap().get(&slot), Some(&7));
        enable(index, false);
    }
    // The index as the link before had it, but another name; then a link that is renamed while it is there.
    let rename = |world: &mut World, name: &str| {
        world.rib.apply(named(10, name));
        world.rib.commit();
        let slot = world.rib.memory().link(10).slot;
        received.lock().unwrap().insert(slot, 7)
    };
    let enabled = BTreeSet::from([10]);
    world.rib.set_ports(Ports {
        out: enabled.clone(),
        enabled,
    });
    rename(&mut world, "a");
    assert_eq!(rename(&mut world, "a"), Some(7));
    assert_eq!(rename(&mut world, "b"), None);
    world.rib.apply(Event::LinkGone(10));
    world.rib.commit();
    assert_eq!(rename(&mut world, "c"), None);
    assert_eq!(rename(&mut world, "c"), Some(7));
}

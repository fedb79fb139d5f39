//! What a firewall may judge, while findings, links and nexthops come and go: engines that look at any moment see no pair of
//! links open that was closed before and is closed behind the change, and behind it only what is open by the finding.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, unused_imports, reason = "other tests use the rest of it")]
mod common;
#[path = "incremental/draw.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod draw;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use common::{address, neighbour, route};
use draw::{LINKS, event};
use proptest::prelude::*;
use raddle_image::{ADJ_FORWARD, Capacity, Memory, link_flags};
use raddle_rib::event::{Event, RouteNexthop, RouteOp, RouteTarget};
use raddle_rib::firewall::{Firewall, Guarded};
use raddle_rib::{Ports, Rib};

type Pairs = BTreeSet<(u32, u32)>;

const ADJACENCIES: u32 = 64;

/// The pairs of links that packets pass by the image as it stands, IPv4 and IPv6.
fn open(memory: &Memory) -> [Pairs; 2] {
    let mut open = [Pairs::new(), Pairs::new()];
    for link in 1..=LINKS {
        let entry = memory.link(link);
        if entry.flags & link_flags::ENABLED == 0 {
            continue;
        }
        for adjacency in (0..ADJACENCIES).map(|number| memory.adjacency(number)) {
            if adjacency.state != ADJ_FORWARD {
                continue;
            }
            for (open, closed) in open.iter_mut().zip([entry.closed4, entry.closed6]) {
                if closed >> adjacency.zone & 1 == 0 {
                    open.insert((link, adjacency.index));
                }
            }
        }
    }
    open
}

/// The pairs that are open by a finding.
fn by(found: &Option<(Ports, Firewall)>) -> [Pairs; 2] {
    let all = || (1..=LINKS).flat_map(|a| (1..=LINKS).map(move |b| (a, b)));
    match found {
        None => [all().collect(), all().collect()],
        Some((looked_at, firewall)) => [&firewall.v4, &firewall.v6].map(|of| {
            let free = |(a, b): &(u32, u32)| {
                looked_at.enabled.contains(a)
                    && looked_at.out.contains(b)
                    && !of.pairs.contains(&(*a, *b))
            };
            all().filter(free).collect()
        }),
    }
}

#[derive(Clone, Debug)]
enum Change {
    Event(Event),
    Ports(Ports),
    Found(Option<(Ports, Firewall)>),
    Refresh,
    Commit,
    Firewall,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let links = || proptest::collection::btree_set(1..=LINKS, 0..=LINKS as usize);
    let ports = || (links(), links()).prop_map(|(enabled, out)| Ports { enabled, out });
    let guarded = || {
        let pair = (1..=LINKS, 1..=LINKS);
        proptest::collection::btree_set(pair, 0..8).prop_map(|pairs| Guarded {
            pairs,
            ..Guarded::default()
        })
    };
    let found = (ports(), guarded(), guarded()).prop_map(|(ports, v4, v6)| {
        let firewall = Firewall {
            v4,
            v6,
            segments: false,
        };
        Some((ports, firewall))
    });
    let change = prop_oneof![
        2 => event().prop_map(Change::Event),
        2 => ports().prop_map(Change::Ports),
        4 => found.prop_map(Change::Found),
        1 => Just(Change::Found(None)),
        1 => Just(Change::Refresh),
        3 => Just(Change::Commit),
        2 => Just(Change::Firewall),
    ];
    proptest::collection::vec(change, 1..120)
}

/// What may be open at this moment; engines hold it while they decide about a packet.
type May = RwLock<[Pairs; 2]>;

/// An engine that decides about packets of all links, with all adjacencies, until it is told to stop. What it let pass and
/// must not.
fn decide(memory: &Memory, may: &May, stop: &AtomicBool) -> Option<String> {
    let mut n = 0u32;
    while !stop.load(Ordering::Relaxed) {
        n = n.wrapping_add(1);
        let link = 1 + n % LINKS;
        let now = may.read().unwrap();
        let entry = memory.link(link);
        if entry.flags & link_flags::ENABLED == 0 {
            continue;
        }
        // A packet takes its time from the one to the other.
        if n.is_multiple_of(64) {
            std::thread::yield_now();
        }
        let adjacency = memory.adjacency(n / LINKS % ADJACENCIES);
        let pair = (link, adjacency.index);
        for (closed, may) in [entry.closed4, entry.closed6].into_iter().zip(&*now) {
            let passes = adjacency.state == ADJ_FORWARD && closed >> adjacency.zone & 1 == 0;
            if passes && !may.contains(&pair) {
                return Some(format!("{pair:?} is open, and only {may:?} may be"));
            }
        }
    }
    None
}

/// Ends the engine also where the writer panics: the scope waits for it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(changes: Vec<Change>) -> Result<(), TestCaseError> {
    let capacity = Capacity {
        nodes4: 1 << 12,
        leaves4: 1 << 12,
        words6: 1 << 14,
        groups: 512,
        members: 512,
        adjacencies: ADJACENCIES as usize,
        segments: 64,
        templates: 1 << 10,
    };
    let memory = Arc::new(Memory::heap(&capacity));
    let may: Arc<May> = Arc::new(RwLock::new(by(&None)));
    let readers = Arc::clone(&may);
    // Whoever decides holds the lock.
    let grace = move || drop(readers.write().unwrap());
    let mut rib = Rib::new(Arc::clone(&memory), &capacity, grace);
    // A neighbour with a route behind it on each link.
    for index in 1..=LINKS {
        let gateway = address(false, index as u8);
        rib.apply(draw::link(index, true, true));
        rib.apply(Event::Neighbour(neighbour(index, gateway)));
        let hop = RouteNexthop {
            gateway: Some(gateway),
            index,
            ..RouteNexthop::default()
        };
        let behind = route(
            address(false, 8 * index as u8),
            29,
            RouteTarget::Single(hop),
        );
        rib.apply(Event::Route(behind, RouteOp::Add));
    }
    rib.commit();
    let (mut published, mut told) = (None, None);
    let (mut new_links, mut finds, mut applied) = (false, false, true);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let engine = scope.spawn(|| decide(&memory, &may, &stop));
        let writes = Stop(&stop);
        for change in changes {
            let commits = match change {
                Change::Event(event) => {
                    rib.apply(event);
                    continue;
                }
                Change::Ports(ports) => {
                    new_links |= *rib.ports() != ports;
                    rib.set_ports(ports);
                    continue;
                }
                Change::Found(found) => {
                    rib.set_firewall(found.clone());
                    finds |= found != told;
                    told = found;
                    continue;
                }
                Change::Refresh => {
                    rib.refresh();
                    continue;
                }
                Change::Commit => true,
                Change::Firewall => false,
            };
            let (before, behind) = (by(&published), by(&told));
            *may.write().unwrap() = [0, 1].map(|i| before[i].union(&behind[i]).copied().collect());
            match commits {
                true => drop(rib.commit()),
                false => applied &= rib.commit_firewall() == (!new_links || !finds),
            }
            // Without a commit it waits where new links wait.
            if commits || !new_links {
                published = told.clone();
                (new_links, finds) = (false, false);
            }
            *may.write().unwrap() = by(&published);
        }
        drop(writes);
        let wrong = engine.join().unwrap();
        prop_assert!(applied, "it waits for new links, and for nothing else");
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        for (open, may) in open(&memory).iter().zip(by(&published)) {
            prop_assert!(open.is_subset(&may), "{:?} are open of {:?}", open, may);
        }
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_pair_opens_that_stays_closed(changes in changes()) {
        run(changes)?;
    }
}

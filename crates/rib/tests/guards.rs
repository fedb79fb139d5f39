//! What a firewall may judge, while findings, links and nexthops come and go: engines that look at any moment see no pair of
//! links open that was closed before and is closed behind the change, and behind it only what is open by the finding. The same
//! of packets that routing rules by address ask for, while rules come and go.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, unused_imports, reason = "other tests use the rest of it")]
mod common;
#[path = "incremental/draw.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod draw;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use common::{address, neighbour, route};
use draw::{LINKS, event};
use ipnet::IpNet;
use proptest::prelude::*;
use raddle_image::{Capacity, Group, LinkEntry, Memory, Reason, Shown, link_flags};
use raddle_rib::event::{Event, Route, RouteKind, RouteNexthop, RouteOp, RouteTarget, Rule, Sweep};
use raddle_rib::firewall::{Firewall, Guarded};
use raddle_rib::{Ports, RULES_BY_PACKET, Rib};

type Pairs = BTreeSet<(u32, u32)>;
/// Numbers of [`PROBES`].
type Probes = BTreeSet<usize>;

/// Sources and destinations of packets.
const PROBES: [(u8, u8); 5] = [(1, 9), (9, 1), (17, 9), (17, 25), (40, 41)];

fn probe(number: usize) -> (IpAddr, IpAddr) {
    let (src, dst) = PROBES[number];
    (address(false, src), address(false, dst))
}

/// Whether rules let the engine look up a packet that comes in so.
fn is_free(memory: &Memory, entry: &LinkEntry, number: usize) -> bool {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = probe(number) else {
        return false;
    };
    let guarded = entry.flags & link_flags::GUARDED != 0;
    let asks = || memory.guards4(entry, (src.to_bits(), dst.to_bits()), false, Shown::default);
    entry.flags & link_flags::RULES4 == 0 && !(guarded && asks() == Err(Reason::Rules))
}

/// The packets that no rule asks for.
fn free(rules: &[Rule]) -> Probes {
    let asks = |number: &usize| {
        let (src, dst) = probe(*number);
        let inside = |net: Option<IpNet>, address| net.is_none_or(|net| net.contains(&address));
        let mut by_address = rules.iter().filter(|r| r.from.is_some() || r.to.is_some());
        by_address.any(|rule| inside(rule.from, src) && inside(rule.to, dst))
    };
    (0..PROBES.len()).filter(|number| !asks(number)).collect()
}

/// A rule by address, one of eleven; what it makes of packets is not known.
fn rule(number: u8) -> Rule {
    let net = |n: u8| Some(IpNet::new(address(false, 8 * n), 29).unwrap());
    let (from, to) = match number {
        0..4 => (net(number), None),
        4..8 => (None, net(number - 4)),
        number => (net(number - 8), net(1)),
    };
    Rule {
        from,
        to,
        other: vec![13],
        ..usual(100 + u32::from(number), 7)
    }
}

fn usual(priority: u32, table: u32) -> Rule {
    Rule {
        family: 4,
        priority,
        table,
        action: 1,
        ..Rule::default()
    }
}

/// An image, and the state of a machine with so many links, all of them in use.
fn with_links(capacity: &Capacity, count: u32) -> (Arc<Memory>, Rib) {
    let memory = Arc::new(Memory::heap(capacity));
    let mut rib = Rib::new(Arc::clone(&memory), capacity, || ());
    (1..=count).for_each(|index| rib.apply(draw::link(index, true, true)));
    let links: BTreeSet<u32> = (1..=count).collect();
    rib.set_ports(Ports {
        enabled: links.clone(),
        out: links,
    });
    (memory, rib)
}

/// All rules but one, told anew: one that asks for what is not known goes by a dump.
fn tell_without(rib: &mut Rib, gone: &Rule) {
    let left: Vec<Rule> = rib
        .rules()
        .iter()
        .filter(|rule| *rule != gone)
        .cloned()
        .collect();
    rib.apply(Event::SweepBegin(Sweep::Rules));
    left.into_iter()
        .for_each(|rule| rib.apply(Event::Rule(rule)));
    rib.apply(Event::SweepEnd(Sweep::Rules));
}

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
            if !adjacency.forwards() {
                continue;
            }
            for (open, closed) in open.iter_mut().zip([entry.closed4, entry.closed6]) {
                if closed >> (adjacency.zone & 63) & 1 == 0 {
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
    /// A rule comes, or goes where it was there.
    Rule(u8),
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
            pairs: pairs.into_iter().collect(),
            ..Guarded::default()
        })
    };
    let found = (ports(), guarded(), guarded()).prop_map(|(ports, v4, v6)| {
        let firewall = Firewall {
            v4,
            v6,
            ..Firewall::default()
        };
        Some((ports, firewall))
    });
    let change = prop_oneof![
        2 => event().prop_map(Change::Event),
        3 => (0..11u8).prop_map(Change::Rule),
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
type May = RwLock<([Pairs; 2], Probes)>;

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
        let number = n as usize / 7 % PROBES.len();
        if is_free(memory, &entry, number) && !now.1.contains(&number) {
            return Some(format!(
                "{number} of the probes is free, and only {:?} may be",
                now.1
            ));
        }
        let pair = (link, adjacency.index);
        for (closed, may) in [entry.closed4, entry.closed6].into_iter().zip(&now.0) {
            let passes = adjacency.forwards() && closed >> (adjacency.zone & 63) & 1 == 0;
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
    let mut rules = vec![usual(0, 255), usual(32766, 254)];
    let usual = rules.len();
    let may: Arc<May> = Arc::new(RwLock::new((by(&None), free(&rules))));
    let readers = Arc::clone(&may);
    // Whoever decides holds the lock.
    let grace = move || drop(readers.write().unwrap());
    let mut rib = Rib::new(Arc::clone(&memory), &capacity, grace);
    for rule in rules.clone() {
        rib.apply(Event::Rule(rule));
    }
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
    let (mut published_rules, mut too_many) = (free(&rules), false);
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
                Change::Rule(number) => {
                    let rule = rule(number);
                    match rules.iter().position(|known| *known == rule) {
                        Some(at) => tell_without(&mut rib, &rules.remove(at)),
                        None => {
                            rules.push(rule.clone());
                            rib.apply(Event::Rule(rule));
                        }
                    }
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
            let free_behind = match commits {
                true => free(&rules),
                false => published_rules.clone(),
            };
            *may.write().unwrap() = (
                [0, 1].map(|i| before[i].union(&behind[i]).copied().collect()),
                published_rules.union(&free_behind).copied().collect(),
            );
            match commits {
                true => {
                    rib.commit();
                    too_many = rules.len() - usual > RULES_BY_PACKET;
                }
                false => applied &= rib.commit_firewall() == (!new_links || !finds),
            }
            // Without a commit it waits where new links wait.
            if commits || !new_links {
                published = told.clone();
                (new_links, finds) = (false, false);
            }
            published_rules = free_behind;
            *may.write().unwrap() = (by(&published), published_rules.clone());
        }
        drop(writes);
        let wrong = engine.join().unwrap();
        prop_assert!(applied, "it waits for new links, and for nothing else");
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        for (open, may) in open(&memory).iter().zip(by(&published)) {
            prop_assert!(open.is_subset(&may), "{:?} are open of {:?}", open, may);
        }
        for entry in (1..=LINKS).map(|link| memory.link(link)) {
            let free = (0..PROBES.len()).filter(|number| is_free(&memory, &entry, *number));
            let free: Probes = free.collect();
            let enabled = entry.flags & link_flags::ENABLED != 0;
            prop_assert!(!enabled || free.is_subset(&published_rules));
            // More than are followed, or another half of them for the way back: that may be too careful.
            let filters = entry.flags & link_flags::RP_BEHIND != 0;
            prop_assert!(!enabled || too_many || filters || free == published_rules);
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

/// Rules for eight networks each on three links: the ranges of the third find no room, and all its IPv4 is the kernel's.
#[test]
fn what_finds_no_range_goes_to_the_kernel() {
    let capacity = Capacity {
        nodes4: 64,
        leaves4: 64,
        words6: 64,
        ..Capacity::default()
    };
    let (memory, mut rib) = with_links(&capacity, 3);
    let of_link = |link: u32, n: u8| Rule {
        other: vec![13],
        iif: Some(format!("l{link}")),
        from: Some(IpNet::new([10, link as u8, n, 0].into(), 24).unwrap()),
        ..usual(10 * link + u32::from(n), 7)
    };
    let all = (1..=3).flat_map(|link| (0..8).map(move |n| of_link(link, n)));
    let all = all.chain([usual(0, 255), usual(32766, 254)]);
    all.for_each(|rule| rib.apply(Event::Rule(rule)));
    rib.commit();
    let beyond = |link| memory.link(link).flags & link_flags::RULES4 != 0;
    assert_eq!([1, 2, 3].map(beyond), [false, false, true]);
    // Without those of the first there is room.
    (0..8).for_each(|n| tell_without(&mut rib, &of_link(1, n)));
    rib.commit();
    assert_eq!([1, 2, 3].map(beyond), [false; 3]);
    let entry = memory.link(3);
    let asks = |src: [u8; 4]| {
        let addresses = (u32::from_be_bytes(src), 1);
        memory.guards4(&entry, addresses, false, Shown::default)
    };
    assert_eq!(asks([10, 3, 7, 255]), Err(Reason::Rules));
    assert_eq!(asks([10, 3, 8, 0]), Ok(None));
    assert_eq!(asks([10, 2, 7, 255]), Ok(None));
}

/// A table without a default route, which packets fall through: it is copied while it is small. One that was too large is so until an
/// eighth is gone, so that one host that comes and goes changes nothing.
#[test]
fn a_table_is_small_again_when_much_of_it_is_gone() {
    let capacity = Capacity {
        nodes4: 1 << 17,
        leaves4: 1 << 17,
        words6: 64,
        ..Capacity::default()
    };
    let (memory, mut rib) = with_links(&capacity, 1);
    let from = Rule {
        from: Some("10.3.0.0/16".parse().unwrap()),
        ..usual(100, 7)
    };
    for rule in [usual(0, 255), from, usual(32766, 254)] {
        rib.apply(Event::Rule(rule));
    }
    let route = |n: u32| Route {
        dst: IpNet::new((0x1400_0000 + n).to_be_bytes().into(), 32).unwrap(),
        table: 7,
        kind: RouteKind::Blackhole,
        ..Route::default()
    };
    const MOST: u32 = 1 << 14;
    (0..MOST).for_each(|n| rib.apply(Event::Route(route(n), RouteOp::Add)));
    let is_followed = |rib: &mut Rib| {
        rib.commit();
        let asked = (u32::from_be_bytes([10, 3, 0, 1]), 1);
        let leads = memory.guards4(&memory.link(1), asked, false, Shown::default);
        assert!(
            matches!(leads, Ok(Some(_)) | Err(Reason::Rules)),
            "{leads:?}"
        );
        leads.is_ok()
    };
    assert!(is_followed(&mut rib));
    rib.apply(Event::Route(route(MOST), RouteOp::Add));
    assert!(!is_followed(&mut rib));
    (0..MOST / 8).for_each(|n| rib.apply(Event::RouteGone(route(n))));
    assert!(!is_followed(&mut rib));
    rib.apply(Event::RouteGone(route(MOST)));
    assert!(is_followed(&mut rib));
}

/// Rules that lead elsewhere for each of six links: there is room for what some look up, and the same packets of the others are the kernel's.
#[test]
fn what_finds_no_room_for_its_look_ups_leaves_them_to_the_kernel() {
    let capacity = Capacity {
        nodes4: 1 << 10,
        leaves4: 1 << 10,
        words6: 64,
        ..Capacity::default()
    };
    let (memory, mut rib) = with_links(&capacity, 6);
    let from = |n: u8| Rule {
        from: Some(IpNet::new([10, n, 0, 0].into(), 16).unwrap()),
        ..usual(50 + u32::from(n), 7)
    };
    let of_link = |link: u32| Rule {
        iif: Some(format!("l{link}")),
        ..usual(90, 100 + link)
    };
    let all = (0..4).map(from).chain((1..=6).map(of_link));
    let all = all.chain([usual(0, 255), usual(32766, 254)]);
    all.for_each(|rule| rib.apply(Event::Rule(rule)));
    rib.commit();
    let led = |link: u32, n: u8| {
        let entry = memory.link(link);
        assert_eq!(entry.flags & link_flags::RULES4, 0, "{link}");
        let addresses = (u32::from_be_bytes([10, n, 0, 1]), 1);
        memory.guards4(&entry, addresses, false, Shown::default)
    };
    for link in 1..=6 {
        assert_eq!(led(link, 4), Ok(None));
        let has_room = link <= 3;
        for n in 0..4 {
            assert_eq!(led(link, n).is_ok(), has_room, "{link} {n}");
        }
        assert_eq!(
            rib.punted_by_rules(link, 4).len(),
            if has_room { 0 } else { 4 }
        );
    }
}

/// Where packets of a link go that come from host `n`, by the image as it stands; none where that is the kernel's.
fn way_of(memory: &Memory, link: u32, n: u8) -> Option<u32> {
    let entry = memory.link(link);
    let usable = entry.flags & (link_flags::ENABLED | link_flags::RULES4) == link_flags::ENABLED;
    let (IpAddr::V4(src), IpAddr::V4(dst), true) = (address(false, n), address(false, 60), usable)
    else {
        return None;
    };
    let addresses = (src.to_bits(), dst.to_bits());
    let led = match entry.flags & link_flags::GUARDED {
        0 => Ok(None),
        _ => memory.guards4(&entry, addresses, false, Shown::default),
    };
    // A packet takes its time from the one to the other.
    std::thread::yield_now();
    let table = led.ok()?.unwrap_or(entry.table4);
    match memory.group(memory.route4(table, addresses.1)) {
        Group::Single(adjacency) => Some(memory.adjacency(adjacency).index),
        _ => None,
    }
}

/// Each network has a rule for each table, and each table a default route by a link of its own.
fn leads(from: u8, table: u32) -> Rule {
    Rule {
        from: Some(IpNet::new(address(false, 8 * from), 29).unwrap()),
        ..usual(100 + 10 * table + u32::from(from), table)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn packets_are_looked_up_where_rules_lead(
        changes in proptest::collection::vec((0..3u8, 1..=LINKS, any::<bool>()), 1..60),
    ) {
        let capacity = Capacity {
            nodes4: 1 << 12,
            leaves4: 1 << 12,
            words6: 1 << 10,
            groups: 512,
            members: 512,
            adjacencies: ADJACENCIES as usize,
            segments: 64,
            templates: 1 << 10,
        };
        let memory = Arc::new(Memory::heap(&capacity));
        let may: Arc<RwLock<Vec<BTreeSet<Option<u32>>>>> = Arc::new(RwLock::new(Vec::new()));
        let readers = Arc::clone(&may);
        // Whoever looks up holds the lock.
        let grace = move || drop(readers.write().unwrap());
        let mut rib = Rib::new(Arc::clone(&memory), &capacity, grace);
        let mut rules = vec![usual(0, 255), usual(32766, LINKS)];
        rules.iter().for_each(|rule| rib.apply(Event::Rule(rule.clone())));
        for index in 1..=LINKS {
            let gateway = address(false, index as u8);
            rib.apply(draw::link(index, true, true));
            rib.apply(Event::Neighbour(neighbour(index, gateway)));
            let hop = RouteNexthop { gateway: Some(gateway), index, ..RouteNexthop::default() };
            let mut all = route(address(false, 0), 0, RouteTarget::Single(hop));
            all.table = index;
            rib.apply(Event::Route(all, RouteOp::Add));
        }
        let links: BTreeSet<u32> = (1..=LINKS).collect();
        rib.set_ports(Ports { enabled: links.clone(), out: links });
        rib.commit();
        // The first rule by priority that holds for a source in one of three networks; each table has a route.
        let by = |rules: &[Rule]| -> Vec<Option<u32>> {
            let of = |n: u8| {
                let holds = |rule: &&Rule| rule.from.is_none_or(|net| net.contains(&address(false, n)));
                let all = rules.iter().filter(|rule| rule.table != 255).filter(holds);
                all.min_by_key(|rule| rule.priority).map(|rule| rule.table)
            };
            [4, 12, 20].map(of).to_vec()
        };
        *may.write().unwrap() = by(&rules).into_iter().map(|way| [way].into()).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let engine = scope.spawn(|| {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let now = may.read().unwrap();
                    for (place, host) in [4, 12, 20].into_iter().enumerate() {
                        let way = way_of(&memory, 1 + n % LINKS, host);
                        if way.is_some() && !now[place].contains(&way) {
                            return Some(format!("host {host} goes by {way:?}, not by {:?}", now[place]));
                        }
                    }
                }
                None
            });
            let writes = Stop(&stop);
            let (mut published, mut followed) = (by(&rules), true);
            for (from, table, commits) in changes {
                let rule = leads(from, table);
                match rules.iter().position(|known| *known == rule) {
                    Some(at) => tell_without(&mut rib, &rules.remove(at)),
                    None => {
                        rules.push(rule.clone());
                        rib.apply(Event::Rule(rule));
                    }
                }
                if !commits {
                    continue;
                }
                let behind = by(&rules);
                let both = published.iter().zip(&behind);
                *may.write().unwrap() = both.map(|(a, b)| [*a, *b].into()).collect();
                rib.commit();
                published = behind;
                // More than are followed are the kernel's, all of them.
                followed = rules.len() - 2 <= RULES_BY_PACKET;
                *may.write().unwrap() = published.iter().map(|way| [*way].into()).collect();
            }
            drop(writes);
            let wrong = engine.join().unwrap();
            prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
            for (place, host) in [4, 12, 20].into_iter().enumerate() {
                let way = way_of(&memory, 1, host);
                prop_assert_eq!(way, published[place].filter(|_| followed));
            }
            Ok(())
        })?;
    }
}

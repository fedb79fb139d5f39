//! Bridges and macvlans: by which link frames come in, and by which they leave, whatever changes in which order, and what readers see
//! meanwhile.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "../common/parts.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod common;
mod draw;
mod engine;
mod kernel;
mod room;
mod single;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use draw::{BOND, BRIDGES, Change, MACS, MACVLANS, MEMBERS, TAGS, VLANS, WIRES, change, uppers};
use kernel::{Mac, World};
use proptest::test_runner::{Config, TestRunner};
use raddle_image::{Adjacency, Capacity, LinkEntry, Memory, Step, Upon, Vlan, link_flags};
use raddle_rib::event::{
    Bridge, BridgePort, Event, FdbEntry, Link, Route, RouteNexthop, RouteOp, RouteTarget,
};
use raddle_rib::{Ports, Rib};

fn small() -> Capacity {
    Capacity {
        nodes4: 1 << 10,
        leaves4: 1 << 10,
        words6: 1 << 14,
        groups: 256,
        members: 64,
        adjacencies: 64,
        segments: 64,
        templates: 1 << 10,
    }
}

/// A neighbour on a link.
fn gateway(index: u32) -> IpAddr {
    [0xfd00, 9, index as u16, 0, 0, 0, 0, 1].into()
}

fn tag_lists() -> Vec<Vec<Vlan>> {
    let one = TAGS.iter().map(|tag| vec![*tag]);
    let two = TAGS.iter().flat_map(|a| TAGS.map(|b| vec![*a, b]));
    std::iter::once(Vec::new()).chain(one).chain(two).collect()
}

/// All frames that are looked at: by which link, with which tags, to and from which address.
fn frames() -> Vec<(u32, Vec<Vlan>, Mac, Mac)> {
    let mut all = Vec::new();
    for by in WIRES.chain(MEMBERS) {
        for tags in tag_lists() {
            for dst in &MACS[..4] {
                all.extend(MACS[3..].iter().map(|src| (by, tags.clone(), *dst, *src)));
            }
        }
    }
    all
}

/// What readers of the image go by.
fn steps(memory: &Memory) -> BTreeMap<(u32, Upon), Step> {
    let tags = TAGS.map(Upon::Tag).into_iter();
    let macs = MACS.map(Upon::mac).into_iter();
    let upon: Vec<Upon> = tags
        .chain([Upon::All, Upon::Untagged])
        .chain(macs)
        .collect();
    let all = (0..40).flat_map(|lower| upon.iter().map(move |upon| (lower, *upon)));
    all.filter_map(|key| Some((key, memory.step(key.0, key.1)?)))
        .collect()
}

/// How often engines took what the kernel takes by an enabled link, and how often they could have.
#[derive(Default)]
struct Reach {
    taken: AtomicUsize,
    known: AtomicUsize,
    by_bridge: AtomicUsize,
    by_macvlan: AtomicUsize,
    sent: AtomicUsize,
    could_send: AtomicUsize,
}

fn count(of: &AtomicUsize, more: bool) {
    of.fetch_add(usize::from(more), Ordering::Relaxed);
}

/// Engines take every frame as the kernel does, or punt it, and send as it does.
fn compare(rib: &Rib, reach: &Reach) {
    let world = World::of(rib);
    let ports = rib.ports();
    for (by, tags, dst, src) in frames() {
        let kernel = world.takes(by, &tags, dst, src);
        let engine = engine::takes(rib.memory(), by, &tags, dst, src).map(|entry| entry.index);
        if let Some(index) = engine {
            let frame = format!("{tags:?} to {dst:x?} from {src:x?} by {by}");
            assert_eq!(Some(index), kernel, "{frame}: {world:#?}");
            assert!(ports.enabled.contains(&index), "{frame}");
        }
        let passed = [VLANS, BRIDGES, MACVLANS].map(|of| kernel.is_some_and(|by| of.contains(&by)));
        let known = kernel.is_some_and(|by| ports.enabled.contains(&by));
        count(&reach.known, known && passed != [false; 3]);
        count(&reach.taken, engine.is_some() && passed != [false; 3]);
        count(&reach.by_bridge, engine.is_some() && passed[1]);
        count(&reach.by_macvlan, engine.is_some() && passed[2]);
    }
    for (number, index, neighbour, _) in rib.adjacencies() {
        let adjacency = rib.memory().adjacency(number);
        let known = neighbour.and_then(|dst| rib.neighbour(index, dst));
        let mac = known.filter(|known| known.is_valid()).and_then(|n| n.mac);
        let kernel = mac.and_then(|mac| world.sends(index, mac));
        let engine = adjacency.forwards().then(|| {
            assert_eq!(Some(adjacency.dst_mac), mac);
            let tags = adjacency.put_tags().iter().copied();
            (adjacency.leaves_by(), tags.collect::<Vec<u32>>())
        });
        let port = kernel.as_ref().and_then(|(_, _, port)| *port);
        let kernel = kernel.map(|(by, tags, _)| (by, tags.iter().map(|t| t.tag()).collect()));
        let is_out = |by: u32| {
            let mut all = [index, by].into_iter().chain(port);
            all.all(|link| ports.out.contains(&link))
        };
        if let Some((by, _)) = &engine {
            assert_eq!(engine, kernel, "by {index}: {world:#?}");
            assert!(is_out(*by));
        }
        let by_bridge = BRIDGES.contains(&index) || VLANS.contains(&index);
        count(&reach.sent, engine.is_some() && by_bridge);
        let could = kernel.as_ref().is_some_and(|(by, _)| is_out(*by));
        count(&reach.could_send, could && by_bridge);
    }
}

/// What an image says, whatever its numbers are: entries, steps with the sources that are learnt there, and adjacencies.
type Said = (
    Vec<(u32, Mac, u32)>,
    BTreeMap<(u32, Upon), (u32, bool, Vec<Mac>)>,
    BTreeMap<(u32, Option<IpAddr>), Adjacency>,
);

fn said(rib: &Rib) -> Said {
    let memory = rib.memory();
    let entry = |index| {
        let LinkEntry {
            flags, mac, index, ..
        } = memory.link(index);
        (flags, mac, index)
    };
    let learnt = |step: Step| {
        let macs = MACS.into_iter();
        let known = macs.filter(|mac| step.learnt != 0 && memory.is_learnt(*mac, step.learnt));
        (step.index, step.is_port, known.collect())
    };
    let steps = steps(memory).into_iter();
    let adjacencies = rib.adjacencies().map(|(number, index, dst, _)| {
        let adjacency = memory.adjacency(number);
        // What is not read of one that is the kernel's may be anything.
        let read = match adjacency.forwards() {
            true => adjacency,
            false => Adjacency {
                reason: adjacency.reason,
                ..Adjacency::default()
            },
        };
        ((index, dst), read)
    });
    (
        (0..40).map(entry).collect(),
        steps.map(|(key, step)| (key, learnt(step))).collect(),
        adjacencies.collect(),
    )
}

/// The image is the one that all that is known makes at once.
fn compare_with_new(rib: &Rib) {
    let mut new = Rib::new(Arc::new(Memory::heap(&small())), &small(), || ());
    rib.snapshot().into_events().for_each(|e| new.apply(e));
    new.set_ports(rib.ports().clone());
    new.commit();
    let [(entries, steps, leaves), new_said] = [said(rib), said(&new)];
    assert_eq!(entries, new_said.0);
    assert_eq!(steps, new_said.1);
    assert_eq!(leaves, new_said.2);
    assert_eq!(rib.without_room(), new.without_room());
}

/// What readers may hold: the image's steps as of the last wait.
#[derive(Default)]
struct Readers {
    worlds: Vec<World>,
    held: Vec<((u32, Upon), Step, World)>,
}

/// At any moment engines take a frame as the kernel did before what is being published, or as it does after it. And whoever has read a
/// step finds no source to be learnt there that is learnt elsewhere.
fn watch(memory: &Memory, readers: &Mutex<Readers>) {
    let mut readers = readers.lock().unwrap();
    let worlds = &readers.worlds;
    for (by, tags, dst, src) in frames() {
        if let Some(entry) = engine::takes(memory, by, &tags, dst, src) {
            let takes = |world: &World| world.takes(by, &tags, dst, src) == Some(entry.index);
            assert!(
                worlds.iter().any(takes),
                "{tags:?} to {dst:x?} from {src:x?} by {by}: {entry:?} {worlds:#?}"
            );
        }
    }
    for ((port, upon), step, was) in &readers.held {
        let Some(bridge) = was.links.get(port).and_then(|link| link.master) else {
            continue;
        };
        for mac in MACS
            .into_iter()
            .filter(|mac| memory.is_learnt(*mac, step.learnt))
        {
            let is_there = |world: &World| {
                let of = |vlan: u16| world.fdb.get(&(bridge, vlan, mac));
                let entry = match upon {
                    Upon::All => of(0),
                    Upon::Tag(tag) => of(tag.id),
                    _ => [5, 6]
                        .into_iter()
                        .find_map(|v| of(v).filter(|e| e.port == *port)),
                };
                entry.is_some_and(|entry| entry.port == *port && !entry.local)
            };
            assert!(
                worlds.iter().any(is_there),
                "{mac:x?} at {port} {upon:?} {step:?}"
            );
        }
    }
    let now = worlds.first().cloned().unwrap_or_default();
    let held = steps(memory).into_iter().filter(|(_, s)| s.learnt != 0);
    readers.held = held.map(|(key, step)| (key, step, now.clone())).collect();
}

fn ports(enabled: impl IntoIterator<Item = u32>, out: impl IntoIterator<Item = u32>) -> Ports {
    Ports {
        enabled: enabled.into_iter().collect(),
        out: out.into_iter().collect(),
    }
}

/// Links that may be sent by, and VLANs that are ports.
fn outs() -> impl Iterator<Item = u32> {
    (1..10).chain(uppers())
}

/// A mirror with two bridges, of which the first has ports 1 and 2, and a route by each link.
fn started(grace: impl Fn() + Send + Sync + 'static) -> Rib {
    let mut rib = Rib::new(Arc::new(Memory::heap(&small())), &small(), grace);
    let set = Bridge {
        protocol: 0x8100,
        ..Bridge::default()
    };
    let port = BridgePort {
        state: 3,
        learns: true,
        ..BridgePort::default()
    };
    for index in BRIDGES {
        rib.apply(draw::bridge(index, 0, true, set));
    }
    for index in WIRES.chain([BOND]) {
        let link = Link {
            kind: (index == BOND).then(|| "bond".to_owned()),
            mac: Some(MACS[0]),
            ..common::link(index, true, true)
        };
        let master = (index < 3).then_some(10);
        rib.apply(Event::Link(draw::as_port(link, master, port)));
    }
    for index in MEMBERS {
        rib.apply(draw::member(index, true));
    }
    let local = |vlan| FdbEntry {
        bridge: 10,
        mac: MACS[0],
        vlan,
        port: 10,
        local: true,
        is_special: false,
    };
    for entry in [0, 5, 6].map(local) {
        rib.apply(Event::Fdb(entry));
    }
    let learnt = FdbEntry {
        mac: MACS[4],
        port: 1,
        local: false,
        ..local(0)
    };
    rib.apply(Event::Fdb(learnt));
    for index in uppers() {
        let hop = RouteNexthop {
            gateway: Some(gateway(index)),
            index,
            ..RouteNexthop::default()
        };
        let route = Route {
            dst: format!("fd20:{index}::/32").parse().unwrap(),
            target: RouteTarget::Single(hop),
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib.set_ports(ports(uppers(), outs()));
    rib
}

fn follow(changes: Vec<Change>, reach: &Reach) {
    let readers = Arc::new(Mutex::new(Readers::default()));
    let seen = Arc::clone(&readers);
    let memory: Arc<Mutex<Option<Arc<Memory>>>> = Arc::default();
    let image = Arc::clone(&memory);
    let mut rib = started(move || {
        if let Some(memory) = &*image.lock().unwrap() {
            watch(memory, &seen);
        }
    });
    *memory.lock().unwrap() = Some(Arc::clone(rib.memory()));
    draw::usual().into_iter().for_each(|event| rib.apply(event));
    let mut enabled = ports(uppers(), outs());
    let commit = |rib: &mut Rib| {
        readers.lock().unwrap().worlds.push(World::of(rib));
        rib.commit();
        compare(rib, reach);
        compare_with_new(rib);
        readers.lock().unwrap().worlds = vec![World::of(rib)];
        watch(rib.memory(), &readers);
    };
    commit(&mut rib);
    for change in changes {
        match change {
            Change::Event(event) => draw::apply(&mut rib, event),
            Change::Enable(all, out) => {
                enabled = ports(all, out);
                rib.set_ports(enabled.clone());
            }
            Change::Links => {
                readers.lock().unwrap().worlds.push(World::of(&rib));
                rib.commit_links();
            }
            Change::Commit => commit(&mut rib),
        }
    }
    commit(&mut rib);
    assert_eq!(*rib.ports(), enabled);
    for index in 0..40 {
        let flags = rib.memory().link(index).flags;
        let both = link_flags::PORT | link_flags::ENABLED;
        assert_ne!(flags & both, both, "{index}");
    }
}

#[test]
fn frames_pass_bridges_and_macvlans_as_in_the_kernel() {
    let reach = Reach::default();
    let mut runner = TestRunner::new(Config::with_cases(300));
    let changes = proptest::collection::vec(change(), 1..70);
    runner
        .run(&changes, |changes| {
            follow(changes, &reach);
            Ok(())
        })
        .unwrap();
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let told = format!(
        "of {} taken {}, by bridges {} and macvlans {}; of {} sent {}",
        of(&reach.known),
        of(&reach.taken),
        of(&reach.by_bridge),
        of(&reach.by_macvlan),
        of(&reach.could_send),
        of(&reach.sent)
    );
    println!("{told}");
    assert!(of(&reach.taken) * 2 > of(&reach.known), "{told}");
    assert!(of(&reach.sent) * 2 > of(&reach.could_send), "{told}");
    assert!(
        of(&reach.by_bridge) > 1000 && of(&reach.by_macvlan) > 1000,
        "{told}"
    );
}

//! What the kernel is shown of resilient groups, by both engines.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_image::{Capacity, Reason};
use raddle_rib::event::{
    Bucket, DeviceSettings, Event, GroupMember, Link, Neighbour, Nexthop, NexthopKind, Route,
    RouteOp, RouteTarget, Settings,
};
use raddle_rib::{Ports, Rib};
use raddle_xdp::{Engine, LoadOptions, Verdict};
use raddle_xdp_testing::engines::{monotonic, verdict};
use raddle_xdp_testing::image::small;
use raddle_xdp_testing::net::{in_namespace, links};

const GROUP: u32 = 9;
const BUCKETS: u16 = 4;

fn object(id: u32, kind: NexthopKind) -> Event {
    Event::Nexthop(Nexthop::new(id, 2, kind))
}

/// Link 0 of these is where packets come in, behind 1 and 2 are the members of the group.
fn state(links: [u32; 3], idle_timer: u32) -> Vec<Event> {
    let mut events = vec![
        Event::Settings(Settings {
            hash_seed: 7,
            ..Settings::default()
        }),
        Event::Device(
            links[0],
            DeviceSettings {
                forwarding4: true,
                ..DeviceSettings::default()
            },
        ),
    ];
    for (n, index) in (0u8..).zip(links) {
        events.push(Event::Link(Link::ethernet(
            index,
            format!("l{n}"),
            [2, 0, 0, 0, 0, n],
        )));
        let gateway = [10, 0, n, 2].into();
        events.push(Event::Neighbour(Neighbour {
            index,
            dst: gateway,
            mac: Some([4, 0, 0, 0, 0, n]),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
        events.push(object(
            n.into(),
            NexthopKind::Single {
                gateway: Some(gateway),
                index,
                encap: None,
            },
        ));
    }
    let member = |id| GroupMember { id, weight: 1 };
    events.push(object(
        GROUP,
        NexthopKind::Resilient {
            members: vec![member(1), member(2)],
            buckets: BUCKETS,
            idle_timer,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        },
    ));
    let route = Route {
        dst: "10.9.0.0/16".parse().unwrap(),
        protocol: 4,
        target: RouteTarget::Object(GROUP),
        ..Route::default()
    };
    events.push(Event::Route(route, RouteOp::Add));
    events
}

fn owned_by(nexthop: u32) -> impl Iterator<Item = Event> {
    (0..BUCKETS).map(move |index| {
        Event::Bucket(Bucket {
            group: GROUP,
            index,
            nexthop,
            idle_time: 0,
            flags: 0,
        })
    })
}

fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 1, 8, 0];
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[0x45, 0, 0, 40]);
    header[8..10].copy_from_slice(&[64, 17]);
    header[12..].copy_from_slice(&[10, 0, 0, 2, 10, 9, 0, 1]);
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let check = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&check.to_be_bytes());
    frame.extend(header);
    frame.resize(60, 0);
    frame
}

/// The kernel takes a bucket for idle that it has not used since it moved, and gives it to another
/// member at the next change. So the first packet after a move is shown, however lately the kernel saw
/// one of whoever was at this place of the memory before, however short the machine has been up, and
/// however long the timer is.
#[test]
fn a_bucket_that_has_moved_is_shown() {
    in_namespace("a_bucket_that_has_moved_is_shown", || {
        let links: [u32; 3] = links();
        // Room for two tables: runs are used again at once.
        let capacity = Capacity {
            members: 16,
            adjacencies: 16,
            ..small()
        };
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        links
            .iter()
            .for_each(|index| engine.set_out_link(*index).unwrap());
        let mut userspace = raddle_forward::Engine::new(engine.memory());
        // 120 s, an hour, and the longest that there is.
        for idle_timer in [12_000, 360_000, u32::MAX] {
            engine.memory().reset(|| ());
            let mut rib = Rib::new(engine.memory(), &capacity, || ());
            state(links, idle_timer)
                .into_iter()
                .for_each(|event| rib.apply(event));
            rib.set_ports(Ports {
                enabled: [links[0]].into(),
                out: links.into(),
            });
            for turn in 0..6 {
                let owner = turn % 2 + 1;
                owned_by(owner).for_each(|event| rib.apply(event));
                rib.commit();
                let out = links[owner as usize];
                for shown in [true, false, false] {
                    let when = format!("timer {idle_timer}, turn {turn}, first: {shown}");
                    let theirs = engine.test_run(&frame(), links[0]).unwrap().verdict;
                    let ours = userspace.forward(&mut frame(), links[0], monotonic());
                    assert_eq!(verdict(ours), theirs, "{when}");
                    if shown {
                        assert_eq!(theirs, Verdict::Kernel(Reason::BucketActivity), "{when}");
                    } else {
                        assert!(
                            matches!(theirs, Verdict::Forward { index, .. } if index == out),
                            "{when}: {theirs:?}"
                        );
                    }
                }
            }
        }
    });
}

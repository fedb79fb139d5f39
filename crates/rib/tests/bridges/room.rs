//! FDBs of bridges that are larger than the image has room for.

use std::time::Instant;

use raddle_rib::event::{Event, FdbEntry};

use super::started;

fn host(n: u32, port: u32) -> Event {
    let [a, b, c, d] = n.to_be_bytes();
    Event::Fdb(FdbEntry {
        bridge: 10,
        mac: [2, 7, a, b, c, d],
        vlan: 0,
        port,
        local: false,
        is_special: false,
    })
}

/// More hosts than there is room for: the rest is counted, and takes the room of those that go.
#[test]
fn what_finds_no_room_is_counted_and_tried_again() {
    const HOSTS: u32 = 140_000;
    let mut rib = started(|| ());
    rib.commit();
    assert_eq!(rib.without_room(), Default::default());
    (0..HOSTS).for_each(|n| rib.apply(host(n, 1)));
    let begin = Instant::now();
    rib.commit();
    println!("{HOSTS} entries: {:?}", begin.elapsed());
    let step = rib.memory().step(1, raddle_image::Upon::All).unwrap();
    let known = |rib: &raddle_rib::Rib, n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        rib.memory().is_learnt([2, 7, a, b, c, d], step.learnt)
    };
    let count = |rib: &raddle_rib::Rib| (0..HOSTS).filter(|n| known(rib, *n)).count();
    let without = rib.without_room();
    assert!(without.sources > 1000, "{without:?}");
    assert_eq!(
        (count(&rib) + without.sources, without.steps),
        (HOSTS as usize, 0)
    );
    // Few of many change, as they do all the time.
    let begin = Instant::now();
    for n in 0..1000 {
        rib.apply(host(n, 2));
        rib.commit();
    }
    println!("1000 commits: {:?}", begin.elapsed());
    assert!((0..1000).all(|n| !known(&rib, n)));
    for n in 1000..HOSTS / 2 {
        let [a, b, c, d] = n.to_be_bytes();
        rib.apply(Event::FdbGone(10, [2, 7, a, b, c, d], 0));
    }
    for _ in 0..HOSTS / 64 {
        if rib.without_room().sources == 0 {
            break;
        }
        rib.apply(host(HOSTS, 1));
        rib.apply(Event::FdbGone(10, [2, 7, 0, 0, 0, 0], 0));
        rib.commit();
    }
    assert_eq!(rib.without_room(), Default::default());
    assert!((HOSTS / 2..HOSTS).all(|n| known(&rib, n)));
}

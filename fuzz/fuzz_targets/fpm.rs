//! Any bytes from whoever connects by FPM: the stream is cut the same wherever it is cut up, every message is told or
//! counted, and the mirror takes what is told; without any of it again, it is what it was before.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raddle_fuzz::{Mirror, address, compare, link, neighbour, new_rib};
use raddle_image::Capacity;
use raddle_netlink::fpm::{FrameError, Frames, Reader, Tallies};
use raddle_rib::FpmStats;
use raddle_rib::event::{Event, Fpm, Rule};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 12,
    words6: 1 << 14,
    groups: 256,
    members: 1024,
    adjacencies: 256,
    segments: 64,
    templates: 1 << 10,
};

/// What a stream that comes in pieces of this size tells, and how it ends.
fn read(stream: &[u8], piece: usize) -> (Vec<Fpm>, Tallies, Option<FrameError>) {
    let reader = Reader { counters: true };
    let (mut frames, mut tallies, mut told) = (Frames::default(), Tallies::default(), Vec::new());
    for piece in stream.chunks(piece) {
        frames.push(piece);
        loop {
            match frames.take() {
                Ok(Some(frame)) => reader.read(frame, &mut tallies, &mut |event| told.push(event)),
                Ok(None) => break,
                Err(error) => return (told, tallies, Some(error)),
            }
        }
    }
    (told, tallies, None)
}

fn world() -> Mirror {
    let mut rib = new_rib(&CAPACITY);
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
        rib.apply(Event::Neighbour(neighbour(
            index,
            address(false, index as u8),
        )));
    }
    rib.commit();
    rib
}

fuzz_target!(|data: &[u8]| {
    let Some((first, stream)) = data.split_first() else {
        return;
    };
    let (told, tallies, error) = read(stream, stream.len().max(1));
    let in_pieces = read(stream, usize::from(*first) + 1);
    assert_eq!(in_pieces, (told.clone(), tallies, error));
    let counted = [
        tallies.routes,
        tallies.routes_gone,
        tallies.nexthops,
        tallies.nexthops_gone,
    ];
    assert_eq!(counted.iter().sum::<u64>(), told.len() as u64);
    let mut rib = world();
    let mut before = rib.snapshot();
    let mut addresses = Vec::new();
    for event in told {
        if let Fpm::Route(route) = &event {
            addresses.push(route.dst.addr());
        }
        rib.apply(Event::Fpm(event));
    }
    rib.commit();
    assert!(!rib.is_dirty());
    compare(&rib, addresses.iter().copied());
    // The same where all entries are made anew.
    for (family, priority, table) in [(4, 100, 100), (6, 100, 100), (4, 200, 254), (6, 200, 254)] {
        rib.apply(Event::Rule(Rule {
            family,
            priority,
            table,
            action: 1,
            ..Rule::default()
        }));
    }
    rib.commit();
    compare(&rib, addresses.iter().copied());
    let FpmStats {
        routes4,
        routes6,
        alone4,
        alone6,
        refused,
        ..
    } = rib.fpm_stats();
    assert_eq!((alone4, alone6), (routes4, routes6));
    assert!(rib.fpm_routes().count() <= routes4 + routes6);
    before.rules = rib.snapshot().rules;
    for end in [Fpm::ResyncBegin, Fpm::ResyncEnd] {
        rib.apply(Event::Fpm(end));
    }
    rib.commit();
    compare(&rib, addresses);
    let nothing = FpmStats {
        refused,
        ..FpmStats::default()
    };
    assert_eq!((rib.fpm_stats(), rib.snapshot()), (nothing, before));
});

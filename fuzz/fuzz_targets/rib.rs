//! Any sequence of events: the image says what the mirror says after every commit.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use raddle_fuzz::{address, compare, event, link, new_rib};
use raddle_rib::event::{Event, Settings};
use raddle_rib::image::Capacity;

/// Room for all that a run can make.
const ROOMY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 1024,
    members: 4096,
    adjacencies: 512,
};
/// Soon full.
const TIGHT: Capacity = Capacity {
    nodes4: 128,
    leaves4: 128,
    words6: 128,
    groups: 24,
    members: 16,
    adjacencies: 8,
};

fuzz_target!(|data: &[u8]| {
    // Bytes that run out end the sequence.
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let tight: bool = u.arbitrary()?;
    let mut rib = new_rib(if tight { &TIGHT } else { &ROOMY });
    rib.apply(Event::Settings(Settings {
        hash_seed: 7,
        ..Settings::default()
    }));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
    }
    while !u.is_empty() {
        // Mostly several events to a commit, as notifications come.
        match u.int_in_range(0..=5u8)? {
            0 => {
                rib.commit();
                assert!(!rib.is_dirty());
                // A few different addresses each time.
                let first = u.arbitrary::<u8>()?;
                let some = (0..6).map(|i| first.wrapping_add(i * 11));
                compare(
                    &rib,
                    some.flat_map(|n| [address(false, n), address(true, n)]),
                );
            }
            _ => rib.apply(event(u)?),
        }
    }
    rib.commit();
    let all = (0..64).flat_map(|n| [address(false, n), address(true, n)]);
    compare(&rib, all);
    Ok(())
}

//! Any bytes as a snapshot file: what parses makes a mirror, an image that agrees with it, and the
//! same snapshot again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raddle_fuzz::{compare, new_rib};
use raddle_image::Capacity;
use raddle_rib::{Rib, Snapshot};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 1024,
    members: 4096,
    adjacencies: 512,
    segments: 64,
    templates: 1 << 10,
};

fuzz_target!(|data: &[u8]| {
    let Ok(snapshot) = serde_json::from_slice::<Snapshot>(data) else {
        return;
    };
    let addresses: Vec<_> = snapshot.routes.iter().map(|r| r.dst.addr()).collect();
    let mut rib = new_rib(&CAPACITY);
    snapshot.into_events().for_each(|event| rib.apply(event));
    rib.commit();
    assert!(!rib.is_dirty());
    compare(&rib, addresses);
    let once = rib.snapshot();
    let mut again = Rib::detached();
    once.clone()
        .into_events()
        .for_each(|event| again.apply(event));
    assert_eq!(again.snapshot(), once);
});

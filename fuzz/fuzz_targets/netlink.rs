//! Any bytes from a netlink socket: they decode or are counted, what decodes survives another trip,
//! and the mirror takes it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raddle_fuzz::{compare, new_rib};
use raddle_image::Capacity;
use raddle_netlink::codec::{Builder, Messages, decode, encode};
use raddle_rib::event::Event;

/// `NLM_F_REQUEST`: group weights have both bytes in requests.
const REQUEST: u16 = 1;

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

fuzz_target!(|data: &[u8]| {
    let mut events = Vec::new();
    let counts = decode(data, &mut |event| events.push(event));
    let messages = Messages::new(data).count() as u64;
    // A message may tell of several VLANs.
    let is_vlan = |event: &&Event| matches!(event, Event::PortVlan(_) | Event::PortVlanGone(..));
    let vlans = events.iter().filter(is_vlan).count() as u64;
    let counted = counts.events + counts.skipped + counts.malformed;
    assert!(counted >= messages && (vlans > 0 || counted == messages));
    assert_eq!(counts.events, events.len() as u64);
    if events.is_empty() {
        return;
    }
    for event in &events {
        // What does not fit a message is refused; what does comes back the same.
        if let Some(once) = round(event) {
            assert_eq!(round(&once).as_ref(), Some(&once), "of {event:?}");
        }
    }
    let mut rib = new_rib(&CAPACITY);
    let mut addresses = Vec::new();
    for event in events {
        if let Event::Route(route, _) = &event {
            addresses.push(route.dst.addr());
        }
        rib.apply(event);
    }
    rib.commit();
    assert!(!rib.is_dirty());
    compare(&rib, addresses);
});

fn round(event: &Event) -> Option<Event> {
    let mut builder = Builder::new();
    encode(&mut builder, event, REQUEST).ok()?;
    let mut back = Vec::new();
    let counts = decode(builder.as_bytes(), &mut |event| back.push(event));
    assert_eq!((counts.events, counts.malformed), (1, 0), "{event:?}");
    back.pop()
}

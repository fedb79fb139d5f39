//! What is encoded decodes to the same, and nothing that is decoded makes the decoder panic.

use proptest::prelude::*;
use raddle_netlink::codec::{Builder, Counts, Messages, decode, encode};
use raddle_rib::event::Event;

/// `NLM_F_REQUEST`: group weights have both bytes in requests.
const REQUEST: u16 = 1;

fn message(event: &Event) -> Vec<u8> {
    let mut builder = Builder::new();
    encode(&mut builder, event, REQUEST).unwrap();
    builder.as_bytes().to_vec()
}

fn decoded(bytes: &[u8]) -> (Vec<Event>, Counts) {
    let mut events = Vec::new();
    let counts = decode(bytes, &mut |event| events.push(event));
    (events, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn events_survive(events in prop::collection::vec(crate::events::event(), 1..5)) {
        let bytes: Vec<u8> = events.iter().flat_map(message).collect();
        let (got, counts) = decoded(&bytes);
        prop_assert_eq!(&got, &events);
        prop_assert_eq!((counts.events, counts.malformed), (events.len() as u64, 0));
    }

    #[test]
    fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decoded(&bytes);
    }

    /// Random bytes hardly get past the first length; damaged messages do.
    #[test]
    fn damaged_messages_will_do(
        event in crate::events::event(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = message(&event);
        let kind = [bytes[4], bytes[5]];
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        // Keep the frame whole, so that the damage is inside.
        if let Some(head) = bytes.first_chunk_mut::<16>() {
            let length = head.len() as u32;
            head[4..6].copy_from_slice(&kind);
            head[..4].copy_from_slice(&length.to_ne_bytes());
        }
        let length = bytes.len() as u32;
        if length >= 16 {
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
        }
        let (_, counts) = decoded(&bytes);
        let messages = Messages::new(&bytes).count() as u64;
        prop_assert_eq!(counts.events + counts.skipped + counts.malformed, messages);
    }
}

#[test]
fn when_a_route_expires() {
    // What `expires` of struct rta_cacheinfo makes of a route of this family.
    let told = |family, expires: &[u8]| {
        let mut b = Builder::new();
        let prefix = u8::from(family == 10) * 32;
        b.begin(24, 0, &[family, prefix, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        if family == 10 {
            b.put_ip(1, "2001:db8::".parse().unwrap());
        }
        b.put(12, &[&[0; 8], expires, &[0; 20]].concat());
        b.end().unwrap();
        let mut events = Vec::new();
        let counts = decode(b.as_bytes(), &mut |event| events.push(event));
        assert_eq!(counts.malformed, 0);
        match events.pop() {
            Some(Event::Route(route, _)) => route.expires,
            other => panic!("{other:?}"),
        }
    };
    let ticks = |n: i32| n.to_ne_bytes();
    assert_eq!(told(10, &ticks(9_950)), Some(99_500));
    assert_eq!(told(10, &ticks(-203)), Some(-2_030));
    assert_eq!(told(10, &ticks(i32::MIN)), Some(-21_474_836_480));
    assert_eq!(told(10, &ticks(0)), None);
    // Entries of a cache.
    assert_eq!(told(2, &ticks(9_950)), None);
}

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

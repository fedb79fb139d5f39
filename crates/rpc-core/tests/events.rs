//! The core under sequences of events that are drawn.

use proptest::collection::vec;
use proptest::prelude::*;

mod world;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn what_is_promised_holds_whatever_happens(kind: u8, steps in vec(any::<[u8; 4]>(), 0..400)) {
        world::run(kind, steps);
    }
}

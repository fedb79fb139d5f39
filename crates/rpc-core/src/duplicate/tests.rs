//! Keys byte by byte, and the cache against a list that is searched.

use std::hash::RandomState;

use proptest::prelude::*;

use super::*;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn key(
    hasher: &RandomState,
    client: ([u8; 4], u16),
    call: &[u8],
    fragment: (u64, bool),
) -> Option<Key> {
    let header = Call::parse(call).unwrap();
    Key::new(client.into(), &header, call, fragment, hasher)
}

proptest! {
    #[test]
    fn every_byte_of_a_small_call_counts(
        arguments in proptest::collection::vec(any::<u8>(), 0..600), which: proptest::sample::Index, bit in 0..8_u32,
    ) {
        let hasher = RandomState::new();
        let mut call = bytes(&[7, 0, 2, 100_003, 3, 9, 1, 4, 0xfeed, 0, 0]);
        call.extend(arguments);
        let of = |call: &[u8]| key(&hasher, ([10, 0, 0, 1], 700), call, (call.len() as u64, true));
        let before = of(&call);
        prop_assert!(before.is_some());
        prop_assert_eq!(before, of(&call.clone()));
        prop_assert_ne!(before, key(&hasher, ([10, 0, 0, 2], 700), &call, (call.len() as u64, true)));
        prop_assert_ne!(before, key(&hasher, ([10, 0, 0, 1], 701), &call, (call.len() as u64, true)));
        prop_assert_ne!(before, key(&hasher, ([10, 0, 0, 1], 700), &call, (call.len() as u64, false)));
        let length = call.len() as u64 + 4;
        prop_assert_ne!(before, key(&hasher, ([10, 0, 0, 1], 700), &call, (length, true)));
        // Not what says that it is a call, of which version, and how long its credentials are.
        let which = which.index(call.len());
        if !(4..12).contains(&which) && !(28..32).contains(&which) && !(40..44).contains(&which) {
            call[which] ^= 1 << bit;
            // A flavour of RPCSEC_GSS has its own rules.
            prop_assert_ne!(before, of(&call));
        }
    }
}

#[test]
fn of_a_signed_call_its_context_counts() {
    let hasher = RandomState::new();
    let call = |kind, sequence, handle, signature| {
        bytes(&[
            7, 0, 2, 100_003, 3, 9, 6, 24, 1, kind, sequence, 2, 4, handle, 6, 4, signature, 5, 5,
        ])
    };
    let of = |call: Vec<u8>| {
        key(
            &hasher,
            ([10, 0, 0, 1], 700),
            &call,
            (call.len() as u64, true),
        )
    };
    let first = of(call(0, 1, 77, 1));
    assert!(first.is_some());
    // Signed anew.
    assert_eq!(first, of(call(0, 2, 77, 9)));
    assert_ne!(first, of(call(0, 1, 78, 1)));
    // The context is made, or ended.
    for kind in 1..4 {
        assert_eq!(of(call(kind, 1, 77, 1)), None);
    }
    // Credentials that end too soon.
    let short = bytes(&[7, 0, 2, 100_003, 3, 9, 6, 8, 1, 0, 0, 0]);
    assert_eq!(of(short), None);
}

#[test]
fn an_address_is_the_same_in_both_its_forms() {
    let hasher = RandomState::new();
    let call = bytes(&[7, 0, 2, 100_003, 3, 9, 0, 0, 0, 0]);
    let header = Call::parse(&call).unwrap();
    let of = |address: &str| {
        let client = SocketAddr::new(address.parse().unwrap(), 700);
        Key::new(client, &header, &call, (40, true), &hasher)
    };
    assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
}

const BOUNDS: Bounds = Bounds {
    entries: 5,
    bytes: 100,
    time: Duration::from_secs(10),
};

/// What is done to a cache; times are seconds that pass before.
#[derive(Clone, Debug)]
enum Step {
    Begin(u32),
    /// The call that began so many steps ago, with a reply of so many bytes.
    Answer(usize, usize),
    End(usize),
    Find(u32),
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        (0..8_u32).prop_map(Step::Begin),
        (0..6_usize, 0..60_usize).prop_map(|(which, bytes)| Step::Answer(which, bytes)),
        (0..6_usize).prop_map(Step::End),
        (0..8_u32).prop_map(Step::Find),
    ];
    (prop_oneof![3 => Just(0), 1 => 0..5_u64], step)
}

/// A call of the reference: its XID, its number, and when it was answered with how many bytes.
type Told = (u32, u64, Option<(Instant, usize)>);

/// Forgets as the cache does, by looking at all; which ones that are not old.
fn forget(all: &mut Vec<Told>, order: &mut Vec<u64>, now: Instant) -> Vec<u64> {
    let mut forgotten = Vec::new();
    loop {
        // What is there no more is forgotten when it is the oldest.
        let live = |number: &u64| all.iter().any(|(_, n, at)| n == number && at.is_some());
        while order.first().is_some_and(|number| !live(number)) {
            order.remove(0);
        }
        let Some(oldest) = order.first().copied() else {
            return forgotten;
        };
        let bytes: usize = all.iter().filter_map(|of| Some(of.2?.1)).sum();
        let at = all.iter().find(|of| of.1 == oldest).unwrap().2.unwrap().0;
        let old = now - at >= BOUNDS.time;
        if order.len() <= BOUNDS.entries && bytes <= BOUNDS.bytes && !old {
            return forgotten;
        }
        forgotten.extend(Some(oldest).filter(|_| !old));
        all.retain(|of| of.1 != oldest);
        order.remove(0);
    }
}

proptest! {
    #[test]
    fn remembers_what_a_list_does(steps in proptest::collection::vec(step(), 0..120)) {
        let hasher = RandomState::new();
        let of = |xid: u32| {
            let call = bytes(&[xid, 0, 2, 100_003, 3, 9, 0, 0, 0, 0]);
            key(&hasher, ([10, 0, 0, 1], 700), &call, (40, true)).unwrap()
        };
        let mut cache: Cache<u64, u64> = Cache::new(BOUNDS);
        let (mut all, mut order): (Vec<Told>, Vec<u64>) = Default::default();
        // Begun, with their serials.
        let mut begun: Vec<(u32, u64, u64)> = Vec::new();
        let mut now = Instant::now();
        for (n, (seconds, step)) in steps.into_iter().enumerate() {
            now += Duration::from_secs(seconds);
            let which = |back: usize| begun.len().checked_sub(back + 1).map(|i| begun[i]);
            match step {
                Step::Begin(xid) => {
                    all.retain(|of| of.0 != xid);
                    all.push((xid, n as u64, None));
                    let serial = cache.begin(of(xid), n as u64);
                    begun.push((xid, serial, n as u64));
                }
                Step::Answer(back, length) => {
                    let Some((xid, serial, number)) = which(back) else { continue };
                    let gone = cache.answered((of(xid), serial), number, length, now);
                    let gone: Vec<u64> = gone.into_iter().map(|(_, number)| number).collect();
                    if let Some(told) = all.iter_mut().find(|of| of.1 == number && of.2.is_none()) {
                        told.2 = Some((now, length));
                        order.push(number);
                        prop_assert_eq!(gone, forget(&mut all, &mut order, now));
                    }
                }
                Step::End(back) => {
                    let Some((xid, serial, number)) = which(back) else { continue };
                    cache.ended(&of(xid), serial);
                    all.retain(|of| of.1 != number || of.2.is_some());
                }
                Step::Find(xid) => {
                    let want = all.iter().find(|of| of.0 == xid);
                    let want = want.filter(|of| of.2.is_none_or(|(at, _)| now - at < BOUNDS.time));
                    let want = want.map(|of| match of.2 {
                        None => Known::UnderWay(of.1),
                        Some(_) => Known::Answered(of.1),
                    });
                    prop_assert_eq!(cache.find(&of(xid), now), want.as_ref());
                }
            }
            let answered = all.iter().filter_map(|of| of.2);
            let kept = (answered.clone().count(), answered.map(|(_, bytes)| bytes).sum());
            prop_assert_eq!(cache.kept(), kept);
            prop_assert!(kept.0 <= BOUNDS.entries && kept.1 <= BOUNDS.bytes);
            prop_assert!(cache.order.len() <= BOUNDS.entries);
        }
        cache.expire(now + BOUNDS.time);
        prop_assert_eq!(cache.kept(), (0, 0));
    }
}

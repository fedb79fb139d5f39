//! Choices one by one, and rates.

use proptest::prelude::*;

use super::*;

const IDLE: Load = Load {
    up: true,
    lane: false,
    outstanding: 0,
    large: false,
    window: 4 << 20,
    rate: None,
};

fn large(file: u64) -> Want {
    Want {
        bytes: 1 << 20,
        file: Some(file),
    }
}

#[test]
fn round_robin_takes_turns_and_waits_for_the_slow() {
    let mut dispatch = Dispatch::new(Policy::RoundRobin);
    let mut loads = [IDLE; 3];
    let taken: Vec<_> = (0..4).map(|_| dispatch.choose(&loads, large(1))).collect();
    assert_eq!(taken, [Some(0), Some(1), Some(2), Some(0)]);
    loads[1].outstanding = 4 << 20;
    assert_eq!(dispatch.choose(&loads, large(1)), None);
    loads[1].up = false;
    assert_eq!(dispatch.choose(&loads, large(1)), Some(2));
}

#[test]
fn least_bytes_shares_by_rate() {
    let mut dispatch = Dispatch::new(Policy::LeastBytes);
    let mut loads = [IDLE; 4].map(|load| Load {
        rate: Some(100.0),
        window: u64::MAX,
        ..load
    });
    loads[2].rate = Some(25.0);
    for _ in 0..1300 {
        let chosen = dispatch.choose(&loads, large(1)).unwrap();
        loads[chosen].outstanding += 1 << 20;
    }
    let calls: Vec<u64> = loads.iter().map(|load| load.outstanding >> 20).collect();
    assert_eq!(calls, [400, 400, 100, 400]);
}

#[test]
fn small_calls_have_a_lane_beside_large_ones() {
    let lane = Load { lane: true, ..IDLE };
    let down = Load { up: false, ..IDLE };
    let busy = Load {
        outstanding: 1 << 20,
        large: true,
        ..IDLE
    };
    let small = Want {
        bytes: 300,
        file: Some(1),
    };
    for policy in [Policy::RoundRobin, Policy::LeastBytes, Policy::Hash] {
        let choose = |loads: &[Load], want| Dispatch::new(policy).choose(loads, want);
        assert_eq!(choose(&[busy, lane], small), Some(1), "{policy:?}");
        assert_eq!(choose(&[IDLE, lane], small), Some(0), "{policy:?}");
        assert_eq!(choose(&[busy, lane], large(1)), Some(0), "{policy:?}");
        assert_eq!(choose(&[down, lane], large(1)), Some(1), "{policy:?}");
        let lane = Load { up: false, ..lane };
        assert_eq!(choose(&[busy, lane], small), Some(0), "{policy:?}");
    }
}

#[test]
fn a_lane_that_is_full_is_passed_by() {
    let mut dispatch = Dispatch::new(Policy::LeastBytes);
    let lane = Load { lane: true, ..IDLE };
    let large = Load {
        outstanding: 1 << 20,
        large: true,
        ..IDLE
    };
    let mut loads = [large, large, lane];
    let small = Want {
        bytes: 16 << 10,
        file: None,
    };
    let mut calls = [0; 3];
    for _ in 0..70 {
        let chosen = dispatch.choose(&loads, small).unwrap();
        loads[chosen].outstanding += small.bytes;
        calls[chosen] += 1;
    }
    assert_eq!(calls, [2, 2, 66]);
}

proptest! {
    #[test]
    fn a_choice_is_up_and_has_room(
        loads in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), 0..9_u64, any::<bool>(), 0..9_u64), 1..9),
        file in proptest::option::of(any::<u64>()), bytes in 0..100_000_u64, policy in 0..3_u8,
    ) {
        let loads: Vec<Load> = loads.into_iter().map(|(up, lane, outstanding, large, window)| Load {
            up, lane, outstanding, large, window, rate: Some(outstanding as f64),
        }).collect();
        let policy = [Policy::RoundRobin, Policy::LeastBytes, Policy::Hash][policy as usize];
        let want = Want { bytes, file };
        let all_busy = loads.iter().all(|load| !load.up || load.outstanding >= load.window);
        match Dispatch::new(policy).choose(&loads, want) {
            Some(i) => {
                prop_assert!(loads[i].up);
                prop_assert!(loads[i].lane || loads[i].outstanding < loads[i].window);
            }
            // Only large calls keep off the lanes, and round robin waits for its turn.
            None => prop_assert!(
                all_busy || policy == Policy::RoundRobin || loads.iter().any(|load| load.lane)),
        }
    }

    #[test]
    fn a_failure_moves_the_files_of_one_connection(files in proptest::collection::vec(any::<u64>(), 1..50)) {
        let mut dispatch = Dispatch::new(Policy::Hash);
        let all = [IDLE; 4];
        let mut fewer = all;
        fewer[2].up = false;
        for file in files {
            let before = dispatch.choose(&all, large(file)).unwrap();
            prop_assert_eq!(dispatch.choose(&all, large(file)), Some(before));
            let after = dispatch.choose(&fewer, large(file)).unwrap();
            prop_assert!(before == 2 || after == before);
        }
    }
}

#[test]
fn a_rate_is_that_of_busy_times() {
    let (start, mut rate) = (Instant::now(), Rate::default());
    let at = |ms| start + Duration::from_millis(ms);
    for ms in 0..100 {
        rate.moved(1000, 1 << 20, at(ms));
    }
    let measured = rate.per_second(at(100)).unwrap();
    assert!((measured - 1e6).abs() < 5e4, "{measured}");
    // A lull is no slow path.
    rate.moved(10, 0, at(200));
    rate.moved(10, 1 << 20, at(900));
    assert_eq!(rate.per_second(at(1000)), Some(measured));
    assert_eq!(rate.per_second(at(9000)), None);
    assert_eq!(rate.window(), 4 << 20);
}

#[test]
fn the_time_between_calls_is_no_rate() {
    let (start, mut rate) = (Instant::now(), Rate::default());
    // A call of 1 MiB now and then, each done within 40 ms.
    for second in 0..10 {
        let at = |ms: u64| start + Duration::from_millis(1000 * second + ms);
        rate.moved(1 << 19, 1 << 20, at(0));
        rate.moved(1 << 19, 1 << 20, at(40));
        rate.left(0);
        assert_eq!(rate.per_second(at(41)), None);
    }
}

//! Which connection a call takes.

use std::time::{Duration, Instant};

/// Calls that move no more than this, both ways together, are small. In bytes.
pub const SMALL: u64 = 32 << 10;

/// How connections are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// Where it will be done first: by outstanding bytes and measured rates.
    #[default]
    LeastBytes,
    /// By the file: calls about one file take one connection.
    Hash,
}

/// A connection as dispatch sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Whether it is connected.
    pub up: bool,
    /// Whether it is kept for small calls.
    pub lane: bool,
    /// Bytes of calls without a reply, both ways.
    pub outstanding: u64,
    /// Bytes that it may have outstanding.
    pub window: u64,
    /// Bytes a second, if measured.
    pub rate: Option<f64>,
}

/// What dispatch wants to know of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Bytes that it moves, both ways.
    pub bytes: u64,
    /// The hash of its file.
    pub file: Option<u64>,
}

/// Chooses connections, and remembers whose turn it is.
#[derive(Clone, Debug)]
pub struct Dispatch {
    policy: Policy,
    turn: usize,
}

impl Dispatch {
    /// By this policy.
    pub fn new(policy: Policy) -> Dispatch {
        Dispatch { policy, turn: 0 }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The connection of a call; none when it has to wait. O(connections).
    ///
    /// 1. A small call takes the lane that is up and has the fewest bytes outstanding, window or not.
    /// 2. Without such a lane, and for all others: connections that are up, no lane, and have room: less
    ///    outstanding than their window. If none is up but lanes, the lanes.
    /// 3. `RoundRobin`: the next one that is up, in turn; if that has no room, the call waits, as in the series
    ///    that this policy is named for.
    /// 4. `Hash`: the file's number picks one of those that are up, by highest random weight, so that a
    ///    failure moves the files of that connection alone; without a file, and if it has no room, by rule 5.
    /// 5. `LeastBytes`: the one where outstanding bytes and this call's are done first at its rate; one
    ///    without a measured rate counts with the highest that was measured. Among equals in turn.
    pub fn choose(&mut self, loads: &[Load], want: Want) -> Option<usize> {
        if want.bytes <= SMALL {
            let lanes = loads.iter().enumerate().filter(|(_, l)| l.up && l.lane);
            if let Some((lane, _)) = lanes.min_by_key(|(_, lane)| lane.outstanding) {
                return Some(lane);
            }
        }
        let any = loads.iter().any(|load| load.up && !load.lane);
        let up = |i: &usize| loads[*i].up && (!any || !loads[*i].lane);
        let room = |i: &usize| loads[*i].outstanding < loads[*i].window;
        let count = loads.len();
        match (self.policy, want.file) {
            (Policy::RoundRobin, _) => {
                let next = (0..count).map(|i| (self.turn + i) % count).find(up)?;
                if !room(&next) {
                    return None;
                }
                self.turn = next + 1;
                return Some(next);
            }
            (Policy::Hash, Some(file)) => {
                let heaviest = (0..count).filter(up).max_by_key(|i| mix(file, *i as u64));
                if let Some(heaviest) = heaviest.filter(room) {
                    return Some(heaviest);
                }
            }
            _ => {}
        }
        let best = loads
            .iter()
            .filter_map(|load| load.rate)
            .fold(0.0, f64::max);
        let fastest = if best > 0.0 { best } else { 1.0 };
        let time = |i: usize| {
            let rate = loads[i].rate.filter(|rate| *rate > 0.0).unwrap_or(fastest);
            (loads[i].outstanding + want.bytes) as f64 / rate
        };
        let turn = self.turn;
        let in_turn = (0..count).map(|i| (turn + i) % count);
        let chosen = in_turn
            .filter(|i| up(i) && room(i))
            .min_by(|a, b| time(*a).total_cmp(&time(*b)))?;
        self.turn = chosen + 1;
        Some(chosen)
    }
}

/// SplitMix64's finaliser over both.
fn mix(file: u64, number: u64) -> u64 {
    let mut z = file ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that must be outstanding all the time for a sample: with less, calls are measured and not the path.
const BUSY: u64 = 128 << 10;
/// How long a sample takes.
const SAMPLE: Duration = Duration::from_millis(50);
/// How much a sample counts against all before, when it is higher and when it is lower: a path is never
/// faster than it is, but often idle for a moment.
const WEIGHT: (f64, f64) = (0.5, 0.1);
/// How long a rate is believed when nothing measures it again.
const BELIEVED: Duration = Duration::from_secs(2);
/// Bounds of the window.
const WINDOW: (u64, u64) = (4 << 20, 64 << 20);
/// How long a full window takes at the measured rate.
const WINDOW_TIME: f64 = 0.2;

/// A connection's rate, measured while it is busy.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    since: Option<Instant>,
    bytes: u64,
    rate: Option<f64>,
    sampled: Option<Instant>,
}

impl Rate {
    /// Bytes a second, both ways; none before the first sample, and when the last is 2 seconds old.
    pub fn per_second(&self, now: Instant) -> Option<f64> {
        let age = now.saturating_duration_since(self.sampled?);
        self.rate.filter(|_| age < BELIEVED)
    }

    /// How many bytes may be outstanding: what moves in 200 ms, 4 to 64 MiB.
    pub fn window(&self) -> u64 {
        let bytes = self.rate.unwrap_or(0.0) * WINDOW_TIME;
        (bytes as u64).clamp(WINDOW.0, WINDOW.1)
    }

    /// A call is done, and so many bytes are left outstanding. With few the path is idle from now on: a
    /// sample that went on to the next call would measure how long that took to come.
    pub fn left(&mut self, outstanding: u64) {
        if outstanding < BUSY {
            self.since = None;
        }
    }

    /// Bytes have moved, and so many are outstanding now.
    pub fn moved(&mut self, bytes: u64, outstanding: u64, now: Instant) {
        if outstanding < BUSY {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert_with(|| {
            self.bytes = 0;
            now
        });
        self.bytes += bytes;
        let time = now.saturating_duration_since(since);
        if time >= SAMPLE {
            let sample = self.bytes as f64 / time.as_secs_f64();
            self.rate = Some(match self.per_second(now) {
                Some(rate) if sample > rate => rate + WEIGHT.0 * (sample - rate),
                Some(rate) => rate + WEIGHT.1 * (sample - rate),
                None => sample,
            });
            self.sampled = Some(now);
            (self.since, self.bytes) = (Some(now), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDLE: Load = Load {
        up: true,
        lane: false,
        outstanding: 0,
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
    fn small_calls_have_their_lane() {
        let mut dispatch = Dispatch::new(Policy::LeastBytes);
        let lane = Load { lane: true, ..IDLE };
        let small = Want {
            bytes: 300,
            file: None,
        };
        assert_eq!(dispatch.choose(&[IDLE, lane], small), Some(1));
        assert_eq!(dispatch.choose(&[IDLE, lane], large(1)), Some(0));
        let down = Load { up: false, ..IDLE };
        assert_eq!(dispatch.choose(&[down, lane], large(1)), Some(1));
        let down = Load { up: false, ..lane };
        assert_eq!(dispatch.choose(&[IDLE, down], small), Some(0));
    }

    proptest! {
        #[test]
        fn a_choice_is_up_and_has_room(
            loads in proptest::collection::vec((any::<bool>(), any::<bool>(), 0..9_u64, 0..9_u64), 1..9),
            file in proptest::option::of(any::<u64>()), bytes in 0..100_000_u64, policy in 0..3_u8,
        ) {
            let loads: Vec<Load> = loads.into_iter().map(|(up, lane, outstanding, window)| Load {
                up, lane, outstanding, window, rate: Some(outstanding as f64),
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
}

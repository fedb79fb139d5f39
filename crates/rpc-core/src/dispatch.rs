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
    /// Whether one of these calls is large: moves more than [`SMALL`].
    pub large: bool,
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

impl Want {
    /// Whether it moves more than [`SMALL`].
    pub fn is_large(&self) -> bool {
        self.bytes > SMALL
    }
}

/// Chooses connections, and remembers whose turn it is.
#[derive(Clone, Debug)]
pub struct Dispatch {
    policy: Policy,
    /// Whose turn it is, for small calls and for large ones: if they shared it, calls that come small, large,
    /// small, large would leave every second connection to one kind.
    turns: [usize; 2],
}

impl Dispatch {
    /// By this policy.
    pub fn new(policy: Policy) -> Dispatch {
        Dispatch {
            policy,
            turns: [0; 2],
        }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The connection of a call; none when it has to wait. O(connections).
    ///
    /// 1. Candidates are the connections that are up, are no lanes, and have room: less outstanding than their
    ///    window. If none is up but lanes, the lanes.
    /// 2. A small call, while a large one is outstanding on a connection that is up and no lane: with
    ///    `LeastBytes`, the lanes that are up are candidates as well, window or not. With the other policies it
    ///    takes the lane that is up and has the fewest bytes outstanding.
    /// 3. `RoundRobin`: the next one that is up, in turn; if that has no room, the call waits, as in the series
    ///    that this policy is named for.
    /// 4. `Hash`: the file's number picks one of those that are up, by highest random weight, so that a
    ///    failure moves the files of that connection alone; without a file, and if it has no room, by rule 5.
    /// 5. `LeastBytes`: the one where outstanding bytes and this call's are done first at its rate; one
    ///    without a measured rate counts with the highest that was measured. Less than a quarter of this call's own
    ///    time makes no difference: else a large call would go back and back to a slow path that it has just left
    ///    empty, as small ones are under way on the others. Among equals in turn, lanes last.
    ///
    /// Without large calls, small ones use all connections and leave the lane alone: it shares a link with one of
    /// them, which would get more than its part. With large calls, the lane is where the fewest bytes are, until
    /// small calls themselves have filled it; what goes past it then is done sooner elsewhere.
    pub fn choose(&mut self, loads: &[Load], want: Want) -> Option<usize> {
        let bulk = |load: &&Load| load.up && !load.lane;
        let any = loads.iter().any(|load| bulk(&load));
        let beside_large = !want.is_large() && loads.iter().filter(bulk).any(|load| load.large);
        if beside_large && self.policy != Policy::LeastBytes {
            let lanes = loads.iter().enumerate().filter(|(_, l)| l.up && l.lane);
            if let Some((lane, _)) = lanes.min_by_key(|(_, lane)| lane.outstanding) {
                return Some(lane);
            }
        }
        let up = |i: &usize| loads[*i].up && (!any || !loads[*i].lane);
        let room = |i: &usize| loads[*i].outstanding < loads[*i].window;
        let lane = |i: &usize| beside_large && loads[*i].up && loads[*i].lane;
        let count = loads.len();
        let turn = &mut self.turns[usize::from(want.is_large())];
        let from = *turn;
        let in_turn = || (0..count).map(move |i| (from + i) % count);
        match (self.policy, want.file) {
            (Policy::RoundRobin, _) => {
                let next = in_turn().find(up)?;
                if !room(&next) {
                    return None;
                }
                *turn = next + 1;
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
        // Whole quarters of this call's own time.
        let time = |i: usize| {
            let rate = loads[i].rate.filter(|rate| *rate > 0.0).unwrap_or(fastest);
            let quarter = want.bytes.max(1) as f64 / fastest / 4.0;
            ((loads[i].outstanding + want.bytes) as f64 / rate / quarter) as u64
        };
        let chosen = in_turn()
            .filter(|i| up(i) && room(i))
            .chain(in_turn().filter(lane))
            .min_by_key(|i| time(*i))?;
        *turn = chosen + 1;
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
mod model;
#[cfg(test)]
mod tests;

//! The search itself: chunks of seeds, taken by threads.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use raddle_select::{Lanes, Seed};

use crate::observation::Observation;

/// Seeds that a thread takes at a time: what it holds of them stays in its cache.
const CHUNK: u64 = 1 << 13;
/// Chunks after which a thread reports.
const REPORT: u64 = 1 << 9;
/// With so many bits a seed that fits by chance is one in 2^32 searches: the first that fits is the one.
const CERTAIN: f64 = 64.0;
/// Bits beyond the seed's own that leave a chance of one in 256 for another seed to fit.
const MARGIN: f64 = 8.0;

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Seeds that have been tried.
    pub tried: u64,
    /// Seeds that there are.
    pub of: u64,
}

/// What a search has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No seed fits: an observation is wrong, or the router's hash has no such seed (before Linux 6.11).
    None,
    /// One seed fits.
    One(Seed),
    /// Several seeds fit.
    Several {
        /// How many.
        seeds: u64,
        /// About so many observations more, of the same kind, would leave one.
        more: u32,
    },
    /// The search was ended.
    Ended,
}

/// A search for the seed that fits all observations.
#[derive(Clone, Debug)]
pub struct Search {
    observations: Vec<Observation>,
    seeds: Range<u64>,
    lanes: Lanes,
    threads: usize,
}

impl Search {
    /// Among all seeds, with the widest registers and all processors that there are.
    ///
    /// Observations that tell most come first, so that most seeds are refused by the first one or two; among equals
    /// those that cost least.
    pub fn new(mut observations: Vec<Observation>) -> Search {
        observations.sort_by(|a, b| {
            let by_share = a.share().total_cmp(&b.share());
            by_share.then(a.cost().cmp(&b.cost()))
        });
        Search {
            observations,
            seeds: 1..1 << 32,
            lanes: Lanes::widest(),
            threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }

    /// The same among these seeds only; 0 is none.
    pub fn among(mut self, seeds: Range<u32>) -> Search {
        self.seeds = u64::from(seeds.start.max(1))..u64::from(seeds.end);
        self
    }

    /// The same in these registers.
    pub fn with_lanes(mut self, lanes: Lanes) -> Search {
        self.lanes = lanes;
        self
    }

    /// The same on so many processors; at least one.
    pub fn with_threads(mut self, threads: usize) -> Search {
        self.threads = threads.max(1);
        self
    }

    /// What the observations tell together, in bits; a seed has 32.
    pub fn bits(&self) -> f64 {
        self.observations.iter().map(Observation::bits).sum()
    }

    /// How many observations of the same kind more are wanted, so that one seed remains; 0 where there are enough.
    pub fn wanted(&self) -> u32 {
        self.more_for(32.0 + MARGIN - self.bits())
    }

    /// Observations for so many bits more.
    fn more_for(&self, bits: f64) -> u32 {
        let each = self.bits() / self.observations.len().max(1) as f64;
        // One of two paths, where nothing has told anything so far.
        let each = if each > 0.0 { each } else { 1.0 };
        (bits / each).ceil().max(0.0) as u32
    }

    /// Searches, and tells how far it is; ends where `go_on` is false.
    ///
    /// 1. A seed fits where each observation's flow, hashed by it, falls into one of the observation's ranges.
    /// 2. With 64 bits or more of observations the search ends at the first seed that fits.
    pub fn run(&self, mut go_on: impl FnMut(Progress) -> bool) -> Found {
        let of = self.seeds.end.saturating_sub(self.seeds.start);
        let shared = Shared {
            next: AtomicU64::new(self.seeds.start),
            stop: AtomicBool::new(false),
            fitting: Mutex::new(Fitting::default()),
        };
        let mut ended = false;
        thread::scope(|scope| {
            let (report, reports) = channel();
            for _ in 0..self.threads {
                let (report, shared) = (report.clone(), &shared);
                scope.spawn(move || self.work(shared, &report));
            }
            drop(report);
            let mut tried = 0;
            for more in reports {
                tried += more;
                if !ended && !go_on(Progress { tried, of }) {
                    ended = true;
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
        });
        let fitting = shared.fitting.into_inner();
        let Fitting { count, one } = fitting.unwrap_or_else(|poisoned| poisoned.into_inner());
        match (count, one) {
            (1.., Some(seed)) if self.is_certain() => Found::One(seed),
            _ if ended => Found::Ended,
            (1, Some(seed)) => Found::One(seed),
            (0, _) => Found::None,
            (seeds, _) => Found::Several {
                seeds,
                more: self.more_for((seeds as f64).log2() + MARGIN).max(1),
            },
        }
    }

    fn is_certain(&self) -> bool {
        self.bits() >= CERTAIN
    }

    fn work(&self, shared: &Shared, report: &Sender<u64>) {
        let mut seeds = Vec::with_capacity(CHUNK as usize);
        loop {
            let mut tried = 0;
            for _ in 0..REPORT {
                let from = shared.next.fetch_add(CHUNK, Ordering::Relaxed);
                if from >= self.seeds.end || shared.stop.load(Ordering::Relaxed) {
                    break;
                }
                let to = self.seeds.end.min(from + CHUNK);
                seeds.clear();
                // Below 2^32, as the end is.
                seeds.extend((from..to).map(|seed| seed as u32));
                tried += to - from;
                for observation in &self.observations {
                    observation.keep_fitting(self.lanes, &mut seeds);
                }
                if let Some(seed) = seeds.first() {
                    let mut fitting = match shared.fitting.lock() {
                        Ok(fitting) => fitting,
                        Err(poisoned) => poisoned.into_inner(),
                    };
                    fitting.count += seeds.len() as u64;
                    fitting.one = Seed::new(*seed);
                    if self.is_certain() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            if tried == 0 || report.send(tried).is_err() {
                return;
            }
        }
    }
}

/// What threads share.
struct Shared {
    next: AtomicU64,
    stop: AtomicBool,
    fitting: Mutex<Fitting>,
}

#[derive(Default)]
struct Fitting {
    count: u64,
    one: Option<Seed>,
}

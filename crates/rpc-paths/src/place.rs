//! Where connections go: decisions, without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Connections that are made at most to place one, for each link that it may come back by; the least and the most.
const ATTEMPTS: (u32, u32, u32) = (16, 64, 1024);

/// Connections that are made at most to place one. That none of them comes back by a link that has 1 of `links`
/// shares has a probability of e^-16.
pub(crate) fn most(links: usize) -> u32 {
    let links = u32::try_from(links).unwrap_or(u32::MAX);
    links
        .saturating_mul(ATTEMPTS.0)
        .clamp(ATTEMPTS.1, ATTEMPTS.2)
}

/// How many connections lie on each link, by name.
pub(crate) type Loads = BTreeMap<String, usize>;

/// The link that a new connection should go out by: of `links` the one with the fewest, those that come
/// first before others, and `suspects` last. None without links.
pub(crate) fn least<'a>(
    links: &[&'a str],
    loads: &Loads,
    suspects: &BTreeSet<String>,
) -> Option<&'a str> {
    let load = |link: &str| loads.get(link).copied().unwrap_or(0);
    let order = |link: &&str| (suspects.contains(*link), load(link));
    links.iter().copied().min_by_key(order)
}

/// Attempts in which links that nothing has come by are waited for when some attempts had no answer.
const EARLY: u32 = 12;

/// What is known when a connection has come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// Connections on the links on the way back.
    pub loads: &'a Loads,
    /// The links that it could come by, as far as can be told: those that connections go out by.
    pub expected: &'a [&'a str],
    /// The links that any connection has come by lately.
    pub seen: &'a [&'a str],
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// Attempts that are made at most.
    pub most: u32,
    /// Whether attempts had no answer.
    pub silent: bool,
}

impl Known<'_> {
    /// Whether links that nothing has come by are still waited for.
    pub(crate) fn is_early(&self) -> bool {
        self.attempt <= if self.silent { EARLY } else { self.most / 2 }
    }
}

/// Whether a connection that comes back by `back` is to be kept.
///
/// 1. It is the last attempt: keep it, whatever it is.
/// 2. In the first half of the attempts, or 12 if some had no answer: keep it if no expected or seen link has fewer.
/// 3. Later: keep it if no seen link has fewer. Servers may answer by fewer links than they are asked by, and a
///    link may be dead.
pub(crate) fn keep(back: &str, known: &Known<'_>) -> bool {
    if known.attempt >= known.most {
        return true;
    }
    let load = |link: &str| known.loads.get(link).copied().unwrap_or(0);
    let fewer = |link: &&str| load(link) < load(back);
    let waits = known.is_early() && known.expected.iter().any(fewer);
    !waits && !known.seen.iter().any(fewer)
}

/// Whether a connection should move from its link: another of `links` has two fewer at least, or, if its own
/// link is none of them any more, whatever the others have.
pub(crate) fn uneven(link: &str, loads: &Loads, links: &[String]) -> bool {
    let load = |link: &str| loads.get(link).copied().unwrap_or(0);
    let fewest = links.iter().map(|link| load(link)).min();
    fewest.is_some_and(|fewest| fewest + 2 <= load(link) || !links.iter().any(|l| l == link))
}

/// How uneven loads are: less after each move from a link to one with two fewer, or from a link that is none of
/// `links` to one that is.
pub(crate) fn unevenness(loads: &Loads, links: &[String]) -> usize {
    let all: usize = loads.values().sum();
    let cost = |(link, load): (&String, &usize)| match links.contains(link) {
        true => load * load,
        false => load * (all + 1) * (all + 1),
    };
    loads.iter().map(cost).sum()
}

/// Pauses between moves: where the last one has helped, and where not, the first and the longest.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(10),
    Duration::from_secs(160),
];

/// When connections are moved: each move costs it a moment without its link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The last move, and how uneven it was before.
    last: Option<(Instant, usize)>,
    pause: Duration,
    judged: bool,
}

impl Pace {
    /// Links, routes or addresses have changed: the past says nothing.
    pub(crate) fn forget(&mut self) {
        *self = Pace::default();
    }

    /// How long to wait before one is moved, where it is so uneven now; zero for not at all.
    ///
    /// 1. None has been moved since the last change: no wait.
    /// 2. It is less uneven than before the last move: 0.2 s after that.
    /// 3. It is not: 10 s after it, and twice as long each time, at most 160 s.
    pub(crate) fn wait(&mut self, uneven: usize, now: Instant) -> Duration {
        let Some((last, before)) = self.last else {
            return Duration::ZERO;
        };
        if !std::mem::replace(&mut self.judged, true) {
            self.pause = match uneven < before {
                true => PAUSES[0],
                false => (2 * self.pause).clamp(PAUSES[1], PAUSES[2]),
            };
        }
        (last + self.pause).saturating_duration_since(now)
    }

    /// One is moved.
    pub(crate) fn moved(&mut self, uneven: usize, now: Instant) {
        self.last = Some((now, uneven));
        self.judged = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_that_help_are_quick_and_others_get_rare() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace::default();
        assert_eq!(pace.wait(20, at(0)), Duration::ZERO);
        pace.moved(20, at(0));
        assert_eq!(pace.wait(18, at(150)), Duration::from_millis(50));
        assert_eq!(pace.wait(18, at(200)), Duration::ZERO);
        pace.moved(18, at(200));
        // It has not helped, and asking again does not make the wait longer.
        for _ in 0..3 {
            assert_eq!(pace.wait(18, at(200)), Duration::from_secs(10));
        }
        let mut now = at(200);
        for seconds in [20, 40, 80, 160, 160] {
            now += Duration::from_secs(1000);
            assert_eq!(pace.wait(18, now), Duration::ZERO);
            pace.moved(18, now);
            assert_eq!(pace.wait(18, now), Duration::from_secs(seconds));
        }
        pace.forget();
        assert_eq!(pace.wait(18, now), Duration::ZERO);
    }

    fn loads(of: &[(&str, usize)]) -> Loads {
        of.iter().map(|(l, n)| ((*l).to_owned(), *n)).collect()
    }

    #[test]
    fn the_emptiest_link_is_next() {
        assert_eq!(
            least(
                &["a", "b", "c"],
                &loads(&[("a", 1), ("c", 2)]),
                &BTreeSet::new()
            ),
            Some("b")
        );
        let suspects = BTreeSet::from(["a".to_owned()]);
        assert_eq!(least(&["a", "b"], &loads(&[]), &BTreeSet::new()), Some("a"));
        assert_eq!(
            least(&["a", "b"], &loads(&[("b", 3)]), &suspects),
            Some("b")
        );
        assert_eq!(least(&["a"], &loads(&[]), &suspects), Some("a"));
        assert_eq!(least(&[], &loads(&[]), &suspects), None);
    }

    #[test]
    fn a_way_back_is_kept_where_no_other_has_fewer() {
        let lying = loads(&[("a", 1)]);
        let links = ["a", "b"];
        let known = Known {
            loads: &lying,
            expected: &links,
            seen: &["a"],
            attempt: 1,
            most: 64,
            silent: false,
        };
        let at = |attempt| Known { attempt, ..known };
        assert!(keep("b", &known));
        assert!(!keep("a", &known));
        let both = Known {
            seen: &links,
            ..at(63)
        };
        assert!(!keep("a", &both));
        assert!(keep("a", &at(64)));
        // Nothing has ever come by b.
        assert!(!keep("a", &at(32)));
        assert!(keep("a", &at(33)));
        let silent = |attempt| Known {
            silent: true,
            ..at(attempt)
        };
        assert!(!keep("a", &silent(12)) && keep("a", &silent(13)));
        // A link that nobody expected.
        let strange = Known {
            seen: &["x"],
            ..at(63)
        };
        assert!(keep("x", &strange));
    }

    #[test]
    fn a_connection_moves_where_that_evens_loads() {
        let links = ["a".to_owned(), "b".to_owned()];
        assert!(uneven("a", &loads(&[("a", 2)]), &links));
        assert!(!uneven("a", &loads(&[("a", 2), ("b", 1)]), &links));
        assert!(!uneven("b", &loads(&[("a", 2), ("b", 1)]), &links));
        assert!(uneven("gone", &loads(&[("gone", 1), ("a", 1)]), &links));
        assert!(!uneven("a", &loads(&[("a", 9)]), &[]));
    }

    #[test]
    fn moves_that_even_loads_are_seen_to_help() {
        let links = ["a".to_owned(), "b".to_owned()];
        let cost = |of: &[(&str, usize)]| unevenness(&loads(of), &links);
        assert!(cost(&[("a", 2), ("b", 1)]) < cost(&[("a", 3)]));
        assert!(cost(&[("a", 3)]) < cost(&[("a", 2), ("gone", 1)]));
        assert!(cost(&[("a", 9)]) < cost(&[("a", 8), ("gone", 1)]));
    }

    /// Draws ways back as a server's hash does: each link has its connection, in a bounded number of
    /// attempts.
    #[test]
    fn every_link_gets_its_connection() {
        let links = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut state = 1_u64;
        for _ in 0..200 {
            let mut lying = Loads::new();
            let mut seen = Vec::new();
            for _ in 0..16 {
                for attempt in 1.. {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let back = links[(state >> 60) as usize % 8];
                    seen.push(back);
                    let known = Known {
                        loads: &lying,
                        expected: &links,
                        seen: &seen,
                        attempt,
                        most: most(links.len()),
                        silent: false,
                    };
                    if keep(back, &known) {
                        assert!(attempt < most(links.len()));
                        *lying.entry(back.to_owned()).or_default() += 1;
                        break;
                    }
                }
            }
            assert!(lying.values().all(|count| *count == 2), "{lying:?}");
        }
    }
}

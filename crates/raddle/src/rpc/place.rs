//! Where connections go: decisions, without I/O.

use std::collections::BTreeMap;

/// Connections that are made at most to place one.
pub(super) const ATTEMPTS: u32 = 64;

/// How many connections lie on each link, by name.
pub(super) type Loads = BTreeMap<String, usize>;

/// The link that a new connection should go out by: of `links` the one with the fewest, those that come
/// first before others. None without links.
pub(super) fn least<'a>(links: &[&'a str], loads: &Loads) -> Option<&'a str> {
    let load = |link: &&str| loads.get(*link).copied().unwrap_or(0);
    links.iter().copied().min_by_key(load)
}

/// Attempts in which links that nothing has come by are waited for, as a rule and when some attempts had no
/// answer.
const EARLY: (u32, u32) = (ATTEMPTS / 2, 12);

/// What is known when a connection has come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// Connections on the links on the way back.
    pub loads: &'a Loads,
    /// The links that it could come by, as far as can be told: those that connections go out by.
    pub expected: &'a [&'a str],
    /// The links that any connection has come by lately.
    pub seen: &'a [&'a str],
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// Whether attempts had no answer.
    pub silent: bool,
}

/// Whether a connection that comes back by `back` is to be kept.
///
/// 1. It is the last attempt: keep it, whatever it is.
/// 2. In the first 32 attempts, or 12 if some had no answer: keep it if no expected or seen link has fewer.
/// 3. Later: keep it if no seen link has fewer. Servers may answer by fewer links than they are asked by, and a
///    link may be dead.
pub(super) fn keep(back: &str, known: &Known<'_>) -> bool {
    if known.attempt >= ATTEMPTS {
        return true;
    }
    let load = |link: &str| known.loads.get(link).copied().unwrap_or(0);
    let fewer = |link: &&str| load(link) < load(back);
    let early = known.attempt <= if known.silent { EARLY.1 } else { EARLY.0 };
    let waits = early && known.expected.iter().any(fewer);
    !waits && !known.seen.iter().any(fewer)
}

/// Whether a connection should move from its link: another of `links` has two fewer at least, or, if its own
/// link is none of them any more, whatever the others have.
pub(super) fn uneven(link: &str, loads: &Loads, links: &[String]) -> bool {
    let load = |link: &str| loads.get(link).copied().unwrap_or(0);
    let fewest = links.iter().map(|link| load(link)).min();
    fewest.is_some_and(|fewest| fewest + 2 <= load(link) || !links.iter().any(|l| l == link))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[(&str, usize)]) -> Loads {
        of.iter().map(|(l, n)| ((*l).to_owned(), *n)).collect()
    }

    #[test]
    fn the_emptiest_link_is_next() {
        assert_eq!(
            least(&["a", "b", "c"], &loads(&[("a", 1), ("c", 2)])),
            Some("b")
        );
        assert_eq!(least(&["a", "b"], &loads(&[])), Some("a"));
        assert_eq!(least(&[], &loads(&[])), None);
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
            silent: false,
        };
        let at = |attempt| Known { attempt, ..known };
        assert!(keep("b", &known));
        assert!(!keep("a", &known));
        let both = Known {
            seen: &links,
            ..at(ATTEMPTS - 1)
        };
        assert!(!keep("a", &both));
        assert!(keep("a", &at(ATTEMPTS)));
        // Nothing has ever come by b.
        assert!(!keep("a", &at(ATTEMPTS / 2)));
        assert!(keep("a", &at(ATTEMPTS / 2 + 1)));
        let silent = |attempt| Known {
            silent: true,
            ..at(attempt)
        };
        assert!(!keep("a", &silent(12)) && keep("a", &silent(13)));
        // A link that nobody expected.
        let strange = Known {
            seen: &["x"],
            ..at(ATTEMPTS - 1)
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
                        silent: false,
                    };
                    if keep(back, &known) {
                        assert!(attempt < ATTEMPTS);
                        *lying.entry(back.to_owned()).or_default() += 1;
                        break;
                    }
                }
            }
            assert!(lying.values().all(|count| *count == 2), "{lying:?}");
        }
    }
}

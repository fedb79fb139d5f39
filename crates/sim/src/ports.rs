//! Source ports, or flow labels, with which connections cover all paths.
//!
//! SipHash cannot be turned round, but there are only 65,536 ports: they are tried. Random ports reach
//! 5.3 of 8 paths with 8 connections on average; these reach all.

use std::collections::{BTreeMap, HashSet, VecDeque};

use raddle_select::Flow;
use thiserror::Error;

use crate::layout::{Layout, Path};
use crate::predict::Hashing;

/// What is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// The source port, 0..=65535.
    SourcePort,
    /// The IPv6 flow label, 20 bits.
    FlowLabel,
}

impl Vary {
    /// The flow with this port or label.
    pub fn apply(self, flow: &Flow, value: u32) -> Flow {
        match self {
            Vary::SourcePort => Flow {
                sport: value as u16,
                ..*flow
            },
            Vary::FlowLabel => Flow {
                flow_label: value,
                ..*flow
            },
        }
    }
}

/// How connections are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareOut {
    /// As many to each path; the counts differ by 1 at most.
    Evenly,
    /// By the paths' shares of the hash space.
    ByWeight,
}

/// One connection of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Port or label.
    pub value: u32,
    /// Its hash.
    pub hash31: u32,
    /// The path that it takes.
    pub path: usize,
}

/// What to do when something fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The paths, which fail together.
    pub failed: Vec<usize>,
    /// Connections to open, and the paths that they take then.
    pub connections: Vec<Connection>,
    /// Connections of the plan to close: those on the failed paths are lost, and these are more than their
    /// path should have by then.
    pub close: Vec<u32>,
    /// Connections of the plan that another path takes then although theirs lives.
    pub moved: Vec<u32>,
    /// Connections on each path when that is done.
    pub loads: Vec<usize>,
}

/// Ports for connections that cover all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Any first few of them cover as many paths as they can.
    pub connections: Vec<Connection>,
    /// For each failure that was given.
    pub spares: Vec<Spare>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No hash leads anywhere.
    #[error("there is no path")]
    NoPath,
    /// Not enough candidates hash to a path.
    #[error("only {found} of the values that may be used lead to path {path}, {wanted} are wanted")]
    TooFew {
        /// The path.
        path: usize,
        /// Connections that it should have.
        wanted: usize,
        /// Values that lead there.
        found: usize,
    },
    /// All candidates take one path although there are several.
    #[error("whatever the value, the path is the same: the hash policy does not look at it")]
    NotHashed,
}

/// Where connections lead, as things are and with each of some failures (by number, from 0).
pub trait Places {
    /// How many of the 2^31 hashes lead to each path, by number; those that have none may be missing at
    /// the end.
    fn shares(&self, failure: Option<usize>) -> Vec<u64>;

    /// Hash and path of a connection that is opened with this port or label.
    fn opened(&self, failure: Option<usize>, value: u32) -> (u32, Path);

    /// The path that a connection which was opened before takes with a failure.
    fn kept(&self, failure: usize, connection: &Connection) -> Path;

    /// The links that a connection with this port or label takes at routers behind, a number for each router; none where
    /// nothing is known of any.
    fn beyond(&self, _value: u32) -> Vec<usize> {
        Vec::new()
    }

    /// The weights of the links of each router behind.
    fn weights_beyond(&self) -> Vec<Vec<u32>> {
        Vec::new()
    }
}

/// Connections that are alike but for their port or label.
#[derive(Clone, Debug)]
pub struct Alike<'a> {
    /// How they are hashed; none where nothing is, as there is one path: then all have hash 0.
    pub hashing: Option<&'a Hashing>,
    /// One of them.
    pub flow: &'a Flow,
    /// What differs.
    pub vary: Vary,
    /// Which path each hash takes.
    pub layout: &'a Layout,
    /// The same with each failure.
    pub without: &'a [Layout],
}

impl Alike<'_> {
    fn layout(&self, failure: Option<usize>) -> &Layout {
        failure.map_or(self.layout, |failure| &self.without[failure])
    }
}

impl Places for Alike<'_> {
    fn shares(&self, failure: Option<usize>) -> Vec<u64> {
        self.layout(failure).shares()
    }

    fn opened(&self, failure: Option<usize>, value: u32) -> (u32, Path) {
        let flow = self.vary.apply(self.flow, value);
        let hash31 = self.hashing.map_or(0, |hashing| hashing.flow(&flow));
        (hash31, self.layout(failure).path(hash31))
    }

    fn kept(&self, failure: usize, connection: &Connection) -> Path {
        self.without[failure].path(connection.hash31)
    }
}

/// Chooses values for `count` connections out of `candidates`, ascending. `failures` are the paths that
/// fail together.
///
/// 1. Each candidate's path is what `places` says.
/// 2. Each path that has a share gets its number of connections ([`ShareOut`]); paths come in turn, and
///    each takes its lowest candidates. Where there are routers behind, it takes the lowest of those that go where the fewest
///    connections of this path go there, and of all paths (by weight: for their weight).
/// 3. For each failure each path that is left gets its number of connections as in rule 2. Where
///    connections that live would be too many on one path, some are to be closed; what is missing is
///    opened, by the lowest unused candidates.
///
/// Exhaustive: one hash a candidate, some 3 ms for all ports; and as many for a failure that leaves too few
/// candidates.
///
/// # Errors
/// [`PlanError`]: nothing can be hashed apart, or too few candidates.
pub fn plan(
    places: &impl Places,
    failures: &[Vec<usize>],
    candidates: &[u32],
    (count, share_out): (usize, ShareOut),
) -> Result<Plan, PlanError> {
    let shares = places.shares(None);
    let pool: Vec<Connection> = opened(places, None, candidates).collect();
    if shares.iter().all(|share| *share == 0) {
        return Err(PlanError::NoPath);
    }
    let several = shares.iter().filter(|share| **share > 0).count() > 1;
    // What is alike to the hash may differ to a bond, whose members are paths.
    let way = |connection: &Connection| (connection.hash31, connection.path);
    let same_way = || pool.windows(2).all(|two| way(&two[0]) == way(&two[1]));
    if several && count > 1 && pool.len() > 1 && same_way() {
        return Err(PlanError::NotHashed);
    }
    let wanted = numbers(&shares, count, share_out, &[]);
    let weights = places.weights_beyond();
    let by_path = match weights.is_empty() {
        true => lowest(pool, &wanted),
        false => spread_beyond(places, pool, &wanted, (&weights, share_out)),
    };
    for (path, (found, wanted)) in by_path.iter().zip(&wanted).enumerate() {
        if found.len() < *wanted {
            return Err(PlanError::TooFew {
                path,
                wanted: *wanted,
                found: found.len(),
            });
        }
    }
    let rounds = wanted.iter().copied().max().unwrap_or(0);
    let connections: Vec<Connection> = (0..rounds)
        .flat_map(|round| {
            by_path
                .iter()
                .filter_map(move |list| list.get(round).copied())
        })
        .collect();
    let spares = failures
        .iter()
        .enumerate()
        .map(|(n, failed)| spare(places, (n, failed), &connections, candidates, share_out))
        .collect();
    Ok(Plan {
        connections,
        spares,
    })
}

/// As many of each path as are wanted, those with the lowest values.
fn lowest(pool: Vec<Connection>, wanted: &[usize]) -> Vec<Vec<Connection>> {
    let mut by_path: Vec<Vec<Connection>> = vec![Vec::new(); wanted.len()];
    for connection in pool {
        let path = connection.path;
        if by_path.get(path).is_some_and(|on| on.len() < wanted[path]) {
            by_path[path].push(connection);
        }
    }
    by_path
}

/// As many of each path as are wanted, so that they lie evenly on the links of routers behind: on those of each path, and on
/// those of all together.
fn spread_beyond(
    places: &impl Places,
    pool: Vec<Connection>,
    wanted: &[usize],
    (weights, share_out): (&[Vec<u32>], ShareOut),
) -> Vec<Vec<Connection>> {
    // What goes one way is alike: its lowest comes first.
    let mut alike: BTreeMap<(usize, Vec<usize>), VecDeque<Connection>> = BTreeMap::new();
    for connection in pool {
        let way = (connection.path, places.beyond(connection.value));
        alike.entry(way).or_default().push_back(connection);
    }
    let none = || -> Vec<Vec<u64>> { weights.iter().map(|links| vec![0; links.len()]).collect() };
    let mut on_paths: Vec<Vec<Vec<u64>>> = wanted.iter().map(|_| none()).collect();
    let mut on_all = none();
    let mut taken: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    let load = |on: &[Vec<u64>], links: &[usize]| -> u64 {
        let of_link = |(router, link): (usize, &usize)| {
            let weight = match share_out {
                ShareOut::Evenly => 1,
                ShareOut::ByWeight => u64::from(weights[router][*link].max(1)),
            };
            // What it would be with one more.
            ((on[router][*link] + 1) << 20) / weight
        };
        links.iter().enumerate().map(of_link).sum()
    };
    let mut by_path: Vec<Vec<Connection>> = vec![Vec::new(); wanted.len()];
    let rounds = wanted.iter().copied().max().unwrap_or(0);
    for round in 0..rounds {
        for path in (0..wanted.len()).filter(|path| wanted[*path] > round) {
            let ways = alike.range((path, Vec::new())..(path + 1, Vec::new()));
            let ways = ways.filter(|(_, left)| !left.is_empty());
            let best = ways.min_by_key(|((_, links), left)| {
                let together = taken.get(links).copied().unwrap_or(0);
                (
                    load(&on_paths[path], links),
                    together,
                    load(&on_all, links),
                    left.front().map(|connection| connection.value),
                )
            });
            let Some(way) = best.map(|(way, _)| way.clone()) else {
                continue;
            };
            let (_, links) = &way;
            for (router, link) in links.iter().enumerate() {
                on_paths[path][router][*link] += 1;
                on_all[router][*link] += 1;
            }
            *taken.entry(links.clone()).or_default() += 1;
            by_path[path].extend(alike.get_mut(&way).and_then(VecDeque::pop_front));
        }
    }
    by_path
}

/// Connections with these values, less those that lead nowhere.
fn opened(
    places: &impl Places,
    failure: Option<usize>,
    candidates: &[u32],
) -> impl Iterator<Item = Connection> {
    candidates.iter().filter_map(move |value| {
        let (hash31, path) = places.opened(failure, *value);
        path.map(|path| Connection {
            value: *value,
            hash31,
            path,
        })
    })
}

/// Rule 2: how many connections each path gets. Of paths that could have one more, those that have the
/// most already get it.
fn numbers(shares: &[u64], count: usize, share_out: ShareOut, have: &[usize]) -> Vec<usize> {
    let weight = |share: &u64| match share_out {
        ShareOut::Evenly => u64::from(*share > 0),
        ShareOut::ByWeight => *share,
    };
    let weights: Vec<u64> = shares.iter().map(weight).collect();
    let total: u64 = weights.iter().sum::<u64>().max(1);
    let exact = |w: &u64| u128::from(*w) * count as u128;
    let mut numbers: Vec<usize> = weights
        .iter()
        .map(|w| (exact(w) / u128::from(total)) as usize)
        .collect();
    let mut by_rest: Vec<usize> = (0..weights.len()).collect();
    by_rest.sort_by_key(|i| {
        let rest = exact(&weights[*i]) % u128::from(total);
        std::cmp::Reverse((rest, have.get(*i).copied().unwrap_or(0)))
    });
    let left = count - numbers.iter().sum::<usize>();
    by_rest.into_iter().take(left).for_each(|i| numbers[i] += 1);
    numbers
}

/// Rule 3.
fn spare(
    places: &impl Places,
    (failure, failed): (usize, &[usize]),
    plan: &[Connection],
    candidates: &[u32],
    share_out: ShareOut,
) -> Spare {
    let shares = places.shares(Some(failure));
    let mut on: Vec<Vec<u32>> = vec![Vec::new(); shares.len()];
    let mut moved = Vec::new();
    for connection in plan.iter().filter(|c| !failed.contains(&c.path)) {
        let now = places.kept(failure, connection);
        if let Some(on) = now.and_then(|path| on.get_mut(path)) {
            on.push(connection.value);
        }
        if now != Some(connection.path) {
            moved.push(connection.value);
        }
    }
    let mut loads: Vec<usize> = on.iter().map(Vec::len).collect();
    let any = shares.iter().any(|share| *share > 0);
    let count = if any { plan.len() } else { 0 };
    let wanted = numbers(&shares, count, share_out, &loads);
    let mut close = Vec::new();
    for (path, live) in on.iter().enumerate() {
        close.extend(live.iter().skip(wanted[path]));
        loads[path] = loads[path].min(wanted[path]);
    }
    let used: HashSet<u32> = plan.iter().map(|c| c.value).collect();
    let mut connections = Vec::new();
    for connection in opened(places, Some(failure), candidates) {
        if loads == wanted {
            break;
        }
        let path = connection.path;
        if loads.get(path).is_some_and(|load| *load < wanted[path])
            && !used.contains(&connection.value)
        {
            loads[path] += 1;
            connections.push(connection);
        }
    }
    Spare {
        failed: failed.to_vec(),
        connections,
        close,
        moved,
        loads,
    }
}

/// How many of `paths` equal paths `count` connections with random ports use on average:
/// `P * (1 - (1 - 1/P)^N)`.
pub fn random_paths(paths: usize, count: usize) -> f64 {
    let p = paths as f64;
    p * (1.0 - (1.0 - 1.0 / p).powi(count as i32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use raddle_select::{compile_threshold, upper_bounds};

    use super::*;
    use crate::predict::Asker;

    fn layout(weights: &[Option<u32>]) -> Layout {
        Layout::ranges(compile_threshold(&upper_bounds(weights), |_| true))
    }

    fn flow() -> Flow {
        let ends = ("10.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        Flow::new(ends.0, ends.1).unwrap().ports(6, 0, 2049)
    }

    fn without(weights: &[u32]) -> Vec<(Vec<usize>, Layout)> {
        let one = |gone: usize| {
            let left: Vec<_> = (0..weights.len())
                .map(|i| (i != gone).then_some(weights[i]))
                .collect();
            (vec![gone], layout(&left))
        };
        (0..weights.len()).map(one).collect()
    }

    fn all(hashing: &Hashing, weights: &[u32], asked: (usize, ShareOut)) -> Plan {
        let some: Vec<_> = weights.iter().copied().map(Some).collect();
        let ports: Vec<u32> = (32768..=60999).collect();
        let (failures, without): (Vec<_>, Vec<_>) = without(weights).into_iter().unzip();
        let alike = Alike {
            hashing: Some(hashing),
            flow: &flow(),
            vary: Vary::SourcePort,
            layout: &layout(&some),
            without: &without,
        };
        plan(&alike, &failures, &ports, asked).unwrap()
    }

    /// A plan for four connections that counts with no failure.
    fn four(
        hashing: &Hashing,
        layout: &Layout,
        (flow, vary): (&Flow, Vary),
        candidates: std::ops::Range<u32>,
    ) -> Result<Plan, PlanError> {
        let alike = Alike {
            hashing: Some(hashing),
            flow,
            vary,
            layout,
            without: &[],
        };
        let candidates: Vec<u32> = candidates.collect();
        plan(&alike, &[], &candidates, (4, ShareOut::Evenly))
    }

    #[test]
    fn eight_connections_always_have_eight_paths() {
        for seed in 1..40 {
            let hashing = Hashing::new(1, 7, seed, Asker::Sender).unwrap();
            let plan = all(&hashing, &[1; 8], (8, ShareOut::Evenly));
            let mut paths: Vec<usize> = plan.connections.iter().map(|c| c.path).collect();
            paths.sort_unstable();
            assert_eq!(paths, (0..8).collect::<Vec<_>>());
        }
        assert!((random_paths(8, 8) - 5.25).abs() < 0.01);
    }

    #[test]
    fn a_policy_that_does_not_look_at_ports_is_named() {
        let hashing = Hashing::new(0, 7, 5, Asker::Sender).unwrap();
        let some = layout(&[Some(1); 4]);
        let vary = (&flow(), Vary::SourcePort);
        let error = four(&hashing, &some, vary, 1..9).unwrap_err();
        assert_eq!(error, PlanError::NotHashed);
        let error = four(&hashing, &Layout::nowhere(), vary, 1..9).unwrap_err();
        assert_eq!(error, PlanError::NoPath);
        let hashing = Hashing::new(1, 7, 5, Asker::Sender).unwrap();
        let error = four(&hashing, &some, vary, 1..3).unwrap_err();
        assert!(matches!(error, PlanError::TooFew { .. }), "{error}");
    }

    #[test]
    fn flow_labels_cover_paths_too() {
        let hashing = Hashing::new(0, 7, 5, Asker::Sender).unwrap();
        let ends = ("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap());
        let flow = Flow::new(ends.0, ends.1).unwrap().ports(6, 0, 2049);
        let some = layout(&[Some(1); 4]);
        let vary = (&flow, Vary::FlowLabel);
        let plan = four(&hashing, &some, vary, 1..1000).unwrap();
        for connection in &plan.connections {
            let again = Flow {
                flow_label: connection.value,
                ..flow
            };
            assert_eq!(some.path(hashing.flow(&again)), Some(connection.path));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn plans_are_even_and_survive_one_failure(
            weights in proptest::collection::vec(1..9_u32, 2..9), seed in 1..u32::MAX, count in 1..40_usize,
            by_weight: bool,
        ) {
            let hashing = Hashing::new(1, 7, seed, Asker::Sender).unwrap();
            let share_out = if by_weight { ShareOut::ByWeight } else { ShareOut::Evenly };
            let plan = all(&hashing, &weights, (count, share_out));
            prop_assert_eq!(plan.connections.len(), count);
            let on = |path: usize| plan.connections.iter().filter(|c| c.path == path).count();
            let total: u32 = weights.iter().sum();
            let some: Vec<_> = weights.iter().copied().map(Some).collect();
            for (path, weight) in weights.iter().enumerate() {
                let exact = match share_out {
                    ShareOut::Evenly => count as f64 / weights.len() as f64,
                    ShareOut::ByWeight => count as f64 * f64::from(*weight) / f64::from(total),
                };
                prop_assert!((on(path) as f64 - exact).abs() < 1.0001);
            }
            for c in &plan.connections {
                let path = layout(&some).path(hashing.flow(&Vary::SourcePort.apply(&flow(), c.value)));
                prop_assert_eq!(path, Some(c.path));
            }
            let mut values: Vec<u32> = plan.connections.iter().map(|c| c.value).collect();
            values.sort_unstable();
            values.dedup();
            prop_assert_eq!(values.len(), count, "every port once");
            for spare in &plan.spares {
                let (opened, closed) = (spare.connections.len(), spare.close.len());
                prop_assert_eq!(opened, on(spare.failed[0]) + closed);
                if share_out == ShareOut::Evenly {
                    let left = (0..weights.len()).filter(|path| *path != spare.failed[0]);
                    let loads: Vec<usize> =
                        left.map(|path| spare.loads.get(path).copied().unwrap_or(0)).collect();
                    prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
                }
                prop_assert_eq!(spare.loads.iter().sum::<usize>(), count);
                let after = &without(&weights)[spare.failed[0]].1;
                for c in &spare.connections {
                    prop_assert!(c.path != spare.failed[0] && !values.contains(&c.value));
                    prop_assert_eq!(after.path(c.hash31), Some(c.path));
                }
            }
        }
    }
}

//! What a change would move, before it is made.
//!
//! The change is made in a copy of the mirrored state, and what packets choose among before and after
//! is compared hash by hash ([`raddle_sim::moves`]). Nothing is changed in the kernel.

mod edit;
mod error;
mod flows;
mod report;
#[cfg(test)]
mod tests;
mod text;
mod words;

use std::collections::BTreeMap;

use raddle_rib::event::NexthopKind;
use raddle_rib::{Hop, MpAlgo, Rib};
use raddle_select::Flow;
use raddle_sim::order::{self, Planned};
use raddle_sim::resilient::{self, Overweight};
use raddle_sim::sample::Sample;
use raddle_sim::{Layout, Path, SPACE, moves};

use crate::bonds::{Bonds, Differ, Fan, Traffic};
use crate::paths::{self, Choice, Kind, Named, NoHash, Place};
use edit::Scratch;

pub use error::{ChangeError, Error, WordsError};
pub use report::{Flows, Move, MovedFlow, Order, PathShare, Report};
pub use words::{Change, Question, Selector};

/// What the changes would move, and of the samples that use the route, which. `bonds` is what the machine tells of them: each member
/// of a bond is a path ([`crate::bonds::Leaving::by`]).
///
/// # Errors
/// A change cannot be made, or there is nothing to compute with.
pub fn answer(
    rib: &Rib,
    bonds: &Bonds,
    question: &Question,
    samples: Option<&[Sample]>,
    budget: Option<f64>,
) -> Result<Report, Error> {
    let iif = question.iif.as_deref().unwrap_or_default();
    let packets = question.packets;
    let before = paths::needed(rib, iif, &packets)?;
    let mut scratch = Scratch::of(rib, iif, &packets);
    for change in &question.changes {
        let done = scratch.make(change);
        done.map_err(|why| Error::change(change, why))?;
    }
    let after = scratch.choice();
    let case = Case::new(&before, after.as_ref().ok(), scratch.buckets);
    let traffic = traffic(rib, question);
    let fan = |rib| Fan::new(rib, bonds, &case.places, &traffic);
    let now = fan(rib);
    let fans = (&now, &fan(&scratch.rib).limited_to(&now));
    let algo = paths::algo(rib, iif, &packets);
    // The kernel's policy counts for resilient groups, which the scratch copy has none of.
    let resilient = |after: &Choice| still_resilient(&before, after) || scratch.buckets.is_some();
    let algo_then = match &after {
        Ok(after) if resilient(after) => None,
        _ => paths::algo(&scratch.rib, iif, &packets),
    };
    for algo in [algo, algo_then].into_iter().flatten() {
        if let MpAlgo::RoundRobin | MpAlgo::Flowlet { .. } = algo {
            let (dst, why) = (question.dst, NoHash::RoundRobin(algo));
            return Err(Error::NotHashed { dst, why });
        }
    }
    let (policy, fields, _) = paths::hash_settings(rib, question.dst, algo);
    let (policy_then, fields_then, _) = paths::hash_settings(&scratch.rib, question.dst, algo_then);
    // The fields count with policy 3 only.
    let same_fields = fields == fields_then || (policy, policy_then) != (3, 3);
    // What packets bring along has nothing to do with the key.
    let by_brought = || {
        let hashing = paths::hashing(rib, iif, question.dst, algo).ok()?;
        // Of all flows that are asked about: any ports.
        let flow = Flow::new(packets.src.addr(), question.dst)?.ports(packets.proto?, 1, 1);
        Some(hashing.is_brought(&flow))
    };
    let same_key = rib.hash_key() == scratch.rib.hash_key() || by_brought() == Some(true);
    let rehashed = !(policy == policy_then && same_key && same_fields);
    let mut report = case.report(rib, fans, rehashed);
    report.dst = question.dst;
    report.iif.clone_from(&question.iif);
    report.changes = question.changes.iter().map(Change::to_string).collect();
    report.route = route_text(&before);
    report.route_after = match &after {
        Ok(after) if still_resilient(&before, after) => report.route.clone(),
        Ok(after) => route_text(after),
        Err(reason) => format!("none: {}", reason.name()),
    };
    if let Kind::Resilient(id) = before.kind {
        let kind = rib.nexthop(id).map(|group| &group.kind);
        report.forced = matches!(kind, Some(NexthopKind::Resilient { unbalanced_timer, .. }) if *unbalanced_timer != 0);
    }
    if let Some(samples) = samples {
        let side = |rib, algo| flows::Side { rib, algo };
        let sides = (side(rib, algo), side(&scratch.rib, algo_then));
        let flows = flows::compare(&case, sides, (bonds, traffic), question, &before, samples)?;
        report.flows = Some(flows);
    }
    report.budget = budget;
    report.within_budget = budget.map(|budget| report.most() <= budget);
    Ok(report)
}

/// The packets that are asked about.
fn traffic(rib: &Rib, question: &Question) -> Traffic {
    let packets = &question.packets;
    let flow = paths::flow_between(packets.src.addr(), question.dst);
    Traffic {
        forwarded: question.iif.as_deref().map(|iif| paths::brings(rib, iif)),
        flow: flow.ports(
            packets.proto.unwrap_or_default(),
            packets.sport.0,
            packets.dport.0,
        ),
        differ: match packets.src.prefix_len() == packets.src.max_prefix_len() {
            true => Differ::Sport,
            false => Differ::All,
        },
    }
}

/// Both sides of a change, with one numbering of places.
struct Case {
    places: Vec<Place>,
    before: Layout,
    after: Layout,
    /// Of a resilient group: what it comes to when idle buckets have migrated.
    end: Option<Layout>,
    /// Members before and after, where the order of members decides.
    planned: Option<Vec<(usize, Planned)>>,
}

impl Case {
    fn new(before: &Choice, after: Option<&Choice>, buckets: Option<u16>) -> Case {
        let mut places: Vec<Place> = Vec::new();
        let mut number = |hop: &Hop| {
            let place = Place::of(hop);
            places
                .iter()
                .position(|known| *known == place)
                .unwrap_or_else(|| {
                    places.push(place);
                    places.len() - 1
                })
        };
        let numbers: Vec<usize> = before.hops.iter().map(&mut number).collect();
        let numbers_then: Vec<usize> = after
            .map(|c| c.hops.iter().map(&mut number).collect())
            .unwrap_or_default();
        let (layout, end) = match (after, buckets) {
            (None, _) => (Layout::nowhere(), None),
            (Some(after), Some(buckets)) => {
                let table = resilient::fill(&paths::weighted(&after.hops), buckets);
                (Layout::buckets(table), None)
            }
            (Some(after), None) if still_resilient(before, after) => {
                let table = |over| migrated(before, after, over);
                (table(Overweight::Stay), Some(table(Overweight::Migrate)))
            }
            (Some(after), None) => (after.layout.clone(), None),
        };
        let planned = after
            .filter(|after| buckets.is_none() && same_route(before, after))
            .filter(|_| !matches!(before.kind, Kind::Resilient(_)))
            .and_then(|after| planned((before, &numbers), (after, &numbers_then)));
        Case {
            before: before.layout.renumbered(|i| numbers[i]),
            after: layout.renumbered(|i| numbers_then[i]),
            end: end.map(|end| end.renumbered(|i| numbers_then[i])),
            planned,
            places,
        }
    }

    /// How much of all packets goes from which path to which, by numbers in `paths`, those that stay included; none for nowhere.
    /// Where the hash changes it is drawn anew; what members of bonds go by is another one, and stays.
    fn steps(
        &self,
        after: &Layout,
        fans: (&Fan, &Fan),
        rehashed: bool,
        paths: &mut Paths,
    ) -> Steps {
        let pairs: Vec<(Path, Path, f64)> = match rehashed {
            true => independent(&self.before, after),
            false => {
                let all = moves(&self.before, after);
                let pairs = all.parts();
                pairs.map(|(a, b, n)| (a, b, n as f64)).collect()
            }
        };
        let mut steps = Steps::new();
        let mut add = |from, to, hashes| *steps.entry((from, to)).or_default() += hashes;
        for (from, to, hashes) in pairs {
            let (Some(hop), Some(then)) = (from, to) else {
                let alone = |hop: Path, fan: &Fan, paths: &mut Paths| match hop {
                    None => vec![None],
                    Some(hop) => fan
                        .of(hop)
                        .map(|i| Some(paths.number(fan.places()[i])))
                        .collect(),
                };
                let ends = (alone(from, fans.0, paths), alone(to, fans.1, paths));
                let part = hashes / (ends.0.len() * ends.1.len()) as f64;
                for a in &ends.0 {
                    ends.1.iter().for_each(|b| add(*a, *b, part));
                }
                continue;
            };
            for (a, b, part) in fans.0.joined(hop, fans.1, then) {
                let a = paths.number(fans.0.places()[a]);
                let b = paths.number(fans.1.places()[b]);
                add(Some(a), Some(b), part * hashes);
            }
        }
        steps
    }

    fn report(&self, rib: &Rib, fans: (&Fan, &Fan), rehashed: bool) -> Report {
        let mut paths = Paths::default();
        for place in fans.0.places() {
            paths.number(*place);
        }
        let steps = self.steps(&self.after, fans, rehashed, &mut paths);
        let end = self.end.as_ref().filter(|_| !rehashed);
        let end = end.map(|end| moved(&self.steps(end, fans, rehashed, &mut paths)));
        let mut shares = vec![(0.0, 0.0); paths.0.len()];
        for ((from, to), hashes) in &steps {
            if let Some(from) = from {
                shares[*from].0 += hashes;
            }
            if let Some(to) = to {
                shares[*to].1 += hashes;
            }
        }
        let name = |i: usize| Named::of(&paths.0[i], rib);
        let part = |hashes: f64| hashes / SPACE as f64;
        let changes = steps.iter().filter(|((from, to), hashes)| {
            // Of hashes that are drawn anew none is said to go nowhere.
            from != to && **hashes > 0.0 && (!rehashed || from.is_some() && to.is_some())
        });
        let mut list: Vec<Move> = changes
            .map(|((from, to), hashes)| Move::new(from.map(name), to.map(name), part(*hashes)))
            .collect();
        list.sort_by(|a, b| b.share.total_cmp(&a.share));
        let exact = !rehashed && !fans.0.is_wider() && !fans.1.is_wider();
        let moved = moved(&steps);
        let lost = |(before, after): &(f64, f64)| (before - after).max(0.0);
        Report {
            moved: part(moved),
            moved_hashes: exact.then_some(moved as u64),
            least: part(shares.iter().map(lost).sum()),
            paths: (0..paths.0.len())
                .map(|i| PathShare {
                    path: name(i),
                    before: part(shares[i].0),
                    after: part(shares[i].1),
                    before_hashes: shares[i].0.round() as u64,
                    after_hashes: shares[i].1.round() as u64,
                })
                .collect(),
            in_the_end: end.map(part),
            moves: list,
            by_member: fans.0.is_wider() || fans.1.is_wider(),
            bonds: fans.0.bonds(),
            bonds_after: fans.1.bonds(),
            order: self.best_order(exact, moved as u64, &|i| Named::of(&self.places[i], rib)),
            ..Report::default()
        }
    }

    /// The order of members that the change disrupts least, if it is better than theirs.
    fn best_order(&self, exact: bool, moved: u64, name: &dyn Fn(usize) -> Named) -> Option<Order> {
        let planned = self.planned.as_ref().filter(|_| exact)?;
        let members: Vec<Planned> = planned.iter().map(|(_, member)| *member).collect();
        let best = order::best(&members);
        (best.moved < moved).then(|| Order {
            members: best.members.iter().map(|i| name(planned[*i].0)).collect(),
            moved: best.moved as f64 / SPACE as f64,
            proven: best.proven,
        })
    }
}

/// How many hashes go from which path to which.
type Steps = BTreeMap<(Path, Path), f64>;

/// Hashes that change their path.
fn moved(steps: &Steps) -> f64 {
    let changes = steps.iter().filter(|((from, to), _)| from != to);
    changes.map(|(_, hashes)| hashes).sum()
}

/// Paths by number.
#[derive(Default)]
struct Paths(Vec<Place>);

impl Paths {
    fn number(&mut self, place: Place) -> usize {
        let known = self.0.iter().position(|known| *known == place);
        known.unwrap_or_else(|| {
            self.0.push(place);
            self.0.len() - 1
        })
    }
}

/// How many hashes go from which nexthop to which when where they go then does not depend on where they went.
fn independent(before: &Layout, after: &Layout) -> Vec<(Path, Path, f64)> {
    let side = |layout: &Layout| {
        let shares = layout.shares();
        let nowhere = SPACE - shares.iter().sum::<u64>();
        let hops = shares.into_iter().enumerate();
        let all = hops
            .map(|(hop, share)| (Some(hop), share))
            .chain([(None, nowhere)]);
        all.filter(|(_, share)| *share > 0).collect::<Vec<_>>()
    };
    let (before, after) = (side(before), side(after));
    let pairs = before.iter().flat_map(|(from, p)| {
        let after = after.iter();
        after.map(move |(to, q)| (*from, *to, *p as f64 * (*q as f64 / SPACE as f64)))
    });
    pairs.collect()
}

/// Whether the route refers to the same resilient group before and after. In the scratch copy the group
/// is a hash-threshold one, or one nexthop where only one is left.
fn still_resilient(before: &Choice, after: &Choice) -> bool {
    matches!(before.kind, Kind::Resilient(_))
        && same_route(before, after)
        && before.route.target == after.route.target
}

/// A resilient group's buckets over the nexthops that it has afterwards.
fn migrated(before: &Choice, after: &Choice, over: Overweight) -> Layout {
    let place = |owner: &usize| {
        let object = before.hops.get(*owner).and_then(|hop| hop.object);
        after
            .hops
            .iter()
            .position(|hop| object.is_some() && hop.object == object)
    };
    let owners: Vec<Option<usize>> = before.owners.iter().map(place).collect();
    Layout::buckets(resilient::rebalance(
        &owners,
        &paths::weighted(&after.hops),
        over,
    ))
}

fn same_route(a: &Choice, b: &Choice) -> bool {
    (a.route.table, a.route.dst) == (b.route.table, b.route.dst)
}

/// Members with their weights before and after; none where more than weights decides: a member that is
/// passed over, or two that lead to one place.
fn planned(
    before: (&Choice, &[usize]),
    after: (&Choice, &[usize]),
) -> Option<Vec<(usize, Planned)>> {
    let mut list: Vec<(usize, Planned)> = Vec::new();
    for ((choice, numbers), then) in [(before, false), (after, true)] {
        for (hop, number) in choice.hops.iter().zip(numbers) {
            let share = choice.kind == Kind::One || hop.upper.is_some();
            if share && !hop.eligible {
                return None;
            }
            let weight = share.then_some(u32::from(hop.weight));
            let empty = Planned {
                before: None,
                after: None,
            };
            let at = list
                .iter()
                .position(|(n, _)| n == number)
                .unwrap_or_else(|| {
                    list.push((*number, empty));
                    list.len() - 1
                });
            let member = &mut list[at].1;
            let side = if then {
                &mut member.after
            } else {
                &mut member.before
            };
            if side.is_some() {
                return None;
            }
            *side = weight;
        }
    }
    Some(list)
}

fn route_text(choice: &Choice) -> String {
    let dst = match choice.route.dst.prefix_len() {
        0 => "default".to_owned(),
        _ => choice.route.dst.to_string(),
    };
    match choice.kind {
        Kind::One => format!("{dst}, one nexthop"),
        Kind::Plain => format!("{dst}, multipath route"),
        Kind::Group(id) => format!("{dst}, nexthop group {id}"),
        Kind::Resilient(id) => format!("{dst}, resilient nexthop group {id}"),
    }
}

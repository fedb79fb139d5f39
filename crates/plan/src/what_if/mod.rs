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

use raddle_rib::event::NexthopKind;
use raddle_rib::{Hop, MpAlgo, Rib};
use raddle_select::Flow;
use raddle_sim::order::{self, Planned};
use raddle_sim::resilient::{self, Overweight};
use raddle_sim::sample::Sample;
use raddle_sim::{Layout, SPACE, moves, rehashed_share};

use crate::paths::{self, Choice, Kind, Named, NoHash, Place};
use edit::Scratch;

pub use error::{ChangeError, Error, WordsError};
pub use report::{Flows, Move, MovedFlow, Order, PathShare, Report};
pub use words::{Change, Question, Selector};

/// What the changes would move, and of the samples that use the route, which.
///
/// # Errors
/// A change cannot be made, or there is nothing to compute with.
pub fn answer(
    rib: &Rib,
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
    let mut report = case.report(rib, rehashed);
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
        let sides = ((rib, algo), (&scratch.rib, algo_then));
        let flows = flows::compare(&case, sides, question, &before, samples)?;
        report.flows = Some(flows);
    }
    report.budget = budget;
    report.within_budget = budget.map(|budget| report.most() <= budget);
    Ok(report)
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

    fn report(&self, rib: &Rib, rehashed: bool) -> Report {
        let name = |i: usize| Named::of(&self.places[i], rib);
        let of = |layout: &Layout| {
            let mut shares = layout.shares();
            shares.resize(self.places.len(), 0);
            shares
        };
        let (shares, shares_then) = (of(&self.before), of(&self.after));
        let part = |hashes: u64| hashes as f64 / SPACE as f64;
        let all = moves(&self.before, &self.after);
        let least: u64 = shares
            .iter()
            .zip(&shares_then)
            .map(|(a, b)| a.saturating_sub(*b))
            .sum();
        let mut list: Vec<Move> = if rehashed {
            let pairs = shares.iter().enumerate().flat_map(|(i, a)| {
                shares_then
                    .iter()
                    .enumerate()
                    .map(move |(j, b)| (i, j, part(*a) * part(*b)))
            });
            let changes = pairs.filter(|(i, j, share)| i != j && *share > 0.0);
            changes
                .map(|(i, j, share)| Move::new(Some(name(i)), Some(name(j)), share))
                .collect()
        } else {
            let changes = all.parts().filter(|(from, to, _)| from != to);
            changes
                .map(|(from, to, hashes)| Move::new(from.map(name), to.map(name), part(hashes)))
                .collect()
        };
        list.sort_by(|a, b| b.share.total_cmp(&a.share));
        Report {
            moved: if rehashed {
                rehashed_share(&self.before, &self.after)
            } else {
                all.share()
            },
            moved_hashes: (!rehashed).then(|| all.moved()),
            least: part(least),
            paths: (0..self.places.len())
                .map(|i| PathShare {
                    path: name(i),
                    before: part(shares[i]),
                    after: part(shares_then[i]),
                    before_hashes: shares[i],
                    after_hashes: shares_then[i],
                })
                .collect(),
            in_the_end: self
                .end
                .as_ref()
                .filter(|_| !rehashed)
                .map(|end| moves(&self.before, end).share()),
            moves: list,
            order: self.best_order(rehashed, all.moved(), &name),
            ..Report::default()
        }
    }

    /// The order of members that the change disrupts least, if it is better than theirs.
    fn best_order(
        &self,
        rehashed: bool,
        moved: u64,
        name: &dyn Fn(usize) -> Named,
    ) -> Option<Order> {
        let planned = self.planned.as_ref().filter(|_| !rehashed)?;
        let members: Vec<Planned> = planned.iter().map(|(_, member)| *member).collect();
        let best = order::best(&members);
        (best.moved < moved).then(|| Order {
            members: best.members.iter().map(|i| name(planned[*i].0)).collect(),
            moved: best.moved as f64 / SPACE as f64,
            proven: best.proven,
        })
    }
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

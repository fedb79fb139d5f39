//! Which of the given flows move.

use std::collections::HashMap;

use raddle_rib::{Asked, MpAlgo, Rib};
use raddle_sim::Predictor;
use raddle_sim::sample::Sample;

use super::report::{Flows, MovedFlow};
use super::words::Question;
use super::{Case, Error, same_route};
use crate::flows::text;
use crate::paths::{self, Choice, Named};

/// A state, and how it spreads packets of the route.
type Side<'a> = (&'a Rib, Option<MpAlgo>);

/// Predicts every sample that uses the route, before and after.
pub(super) fn compare(
    case: &Case,
    ((rib, algo), (rib_then, algo_then)): (Side<'_>, Side<'_>),
    question: &Question,
    before: &Choice,
    samples: &[Sample],
) -> Result<Flows, Error> {
    let iif = question.iif.as_deref().unwrap_or_default();
    let hashing = |rib: &Rib, algo| {
        paths::hashing(rib, iif, question.dst, algo).map_err(Error::FlowsNotHashed)
    };
    let now = Predictor::new(hashing(rib, algo)?, case.before.clone());
    let then = Predictor::new(hashing(rib_then, algo_then)?, case.after.clone());
    let name = |i: usize| Named::of(&case.places[i], rib);
    let mut known: HashMap<Asked, bool> = HashMap::new();
    let mut flows = Flows {
        given: samples.len(),
        ..Flows::default()
    };
    for sample in samples {
        let packets = paths::packets_of(rib, iif, sample);
        let on_route = *known.entry(packets).or_insert_with(|| {
            packets.dst.addr().is_ipv4() == question.dst.is_ipv4()
                && paths::choice(rib, iif, &packets).is_ok_and(|choice| same_route(&choice, before))
        });
        if !on_route {
            continue;
        }
        let (Ok(from), Ok(to)) = (sample.path(&now), sample.path(&then)) else {
            // A header that makes no sense: the kernel drops such packets before it hashes them.
            continue;
        };
        flows.on_route += 1;
        flows.load += sample.load;
        if from != to {
            flows.moved += 1;
            flows.moved_load += sample.load;
            flows.list.push(MovedFlow {
                flow: text(&sample.flow),
                from: from.map(name),
                to: to.map(name),
            });
        }
    }
    Ok(flows)
}

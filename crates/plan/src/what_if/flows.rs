//! Which of the given flows move.

use std::collections::HashMap;

use raddle_rib::{Asked, MpAlgo, Rib};
use raddle_sim::sample::Sample;
use raddle_sim::{Layout, Predictor};

use super::report::{Flows, MovedFlow};
use super::words::Question;
use super::{Case, Error, same_route};
use crate::bonds::Fan;
use crate::flows::text;
use crate::paths::{self, Choice, Named, Place};

/// A state, and how it spreads packets of the route.
pub(super) struct Side<'a> {
    pub(super) rib: &'a Rib,
    pub(super) algo: Option<MpAlgo>,
    /// The paths of the nexthops.
    pub(super) fan: &'a Fan,
}

/// Predicts every sample that uses the route, before and after.
pub(super) fn compare(
    case: &Case,
    sides: (Side<'_>, Side<'_>),
    question: &Question,
    before: &Choice,
    samples: &[Sample],
) -> Result<Flows, Error> {
    let iif = question.iif.as_deref().unwrap_or_default();
    let predictor = |side: &Side<'_>, layout: &Layout| -> Result<Predictor, Error> {
        let hashing = paths::hashing(side.rib, iif, question.dst, side.algo);
        let hashing = hashing.map_err(Error::FlowsNotHashed)?;
        Ok(Predictor::new(hashing, layout.clone()))
    };
    let now = predictor(&sides.0, &case.before)?;
    let then = predictor(&sides.1, &case.after)?;
    let rib = sides.0.rib;
    let place = |side: &Side<'_>, hop, sample| {
        let path = side.fan.sample(hop, sample, !iif.is_empty())?;
        side.fan.places().get(path).copied()
    };
    let name = |place: Place| Named::of(&place, rib);
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
        let (from, to) = (place(&sides.0, from, sample), place(&sides.1, to, sample));
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

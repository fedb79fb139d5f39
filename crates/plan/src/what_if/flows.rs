//! Which of the given flows move.

use std::collections::HashMap;
use std::net::IpAddr;

use raddle_rib::{Asked, MpAlgo, Rib};
use raddle_select::KeyError;
use raddle_sim::sample::Sample;
use raddle_sim::{Layout, Path, Predictor, SPACE};

use super::report::{Flows, MovedFlow};
use super::words::Question;
use super::{Case, Error, same_route};
use crate::bonds::{Bonds, Differ, Fan, Traffic, is_by_destination};
use crate::flows::text;
use crate::paths::{self, Choice, Named, Place};

/// A state, and how it spreads packets of the route.
pub(super) struct Side<'a> {
    pub(super) rib: &'a Rib,
    pub(super) algo: Option<MpAlgo>,
}

/// The paths of the nexthops before and after, for all samples, or for those to one destination each where that decides by which
/// member of a bond they leave.
struct Fans<'a> {
    ribs: (&'a Rib, &'a Rib),
    bonds: &'a Bonds,
    places: &'a [Place],
    dst: IpAddr,
    traffic: Traffic,
    by_destination: bool,
    known: HashMap<Option<IpAddr>, (Fan, Fan)>,
}

impl<'a> Fans<'a> {
    fn new(
        case: &'a Case,
        ribs: (&'a Rib, &'a Rib),
        (bonds, traffic): (&'a Bonds, Traffic),
        dst: IpAddr,
    ) -> Fans<'a> {
        let by = |rib| {
            case.places
                .iter()
                .any(|place| is_by_destination(rib, place, dst))
        };
        Fans {
            ribs,
            bonds,
            places: &case.places,
            dst,
            // Samples are of any source.
            traffic: Traffic {
                differ: Differ::All,
                ..traffic
            },
            by_destination: by(ribs.0) || by(ribs.1),
            known: HashMap::new(),
        }
    }

    fn of(&mut self, sample: &Sample) -> &(Fan, Fan) {
        let (_, dst) = sample.flow.addresses.ends();
        let key = self.by_destination.then_some(dst);
        self.known.entry(key).or_insert_with(|| {
            let mut traffic = self.traffic.clone();
            let mut places = self.places.to_vec();
            if key.is_some() {
                traffic.flow = sample.flow;
                let neighbours = places.iter_mut().filter_map(|of| of.gateway.as_mut());
                neighbours
                    .filter(|gateway| **gateway == self.dst)
                    .for_each(|gateway| *gateway = dst);
            }
            let fan = |rib| Fan::new(rib, self.bonds, &places, &traffic);
            let now = fan(self.ribs.0);
            let then = fan(self.ribs.1).limited_to(&now);
            (now, then)
        })
    }
}

/// What a layout's hash takes.
struct Taken<'a> {
    layout: &'a Layout,
    /// None where nobody knows the hash, and all hashes take the same nexthop.
    predictor: Option<Predictor>,
}

impl Taken<'_> {
    fn path(&self, sample: &Sample) -> Result<Path, KeyError> {
        match &self.predictor {
            Some(predictor) => sample.path(predictor),
            None => Ok(self.layout.path(0)),
        }
    }
}

/// Predicts every sample that uses the route, before and after.
pub(super) fn compare(
    case: &Case,
    sides: (Side<'_>, Side<'_>),
    of_bonds: (&Bonds, Traffic),
    question: &Question,
    before: &Choice,
    samples: &[Sample],
) -> Result<Flows, Error> {
    let iif = question.iif.as_deref().unwrap_or_default();
    let now = taken(&sides.0, &case.before, question)?;
    let then = taken(&sides.1, &case.after, question)?;
    let rib = sides.0.rib;
    let mut fans = Fans::new(case, (rib, sides.1.rib), of_bonds, question.dst);
    let place = |fan: &Fan, hop, sample| {
        let path = fan.sample(hop, sample, !iif.is_empty())?;
        fan.places().get(path).copied()
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
        let (Ok(from), Ok(to)) = (now.path(sample), then.path(sample)) else {
            // A header that makes no sense: the kernel drops such packets before it hashes them.
            continue;
        };
        let fans = fans.of(sample);
        let (from, to) = (place(&fans.0, from, sample), place(&fans.1, to, sample));
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

/// Nothing is hashed where there is one nexthop.
fn taken<'a>(side: &Side<'_>, layout: &'a Layout, question: &Question) -> Result<Taken<'a>, Error> {
    let iif = question.iif.as_deref().unwrap_or_default();
    let shares = layout.shares();
    let is_one = || shares.iter().all(|share| [0, SPACE].contains(share));
    let predictor = match paths::hashing(side.rib, iif, question.dst, side.algo) {
        Ok(hashing) => Some(Predictor::new(hashing, layout.clone())),
        Err(_) if is_one() => None,
        Err(why) => return Err(Error::FlowsNotHashed(why)),
    };
    Ok(Taken { layout, predictor })
}

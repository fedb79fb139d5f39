//! How evenly flows lie on links, and what several tiers of routers leave of that.

mod text;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use raddle_image::Reason;
use raddle_rib::{Asked, Rib};
use raddle_select::Flow;
use raddle_sim::Predictor;
use raddle_sim::sample::Sample;
use raddle_sim::spread::{self, Evenness, Reach, SpreadError};
use serde::Serialize;
use thiserror::Error;

pub use raddle_sim::spread::{Tier, TierError, TierSeed};

use crate::bonds::{BondUse, Bonds, Differ, Fan, Traffic};
use crate::paths::{self, NoHash, Place};

/// Why the spread cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Through tiers.
    #[error("cannot follow the flows through the tiers: {0}")]
    Tiers(#[from] SpreadError),
    /// Over the links of this machine.
    #[error("cannot predict flows to {dst}: {why}")]
    Flows {
        /// The destination.
        dst: IpAddr,
        /// Why not.
        why: NoHash,
    },
}

/// The whole answer.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Flows that were looked at.
    pub flows: usize,
    /// By link of this machine, where no tiers are given.
    pub links: Option<Links>,
    /// By tier.
    pub tiers: Option<Vec<TierReport>>,
}

/// How the flows lie on this machine's links.
#[derive(Debug, Default, Serialize)]
pub struct Links {
    /// Links and their loads: bytes of a capture, else flows.
    pub loads: Vec<LinkLoad>,
    /// What they come to, over the links that routes of these flows could use.
    pub evenness: Option<Evenness>,
    /// Flows that have no path, by reason.
    pub elsewhere: BTreeMap<&'static str, u64>,
    /// The bonds that the flows leave by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bonds: Vec<BondUse>,
}

/// A link's load.
#[derive(Debug, Serialize)]
pub struct LinkLoad {
    /// Its name.
    pub dev: String,
    /// The member, where the link is a bond, or a VLAN upon one, whose members are told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// What goes there.
    pub load: u64,
    /// The load to be expected of very many flows, by the shares of the hash space.
    pub expected: f64,
}

/// What a tier makes of the flows that reach it.
#[derive(Debug, Serialize)]
pub struct TierReport {
    /// The tier.
    #[serde(flatten)]
    pub tier: Tier,
    /// What very many flows come to.
    pub expected: Reach,
    /// What the given flows come to.
    pub counted: Reach,
}

/// How the flows lie on the links of the routers of some tiers, first to last.
///
/// # Errors
/// A tier hashes by nothing that is known of the flows.
pub fn through_tiers(tiers: &[Tier], samples: &[Sample]) -> Result<Report, Error> {
    let counted = spread::of_flows(tiers, samples)?;
    let both = spread::expected(tiers).into_iter().zip(counted);
    let tier = |(tier, (expected, counted)): (&Tier, (Reach, Reach))| TierReport {
        tier: *tier,
        expected,
        counted,
    };
    Ok(Report {
        flows: samples.len(),
        links: None,
        tiers: Some(tiers.iter().zip(both).map(tier).collect()),
    })
}

/// How the flows lie on this machine's links, and the members of its bonds, when they come in by `iif`; an empty name stands for
/// this machine's own.
///
/// # Errors
/// The settings by which they are hashed are unknown.
pub fn over_links(
    rib: &Rib,
    bonds: &Bonds,
    iif: &str,
    samples: &[Sample],
) -> Result<Report, Error> {
    Ok(Report {
        flows: samples.len(),
        links: Some(by_link(rib, bonds, iif, samples)?),
        tiers: None,
    })
}

/// Why a flow has no path of its own.
const ROUND_ROBIN: &str = "round-robin";

/// Why a flow that leaves by a bond has none.
const NO_MEMBER: &str = "bond-member";

/// How one destination's flows are predicted.
enum How {
    /// There is one path.
    One,
    /// By hash.
    Hashed(Predictor),
    /// Not at all: packets go round robin, by weight, and shares are what the load comes to.
    RoundRobin,
}

/// Where one destination's flows go: how they are predicted, the paths, and their shares.
struct Known {
    how: How,
    fan: Fan,
    shares: Vec<f64>,
}

fn known(
    rib: &Rib,
    bonds: &Bonds,
    iif: &str,
    (packets, flow): (&Asked, &Flow),
) -> Result<Result<Known, Reason>, Error> {
    let dst = packets.dst.addr();
    let choice = match paths::choice(rib, iif, packets) {
        Ok(choice) => choice,
        Err(reason) => return Ok(Err(reason)),
    };
    let hops: Vec<Place> = choice.hops.iter().map(Place::of).collect();
    let traffic = Traffic {
        forwarded: (!iif.is_empty()).then(|| paths::brings(rib, iif)),
        flow: *flow,
        differ: Differ::All,
    };
    let fan = Fan::new(rib, bonds, &hops, &traffic);
    let shares = fan.shares(&choice.layout.shares(), None);
    let how = match choice.is_many() {
        false => How::One,
        true => match paths::hashing(rib, iif, dst, paths::algo(rib, iif, packets)) {
            Ok(hashing) => How::Hashed(Predictor::new(hashing, choice.layout)),
            Err(NoHash::RoundRobin(_)) => How::RoundRobin,
            Err(why @ NoHash::Settings(_)) => return Err(Error::Flows { dst, why }),
        },
    };
    Ok(Ok(Known {
        how,
        fan,
        shares: shares
            .iter()
            .map(|share| *share as f64 / raddle_sim::SPACE as f64)
            .collect(),
    }))
}

impl Known {
    /// The path of a flow.
    ///
    /// # Errors
    /// Why it has none of its own, in a word.
    fn path(&self, sample: &Sample, forwarded: bool) -> Result<usize, &'static str> {
        let hop = match &self.how {
            How::One => Some(0),
            How::RoundRobin => return Err(ROUND_ROBIN),
            How::Hashed(predictor) => sample
                .path(predictor)
                .map_err(|_| Reason::BadHeader.name())?,
        };
        if hop.is_none() {
            return Err(Reason::OutLink.name());
        }
        self.fan.sample(hop, sample, forwarded).ok_or(NO_MEMBER)
    }
}

/// What goes by a link, and is to be expected there.
type Loads = BTreeMap<(u32, Option<u32>), (u64, f64)>;

fn by_link(rib: &Rib, bonds: &Bonds, iif: &str, samples: &[Sample]) -> Result<Links, Error> {
    let mut routes: HashMap<Asked, Result<Known, Reason>> = HashMap::new();
    let mut loads = Loads::new();
    let mut elsewhere: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut used: Vec<BondUse> = Vec::new();
    for sample in samples {
        let packets = paths::packets_of(rib, iif, sample);
        let known = match routes.entry(packets) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => {
                let known = known(rib, bonds, iif, (free.key(), &sample.flow))?;
                for bond in known.iter().flat_map(|known| known.fan.bonds()) {
                    if !used.contains(&bond) {
                        used.push(bond);
                    }
                }
                free.insert(known)
            }
        };
        let known = match known {
            Ok(known) => known,
            Err(reason) => {
                *elsewhere.entry(reason.name()).or_default() += 1;
                continue;
            }
        };
        let link = |place: &Place| (place.index, place.member);
        match known.path(sample, !iif.is_empty()) {
            Ok(path) => {
                let place = &known.fan.places()[path];
                loads.entry(link(place)).or_default().0 += sample.load;
            }
            Err(why) => {
                *elsewhere.entry(why).or_default() += 1;
                if why == Reason::BadHeader.name() {
                    continue;
                }
            }
        }
        for (place, share) in known.fan.places().iter().zip(&known.shares) {
            loads.entry(link(place)).or_default().1 += share * sample.load as f64;
        }
    }
    let evenness = Evenness::of(
        loads.values().map(|(load, _)| *load as f64),
        loads.len() as u64,
    );
    Ok(Links {
        evenness: (!loads.is_empty()).then_some(evenness),
        loads: loads
            .into_iter()
            .map(|((index, member), (load, expected))| LinkLoad {
                dev: paths::link_name(rib, index),
                member: member.map(|member| paths::link_name(rib, member)),
                load,
                expected,
            })
            .collect(),
        elsewhere,
        bonds: used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::Source;

    fn report(tiers: &[&str]) -> Report {
        let source = Source {
            synthetic: Some(20_000),
            ..Source::default()
        };
        let samples = source.load(None).unwrap().unwrap();
        let tiers: Vec<Tier> = tiers.iter().map(|text| text.parse().unwrap()).collect();
        through_tiers(&tiers, &samples).unwrap()
    }

    #[test]
    fn equal_seeds_polarise_and_different_ones_do_not() {
        let same = report(&["seed=7,width=4", "seed=7,width=4"]).to_string();
        assert_eq!(
            same,
            "20000 flows through 2 tiers\n\
             \n\
             tier  policy        seed  width  in use  expected   paths  used  effective  expected  max/mean  expected\n\
             \x20  1       1           7      4   100 %     100 %       4     4       4.00      4.00     1.023     1.000\n\
             \x20  2       1           7      4    25 %      25 %      16     4       4.00      4.00     4.091     4.000\n\
             \n\
             tier 2 is polarised: it hashes as tier 1 (policy 1, seed 7), and its routers use 25 % of their links; \
             give it a seed of its own\n"
        );
        let other = report(&["seed=7,width=4", "seed=8,width=4"]).to_string();
        assert!(!other.contains("polarised"), "{other}");
        assert!(other.contains("  100 %     100 %      16    16"), "{other}");
    }

    #[test]
    fn a_secret_seed_is_in_no_answer() {
        let mut tiers: Vec<Tier> = ["seed=54321,width=4", "seed=54321,width=4"]
            .map(|text| text.parse().unwrap())
            .into();
        tiers[1].seed.is_secret = true;
        let source = Source {
            synthetic: Some(1000),
            ..Source::default()
        };
        let samples = source.load(None).unwrap().unwrap();
        let report = through_tiers(&tiers, &samples).unwrap();
        let text = report.to_string();
        assert!(text.contains("    secret  "), "{text}");
        assert!(
            text.contains("tier 2 is polarised: it hashes as tier 1 (policy 1, seed secret)"),
            "{text}"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["tiers"][0]["seed"], 54321);
        assert!(json["tiers"][1]["seed"].is_null());
    }

    #[test]
    fn charts_are_written_in_both_forms() {
        let chart = report(&["seed=7,width=4", "seed=7,width=4"]).chart();
        let dir = tempfile::tempdir().unwrap();
        for (name, magic) in [("a.svg", &b"<svg"[..]), ("a.png", &b"\x89PNG"[..])] {
            let file = dir.path().join(name);
            raddle_plot::bars(&file, &chart.title, &chart.groups, chart.unit).unwrap();
            assert!(std::fs::read(&file).unwrap().starts_with(magic), "{name}");
        }
    }
}

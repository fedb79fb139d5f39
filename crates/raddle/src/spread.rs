//! `raddle spread`: how evenly flows lie on links, and what several tiers of routers leave of that.

mod show;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use raddle_image::Reason;
use raddle_rib::Rib;
use raddle_sim::Predictor;
use raddle_sim::sample::Sample;
use raddle_sim::spread::{self, Evenness, Reach, Tier};
use serde::Serialize;

use crate::cli;
use crate::error::Failure;
use crate::source;
use raddle_plan::paths::{self, NoHash};

/// Flows that are made up when none are given.
const SOME: usize = 100_000;

/// The whole answer.
#[derive(Debug, Serialize)]
struct Report {
    /// Flows that were looked at.
    flows: usize,
    /// By link of this machine, where no tiers are given.
    links: Option<Links>,
    /// By tier.
    tiers: Option<Vec<TierReport>>,
}

/// How the flows lie on this machine's links.
#[derive(Debug, Default, Serialize)]
struct Links {
    /// Links and their loads: bytes of a capture, else flows.
    loads: Vec<LinkLoad>,
    /// What they come to, over the links that routes of these flows could use.
    evenness: Option<Evenness>,
    /// Flows that have no path, by reason.
    elsewhere: BTreeMap<&'static str, u64>,
}

/// A link's load.
#[derive(Debug, Serialize)]
struct LinkLoad {
    /// Its name.
    dev: String,
    /// What goes there.
    load: u64,
    /// The load to be expected of very many flows, by the shares of the hash space.
    expected: f64,
}

/// What a tier makes of the flows that reach it.
#[derive(Debug, Serialize)]
struct TierReport {
    /// The tier.
    #[serde(flatten)]
    tier: Tier,
    /// What very many flows come to.
    expected: Reach,
    /// What the given flows come to.
    counted: Reach,
}

/// Runs the command.
pub(crate) fn run(args: &cli::Spread) -> Result<(), Failure> {
    let report = match args.tiers.is_empty() {
        true => links(args)?,
        false => tiers(args)?,
    };
    if args.json {
        let json = serde_json::to_string(&report).map_err(|e| Failure::system(e.to_string()))?;
        println!("{json}");
    } else {
        print!("{}", show::render(&report));
    }
    match &args.plot {
        Some(path) => show::draw(&report, path),
        None => Ok(()),
    }
}

fn samples(args: &cli::Spread) -> Result<Vec<Sample>, Failure> {
    if let Some(samples) = args.flows.load(args.dst)? {
        return Ok(samples);
    }
    let mut made_up = args.flows.clone();
    made_up.synthetic = Some(SOME);
    Ok(made_up.load(args.dst)?.unwrap_or_default())
}

fn tiers(args: &cli::Spread) -> Result<Report, Failure> {
    if args.algos.given() {
        return Err(Failure::usage(
            "--mp-algo and --config are about this machine's routes: a tier says its policy itself",
        ));
    }
    let samples = samples(args)?;
    let tiers: Vec<Tier> = args.tiers.iter().map(|tier| tier.0).collect();
    let counted = spread::of_flows(&tiers, &samples)
        .map_err(|e| Failure::usage(format!("cannot follow the flows through the tiers: {e}")))?;
    let both = spread::expected(&tiers).into_iter().zip(counted);
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

fn links(args: &cli::Spread) -> Result<Report, Failure> {
    if args.dst.is_none()
        && args
            .flows
            .flows
            .as_ref()
            .is_none_or(|text| text.parse::<usize>().is_ok())
    {
        return Err(Failure::usage(
            "made-up flows want a destination, or tiers: raddle spread DST, or --tier seed=S,policy=1,width=4",
        ));
    }
    let mut rib = source::mirror(args.snapshot.as_deref())?;
    let iif = paths::input(&rib, args.iif.as_deref())?;
    let file = args.snapshot.as_deref();
    source::set_algos(&mut rib, &args.algos, file, args.iif.as_deref())?;
    let samples = samples(args)?;
    Ok(Report {
        flows: samples.len(),
        links: Some(by_link(&rib, iif, &samples)?),
        tiers: None,
    })
}

/// Why a flow has no path of its own.
const TURNS: &str = "round-robin";

/// How one destination's flows are predicted.
enum How {
    /// There is one path.
    One,
    /// By hash.
    Hashed(Predictor),
    /// Not at all: packets take turns, by weight, and shares are what the load comes to.
    Turns,
}

/// Where one destination's flows go: how they are predicted, the link of each path, and the shares of
/// paths.
struct Known {
    how: How,
    links: Vec<u32>,
    shares: Vec<f64>,
}

fn known(rib: &Rib, iif: &str, dst: IpAddr) -> Result<Result<Known, Reason>, Failure> {
    let choice = match paths::choice(rib, iif, dst) {
        Ok(choice) => choice,
        Err(reason) => return Ok(Err(reason)),
    };
    let shares = choice.layout.shares();
    let how = match choice.is_many() {
        false => How::One,
        true => match paths::hashing(rib, iif, dst, paths::algo(rib, iif, dst)) {
            Ok(hashing) => How::Hashed(Predictor::new(hashing, choice.layout)),
            Err(NoHash::Turns(_)) => How::Turns,
            Err(e @ NoHash::Settings(_)) => {
                let text = format!("cannot predict flows to {dst}: {e}");
                return Err(Failure::usage(text));
            }
        },
    };
    Ok(Ok(Known {
        how,
        links: choice.hops.iter().map(|hop| hop.index).collect(),
        shares: shares
            .iter()
            .map(|share| *share as f64 / raddle_sim::SPACE as f64)
            .collect(),
    }))
}

fn by_link(rib: &Rib, iif: &str, samples: &[Sample]) -> Result<Links, Failure> {
    let mut routes: HashMap<IpAddr, Result<Known, Reason>> = HashMap::new();
    let mut loads: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    let mut elsewhere: BTreeMap<&'static str, u64> = BTreeMap::new();
    for sample in samples {
        let (_, dst) = sample.flow.addresses.ends();
        let known = match routes.entry(dst) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => free.insert(known(rib, iif, dst)?),
        };
        let known = match known {
            Ok(known) => known,
            Err(reason) => {
                *elsewhere.entry(reason.name()).or_default() += 1;
                continue;
            }
        };
        let path = match &known.how {
            How::One => Some(0),
            How::Turns => {
                *elsewhere.entry(TURNS).or_default() += 1;
                None
            }
            How::Hashed(predictor) => match sample.path(predictor) {
                Ok(path) => path,
                Err(_) => {
                    *elsewhere.entry(Reason::BadHeader.name()).or_default() += 1;
                    continue;
                }
            },
        };
        if let Some(index) = path.and_then(|path| known.links.get(path)) {
            loads.entry(*index).or_default().0 += sample.load;
        }
        for (index, share) in known.links.iter().zip(&known.shares) {
            loads.entry(*index).or_default().1 += share * sample.load as f64;
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
            .map(|(index, (load, expected))| LinkLoad {
                dev: paths::link_name(rib, index),
                load,
                expected,
            })
            .collect(),
        elsewhere,
    })
}

#[cfg(test)]
mod tests {
    use super::show::{draw, render};
    use super::*;
    use crate::cli::TierArg;

    fn tier(text: &str) -> Result<Tier, String> {
        text.parse().map(|TierArg(tier)| tier)
    }

    #[test]
    fn tiers_are_read_from_words() {
        let read = tier("seed=7,policy=0,width=4").unwrap();
        assert_eq!((read.seed, read.policy, read.width), (7, 0, 4));
        assert_eq!(tier("width=2,seed=1").unwrap().policy, 1);
        for (text, said) in [
            ("seed=7", "a tier wants width=N"),
            ("width=7", "a tier wants seed=N"),
            ("seed=0,width=2", "'0' is not a seed"),
            ("seed=1,width=0", "'0' is not a width"),
            ("seed=1,width=2,policy=9", "'9' is not a policy"),
            ("seed=1,depth=2", "'depth' is not a key"),
            ("seed", "'seed' is not KEY=VALUE"),
        ] {
            assert!(tier(text).unwrap_err().contains(said), "{text}");
        }
    }

    fn report(tiers: &[&str]) -> Report {
        let args = cli::Spread {
            json: false,
            snapshot: None,
            iif: None,
            flows: crate::flows::FlowArgs {
                synthetic: Some(20_000),
                ..Default::default()
            },
            tiers: tiers.iter().map(|text| text.parse().unwrap()).collect(),
            algos: source::AlgoArgs::default(),
            plot: None,
            dst: None,
        };
        super::tiers(&args).unwrap()
    }

    #[test]
    fn equal_seeds_polarise_and_different_ones_do_not() {
        let same = render(&report(&["seed=7,width=4", "seed=7,width=4"]));
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
        let other = render(&report(&["seed=7,width=4", "seed=8,width=4"]));
        assert!(!other.contains("polarised"), "{other}");
        assert!(other.contains("  100 %     100 %      16    16"), "{other}");
    }

    #[test]
    fn charts_are_written_in_both_forms() {
        let report = report(&["seed=7,width=4", "seed=7,width=4"]);
        let dir = tempfile::tempdir().unwrap();
        for (name, magic) in [("a.svg", &b"<svg"[..]), ("a.png", &b"\x89PNG"[..])] {
            let file = dir.path().join(name);
            draw(&report, &file).unwrap();
            assert!(std::fs::read(&file).unwrap().starts_with(magic), "{name}");
        }
    }
}

//! How evenly flows lie on paths, and what is left of that behind several tiers of routers.
//!
//! A router that hashes as the one before it did sees only flows whose hash fell into one range, and
//! puts them all on the same few links: *polarisation*. Different seeds undo it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

use raddle_select::{KeyError, compile_threshold, upper_bounds};
use serde::{Serialize, Serializer};

use crate::layout::{Layout, SPACE};
use crate::predict::{Asker, Hashing, HashingError, Predictor};
use crate::sample::Sample;

/// What a list of loads comes to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evenness {
    /// Paths that there are.
    pub paths: u64,
    /// Paths with a load.
    pub used: u64,
    /// The greatest load over the mean of all paths: 1 is even. The rate at which the whole reaches
    /// its first full path is its reciprocal.
    pub imbalance: f64,
    /// How many equally loaded paths would spread as well: (sum of loads)^2 over the sum of their squares.
    pub effective: f64,
}

impl Evenness {
    /// Of these loads on as many paths; `paths` may be more, the others have no load.
    pub fn of(loads: impl Iterator<Item = f64>, paths: u64) -> Evenness {
        let (mut used, mut sum, mut squares, mut most) = (0, 0.0, 0.0, 0.0_f64);
        for load in loads {
            used += u64::from(load > 0.0);
            sum += load;
            squares += load * load;
            most = most.max(load);
        }
        let any = sum > 0.0;
        Evenness {
            paths,
            used,
            imbalance: if any { most * paths as f64 / sum } else { 0.0 },
            effective: if any { sum * sum / squares } else { 0.0 },
        }
    }
}

/// A tier of routers that hash alike, each with as many links of equal weight to the next tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// `fib_multipath_hash_policy`.
    pub policy: u8,
    /// `fib_multipath_hash_fields`; counts with policy 3.
    pub fields: u32,
    /// `fib_multipath_hash_seed`.
    pub seed: TierSeed,
    /// Links of each router, 1 or more.
    pub width: usize,
}

/// The seed of a tier, and whether it may be shown. As text, and in JSON, one that may not is `secret` and null.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TierSeed {
    /// The seed, 1 or more.
    pub number: u32,
    /// It was found by what a router does, and is told to nobody.
    pub is_secret: bool,
}

impl From<u32> for TierSeed {
    fn from(number: u32) -> TierSeed {
        TierSeed {
            number,
            is_secret: false,
        }
    }
}

impl fmt::Display for TierSeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_secret {
            true => out.pad("secret"),
            false => fmt::Display::fmt(&self.number, out),
        }
    }
}

impl fmt::Debug for TierSeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl Serialize for TierSeed {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let shown = (!self.is_secret).then_some(self.number);
        shown.serialize(out)
    }
}

impl Tier {
    /// Tiers with the same one hash alike.
    pub fn hash(&self) -> (u8, u32, u32) {
        let fields = if self.policy == 3 { self.fields } else { 0 };
        (self.policy, fields, self.seed.number)
    }

    fn layout(&self) -> Layout {
        let uppers = upper_bounds(&vec![Some(1); self.width]);
        Layout::ranges(compile_threshold(&uppers, |_| true))
    }
}

/// Why words are no [`Tier`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// A word without a value.
    #[error("'{0}' is not KEY=VALUE: keys are seed, policy, fields, width")]
    NotAPair(String),
    /// No such key.
    #[error("'{0}' is not a key of a tier: use seed, policy, fields, width")]
    Key(String),
    /// A value that the key does not take.
    #[error("'{value}' is not a {key}: {wanted}")]
    Value {
        /// The key.
        key: String,
        /// What was written.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
    /// A key that every tier has is not there.
    #[error("a tier wants {0}=N")]
    Missing(&'static str),
}

/// In words: `seed=S,policy=1,width=4`.
impl FromStr for Tier {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Tier, TierError> {
        let (mut policy, mut fields, mut seed, mut width) = (1, 7, None::<u32>, None);
        for word in text.split(',') {
            let pair = word.split_once('=');
            let (key, value) = pair.ok_or_else(|| TierError::NotAPair(word.to_owned()))?;
            let bad = |wanted| TierError::Value {
                key: key.to_owned(),
                value: value.to_owned(),
                wanted,
            };
            match key {
                "policy" => {
                    let number = value.parse().ok().filter(|n| *n <= 3);
                    policy = number.ok_or_else(|| bad("a number from 0 to 3"))?;
                }
                "fields" => {
                    let number = match value.strip_prefix("0x") {
                        Some(hex) => u32::from_str_radix(hex, 16).ok(),
                        None => value.parse().ok(),
                    };
                    let number = number.filter(|n| *n <= 0xfff);
                    fields = number.ok_or_else(|| bad("a mask up to 0xfff"))?;
                }
                "seed" => {
                    let number = value.parse().ok().filter(|n| *n > 0);
                    seed = Some(number.ok_or_else(|| bad("a number from 1 to 4294967295"))?);
                }
                "width" => {
                    let number = value.parse().ok().filter(|n| (1..=1024).contains(n));
                    width = Some(number.ok_or_else(|| bad("a number from 1 to 1024"))?);
                }
                _ => return Err(TierError::Key(key.to_owned())),
            }
        }
        Ok(Tier {
            policy,
            fields,
            seed: TierSeed::from(seed.ok_or(TierError::Missing("seed"))?),
            width: width.ok_or(TierError::Missing("width"))?,
        })
    }
}

/// What a tier makes of the flows that reach it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reach {
    /// Of the links of routers that flows reach, the share that is in use, 0..=1.
    pub in_use: f64,
    /// The links of the whole tier, those of routers that nothing reaches included; what is behind a
    /// link is a router of its own.
    pub links: Evenness,
}

/// What is to be expected of very many flows, exactly.
///
/// 1. Tiers with the same policy, fields and seed see the same hash: their layouts are laid over each other,
///    and every piece is one sequence of links.
/// 2. Tiers with another one are independent of them: shares multiply.
///
/// One entry a tier.
pub fn expected(tiers: &[Tier]) -> Vec<Reach> {
    let reach = |upto: usize| {
        let mut classes: BTreeMap<(u8, u32, u32), Vec<&Tier>> = BTreeMap::new();
        for tier in &tiers[..=upto] {
            classes.entry(tier.hash()).or_default().push(tier);
        }
        let (mut paths, mut used, mut most, mut squares) = (1_u64, 1_u64, 1.0, 1.0);
        for class in classes.values() {
            let pieces = overlay(class);
            let share = |hashes: &u64| *hashes as f64 / SPACE as f64;
            let width: u64 = class.iter().map(|t| t.width as u64).product();
            paths = paths.saturating_mul(width);
            used = used.saturating_mul(pieces.len() as u64);
            most *= pieces.values().map(share).fold(0.0, f64::max);
            squares *= pieces.values().map(|n| share(n).powi(2)).sum::<f64>();
        }
        Reach {
            in_use: in_use(&classes[&tiers[upto].hash()]),
            links: Evenness {
                paths,
                used,
                imbalance: most * paths as f64,
                effective: 1.0 / squares,
            },
        }
    };
    (0..tiers.len()).map(reach).collect()
}

/// Rule 1: sequences of links, and the hashes that take them.
fn overlay(tiers: &[&Tier]) -> BTreeMap<Vec<usize>, u64> {
    let layouts: Vec<Layout> = tiers.iter().map(|tier| tier.layout()).collect();
    let mut ends = BTreeSet::from([SPACE]);
    for tier in tiers {
        let uppers = upper_bounds(&vec![Some(1); tier.width]);
        ends.extend(
            uppers
                .into_iter()
                .flatten()
                .map(|upper| u64::from(upper) + 1),
        );
    }
    let mut pieces = BTreeMap::new();
    let mut from = 0;
    for end in ends {
        let sequence: Vec<usize> = layouts.iter().filter_map(|l| l.path(from as u32)).collect();
        *pieces.entry(sequence).or_default() += end - from;
        from = end;
    }
    pieces
}

/// Of the links of the last of these tiers, which hash alike, the share in use at routers that flows
/// reach.
fn in_use(class: &[&Tier]) -> f64 {
    let used = overlay(class).len();
    let reached = overlay(&class[..class.len() - 1]).len();
    let width = class.last().map_or(1, |tier| tier.width);
    used as f64 / (reached * width) as f64
}

/// What these flows come to, one by one. Loads are theirs ([`Sample::load`]). One entry a tier.
///
/// # Errors
/// [`SpreadError`] for a tier that cannot be computed, and packets without a header.
pub fn of_flows(tiers: &[Tier], samples: &[Sample]) -> Result<Vec<Reach>, SpreadError> {
    let predictors = tiers
        .iter()
        .map(|tier| {
            Ok(Predictor::new(
                Hashing::new(tier.policy, tier.fields, tier.seed.number, Asker::Router)?,
                tier.layout(),
            ))
        })
        .collect::<Result<Vec<_>, HashingError>>()?;
    let mut routers: Vec<u64> = vec![0; samples.len()];
    let mut reached = 1;
    let mut paths = 1_u64;
    let mut result = Vec::with_capacity(tiers.len());
    for (tier, predictor) in tiers.iter().zip(&predictors) {
        let mut loads: HashMap<(u64, usize), u64> = HashMap::new();
        let mut numbers: HashMap<(u64, usize), u64> = HashMap::new();
        for (router, sample) in routers.iter_mut().zip(samples) {
            let link = (*router, sample.path(predictor)?.unwrap_or(0));
            *loads.entry(link).or_default() += sample.load;
            let next = numbers.len() as u64;
            *router = *numbers.entry(link).or_insert(next);
        }
        paths = paths.saturating_mul(tier.width as u64);
        result.push(Reach {
            in_use: loads.len() as f64 / (reached * tier.width) as f64,
            links: Evenness::of(loads.values().map(|load| *load as f64), paths),
        });
        reached = loads.len().max(1);
    }
    Ok(result)
}

/// Why the spread of flows cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    /// A tier's hash.
    #[error(transparent)]
    Hashing(#[from] HashingError),
    /// A packet.
    #[error(transparent)]
    Packet(#[from] KeyError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::synthetic;

    fn tier(seed: u32, policy: u8, width: usize) -> Tier {
        Tier {
            policy,
            fields: 7,
            seed: seed.into(),
            width,
        }
    }

    #[test]
    fn tiers_are_read_from_words() {
        let tier = |text: &str| text.parse::<Tier>();
        let read = tier("seed=7,policy=0,width=4").unwrap();
        assert_eq!((read.seed.number, read.policy, read.width), (7, 0, 4));
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
            let error = tier(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let seed = TierSeed {
            number: 54_321,
            is_secret: true,
        };
        let shown = Tier {
            seed,
            ..tier(1, 1, 4)
        };
        assert!(!format!("{shown:?} {:>10}", shown.seed).contains("54321"));
    }

    fn samples(count: usize) -> Vec<Sample> {
        let flows = synthetic("10.0.0.0/16".parse().unwrap(), None, count, 1).unwrap();
        flows.into_iter().map(Sample::of).collect()
    }

    #[test]
    fn equal_seeds_polarise_and_different_ones_do_not() {
        let flows = samples(20_000);
        let same = [tier(7, 1, 4), tier(7, 1, 4), tier(7, 1, 4)];
        let other = [tier(7, 1, 4), tier(8, 1, 4), tier(9, 1, 4)];
        for (tiers, used) in [(same, [4, 4, 4]), (other, [4, 16, 64])] {
            let counted = of_flows(&tiers, &flows).unwrap();
            for ((expected, counted), used) in expected(&tiers).iter().zip(&counted).zip(used) {
                assert_eq!(expected.links.used, used);
                assert_eq!(counted.links.used, used, "all that can be used is");
                assert_eq!(expected.links.paths, counted.links.paths);
                assert!((expected.in_use - counted.in_use).abs() < 1e-9);
                assert!((expected.links.effective - used as f64).abs() < 1e-6);
                assert!((counted.links.effective / used as f64 - 1.0).abs() < 0.05);
            }
        }
        assert!((expected(&same)[1].in_use - 0.25).abs() < 1e-9);
        assert!((expected(&same)[1].links.imbalance - 4.0).abs() < 1e-6);
        assert!((expected(&other)[2].in_use - 1.0).abs() < 1e-9);
    }

    #[test]
    fn another_policy_with_the_same_seed_does_not_polarise() {
        let tiers = [tier(7, 0, 4), tier(7, 1, 4)];
        assert_eq!(expected(&tiers)[1].links.used, 16);
        assert!(of_flows(&tiers, &samples(4000)).unwrap()[1].in_use > 0.99);
    }

    #[test]
    fn equal_seeds_with_other_widths_polarise_in_part() {
        // The boundaries of thirds and of halves: four pieces of six.
        let reach = expected(&[tier(7, 1, 2), tier(7, 1, 3)]);
        assert_eq!((reach[1].links.used, reach[1].links.paths), (4, 6));
        assert!((reach[1].in_use - 4.0 / 6.0).abs() < 1e-9);
        let counted = of_flows(&[tier(7, 1, 2), tier(7, 1, 3)], &samples(9000)).unwrap();
        assert!((counted[1].links.effective - reach[1].links.effective).abs() < 0.1);
        assert!((counted[1].links.imbalance - reach[1].links.imbalance).abs() < 0.15);
    }

    #[test]
    fn tiers_of_one_hash_remember_each_other_over_another_between() {
        let reach = expected(&[tier(7, 1, 4), tier(8, 1, 4), tier(7, 1, 4)]);
        assert_eq!(reach[2].links.used, 16);
        assert!((reach[2].in_use - 0.25).abs() < 1e-9);
    }

    #[test]
    fn evenness_of_loads() {
        let two = Evenness::of([3.0, 1.0].into_iter(), 2);
        assert!((two.imbalance - 1.5).abs() < 1e-9 && (two.effective - 1.6).abs() < 1e-9);
        let one = Evenness::of([5.0].into_iter(), 4);
        assert!((one.imbalance - 4.0).abs() < 1e-9 && (one.effective - 1.0).abs() < 1e-9);
        let none = Evenness::of(std::iter::empty(), 4);
        assert!(none.imbalance < 0.1 && none.used == 0);
    }
}

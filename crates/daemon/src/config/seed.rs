//! The hash seed to set at start.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// The hash seed to set at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// This number.
    Number(u32),
    /// Drawn at random.
    Random,
}

/// A word that is no seed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a seed: give a number from 1 to 4294967295, or random")]
pub struct BadSeed(String);

impl FromStr for Seed {
    type Err = BadSeed;

    fn from_str(text: &str) -> Result<Seed, BadSeed> {
        if text == "random" {
            return Ok(Seed::Random);
        }
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        match number {
            Ok(0) | Err(_) => Err(BadSeed(text.to_owned())),
            Ok(n) => Ok(Seed::Number(n)),
        }
    }
}

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Seed, D::Error> {
        struct NumberOrRandom;
        impl Visitor<'_> for NumberOrRandom {
            type Value = Seed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1 to 4294967295, or \"random\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Seed, E> {
                match u32::try_from(number) {
                    Ok(0) => Err(E::custom(
                        "a seed of 0 means unknown: leave it out, or say \"random\"",
                    )),
                    Ok(n) => Ok(Seed::Number(n)),
                    Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Seed, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(NumberOrRandom)
    }
}

//! Link rates, written as `tc` writes them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A rate in bits per second, at least 8 kbit/s and at most 1 Tbit/s.
///
/// It counts Ethernet frames as Linux does: with the 14-byte header, without preamble, frame check
/// sequence and gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Rate(u64);

/// The text or number is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a rate: write a number from 8kbit to 1tbit, such as 1gbit, 200mbit or 2.5gbit"
)]
pub struct ParseRateError(String);

/// tc's units, by powers of a thousand.
const UNITS: [(&str, u64); 5] = [
    ("tbit", 1_000_000_000_000),
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

impl Rate {
    const MIN: u64 = 8_000;
    const MAX: u64 = 1_000_000_000_000;

    /// A rate from bits per second.
    ///
    /// # Errors
    /// Outside of 8 kbit/s to 1 Tbit/s.
    pub fn from_bits(bits: u64) -> Result<Self, ParseRateError> {
        if (Self::MIN..=Self::MAX).contains(&bits) {
            Ok(Self(bits))
        } else {
            Err(ParseRateError(bits.to_string()))
        }
    }

    /// Bits per second.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Bytes sent in `millis` milliseconds.
    pub(crate) fn bytes_in(self, millis: u64) -> u64 {
        self.0 / 8 * millis / 1000
    }
}

impl TryFrom<u64> for Rate {
    type Error = ParseRateError;

    fn try_from(bits: u64) -> Result<Self, ParseRateError> {
        Self::from_bits(bits)
    }
}

impl From<Rate> for u64 {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(_, factor)| self.0.is_multiple_of(*factor))
            .unwrap_or(("bit", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl FromStr for Rate {
    type Err = ParseRateError;

    /// Reads `NUMBER[UNIT]`, the unit being bit, kbit, mbit, gbit or tbit in either case, the number a
    /// decimal with an optional fraction. Without a unit it is bits per second, as in tc.
    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let error = || ParseRateError(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let (number, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| lower.strip_suffix(unit).map(|n| (n, *factor)))
            .unwrap_or((&lower, 1));
        if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(error());
        }
        let value: f64 = number.parse().map_err(|_| error())?;
        // Within range, the product is exact enough: 1 Tbit/s is far below 2^53.
        Self::from_bits((value * factor as f64).round() as u64).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_like_tc() {
        for (text, bits, shown) in [
            ("1gbit", 1_000_000_000, "1gbit"),
            ("200Mbit", 200_000_000, "200mbit"),
            ("2.5gbit", 2_500_000_000, "2500mbit"),
            ("9600", 9_600, "9600bit"),
            ("64kbit", 64_000, "64kbit"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.bits(), bits);
            assert_eq!(rate.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rate));
        }
    }

    #[test]
    fn refuses_what_is_no_rate() {
        for text in [
            "", "gbit", "1gb", "-1gbit", "1e9", "inf", "nan", "1bit", "2tbit", "1 gbit",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_of_a_millisecond() {
        assert_eq!(Rate::from_bits(1_000_000_000).unwrap().bytes_in(1), 125_000);
    }
}

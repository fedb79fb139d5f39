//! How the packets of a route are spread over its nexthops, where that is not the namespace's hash
//! policy: a policy of the route's own, or one of the ways that Linux does not have.
//!
//! What deviates from the kernel's choice is only ever done where a rule here, or the route itself, asks
//! for it by name.

use std::collections::HashMap;
use std::str::FromStr;

use ipnet::IpNet;
use raddle_select::Policy;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::RouteTarget;

/// A way to spread packets over nexthops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum MpAlgo {
    /// By hash, with this policy.
    Hash {
        /// The policy; for [`Policy::Custom`] the namespace's fields count.
        policy: Policy,
        /// With [`Policy::L4`]: ICMP errors are hashed by the packet that they are about.
        icmp_follows_flow: bool,
    },
    /// Packets go round robin by weight, on each core for itself. Reorders flows.
    RoundRobin,
    /// Flowlets go round robin by weight: a flow is given a nexthop anew whenever it has been idle for `gap`.
    Flowlet {
        /// Microseconds, 1..=[`MpAlgo::MAX_GAP`].
        gap: u32,
    },
}

/// Why something is no [`MpAlgo`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AlgoError {
    /// No such name.
    #[error(
        "'{0}' is not a multipath algorithm: use l3, l4, inner, custom, round-robin or flowlet"
    )]
    Unknown(String),
    /// An option that this algorithm does not have.
    #[error(
        "'{option}' is not an option of {algo}: l4 takes icmp-follows-flow, flowlet takes gap=TIME"
    )]
    Option {
        /// The algorithm.
        algo: String,
        /// What was given.
        option: String,
    },
    /// Not a gap.
    #[error("'{0}' is not a gap: 1us to 4s, such as 500us or 2ms")]
    Gap(String),
    /// A value of `RTA_MP_ALGO` that has a name and no meaning here.
    #[error(
        "RTA_MP_ALGO {number} ({name}) is not supported; 0 (L3), 1 (per packet) and 5 (L4) are"
    )]
    Reserved {
        /// The value.
        number: u32,
        /// `DRR`, `RANDOM`, `WRANDOM`, or `unknown`.
        name: &'static str,
    },
}

impl MpAlgo {
    /// Largest gap of [`MpAlgo::Flowlet`] in microseconds.
    pub const MAX_GAP: u32 = 4_000_000;
    /// Gap of [`MpAlgo::Flowlet`] where none is named, in microseconds.
    pub const GAP: u32 = 500;

    /// The meaning of `RTA_MP_ALGO`, with the values of the patch series of June 2015 that proposed to
    /// use the attribute again: 0 is L3 hashing, 1 per packet, 5 L4 hashing. Today's kernel drops the
    /// attribute; routing daemons may send it to us.
    ///
    /// # Errors
    /// [`AlgoError::Reserved`] for 2 to 4, which were names only, and for others.
    pub fn from_attribute(number: u32) -> Result<MpAlgo, AlgoError> {
        let hash = |policy| {
            Ok(MpAlgo::Hash {
                policy,
                icmp_follows_flow: false,
            })
        };
        let name = match number {
            0 => return hash(Policy::L3),
            1 => return Ok(MpAlgo::RoundRobin),
            5 => return hash(Policy::L4),
            2 => "DRR",
            3 => "RANDOM",
            4 => "WRANDOM",
            _ => "unknown",
        };
        Err(AlgoError::Reserved { number, name })
    }

    /// The value of `RTA_MP_ALGO`, where there is one.
    pub fn attribute(self) -> Option<u32> {
        match self {
            MpAlgo::Hash {
                policy: Policy::L3, ..
            } => Some(0),
            MpAlgo::Hash {
                policy: Policy::L4,
                icmp_follows_flow: false,
            } => Some(5),
            MpAlgo::RoundRobin => Some(1),
            MpAlgo::Hash { .. } | MpAlgo::Flowlet { .. } => None,
        }
    }
}

impl std::fmt::Display for MpAlgo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MpAlgo::Hash {
                policy,
                icmp_follows_flow,
            } => {
                f.write_str(match policy {
                    Policy::L3 => "l3",
                    Policy::L4 => "l4",
                    Policy::Inner => "inner",
                    Policy::Custom => "custom",
                })?;
                f.write_str(if *icmp_follows_flow {
                    ",icmp-follows-flow"
                } else {
                    ""
                })
            }
            MpAlgo::RoundRobin => f.write_str("round-robin"),
            MpAlgo::Flowlet { gap } => write!(f, "flowlet,gap={gap}us"),
        }
    }
}

impl FromStr for MpAlgo {
    type Err = AlgoError;

    /// `NAME[,OPTION]`.
    fn from_str(text: &str) -> Result<MpAlgo, AlgoError> {
        let (name, options) = match text.split_once(',') {
            Some((name, options)) => (name, Some(options)),
            None => (text, None),
        };
        let policy = match name {
            "l3" => Policy::L3,
            "l4" => Policy::L4,
            "inner" => Policy::Inner,
            "custom" => Policy::Custom,
            "round-robin" if options.is_none() => return Ok(MpAlgo::RoundRobin),
            "flowlet" => return flowlet(options),
            "round-robin" => return Err(not_an_option(name, options)),
            _ => return Err(AlgoError::Unknown(name.to_owned())),
        };
        let icmp_follows_flow = match options {
            None => false,
            Some("icmp-follows-flow") if policy == Policy::L4 => true,
            options => return Err(not_an_option(name, options)),
        };
        Ok(MpAlgo::Hash {
            policy,
            icmp_follows_flow,
        })
    }
}

fn not_an_option(algo: &str, option: Option<&str>) -> AlgoError {
    AlgoError::Option {
        algo: algo.to_owned(),
        option: option.unwrap_or_default().to_owned(),
    }
}

fn flowlet(options: Option<&str>) -> Result<MpAlgo, AlgoError> {
    let Some(options) = options else {
        return Ok(MpAlgo::Flowlet { gap: MpAlgo::GAP });
    };
    let time = options
        .strip_prefix("gap=")
        .ok_or_else(|| not_an_option("flowlet", Some(options)))?;
    let wrong = || AlgoError::Gap(time.to_owned());
    let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &time[digits.len()..] {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => return Err(wrong()),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    let gap = number.checked_mul(unit).ok_or_else(wrong)?;
    match gap {
        1..=MpAlgo::MAX_GAP => Ok(MpAlgo::Flowlet { gap }),
        _ => Err(wrong()),
    }
}

impl From<MpAlgo> for String {
    fn from(algo: MpAlgo) -> String {
        algo.to_string()
    }
}

impl TryFrom<String> for MpAlgo {
    type Error = AlgoError;

    fn try_from(text: String) -> Result<MpAlgo, AlgoError> {
        text.parse()
    }
}

/// Which routes are spread otherwise than by the namespace's policy.
///
/// Not those to resilient groups: their buckets are kept alive by packets that the kernel forwards, and
/// the kernel hashes by its own policy. By another one these packets would leave by another member,
/// and the buckets in use would look idle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlgoRules {
    /// For routes to destinations inside of these prefixes.
    pub prefixes: Vec<(IpNet, MpAlgo)>,
    /// For routes by these nexthop groups.
    pub groups: HashMap<u32, MpAlgo>,
}

impl AlgoRules {
    /// What holds for a route to `dst`.
    ///
    /// 1. The rule for the longest prefix that holds all of `dst`.
    /// 2. The rule for its nexthop group.
    /// 3. What the route says itself (`RTA_MP_ALGO`).
    /// 4. None: the namespace's hash policy.
    pub fn of(&self, dst: &IpNet, target: &RouteTarget, own: Option<MpAlgo>) -> Option<MpAlgo> {
        let by_prefix = self
            .prefixes
            .iter()
            .filter(|(prefix, _)| prefix.contains(dst))
            .max_by_key(|(prefix, _)| prefix.prefix_len())
            .map(|(_, algo)| *algo);
        let by_group = || match target {
            RouteTarget::Object(id) => self.groups.get(id).copied(),
            _ => None,
        };
        by_prefix.or_else(by_group).or(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_being_printed() {
        for text in [
            "l3",
            "l4",
            "l4,icmp-follows-flow",
            "inner",
            "custom",
            "round-robin",
            "flowlet,gap=500us",
        ] {
            assert_eq!(text.parse::<MpAlgo>().unwrap().to_string(), text);
        }
        assert_eq!("flowlet".parse(), Ok(MpAlgo::Flowlet { gap: 500 }));
        assert_eq!("flowlet,gap=2ms".parse(), Ok(MpAlgo::Flowlet { gap: 2000 }));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("", "'' is not a multipath algorithm"),
            ("l5", "'l5' is not a multipath algorithm"),
            ("l3,icmp-follows-flow", "is not an option of l3"),
            ("round-robin,fast", "'fast' is not an option of round-robin"),
            ("flowlet,500us", "is not an option of flowlet"),
            ("flowlet,gap=0us", "'0us' is not a gap"),
            ("flowlet,gap=5s", "'5s' is not a gap"),
            ("flowlet,gap=5", "'5' is not a gap"),
            ("flowlet,gap=99999s", "is not a gap"),
        ] {
            let error = text.parse::<MpAlgo>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn reserved_values_are_refused() {
        for number in [0, 1, 5] {
            let algo = MpAlgo::from_attribute(number).unwrap();
            assert_eq!(algo.attribute(), Some(number));
        }
        for (number, name) in [(2, "DRR"), (3, "RANDOM"), (4, "WRANDOM"), (6, "unknown")] {
            let error = MpAlgo::from_attribute(number);
            assert_eq!(error, Err(AlgoError::Reserved { number, name }));
        }
    }

    #[test]
    fn the_longest_prefix_goes_first() {
        let algo = |text: &str| text.parse::<MpAlgo>().unwrap();
        let rules = AlgoRules {
            prefixes: vec![
                ("10.0.0.0/8".parse().unwrap(), algo("l3")),
                ("10.9.0.0/16".parse().unwrap(), algo("round-robin")),
                ("fd00::/8".parse().unwrap(), algo("inner")),
            ],
            groups: [(7, algo("flowlet"))].into(),
        };
        let of = |dst: &str, target, own| rules.of(&dst.parse().unwrap(), &target, own);
        let object = RouteTarget::Object;
        assert_eq!(
            of("10.9.1.0/24", object(7), None),
            Some(algo("round-robin"))
        );
        assert_eq!(of("10.0.0.0/12", object(7), None), Some(algo("l3")));
        // Not all of it lies inside.
        assert_eq!(of("10.0.0.0/7", object(7), None), Some(algo("flowlet")));
        assert_eq!(of("fd01::/64", object(8), None), Some(algo("inner")));
        let own = Some(algo("l4"));
        assert_eq!(of("11.0.0.0/8", object(8), own), own);
        assert_eq!(of("11.0.0.0/8", RouteTarget::None, None), None);
    }
}

//! Hash policies: which parts of a packet make up its flow.

use raddle_packet::Family;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What `net.ipv4.fib_multipath_hash_policy` and `net.ipv6.fib_multipath_hash_policy` choose between.
///
/// The number is the sysctl's. A policy is an argument of every function that depends on it, so that
/// it can differ by family, by table or by route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Policy {
    /// Addresses; over IPv6 also flow label and next header. ICMP errors follow the packet that they
    /// are about.
    L3 = 0,
    /// Addresses, protocol and ports.
    L4 = 1,
    /// As [`Policy::L3`], of the innermost packet.
    Inner = 2,
    /// The fields that `fib_multipath_hash_fields` selects.
    Custom = 3,
}

impl Policy {
    /// The policy with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Policy> {
        [Policy::L3, Policy::L4, Policy::Inner, Policy::Custom]
            .get(usize::from(number))
            .copied()
    }

    /// Whether the functions of this crate answer for this policy.
    pub fn is_supported(self) -> bool {
        matches!(self, Policy::L3 | Policy::L4)
    }

    /// What this policy hashes, in the order of the hashed bytes.
    pub fn fields(self, family: Family) -> Result<&'static [Field], Unsupported> {
        use Field::*;
        match (self, family) {
            (Policy::L3, Family::V4) => Ok(&[SrcIp, DstIp]),
            (Policy::L3, Family::V6) => Ok(&[IpProto, FlowLabel, SrcIp, DstIp]),
            (Policy::L4, _) => Ok(&[IpProto, SrcPort, DstPort, SrcIp, DstIp]),
            (Policy::Inner | Policy::Custom, _) => Err(Unsupported(self)),
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Policy::L3 => "L3",
            Policy::L4 => "L4",
            Policy::Inner => "inner",
            Policy::Custom => "custom",
        })
    }
}

/// A part of a packet that a policy can hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Source address.
    SrcIp,
    /// Destination address.
    DstIp,
    /// Protocol or next header.
    IpProto,
    /// IPv6 flow label.
    FlowLabel,
    /// Source port.
    SrcPort,
    /// Destination port.
    DstPort,
}

/// A hash policy whose choices raddle does not compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "hash policy {number} ({0}) is not modelled, only 0 (L3) and 1 (L4) are; see sysctl \
     net.ipv4.fib_multipath_hash_policy and net.ipv6.fib_multipath_hash_policy",
    number = *.0 as u8
)]
pub struct Unsupported(pub Policy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_sysctls() {
        for number in 0..4 {
            assert_eq!(Policy::from_number(number).unwrap() as u8, number);
        }
        assert_eq!(Policy::from_number(4), None);
    }

    #[test]
    fn unsupported_says_what_and_where() {
        let text = Unsupported(Policy::Inner).to_string();
        assert!(
            text.starts_with("hash policy 2 (inner) is not modelled"),
            "{text}"
        );
    }

    #[test]
    fn every_policy_has_fields_or_is_unsupported() {
        for number in 0..4 {
            let policy = Policy::from_number(number).unwrap();
            for family in [Family::V4, Family::V6] {
                assert_eq!(policy.fields(family).is_ok(), policy.is_supported());
            }
        }
    }
}

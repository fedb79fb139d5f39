//! Hash policies: which parts of a packet make up its flow.

use raddle_packet::Family;
use serde::{Deserialize, Serialize};

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
    #[inline]
    pub fn from_number(number: u8) -> Option<Policy> {
        match number {
            0 => Some(Policy::L3),
            1 => Some(Policy::L4),
            2 => Some(Policy::Inner),
            3 => Some(Policy::Custom),
            _ => None,
        }
    }

    /// What this policy hashes, in the order of the hashed bytes, of a packet's own header; what
    /// [`Policy::Custom`] hashes of the innermost packet as well are its [`Fields::inner`].
    pub fn fields(self, family: Family, custom: Fields) -> Vec<Field> {
        use Field::*;
        match (self, family) {
            (Policy::L3 | Policy::Inner, Family::V4) => vec![SrcIp, DstIp],
            (Policy::L3 | Policy::Inner, Family::V6) => vec![IpProto, FlowLabel, SrcIp, DstIp],
            (Policy::L4, _) => vec![IpProto, SrcPort, DstPort, SrcIp, DstIp],
            (Policy::Custom, _) => custom.outer().named(family),
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

impl Field {
    /// In the order of the hashed bytes.
    const ALL: [Field; 6] = {
        use Field::*;
        [IpProto, FlowLabel, SrcPort, DstPort, SrcIp, DstIp]
    };

    /// The bit of `fib_multipath_hash_fields` (`FIB_MULTIPATH_HASH_FIELD_*`) that selects it in a
    /// packet's own header; the innermost packet's is 6 places higher.
    const fn bit(self) -> u32 {
        match self {
            Field::SrcIp => 1,
            Field::DstIp => 2,
            Field::IpProto => 4,
            Field::FlowLabel => 8,
            Field::SrcPort => 16,
            Field::DstPort => 32,
        }
    }
}

/// A set of fields of one header, for [`Policy::Custom`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSet(u32);

impl FieldSet {
    /// No field at all.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it holds this field.
    #[inline]
    pub fn has(self, field: Field) -> bool {
        self.0 & field.bit() != 0
    }

    /// Those that headers of this family have, in the order of the hashed bytes: IPv4 has no flow
    /// label.
    pub fn named(self, family: Family) -> Vec<Field> {
        let exists = |field: &Field| family == Family::V6 || *field != Field::FlowLabel;
        let selected = |field: &Field| self.has(*field) && exists(field);
        Field::ALL.into_iter().filter(selected).collect()
    }
}

/// `net.ipv4.fib_multipath_hash_fields` or `net.ipv6.fib_multipath_hash_fields`: what
/// [`Policy::Custom`] hashes. 12 bits, the kernel's default is 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fields(u32);

impl Fields {
    /// Bits that mean something (`FIB_MULTIPATH_HASH_FIELD_ALL_MASK`).
    pub const MASK: u32 = 0xfff;

    /// From the sysctl's value; the kernel refuses bits beyond [`Fields::MASK`], they are ignored here.
    #[inline]
    pub const fn new(bits: u32) -> Fields {
        Fields(bits & Fields::MASK)
    }

    /// The sysctl's value.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Those of the packet's own header.
    #[inline]
    pub fn outer(self) -> FieldSet {
        FieldSet(self.0 & 0x3f)
    }

    /// Those of the innermost packet, if the packet carries one.
    #[inline]
    pub fn inner(self) -> FieldSet {
        FieldSet(self.0 >> 6)
    }
}

impl Default for Fields {
    /// `FIB_MULTIPATH_HASH_FIELD_DEFAULT_MASK`: addresses and protocol.
    #[inline]
    fn default() -> Fields {
        Fields(7)
    }
}

/// Everything but the seed that decides what is hashed of a packet of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HashConfig {
    /// Policy.
    pub policy: Policy,
    /// For [`Policy::Custom`].
    pub fields: Fields,
    /// Not Linux's: under [`Policy::L4`] ICMP errors are hashed by the packet that they are about, so
    /// that they take the path of its flow.
    pub icmp_follows_flow: bool,
}

impl HashConfig {
    /// As the kernel has it: the numbers of `fib_multipath_hash_policy` and
    /// `fib_multipath_hash_fields`. None for a policy that does not exist.
    #[inline]
    pub fn kernel(policy: u8, fields: u32) -> Option<HashConfig> {
        Policy::from_number(policy).map(|policy| HashConfig {
            fields: Fields::new(fields),
            ..HashConfig::from(policy)
        })
    }
}

impl From<Policy> for HashConfig {
    /// With the kernel's defaults.
    #[inline]
    fn from(policy: Policy) -> HashConfig {
        HashConfig {
            policy,
            fields: Fields::default(),
            icmp_follows_flow: false,
        }
    }
}

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
    fn fields_are_the_sysctls_bits() {
        let fields = Fields::new(0x1 | 0x8 | 0x20 | 0x40 | 0x200);
        let outer = fields.outer();
        assert_eq!(outer.named(Family::V4), [Field::DstPort, Field::SrcIp]);
        let with_label = [Field::FlowLabel, Field::DstPort, Field::SrcIp];
        assert_eq!(outer.named(Family::V6), with_label);
        let inner = fields.inner().named(Family::V6);
        assert_eq!(inner, [Field::FlowLabel, Field::SrcIp]);
        assert_eq!(Fields::new(u32::MAX).bits(), 0xfff);
        assert!(Fields::new(0xfc0).outer().is_empty());
    }

    #[test]
    fn what_the_kernel_cannot_have_is_none() {
        assert!(HashConfig::kernel(3, 7).is_some_and(|c| c.policy == Policy::Custom));
        assert_eq!(HashConfig::kernel(4, 7), None);
    }
}

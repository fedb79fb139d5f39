//! How a hash came about, for people.

use raddle_packet::Family;
use serde::Serialize;

use crate::hash::{Hasher, Seed};
use crate::key::{Flow, FlowKey, Input, KeyError, flow_key_of_flow, key_and_input};
use crate::policy::{Field, Policy, Unsupported};

/// How a hash came about.
///
/// The hash is the one that [`Hasher::hash32`] computes; nothing here is on an engine's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Hash policy.
    pub policy: Policy,
    /// Seed.
    pub seed: Seed,
    /// What the key was taken from.
    pub input: Input,
    /// The fields that the policy hashes, in the order of `bytes`.
    pub fields: &'static [Field],
    /// The key as it was taken.
    pub key: FlowKey,
    /// Source and destination address were swapped before hashing.
    pub addresses_swapped: bool,
    /// Source and destination port were swapped before hashing.
    pub ports_swapped: bool,
    /// The bytes that were hashed, 48 or 72.
    pub bytes: Vec<u8>,
    /// SipHash-2-4 of the bytes.
    pub hash64: u64,
    /// Its low 32 bits; 1 where they are 0.
    pub hash32: u32,
    /// The number that is compared with upper bounds: `hash32` without its lowest bit.
    pub hash31: u32,
}

/// Explains the hash of a packet; arguments as in [`crate::flow_key_of_packet`].
pub fn explain_packet(
    policy: Policy,
    seed: Seed,
    family: Family,
    l3: &[u8],
) -> Result<Explanation, KeyError> {
    let (key, input) = key_and_input(policy, family, l3)?;
    Ok(explain(policy, seed, key, input)?)
}

/// Explains the hash of a flow; arguments as in [`crate::flow_key_of_flow`].
pub fn explain_flow(policy: Policy, seed: Seed, flow: &Flow) -> Result<Explanation, Unsupported> {
    explain(policy, seed, flow_key_of_flow(policy, flow)?, Input::Flow)
}

fn explain(
    policy: Policy,
    seed: Seed,
    key: FlowKey,
    input: Input,
) -> Result<Explanation, Unsupported> {
    let ordered = key.ordered();
    let hasher = Hasher::new(seed);
    let hash32 = hasher.hash32(&key);
    Ok(Explanation {
        policy,
        seed,
        input,
        fields: policy.fields(key.family())?,
        key,
        addresses_swapped: ordered.addresses != key.addresses,
        ports_swapped: (ordered.sport, ordered.dport) != (key.sport, key.dport),
        bytes: ordered.pack().as_ref().to_vec(),
        hash64: hasher.hash64(&ordered),
        hash32,
        hash31: hash32 >> 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_hashed() {
        // A kernel vector (tests/data), with addresses and ports the other way round.
        let flow = Flow::new("198.18.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
        let flow = flow.unwrap().ports(17, 1000, 53);
        let seed = Seed::new(305_441_741).unwrap();
        let it = explain_flow(Policy::L4, seed, &flow).unwrap();
        assert_eq!((it.hash32, it.hash31), (2_592_386_602, 1_296_193_301));
        assert_eq!(it.hash64 as u32, it.hash32);
        assert!(it.addresses_swapped && it.ports_swapped);
        assert_eq!((it.key.sport, it.key.dport), (1000, 53));
        assert_eq!(it.bytes.len(), 48);
        assert_eq!(it.bytes[28..32], [0, 53, 3, 232]);
        assert_eq!(it.bytes[36..44], [10, 0, 0, 1, 198, 18, 0, 9]);
        let back = explain_flow(Policy::L3, seed, &flow).unwrap();
        assert_eq!(back.fields, [Field::SrcIp, Field::DstIp]);
        assert!(back.addresses_swapped && !back.ports_swapped);
        assert_eq!(
            explain_flow(Policy::Custom, seed, &flow),
            Err(Unsupported(Policy::Custom))
        );
    }

    #[test]
    fn is_readable_as_json() {
        let flow = Flow::new("fd0b::1".parse().unwrap(), "fd20::2".parse().unwrap());
        let it = explain_flow(Policy::L3, Seed::new(1).unwrap(), &flow.unwrap()).unwrap();
        let json = serde_json::to_value(&it).unwrap();
        assert_eq!(json["policy"], "l3");
        assert_eq!(json["input"], "flow");
        assert_eq!(json["key"]["addresses"]["src"], "fd0b::1");
        assert_eq!(json["fields"][1], "flow-label");
    }
}

//! How a hash came about, for people.

use raddle_packet::Family;
use serde::Serialize;

use crate::hash::Hasher;
use crate::header::Input;
use crate::key::{Flow, FlowKey};
use crate::keys::{KeyError, Keys, keys_and_input, keys_of_flow, keys_of_plain_packet};
use crate::policy::{Field, HashConfig, Policy};
use crate::seed::HashKey;

/// How the hash of one flow key came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HashedKey {
    /// Which packet it is of.
    pub of: Part,
    /// The number of the rule of [`crate::keys_of_packet`], by policy, that gave it.
    pub rule: u8,
    /// The fields that the policy hashes, in the order of `bytes`.
    pub fields: Vec<Field>,
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
}

/// A packet, or the innermost packet inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The packet, or what its policy takes for it.
    Packet,
    /// The innermost packet, for the inner fields of policy 3.
    Innermost,
}

/// How a hash came about.
///
/// The hash is the one that [`Hasher::hash_keys`] computes; nothing here is on an engine's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Hash policy.
    pub policy: Policy,
    /// What the keys were taken from.
    pub input: Input,
    /// The keys and their hashes: one, except under policy 3 none to two.
    pub keys: Vec<HashedKey>,
    /// The keys' hashes were hashed together ([`crate::jhash_2words`]), as policy 3 does it for
    /// packets.
    pub combined: bool,
    /// The kernel's hash.
    pub hash32: u32,
    /// The number that is compared with upper bounds: `hash32` without its lowest bit.
    pub hash31: u32,
}

/// Explains the hash of a packet; arguments as in [`crate::keys_of_packet`].
///
/// # Errors
/// As [`crate::keys_of_packet`].
pub fn explain_packet(
    config: &HashConfig,
    key: impl Into<HashKey>,
    family: Family,
    l3: &[u8],
) -> Result<Explanation, KeyError> {
    let (keys, input) = keys_and_input(config, family, l3)?;
    Ok(explain(config, key.into(), &keys, input))
}

/// Explains the hash of a flow; arguments as in [`crate::keys_of_flow`].
pub fn explain_flow(config: &HashConfig, key: impl Into<HashKey>, flow: &Flow) -> Explanation {
    explain(config, key.into(), &keys_of_flow(config, flow), Input::Flow)
}

/// Explains the hash of the packets of a flow, as in [`crate::keys_of_plain_packet`].
pub fn explain_plain_packet(
    config: &HashConfig,
    key: impl Into<HashKey>,
    flow: &Flow,
) -> Explanation {
    let keys = keys_of_plain_packet(config, flow);
    explain(config, key.into(), &keys, Input::Flow)
}

fn explain(config: &HashConfig, key: HashKey, keys: &Keys, input: Input) -> Explanation {
    let hasher = Hasher::new(key);
    let hashed = |of, key: &FlowKey| {
        let ordered = key.ordered();
        let fields = match of {
            // What an inner packet of another family holds, its own family decides.
            Part::Packet => config.policy.fields(key.family(), config.fields),
            Part::Innermost => config.fields.inner().named(key.family()),
        };
        HashedKey {
            of,
            rule: match (input, of) {
                (Input::IcmpInner, _) | (_, Part::Innermost) => 2,
                _ => 1,
            },
            fields,
            key: *key,
            addresses_swapped: ordered.addresses != key.addresses,
            ports_swapped: (ordered.sport, ordered.dport) != (key.sport, key.dport),
            bytes: ordered.pack().as_ref().to_vec(),
            hash64: hasher.hash64(&ordered),
            hash32: hasher.hash32(key),
        }
    };
    let list = match keys {
        Keys::One(key) => vec![hashed(Part::Packet, key)],
        Keys::Two { outer, inner } => {
            let outer = outer.as_ref().map(|key| hashed(Part::Packet, key));
            let inner = inner.as_ref().map(|key| hashed(Part::Innermost, key));
            outer.into_iter().chain(inner).collect()
        }
        Keys::Nothing => Vec::new(),
    };
    Explanation {
        policy: config.policy,
        input,
        keys: list,
        combined: matches!(keys, Keys::Two { .. }),
        hash32: hasher.hash_keys(keys),
        hash31: hasher.hash31(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn says_what_was_hashed() {
        // A kernel vector (tests/data), with addresses and ports the other way round.
        let flow = Flow::new("198.18.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
        let flow = flow.unwrap().ports(17, 1000, 53);
        let seed = Seed::new(305_441_741).unwrap();
        let it = explain_flow(&Policy::L4.into(), seed, &flow);
        assert_eq!((it.hash32, it.hash31), (2_592_386_602, 1_296_193_301));
        let key = &it.keys[0];
        assert_eq!(key.hash64 as u32, it.hash32);
        assert!(key.addresses_swapped && key.ports_swapped);
        assert_eq!((key.key.sport, key.key.dport), (1000, 53));
        assert_eq!(key.bytes.len(), 48);
        assert_eq!(key.bytes[28..32], [0, 53, 3, 232]);
        assert_eq!(key.bytes[36..44], [10, 0, 0, 1, 198, 18, 0, 9]);
        let back = explain_flow(&Policy::L3.into(), seed, &flow);
        let key = &back.keys[0];
        assert_eq!(key.fields, [Field::SrcIp, Field::DstIp]);
        assert!(key.addresses_swapped && !key.ports_swapped);
        let inner_only = HashConfig::kernel(3, 0xfc0).unwrap();
        let nothing = explain_flow(&inner_only, seed, &flow);
        assert_eq!((nothing.keys.len(), nothing.hash32), (0, 0));
    }

    #[test]
    fn is_readable_as_json() {
        let flow = Flow::new("fd0b::1".parse().unwrap(), "fd20::2".parse().unwrap());
        let it = explain_flow(&Policy::L3.into(), Seed::new(1).unwrap(), &flow.unwrap());
        let json = serde_json::to_value(&it).unwrap();
        assert_eq!(json["policy"], "l3");
        assert_eq!(json["input"], "flow");
        assert_eq!(json["keys"][0]["key"]["addresses"]["src"], "fd0b::1");
        assert_eq!(json["keys"][0]["fields"][1], "flow-label");
    }
}

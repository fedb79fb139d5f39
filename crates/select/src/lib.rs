//! Which nexthop Linux picks for a flow, and why.
//!
//! Two pure steps, each with numbered rules as its doc comment: a packet or a flow becomes a 31-bit
//! hash (policy, flow key, seed), and the hash becomes a member (weights, upper bounds, which members
//! are usable). The results are those of Linux 6.12 to 6.18 on a little-endian machine, bit for bit,
//! for packets that carry no hash from elsewhere (`skb->l4_hash`); [`Brings`] computes that.
//!
//! ```
//! use raddle_select::{Flow, Hasher, Policy, Seed, choose_plain, keys_of_flow, upper_bounds};
//!
//! let seed = Seed::new(0x1234_abcd).unwrap();
//! let flow = Flow::new("10.0.0.1".parse()?, "198.18.0.9".parse()?).unwrap().ports(17, 1000, 53);
//! let keys = keys_of_flow(&Policy::L4.into(), &flow);
//! let hash = Hasher::new(seed).hash31(&keys);
//! let uppers = upper_bounds(&[Some(1), Some(3)]);
//! let choice = choose_plain(&uppers, |_| true, hash).unwrap();
//! assert_eq!(choice.member, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod bond;
mod brought;
mod explain;
pub mod faults;
mod hash;
mod header;
mod jhash;
mod kernel;
mod key;
mod keys;
mod local;
mod policy;
mod resilient;
mod round_robin;
mod seed;
mod threshold;

pub use batch::{KeyBatch, Lanes, UnderSeeds};
pub use bond::{
    BondMember, BondMembers, BondMode, BondPolicy, bond_hash, bond_hash_of_flow,
    bond_hash_of_packet, bond_member,
};
pub use brought::{
    Brings, Brought, Giver, RXH_ADDRESSES, RXH_PORTS, Rss, RssFields, Steering, TOEPLITZ, skb_hash,
    software_hash, toeplitz,
};
pub use explain::{
    Explanation, HashedKey, Part, explain_flow, explain_packet, explain_plain_packet,
};
pub use hash::{Hasher, MidStates, SipState, hash32, hash64, keyed, mid_states};
pub use header::Input;
pub use jhash::jhash_2words;
pub use kernel::{KernelVersion, NotAVersion};
pub use key::{Flow, FlowKey, KeyAddresses, Packed};
pub use keys::{KeyError, Keys, keys_of_flow, keys_of_packet, keys_of_plain_packet};
pub use local::{
    LocalHop, SourcePreference, choose_local4, choose_local6, compile_local4, draws_source_port,
};
pub use policy::{Field, FieldSet, Fields, HashConfig, Policy};
pub use resilient::{
    ResilientTable, TableError, Timers, UPKEEP_INTERVAL, bucket_of, wanted_buckets,
};
pub use round_robin::{MAX_TABLE, RoundRobin, next_turn, round_robin};
pub use seed::{HashKey, KeyKind, Seed};
pub use threshold::{
    Choice, MAX_HASH, choose_group, choose_plain, compile_threshold, search, search_by,
    upper_bounds,
};

pub use raddle_packet::Family;

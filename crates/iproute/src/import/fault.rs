//! What is wrong with an object.

use thiserror::Error;

/// Why an object that `ip` has printed cannot be taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// It lacks a field, or has one of another type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It lacks a field that such an object has.
    #[error("missing field `{0}`")]
    Missing(&'static str),
    /// It names a link that is not there.
    #[error("link '{0}' is not in link.json: collect all files at once")]
    Link(String),
    /// It names something that has a number, which is not known.
    #[error("{what} '{name}' is a name that only its own machine knows: collect with ip -N")]
    Name {
        /// What has the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An address was wanted.
    #[error("'{0}' is not an address")]
    Address(String),
    /// A prefix was wanted.
    #[error("'{0}' is not a prefix")]
    Prefix(String),
    /// An address and a length that make none.
    #[error("{address}/{length} is not a prefix")]
    Length {
        /// The address.
        address: String,
        /// The length.
        length: u8,
    },
    /// A prefix of an address is longer than the address.
    #[error("prefixlen is above {0}")]
    AddressLength(u8),
    /// A mark was wanted.
    #[error("'{0}' is not a mark")]
    Mark(String),
    /// A TOS, a protocol or a port was wanted.
    #[error("'{0}' is no TOS, protocol or port")]
    Selector(String),
    /// A group of nexthops that works in another way than those that are known.
    #[error("groups of type {0} are unknown")]
    Group(String),
    /// An address of a link has a fault.
    #[error("addr_info {info}: {fault}")]
    OfAddress {
        /// The address, as it was printed.
        info: String,
        /// What is wrong with it.
        fault: Box<Fault>,
    },
}

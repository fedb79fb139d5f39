//! Why a SID or an encapsulation of the configuration makes no sense.

use ipnet::IpNet;
use raddle_rib::seg6::Seg6Error;

use crate::seed::CANNOT_BE_SET;

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// Not a prefix.
    #[error("'{0}' is not a prefix such as fc00:0:1:100::/64")]
    Prefix(String),
    /// A prefix with bits behind its length.
    #[error("{0} has bits beyond its length: use {trunc}", trunc = .0.trunc())]
    HostBits(IpNet),
    /// SIDs are IPv6.
    #[error("{0} is not IPv6, and only IPv6 has SIDs")]
    NotIpv6(IpNet),
    /// A SID without what it does.
    #[error("a SID wants an action, such as End.DT46")]
    NoAction,
    /// A segment list of none.
    #[error("a segment list wants at least one segment: segs = [\"fc00:0:2::\"], segs fc00:0:2::")]
    NoSegments,
    /// Neither a number nor the name of a table.
    #[error("'{0}' is no table: a number, or a name of /etc/iproute2/rt_tables")]
    Table(String),
    /// No such behaviour.
    #[error(
        "'{0}' is no behaviour: End, End.X, End.T, End.DX2, End.DX2V, End.DX4, End.DX6, End.DT4, End.DT6, \
         End.DT46, End.B6, End.B6.Encaps, End.B6.Encaps.Red"
    )]
    Action(String),
    /// Something that the behaviour cannot do without.
    #[error("{action} needs {what}")]
    Needs {
        /// The behaviour.
        action: String,
        /// What it needs.
        what: &'static str,
    },
    /// Something that the behaviour does not use.
    #[error("{action} has no use for {what}; leave it out")]
    Useless {
        /// The behaviour.
        action: String,
        /// What it does not use.
        what: &'static str,
    },
    /// No such flavour.
    #[error("'{0}' is no flavour: psp, usp, usd, next-csid, replace-csid")]
    Flavour(String),
    /// Both ways to compress SIDs.
    #[error("next-csid and replace-csid exclude each other; give one")]
    TwoCompressions,
    /// Lengths without compressed SIDs.
    #[error("lblen and nflen are lengths of compressed SIDs; add next-csid or replace-csid")]
    Lengths,
    /// Lengths that leave no room.
    #[error(
        "with replace-csid lblen and nflen leave no byte for the index: together they are at most 120, not {0}"
    )]
    NoIndex(u16),
    /// Not a segment.
    #[error("'{0}' is not a segment: an IPv6 address")]
    Segment(String),
    /// A VLAN that there is not, or twice.
    #[error("VLAN {0}: give one from 0 to 4094, and each once")]
    Vlan(u16),
    /// No such mode.
    #[error("'{0}' is no mode: inline, encap, encap.red, l2encap, l2encap.red")]
    Mode(String),
    /// No segment list, or two ways to write them.
    #[error("an encapsulation wants segs, or lists with segs and weight each, not both")]
    Lists,
    /// A weight of 0.
    #[error("a weight is 1 to 65535")]
    Weight,
    /// A segment list twice.
    #[error("the same segment list is there twice; give it once, with a larger weight")]
    SameList,
    /// A spread that nobody could foresee, and a seed would do.
    #[error(
        "{0} is spread over several segment lists by the hash key, and the kernel's own could not be read \
         (the log says why); give a seed with seed = \"random\" (--seed random) or net.ipv4.fib_multipath_hash_seed"
    )]
    Seed(IpNet),
    /// A spread that nobody could foresee, and no seed to be had.
    #[error(
        "{0} is spread over several segment lists by the hash key; the kernel's own could not be read (the log says why), and \
         this kernel {CANNOT_BE_SET}; give it one list"
    )]
    NoSeed(IpNet),
    /// IPv4 has no extension headers.
    #[error("mode inline is for IPv6, and {0} is not")]
    Inline(IpNet),
    /// Not a number.
    #[error("'{0}' is not a number")]
    Number(String),
    /// Not an address.
    #[error("'{0}' is not an address")]
    Address(String),
    /// A word without what follows it.
    #[error("'{0}' wants a value behind it")]
    Value(String),
    /// A word that has no meaning there.
    #[error("'{word}' is not understood here; {want}")]
    Word {
        /// What stands there.
        word: String,
        /// What could.
        want: &'static str,
    },
    /// What the kernel would refuse.
    #[error("{0}")]
    Seg6(#[from] Seg6Error),
}

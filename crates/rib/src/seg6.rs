//! SRv6 as routes and nexthops say it: behaviours of SIDs (`encap seg6local`) and encapsulations
//! (`encap seg6`).
//!
//! [`Sid`] and [`Encaps`] are what an [`Encap`] means; both ways between them are here. Numbers are
//! those of `linux/seg6_local.h` and `linux/seg6_iptunnel.h`; what raddle has and this kernel has not
//! uses numbers of raddle's own, which no kernel tells ([`Behaviour::Dx2v`], REPLACE-C-SID, reduced
//! `End.B6.Encaps`).

mod attributes;
mod encaps;
mod sid;

pub(crate) use encaps::hmac_key;
pub use encaps::{Encaps, Mode};
pub use sid::{Behaviour, Sid, TableRef};

use raddle_packet::SrhError;

use crate::event::Encap;

/// `LWTUNNEL_ENCAP_SEG6`.
pub const ENCAP_SEG6: u16 = 5;
/// `LWTUNNEL_ENCAP_SEG6_LOCAL`.
pub const ENCAP_SEG6_LOCAL: u16 = 7;

/// Why an encapsulation says nothing that could be acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Seg6Error {
    /// Another kind of tunnel.
    #[error("encapsulation {0} is neither seg6 (5) nor seg6local (7)")]
    Kind(u16),
    /// An attribute without which it says nothing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An attribute that is shorter or longer than its value.
    #[error("{what} cannot be {length} bytes long")]
    Length {
        /// Which one.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// A mode of encapsulation beyond those of `SEG6_IPTUN_MODE_*`.
    #[error("mode {0} is none of inline, encap, l2encap, encap.red, l2encap.red (0 to 4)")]
    Mode(u32),
    /// The segment routing header is none.
    #[error("the segment routing header is not valid: {0}")]
    Srh(#[from] SrhError),
    /// Lengths of compressed SIDs that the kernel refuses (`seg6_next_csid_validate`).
    #[error(
        "a locator block of {block} and a C-SID of {csid} bits: both must be 8 to 120, a multiple of 8, \
         and together at most 128"
    )]
    Csid {
        /// `lblen`.
        block: u8,
        /// `nflen`.
        csid: u8,
    },
    /// Both TABLE and VRFTABLE.
    #[error("both table and vrftable are given, one is wanted")]
    TwoTables,
}

/// What an encapsulation means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seg6 {
    /// The route's prefix is a SID of this machine.
    Sid(Sid),
    /// The route's packets are encapsulated.
    Encaps(Encaps),
}

impl Seg6 {
    /// Reads an encapsulation, as leniently as the kernel does: attributes that nobody knows, or that a
    /// behaviour does not use, are passed over, and of two of a kind the last one counts.
    ///
    /// # Errors
    /// [`Seg6Error`]: what the kernel would not have accepted, or another kind of tunnel.
    pub fn parse(encap: &Encap) -> Result<Seg6, Seg6Error> {
        match encap.kind {
            ENCAP_SEG6 => Encaps::parse(&encap.data).map(Seg6::Encaps),
            ENCAP_SEG6_LOCAL => Sid::parse(&encap.data).map(Seg6::Sid),
            kind => Err(Seg6Error::Kind(kind)),
        }
    }

    /// The encapsulation that says this.
    pub fn encode(&self) -> Encap {
        match self {
            Seg6::Sid(sid) => Encap {
                kind: ENCAP_SEG6_LOCAL,
                data: sid.encode(),
            },
            Seg6::Encaps(encaps) => Encap {
                kind: ENCAP_SEG6,
                data: encaps.encode(),
            },
        }
    }
}

/// Sets the values of counters in a SID's attributes to 0: every dump tells others, and the route is
/// still the same.
pub(crate) fn forget_counters(encap: &mut Encap) {
    if encap.kind == ENCAP_SEG6_LOCAL {
        sid::forget_counters(&mut encap.data);
    }
}

#[cfg(test)]
mod tests;

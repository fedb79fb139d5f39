//! `encap seg6`: packets get an outer header, or a segment routing header of their own.

use std::net::Ipv6Addr;

use raddle_packet::Srh;
use raddle_packet::srh::{FIXED, ROUTING_TYPE};

use super::Seg6Error;
use super::attributes::{Attributes, put};

/// `SEG6_IPTUNNEL_SRH`.
const SRH: u16 = 1;
/// `SEG6_IPTUNNEL_SRC`.
const SRC: u16 = 2;

/// How packets are encapsulated (`SEG6_IPTUN_MODE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mode {
    /// H.Insert: the SRH goes into the packet, behind its IPv6 header.
    Inline = 0,
    /// H.Encaps.
    #[default]
    Encap = 1,
    /// H.Encaps.L2.
    L2Encap = 2,
    /// H.Encaps.Red: without the segment that is visited first.
    EncapRed = 3,
    /// H.Encaps.L2.Red.
    L2EncapRed = 4,
}

impl Mode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Mode; 5] = [
        Mode::Inline,
        Mode::Encap,
        Mode::L2Encap,
        Mode::EncapRed,
        Mode::L2EncapRed,
    ];

    /// The mode with this number.
    pub fn from_number(number: u32) -> Option<Mode> {
        Mode::ALL.get(number as usize).copied()
    }

    /// iproute2's name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Inline => "inline",
            Mode::Encap => "encap",
            Mode::L2Encap => "l2encap",
            Mode::EncapRed => "encap.red",
            Mode::L2EncapRed => "l2encap.red",
        }
    }

    /// Whether the segment that is visited first is left out of the SRH.
    pub fn is_reduced(self) -> bool {
        matches!(self, Mode::EncapRed | Mode::L2EncapRed)
    }

    /// Whether the frame is encapsulated, with its MAC addresses.
    pub fn is_l2(self) -> bool {
        matches!(self, Mode::L2Encap | Mode::L2EncapRed)
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An encapsulation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Encaps {
    /// How.
    pub mode: Mode,
    /// The whole SRH with its TLVs, as the route has it: never reduced, and valid
    /// ([`Srh::new_checked`]).
    srh: Vec<u8>,
    /// Source of the outer header (`SEG6_IPTUNNEL_SRC`, 7.0 and later), where the route says one.
    pub source: Option<Ipv6Addr>,
}

impl Encaps {
    /// An encapsulation with this segment list, in the order of travel; with [`Mode::Inline`] the
    /// packet's own destination comes behind them, in a place that is left free for it.
    ///
    /// # Errors
    /// [`Seg6Error::Srh`] without any segment, or with more than fit (127, one fewer inline).
    pub fn new(mode: Mode, segments: &[Ipv6Addr]) -> Result<Encaps, Seg6Error> {
        Encaps::with_srh(mode, srh(segments, mode == Mode::Inline)?)
    }

    /// An encapsulation with this SRH.
    ///
    /// # Errors
    /// [`Seg6Error::Srh`].
    pub fn with_srh(mode: Mode, srh: Vec<u8>) -> Result<Encaps, Seg6Error> {
        let srh = checked(srh)?;
        Ok(Encaps {
            mode,
            srh,
            source: None,
        })
    }

    pub(super) fn parse(data: &[u8]) -> Result<Encaps, Seg6Error> {
        let attributes = Attributes(data);
        let value = attributes.find(SRH);
        let value = value.ok_or(Seg6Error::Missing("the segment routing header"))?;
        let length = value.len();
        let what = "the segment routing header";
        let Some((mode, srh)) = value.split_first_chunk() else {
            return Err(Seg6Error::Length { what, length });
        };
        let mode = u32::from_ne_bytes(*mode);
        let mode = Mode::from_number(mode).ok_or(Seg6Error::Mode(mode))?;
        let source = attributes.array::<16>(SRC, "the outer source")?;
        Ok(Encaps {
            mode,
            srh: checked(srh.to_vec())?,
            source: source.map(Ipv6Addr::from).filter(|a| !a.is_unspecified()),
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = (self.mode as u32).to_ne_bytes().to_vec();
        value.extend(&self.srh);
        let mut out = Vec::new();
        put(&mut out, SRH, &value);
        if let Some(source) = self.source {
            put(&mut out, SRC, &source.octets());
        }
        out
    }

    /// The SRH as the route has it, with the segments that are visited last to first and the TLVs.
    pub fn srh(&self) -> &[u8] {
        &self.srh
    }

    /// The segments in the order of travel; with [`Mode::Inline`] the last is the place for the
    /// packet's own destination.
    pub fn segments(&self) -> Vec<Ipv6Addr> {
        segments_of(&self.srh)
    }

    /// The number of the HMAC key, where the SRH has an HMAC.
    pub fn hmac_key(&self) -> Option<u32> {
        hmac_key(&self.srh)
    }
}

/// An SRH with these segments, given in the order of travel, and with `room` one more for the packet's
/// own destination.
///
/// # Errors
/// [`Seg6Error::Srh`] when there are none, or too many.
pub(super) fn srh(segments: &[Ipv6Addr], room: bool) -> Result<Vec<u8>, Seg6Error> {
    let count = segments.len() + usize::from(room);
    let last = u8::try_from(count.wrapping_sub(1)).ok();
    let length = u8::try_from(2 * count).ok();
    let (Some(last), Some(length), [_, ..]) = (last, length, segments) else {
        return Err(Seg6Error::Length {
            what: "a segment list",
            length: 16 * count,
        });
    };
    let mut bytes = vec![0, length, ROUTING_TYPE, last, last, 0, 0, 0];
    if room {
        bytes.extend([0; 16]);
    }
    bytes.extend(segments.iter().rev().flat_map(Ipv6Addr::octets));
    Ok(bytes)
}

/// The SRH alone, if it is one that may be configured (`seg6_validate_srh` with `reduced` false).
pub(super) fn checked(mut bytes: Vec<u8>) -> Result<Vec<u8>, Seg6Error> {
    let length = Srh::new_checked(&bytes, false)?.bytes().len();
    bytes.truncate(length);
    Ok(bytes)
}

pub(super) fn segments_of(srh: &[u8]) -> Vec<Ipv6Addr> {
    match Srh::new_checked(srh, false) {
        Ok(srh) => srh.segments().rev().map(Ipv6Addr::from).collect(),
        Err(_) => Vec::new(),
    }
}

/// The number of the HMAC key of an SRH, where it has an HMAC.
pub(crate) fn hmac_key(srh: &[u8]) -> Option<u32> {
    let tlv = Srh::new_checked(srh, false).ok()?.hmac()?;
    let &[_, _, _, _, a, b, c, d] = tlv.first_chunk::<FIXED>()?;
    Some(u32::from_be_bytes([a, b, c, d]))
}

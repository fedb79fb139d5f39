//! Steps P1 to P5: what is asked of every frame, before its family is known.

use raddle_image::{ConfigHead, LinkEntry, MAGIC, Memory, Reason, config_flags, link_flags};
use raddle_packet::Family;

/// Steps P1 and P2.
#[inline]
pub(crate) fn arrive(
    memory: &Memory,
    ingress: u32,
    now: u64,
) -> Result<(ConfigHead, LinkEntry), Reason> {
    let config = memory.config_head();
    let late = config.deadline != 0 && now > config.deadline;
    if config.magic != MAGIC || config.flags & config_flags::HOLD != 0 || late {
        return Err(Reason::Held);
    }
    let link = memory.link(ingress);
    if link.flags & link_flags::ENABLED == 0 {
        return Err(Reason::NotEnabled);
    }
    Ok((config, link))
}

/// A MAC address as a number: what is compared with every frame's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mac(u64);

impl Mac {
    #[inline]
    pub(crate) fn new(mac: [u8; 6]) -> Mac {
        let [a, b, c, d, e, f] = mac;
        Mac(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    #[inline(always)]
    fn first_of(header: &[u8; 14]) -> Mac {
        let [a, b, c, d, e, f, g, h, ..] = *header;
        Mac(u64::from_le_bytes([a, b, c, d, e, f, g, h]) << 16 >> 16)
    }
}

/// Steps P3 to P5.
// By itself it is not inlined into the vectors' loop, since what few links have calls it, too.
#[inline(always)]
pub(crate) fn family(frame: &[u8], mac: Mac) -> Result<Family, Reason> {
    let Some(header) = frame.first_chunk::<14>() else {
        return Err(Reason::Truncated);
    };
    let family = match u16::from_be_bytes([header[12], header[13]]) {
        0x0800 => Family::V4,
        0x86dd => Family::V6,
        0x8100 | 0x88a8 => return Err(Reason::Vlan),
        _ => return Err(Reason::NotIp),
    };
    if Mac::first_of(header) != mac {
        return Err(Reason::OtherMac);
    }
    Ok(family)
}

//! What hash policy 0 takes: the addresses of a packet's own header, or of the packet that an ICMP
//! error is about.

use std::net::{Ipv4Addr, Ipv6Addr};

use raddle_packet::{Family, icmp, protocol};
use serde::Serialize;

use crate::key::{FlowKey, KeyAddresses};

/// Where a key came from: which rule of [`crate::keys_of_packet`] gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// The packet's own IP header.
    Outer,
    /// The IP header that an ICMP error carries.
    IcmpInner,
    /// The flow dissector.
    Dissected,
    /// A flow tuple, as for a socket or a route request.
    Flow,
}

/// `ip_multipath_l3_keys`.
#[inline]
pub(crate) fn l3_ipv4(l3: &[u8]) -> Option<(FlowKey, Input)> {
    let outer = l3.first_chunk::<20>()?;
    if outer[9] == protocol::ICMP
        && let Some(inner) = icmp_inner_ipv4(l3, outer)
    {
        return Some((ipv4_addresses(inner), Input::IcmpInner));
    }
    Some((ipv4_addresses(outer), Input::Outer))
}

#[cold]
fn icmp_inner_ipv4<'a>(l3: &'a [u8], outer: &[u8; 20]) -> Option<&'a [u8; 20]> {
    about_ipv4(l3, outer)?.first_chunk()
}

/// What an ICMP error is about, as far as it is quoted.
pub(crate) fn about_ipv4<'a>(l3: &'a [u8], outer: &[u8; 20]) -> Option<&'a [u8]> {
    let later_fragment = (outer[6] & 0x1f) | outer[7] != 0;
    let message = l3.get(usize::from(outer[0] & 0xf) * 4..)?;
    if later_fragment || !icmp::is_error(Family::V4, *message.first()?) {
        return None;
    }
    message.get(8..)
}

#[inline]
fn ipv4_addresses(header: &[u8; 20]) -> FlowKey {
    FlowKey::of_addresses(KeyAddresses::V4 {
        src: Ipv4Addr::new(header[12], header[13], header[14], header[15]),
        dst: Ipv4Addr::new(header[16], header[17], header[18], header[19]),
    })
}

/// `ip6_multipath_l3_keys`.
#[inline]
pub(crate) fn l3_ipv6(l3: &[u8]) -> Option<(FlowKey, Input)> {
    let outer = l3.first_chunk::<40>()?;
    if outer[6] == protocol::ICMPV6
        && let Some(inner) = icmp_inner_ipv6(l3)
    {
        return Some((ipv6_l3(inner)?, Input::IcmpInner));
    }
    Some((ipv6_l3(outer)?, Input::Outer))
}

#[cold]
fn icmp_inner_ipv6(l3: &[u8]) -> Option<&[u8; 40]> {
    about_ipv6(l3)?.first_chunk()
}

/// What an ICMPv6 error directly behind the IPv6 header is about, as far as it is quoted.
pub(crate) fn about_ipv6(l3: &[u8]) -> Option<&[u8]> {
    let message = l3.get(40..)?;
    if !icmp::is_error(Family::V6, *message.first()?) {
        return None;
    }
    message.get(8..)
}

#[inline]
fn ipv6_l3(header: &[u8; 40]) -> Option<FlowKey> {
    let (src, dst) = header[8..].split_at(16);
    let label = u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]]);
    Some(FlowKey {
        ip_proto: header[6],
        flow_label_word: FlowKey::label_as_loaded(label),
        ..FlowKey::of_addresses(KeyAddresses::V6 {
            src: Ipv6Addr::from(*src.first_chunk::<16>()?),
            dst: Ipv6Addr::from(*dst.first_chunk::<16>()?),
        })
    })
}

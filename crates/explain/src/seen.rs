//! What a packet looks like: a line for each of its headers.

use std::net::Ipv6Addr;

use raddle_packet::{Family, Ipv4, Ipv6, Srh};

use super::flow::protocol_name;

/// Headers that are told; more are only counted as bytes.
const MOST: usize = 12;

/// A line for each header from the outermost on, and one for what follows.
pub(super) fn headers(l3: &[u8], family: Family) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut rest, mut in_ipv6) = (l3, false);
    let mut next = match family {
        Family::V4 => 4,
        Family::V6 => 41,
    };
    while lines.len() < MOST {
        let Some((line, after, bytes)) = header(next, in_ipv6, rest) else {
            break;
        };
        lines.push(line);
        match next {
            4 | 143 => in_ipv6 = false,
            41 => in_ipv6 = true,
            _ => {}
        }
        (next, rest) = (after, bytes);
        if next == NOTHING {
            return lines;
        }
    }
    lines.push(payload(next, rest));
    lines
}

/// Stands for what is no header any more.
const NOTHING: u8 = 59;

/// One header of this protocol: what it says, the next protocol and what follows. None for one that is not
/// taken apart. Extension headers are those of IPv6 only.
fn header(protocol: u8, in_ipv6: bool, bytes: &[u8]) -> Option<(String, u8, &[u8])> {
    match protocol {
        4 => {
            let ip = Ipv4::new_checked(bytes).ok()?;
            let line = format!("IPv4 {} to {}, TTL {}", ip.src(), ip.dst(), ip.ttl());
            Some((line, ip.protocol(), bytes.get(ip.header_len()..)?))
        }
        41 => {
            let ip = Ipv6::new_checked(bytes).ok()?;
            let label = match ip.flow_label() {
                0 => String::new(),
                label => format!(", flow label {label:#x}"),
            };
            let line = format!(
                "IPv6 {} to {}, hop limit {}{label}",
                ip.src(),
                ip.dst(),
                ip.hop_limit()
            );
            Some((line, ip.next_header(), bytes.get(40..)?))
        }
        43 if in_ipv6 => routing(bytes),
        0 | 60 if in_ipv6 => {
            let name = if protocol == 0 {
                "hop-by-hop"
            } else {
                "destination"
            };
            let (next, length) = (*bytes.first()?, 8 * (usize::from(*bytes.get(1)?) + 1));
            Some((
                format!("{name} options, {length} bytes"),
                next,
                bytes.get(length..)?,
            ))
        }
        143 => {
            let (mac, rest) = bytes.split_first_chunk::<14>()?;
            let kind = u16::from_be_bytes([mac[12], mac[13]]);
            let line = format!(
                "Ethernet {} to {}, {kind:#06x}",
                mac_text(&mac[6..12]),
                mac_text(&mac[..6])
            );
            let next = match kind {
                0x0800 => 4,
                0x86dd => 41,
                _ => NOTHING,
            };
            Some((line, next, rest))
        }
        _ => None,
    }
}

/// A routing header, told in full where it is an SRH.
fn routing(bytes: &[u8]) -> Option<(String, u8, &[u8])> {
    let (next, length) = (*bytes.first()?, 8 * (usize::from(*bytes.get(1)?) + 1));
    let (kind, left) = (*bytes.get(2)?, *bytes.get(3)?);
    let rest = bytes.get(length..)?;
    let line = match Srh::new_checked(bytes, true) {
        Ok(srh) => {
            // In the order of travel, as everybody reads them.
            let segments: Vec<String> = srh
                .segments()
                .rev()
                .map(|segment| Ipv6Addr::from(segment).to_string())
                .collect();
            let hmac = if srh.hmac().is_some() { ", HMAC" } else { "" };
            format!(
                "SRH segs {} [ {} ], {left} left{hmac}",
                segments.len(),
                segments.join(" ")
            )
        }
        Err(error) if kind == 4 => format!("SRH that is not valid: {error}, {left} left"),
        Err(_) => format!("routing header of type {kind}, {left} left"),
    };
    Some((line, next, rest))
}

fn payload(protocol: u8, bytes: &[u8]) -> String {
    let ports = match (protocol, bytes.first_chunk::<4>()) {
        (6 | 17 | 33 | 132, Some(&[a, b, c, d])) => {
            let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            format!(" {from} to {to}")
        }
        _ => String::new(),
    };
    format!("{}{ports}, {} bytes", protocol_name(protocol), bytes.len())
}

fn mac_text(mac: &[u8]) -> String {
    let parts: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    parts.join(":")
}

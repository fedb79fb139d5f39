//! Routing rules (`RTM_NEWRULE`, `RTM_DELRULE`).

use std::net::IpAddr;

use ipnet::IpNet;
pub use raddle_rib::event::RULE_OTHER_INVERT;
use raddle_rib::event::{Event, Rule};

use super::build::{Builder, EncodeError};
use super::number::rtm::{RTM_DELRULE, RTM_NEWRULE};
use super::number::{INET, INET6};
use super::wire::{Attribute, DecodeError, Message, ip_from, read_u32};

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
const FRA_DSCP: u16 = 25;
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;
const FRA_DSCP_MASK: u16 = 30;
/// All bits of a DSCP.
const DSCP_BITS: u8 = 0x3f;
const FIB_RULE_INVERT: u32 = 0x2;

pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<12>("fib_rule_hdr")?;
    let [family, dst_len, src_len, tos, table, _, _, action, ..] = *head;
    if family != INET && family != INET6 {
        return Ok(None); // multicast routing has rules of its own
    }
    let mut rule = Rule {
        family: if family == INET { 4 } else { 6 },
        table: table.into(),
        action,
        tos,
        ..Rule::default()
    };
    if read_u32(head, 8) & FIB_RULE_INVERT != 0 {
        rule.other.push(RULE_OTHER_INVERT);
    }
    let (mut mark, mut mask) = (None, None);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            FRA_DST => rule.to = Some(net(&a, dst_len, family)?),
            FRA_SRC => rule.from = Some(net(&a, src_len, family)?),
            FRA_IIFNAME => rule.iif = Some(a.string()),
            FRA_OIFNAME => rule.oif = Some(a.string()),
            FRA_PRIORITY => rule.priority = a.u32("FRA_PRIORITY")?,
            FRA_FWMARK => mark = Some(a.u32("FRA_FWMARK")?),
            FRA_FWMASK => mask = Some(a.u32("FRA_FWMASK")?),
            FRA_TABLE => rule.table = a.u32("FRA_TABLE")?,
            FRA_PROTOCOL => rule.protocol = a.u8("FRA_PROTOCOL")?,
            FRA_GOTO => rule.goto = Some(a.u32("FRA_GOTO")?),
            FRA_SUPPRESS_PREFIXLEN => {
                // Told even where it is not set.
                let length = a.u32("FRA_SUPPRESS_PREFIXLEN")?;
                rule.suppress_prefixlength = Some(length).filter(|length| *length != u32::MAX);
            }
            FRA_UID_RANGE => {
                let [a0, a1, a2, a3, b0, b1, b2, b3] = *a.bytes("FRA_UID_RANGE")?;
                let number = u32::from_ne_bytes;
                rule.uidrange = Some((number([a0, a1, a2, a3]), number([b0, b1, b2, b3])));
            }
            FRA_IP_PROTO => rule.ip_proto = Some(a.u8("FRA_IP_PROTO")?),
            FRA_SPORT_RANGE => rule.sport = Some(ports(a.bytes("FRA_SPORT_RANGE")?)),
            FRA_DPORT_RANGE => rule.dport = Some(ports(a.bytes("FRA_DPORT_RANGE")?)),
            FRA_DSCP => rule.dscp = Some(a.u8("FRA_DSCP")? & DSCP_BITS),
            FRA_PAD => {}
            // Told even where they are not set, and all bits count.
            FRA_DSCP_MASK if a.u8("FRA_DSCP_MASK")? == DSCP_BITS => {}
            FRA_SPORT_MASK | FRA_DPORT_MASK if a.u16("a mask of ports")? == u16::MAX => {}
            // Told even where it is not set.
            FRA_SUPPRESS_IFGROUP if a.u32("FRA_SUPPRESS_IFGROUP")? == u32::MAX => {}
            other => rule.other.push(other),
        }
    }
    if mark.is_some() || mask.is_some() {
        rule.fwmark = Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX)));
    }
    Ok(Some(if message.kind == RTM_DELRULE {
        Event::RuleGone(rule)
    } else {
        Event::Rule(rule)
    }))
}

/// `struct fib_rule_port_range`.
fn ports([a0, a1, b0, b1]: &[u8; 4]) -> (u16, u16) {
    (
        u16::from_ne_bytes([*a0, *a1]),
        u16::from_ne_bytes([*b0, *b1]),
    )
}

fn net(a: &Attribute<'_>, length: u8, family: u8) -> Result<IpNet, DecodeError> {
    let bad = DecodeError::BadValue {
        what: "prefix length of a rule",
        value: length.into(),
    };
    let address = ip_from(a.payload, "FRA_SRC or FRA_DST")?;
    if super::family_of(address) != family {
        return Err(bad);
    }
    IpNet::new(address, length)
        .map(|n| n.trunc())
        .map_err(|_| bad)
}

/// Selectors in [`Rule::other`] cannot be written, their values are not kept.
pub(super) fn encode(
    b: &mut Builder,
    rule: &Rule,
    gone: bool,
    flags: u16,
) -> Result<(), EncodeError> {
    let length = |net: Option<IpNet>| net.map_or(0, |n| n.prefix_len());
    let family = if rule.family == 4 { INET } else { INET6 };
    let mut head = [0; 12];
    head[..3].copy_from_slice(&[family, length(rule.to), length(rule.from)]);
    head[3] = rule.tos;
    head[4] = u8::try_from(rule.table).unwrap_or(0);
    head[7] = rule.action;
    b.begin(if gone { RTM_DELRULE } else { RTM_NEWRULE }, flags, &head);
    let network = |net: Option<IpNet>| net.map(|n| -> IpAddr { n.network() });
    if let Some(to) = network(rule.to) {
        b.put_ip(FRA_DST, to);
    }
    if let Some(from) = network(rule.from) {
        b.put_ip(FRA_SRC, from);
    }
    if let Some(name) = &rule.iif {
        b.put_str(FRA_IIFNAME, name);
    }
    if let Some(name) = &rule.oif {
        b.put_str(FRA_OIFNAME, name);
    }
    if let Some((mark, mask)) = rule.fwmark {
        b.put_u32(FRA_FWMARK, mark).put_u32(FRA_FWMASK, mask);
    }
    if let Some(target) = rule.goto {
        b.put_u32(FRA_GOTO, target);
    }
    if let Some(length) = rule.suppress_prefixlength {
        b.put_u32(FRA_SUPPRESS_PREFIXLEN, length);
    }
    if let Some((first, last)) = rule.uidrange {
        let bytes = [first.to_ne_bytes(), last.to_ne_bytes()].concat();
        b.put(FRA_UID_RANGE, &bytes);
    }
    if let Some(dscp) = rule.dscp {
        b.put_u8(FRA_DSCP, dscp);
    }
    if let Some(proto) = rule.ip_proto {
        b.put_u8(FRA_IP_PROTO, proto);
    }
    for (attribute, range) in [(FRA_SPORT_RANGE, rule.sport), (FRA_DPORT_RANGE, rule.dport)] {
        if let Some((first, last)) = range {
            b.put(
                attribute,
                &[first.to_ne_bytes(), last.to_ne_bytes()].concat(),
            );
        }
    }
    b.put_u32(FRA_PRIORITY, rule.priority);
    b.put_u32(FRA_TABLE, rule.table);
    b.put_u8(FRA_PROTOCOL, rule.protocol);
    b.end()
}

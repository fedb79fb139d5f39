//! Rules.

use ipnet::IpNet;
use raddle_rib::event::{RULE_OTHER_INVERT, RULE_OTHER_L3MDEV, Rule};
use serde::Deserialize;
use serde_json::Value;

use super::object::{Lookup, Objects, Word, address};
use super::{Error, Fault};

/// Fields that select nothing.
const HARMLESS: [&str; 4] = ["iif_detached", "oif_detached", "unresolved", "offload"];
/// Stands in [`Rule::other`] for a selector or modifier whose field is not read here.
const OTHER: u16 = 0xfffe;
/// `FR_ACT_TO_TBL`, `FR_ACT_GOTO`, `FR_ACT_NOP`.
const TO_TABLE: u8 = 1;
const GOTO: u8 = 2;
const NOP: u8 = 3;

#[derive(Deserialize)]
struct RuleObject {
    priority: u32,
    src: String,
    srclen: Option<u8>,
    dst: Option<String>,
    dstlen: Option<u8>,
    iif: Option<String>,
    oif: Option<String>,
    fwmark: Option<Word>,
    fwmask: Option<Word>,
    table: Option<Word>,
    protocol: Option<Word>,
    action: Option<Word>,
    suppress_prefixlen: Option<Word>,
    goto: Option<Word>,
    uid_start: Option<u32>,
    uid_end: Option<u32>,
    tos: Option<Word>,
    dscp: Option<Word>,
    ipproto: Option<Word>,
    /// One port, or the ends of a range.
    sport: Option<Word>,
    sport_start: Option<u16>,
    sport_end: Option<u16>,
    dport: Option<Word>,
    dport_start: Option<u16>,
    dport_end: Option<u16>,
    /// `not`, selectors that have no field in [`Rule`], and what newer versions print.
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

/// The rules of `ip -4 -j rule` or `ip -6 -j rule`.
pub(super) fn rules(objects: &Objects, names: &Lookup, family: u8) -> Result<Vec<Rule>, Error> {
    objects.each(|rule: RuleObject| {
        let mut other = Vec::new();
        let mut action = match &rule.action {
            None => TO_TABLE,
            // The other actions have the numbers of route types.
            Some(word) => names
                .kind(&Some(word.clone()))?
                .map_or(0, |kind| kind as u8),
        };
        for name in rule.rest.keys().map(String::as_str) {
            match name {
                "not" => other.push(RULE_OTHER_INVERT),
                "l3mdev" => other.push(RULE_OTHER_L3MDEV),
                "nop" => action = NOP,
                name if HARMLESS.contains(&name) => {}
                _ => other.push(OTHER),
            }
        }
        if rule.goto.is_some() {
            action = GOTO;
        }
        let (mark, mask) = (number(&rule.fwmark)?, number(&rule.fwmask)?);
        Ok(Rule {
            family,
            priority: rule.priority,
            table: names.table(&rule.table)?.unwrap_or(0),
            action,
            from: net(Some(&rule.src), rule.srclen)?,
            to: net(rule.dst.as_deref(), rule.dstlen)?,
            iif: rule.iif,
            oif: rule.oif,
            fwmark: (mark.is_some() || mask.is_some())
                .then(|| (mark.unwrap_or(0), mask.unwrap_or(u32::MAX))),
            suppress_prefixlength: number(&rule.suppress_prefixlen)?,
            goto: number(&rule.goto)?,
            uidrange: rule.uid_start.zip(rule.uid_end),
            tos: byte(&rule.tos)?.unwrap_or(0),
            dscp: byte(&rule.dscp)?,
            ip_proto: proto(&rule.ipproto)?,
            sport: ports(&rule.sport, rule.sport_start.zip(rule.sport_end))?,
            dport: ports(&rule.dport, rule.dport_start.zip(rule.dport_end))?,
            other,
            protocol: names.protocol(&rule.protocol)?.unwrap_or(0),
        })
    })
}

/// A prefix; none for `all`. Without a length it is a host's.
fn net(text: Option<&str>, length: Option<u8>) -> Result<Option<IpNet>, Fault> {
    let Some(text) = text.filter(|text| *text != "all") else {
        return Ok(None);
    };
    let ip = address(text)?;
    let length = length.unwrap_or(if ip.is_ipv4() { 32 } else { 128 });
    IpNet::new(ip, length)
        .map(|net| Some(net.trunc()))
        .map_err(|_| Fault::Length {
            address: text.to_owned(),
            length,
        })
}

/// A number of 8 bits, as [`number`].
fn byte(word: &Option<Word>) -> Result<Option<u8>, Fault> {
    let Some(number) = number(word)? else {
        return Ok(None);
    };
    let byte = u8::try_from(number);
    byte.map(Some)
        .map_err(|_| Fault::Selector(number.to_string()))
}

/// A protocol, which `ip` names where the machine that it ran on has a name for it, with `-N`, too.
fn proto(word: &Option<Word>) -> Result<Option<u8>, Fault> {
    let Some(word) = word else { return Ok(None) };
    let text = word.text();
    let known = raddle_rib::PROTOCOLS.iter().find(|(_, name)| *name == text);
    let number = match known {
        Some((number, _)) => Some(*number),
        None => text.strip_prefix("ipproto-").unwrap_or(&text).parse().ok(),
    };
    number.map(Some).ok_or(Fault::Selector(text))
}

/// One port, or the ends of a range.
fn ports(one: &Option<Word>, ends: Option<(u16, u16)>) -> Result<Option<(u16, u16)>, Fault> {
    let Some(one) = one else { return Ok(ends) };
    let text = one.text();
    let port = text.parse().map_err(|_| Fault::Selector(text))?;
    Ok(Some((port, port)))
}

/// A mark, in hexadecimal with `0x`, or decimal.
fn number(word: &Option<Word>) -> Result<Option<u32>, Fault> {
    let Some(word) = word else { return Ok(None) };
    let text = word.text();
    let number = crate::names::parse_number(&text);
    number.map(Some).ok_or(Fault::Mark(text))
}

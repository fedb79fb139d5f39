//! nftables: base chains, the first rule of each, and the whole ruleset.
//!
//! A base chain is a chain on a hook; only through one can a packet meet a rule. Chains of
//! iptables-nft are such chains too. Numbers in nf_tables messages are in network byte order.

mod contents;
mod terms;
mod whole;

pub use self::contents::{Contents, Element};
pub(super) use self::contents::{decode_contents, decode_elements};
pub(super) use self::terms::decode_program;
pub use self::terms::{Load, Program, Ruleset, Side, Term, Verdict, ruleset};
pub use self::whole::{Object, Placed, Set, generation, objects, rules, sets};
pub(super) use self::whole::{decode_generation, decode_object, decode_set};

use super::Error;
use super::talk::Talk;
use crate::codec::{Attribute, Attributes, Builder, DecodeError, Message};

const SUBSYSTEM: u16 = 10 << 8; // NFNL_SUBSYS_NFTABLES
const NEWTABLE: u16 = SUBSYSTEM;
const GETTABLE: u16 = SUBSYSTEM | 1;
const NEWCHAIN: u16 = SUBSYSTEM | 3;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const NEWRULE: u16 = SUBSYSTEM | 6;
const GETRULE: u16 = SUBSYSTEM | 7;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_F_DORMANT: u32 = 1;

const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;

const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;
const DEVICE_NAME: u16 = 1;
const DEVICE_PREFIX: u16 = 2;

const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;

const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
/// `NFTA_MATCH_NAME`, `NFTA_TARGET_NAME`: the xtables extension behind a compatibility expression.
const EXTENSION_NAME: u16 = 1;
/// One statement of a `dynset` expression, or a list of several.
const DYNSET_EXPRESSION: u16 = 7;
const DYNSET_EXPRESSIONS: u16 = 10;
const IMMEDIATE_DATA: u16 = 2;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;

/// `NF_DROP`.
const DROP: u32 = 0;

/// Families that a chain can be of (`NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// Named links, any protocol.
    Netdev,
    /// Bridge ports.
    Bridge,
    /// ARP.
    Arp,
    /// One that this version does not know.
    Other(u8),
}

impl Family {
    fn from_number(n: u8) -> Self {
        match n {
            1 => Family::Inet,
            2 => Family::Ip,
            3 => Family::Arp,
            5 => Family::Netdev,
            7 => Family::Bridge,
            10 => Family::Ip6,
            n => Family::Other(n),
        }
    }

    fn number(self) -> u8 {
        match self {
            Family::Inet => 1,
            Family::Ip => 2,
            Family::Arp => 3,
            Family::Netdev => 5,
            Family::Bridge => 7,
            Family::Ip6 => 10,
            Family::Other(n) => n,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Family::Inet => f.write_str("inet"),
            Family::Ip => f.write_str("ip"),
            Family::Ip6 => f.write_str("ip6"),
            Family::Netdev => f.write_str("netdev"),
            Family::Bridge => f.write_str("bridge"),
            Family::Arp => f.write_str("arp"),
            Family::Other(n) => write!(f, "family{n}"),
        }
    }
}

/// Where a base chain is hooked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// To this machine.
    Input,
    /// Through this machine.
    Forward,
    /// From this machine.
    Output,
    /// After routing.
    Postrouting,
    /// As a link receives.
    Ingress,
    /// As a link sends.
    Egress,
    /// One that this version does not know.
    Other(u32),
}

impl Hook {
    /// `NF_NETDEV_*` and `NF_INET_*` number their hooks differently.
    fn from_number(family: Family, n: u32) -> Self {
        match (family, n) {
            (Family::Netdev, 0) => Hook::Ingress,
            (Family::Netdev, 1) => Hook::Egress,
            (Family::Inet, 5) => Hook::Ingress,
            (Family::Inet | Family::Ip | Family::Ip6 | Family::Bridge, 0) => Hook::Prerouting,
            (Family::Inet | Family::Ip | Family::Ip6 | Family::Bridge, 1) => Hook::Input,
            (Family::Inet | Family::Ip | Family::Ip6 | Family::Bridge, 2) => Hook::Forward,
            (Family::Inet | Family::Ip | Family::Ip6 | Family::Bridge, 3) => Hook::Output,
            (Family::Inet | Family::Ip | Family::Ip6 | Family::Bridge, 4) => Hook::Postrouting,
            _ => Hook::Other(n),
        }
    }
}

impl std::fmt::Display for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Hook::Prerouting => f.write_str("prerouting"),
            Hook::Input => f.write_str("input"),
            Hook::Forward => f.write_str("forward"),
            Hook::Output => f.write_str("output"),
            Hook::Postrouting => f.write_str("postrouting"),
            Hook::Ingress => f.write_str("ingress"),
            Hook::Egress => f.write_str("egress"),
            Hook::Other(n) => write!(f, "hook {n}"),
        }
    }
}

/// A base chain whose table is not dormant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// Its table's family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// Where it is hooked in.
    pub hook: Hook,
    /// Its place among the chains of the hook; lower comes first.
    pub priority: i32,
    /// The links that it is on, for ingress and egress; a trailing `*` stands for any suffix
    /// (from 6.16 on).
    pub devices: Vec<String>,
    /// Drops what no rule has decided (`policy drop`).
    pub policy_drop: bool,
    /// How many rules it has (`NFTA_CHAIN_USE`; nothing can jump to a base chain).
    pub rules: u32,
}

impl BaseChain {
    /// Whether an ingress or egress chain is on the link of this name.
    pub fn is_on(&self, link: &str) -> bool {
        self.devices
            .iter()
            .any(|device| match device.strip_suffix('*') {
                Some(prefix) => link.starts_with(prefix),
                None => device == link,
            })
    }
}

/// What a rule is, in few words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its handle, as `nft -a list ruleset` shows it.
    pub handle: u64,
    /// Its expressions' names in order, verdicts and iptables extensions by their own, and what is
    /// kept for each element of a set behind it: `meta`, `cmp`, `counter`, `match conntrack`,
    /// `dynset connlimit`, `drop`.
    pub expressions: Vec<String>,
    /// Its comment.
    pub comment: Option<String>,
}

/// The base chains of the namespace, in the kernel's order. None if it has no nf_tables.
///
/// Two dumps of tables and chains, none of rules.
///
/// # Errors
/// [`Error::Denied`] without `CAP_NET_ADMIN`; [`Error::Decode`] for an answer that makes no sense.
pub fn base_chains() -> Result<Vec<BaseChain>, Error> {
    let what = "list nftables chains";
    let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
        return Ok(Vec::new());
    };
    let dormant: Vec<_> = {
        let tables = talk.dump(&mut request(GETTABLE, 0), what, decode_table);
        match tables {
            Ok(tables) => tables.into_iter().filter(|t| t.dormant).collect(),
            Err(e) if is_absent(&e) => return Ok(Vec::new()),
            Err(e) => return Err(e),
        }
    };
    let mut chains = talk.dump(&mut request(GETCHAIN, 0), what, decode_chain)?;
    // The chains of a dormant table are not hooked in.
    chains.retain(|c| {
        !dormant
            .iter()
            .any(|t| t.family == c.family && t.name == c.table)
    });
    Ok(chains)
}

/// The first rule of a chain. Costs a dump of the chain's rules.
///
/// # Errors
/// As [`base_chains`]; [`Error::Refused`] when the chain is gone.
pub fn first_rule(chain: &BaseChain) -> Result<Option<Rule>, Error> {
    let what = "list nftables rules";
    let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
        return Ok(None);
    };
    let mut b = Builder::new();
    b.begin(GETRULE, 0, &[chain.family.number(), 0, 0, 0])
        .put_str(RULE_TABLE, &chain.table)
        .put_str(RULE_CHAIN, &chain.name)
        .end()?;
    let rules = talk.dump(&mut b, what, |message| {
        // Kernels before 4.4 ignore the filter.
        Ok(decode_rule(message)?.filter(|r| r.1 == chain.table && r.2 == chain.name))
    })?;
    Ok(rules.into_iter().next().map(|(rule, ..)| rule))
}

/// nfnetlink's answer when nobody has registered nf_tables.
fn is_absent(error: &Error) -> bool {
    matches!(error.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

fn request(kind: u16, family: u8) -> Builder {
    let mut b = Builder::new();
    // Without attributes nothing can be too long.
    let _ = b.begin(kind, 0, &[family, 0, 0, 0]).end();
    b
}

/// A table: only whether its chains count.
#[derive(Debug)]
pub(super) struct Table {
    family: Family,
    name: String,
    dormant: bool,
}

pub(super) fn decode_table(message: &Message<'_>) -> Result<Option<Table>, DecodeError> {
    if message.kind != NEWTABLE {
        return Ok(None);
    }
    let (head, attributes) = message.split::<4>("nfgenmsg")?;
    let mut table = Table {
        family: Family::from_number(head[0]),
        name: String::new(),
        dormant: false,
    };
    for a in attributes {
        let a = a?;
        match a.kind {
            TABLE_NAME => table.name = a.string(),
            TABLE_FLAGS => table.dormant = be32(&a, "NFTA_TABLE_FLAGS")? & TABLE_F_DORMANT != 0,
            _ => {}
        }
    }
    Ok(Some(table))
}

/// None for a chain that is not on a hook.
pub(super) fn decode_chain(message: &Message<'_>) -> Result<Option<BaseChain>, DecodeError> {
    if message.kind != NEWCHAIN {
        return Ok(None);
    }
    let (head, attributes) = message.split::<4>("nfgenmsg")?;
    let mut chain = BaseChain {
        family: Family::from_number(head[0]),
        table: String::new(),
        name: String::new(),
        kind: String::new(),
        hook: Hook::Other(u32::MAX),
        priority: 0,
        devices: Vec::new(),
        policy_drop: false,
        rules: 0,
    };
    let mut hooked = false;
    for a in attributes {
        let a = a?;
        match a.kind {
            CHAIN_TABLE => chain.table = a.string(),
            CHAIN_NAME => chain.name = a.string(),
            CHAIN_TYPE => chain.kind = a.string(),
            CHAIN_POLICY => chain.policy_drop = be32(&a, "NFTA_CHAIN_POLICY")? == DROP,
            CHAIN_USE => chain.rules = be32(&a, "NFTA_CHAIN_USE")?,
            CHAIN_HOOK => {
                decode_hook(&mut chain, a.nested())?;
                hooked = true;
            }
            _ => {}
        }
    }
    Ok(hooked.then_some(chain))
}

fn decode_hook(chain: &mut BaseChain, attributes: Attributes<'_>) -> Result<(), DecodeError> {
    for a in attributes {
        let a = a?;
        match a.kind {
            HOOK_NUMBER => {
                chain.hook = Hook::from_number(chain.family, be32(&a, "NFTA_HOOK_HOOKNUM")?);
            }
            HOOK_PRIORITY => chain.priority = be32(&a, "NFTA_HOOK_PRIORITY")? as i32,
            HOOK_DEVICE => push_new(&mut chain.devices, a.string()),
            HOOK_DEVICES => {
                for device in a.nested() {
                    let device = device?;
                    match device.kind {
                        DEVICE_NAME => push_new(&mut chain.devices, device.string()),
                        DEVICE_PREFIX => push_new(&mut chain.devices, device.string() + "*"),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A single device is told twice, in the old attribute and in the new one.
fn push_new(devices: &mut Vec<String>, device: String) {
    if !devices.contains(&device) {
        devices.push(device);
    }
}

/// A rule with its table and chain.
pub(super) fn decode_rule(
    message: &Message<'_>,
) -> Result<Option<(Rule, String, String)>, DecodeError> {
    if message.kind != NEWRULE {
        return Ok(None);
    }
    let (_, attributes) = message.split::<4>("nfgenmsg")?;
    let mut rule = Rule::default();
    let (mut table, mut chain) = (String::new(), String::new());
    for a in attributes {
        let a = a?;
        match a.kind {
            RULE_TABLE => table = a.string(),
            RULE_CHAIN => chain = a.string(),
            RULE_HANDLE => rule.handle = u64::from_be_bytes(*a.bytes::<8>("NFTA_RULE_HANDLE")?),
            RULE_EXPRESSIONS => {
                for element in a.nested() {
                    rule.expressions.push(expression(element?.nested())?);
                }
            }
            RULE_USERDATA => rule.comment = comment(a.payload),
            _ => {}
        }
    }
    Ok(Some((rule, table, chain)))
}

/// An expression's name, or what says more: a verdict, an xtables extension.
fn expression(attributes: Attributes<'_>) -> Result<String, DecodeError> {
    let mut name = String::new();
    let mut detail = None;
    for a in attributes {
        let a = a?;
        match (a.kind, name.as_str()) {
            (EXPRESSION_NAME, _) => name = a.string(),
            (EXPRESSION_DATA, "immediate") => detail = verdict(a.nested())?.map(str::to_owned),
            (EXPRESSION_DATA, "match" | "target") => {
                let extension = find(a.nested(), EXTENSION_NAME)?;
                detail = extension.map(|e| format!("{name} {}", e.string()));
            }
            (EXPRESSION_DATA, "dynset") => detail = kept_by_element(a.nested())?,
            _ => {}
        }
    }
    Ok(detail.unwrap_or(name))
}

/// What a dynset expression keeps for each element: `dynset connlimit`.
fn kept_by_element(attributes: Attributes<'_>) -> Result<Option<String>, DecodeError> {
    let mut text = String::new();
    for a in attributes {
        let a = a?;
        match a.kind {
            DYNSET_EXPRESSION => text = text + " " + &name_of(a.nested())?,
            DYNSET_EXPRESSIONS => {
                for element in a.nested() {
                    text = text + " " + &name_of(element?.nested())?;
                }
            }
            _ => {}
        }
    }
    Ok((!text.is_empty()).then(|| format!("dynset{text}")))
}

fn name_of(attributes: Attributes<'_>) -> Result<String, DecodeError> {
    let name = find(attributes, EXPRESSION_NAME)?;
    Ok(name.map(|name| name.string()).unwrap_or_default())
}

/// The verdict of an immediate expression that is one.
fn verdict(attributes: Attributes<'_>) -> Result<Option<&'static str>, DecodeError> {
    let Some(data) = find(attributes, IMMEDIATE_DATA)? else {
        return Ok(None);
    };
    let Some(verdict) = find(data.nested(), DATA_VERDICT)? else {
        return Ok(None);
    };
    let Some(code) = find(verdict.nested(), VERDICT_CODE)? else {
        return Ok(None);
    };
    Ok(Some(match be32(&code, "NFTA_VERDICT_CODE")? as i32 {
        0 => "drop",
        1 => "accept",
        -1 => "continue",
        -2 => "break",
        -3 => "jump",
        -4 => "goto",
        -5 => "return",
        _ => "verdict",
    }))
}

fn find(attributes: Attributes<'_>, kind: u16) -> Result<Option<Attribute<'_>>, DecodeError> {
    for a in attributes {
        let a = a?;
        if a.kind == kind {
            return Ok(Some(a));
        }
    }
    Ok(None)
}

/// The comment that nft keeps in a rule's user data: type 0, length, text with its NUL.
fn comment(mut data: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = data {
        let value = rest.get(..usize::from(*length))?;
        if *kind == 0 {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        data = &rest[value.len()..];
    }
    None
}

fn be32(a: &Attribute<'_>, what: &'static str) -> Result<u32, DecodeError> {
    a.bytes::<4>(what).map(|b| u32::from_be_bytes(*b))
}

#[cfg(test)]
mod tests;

//! Which tables a packet is looked up in.

use std::net::IpAddr;

use crate::event::{Link, RULE_OTHER_INVERT, RULE_OTHER_L3MDEV, Rule};
use raddle_image::{RANGES, Reason};

mod words;

pub use words::describe_rule;

/// `RT_TABLE_LOCAL`.
pub const TABLE_LOCAL: u32 = 255;
/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_DEFAULT`.
pub const TABLE_DEFAULT: u32 = 253;

/// `FR_ACT_*`.
const TO_TABLE: u8 = 1;
const GOTO: u8 = 2;
const NOP: u8 = 3;
const UNREACHABLE: u8 = 7;
const PROHIBIT: u8 = 8;

/// Where packets are looked up: in tables, one after the other, until one has a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lookup {
    /// The tables, in the order in which they are asked.
    pub tables: Vec<TableLookup>,
    /// Why a packet is not forwarded that none of them has a route for: [`Reason::NoRoute`], or what a rule says.
    pub end: Reason,
}

/// One table that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableLookup {
    /// Its number.
    pub table: u32,
    /// Routes of this prefix length or less are passed over, and the next table is asked (`suppress_prefixlength`).
    pub suppress: Option<u8>,
}

impl TableLookup {
    /// All routes of a table.
    pub fn all(table: u32) -> TableLookup {
        TableLookup {
            table,
            suppress: None,
        }
    }

    /// Whether a route of this prefix length is passed over. Only those are that the kernel finds: one that refuses
    /// (`unreachable`, ...) ends the look-up whatever its length (`fib_rules_lookup`).
    pub(crate) fn passes_over(&self, length: u8, refuses: bool) -> bool {
        !refuses && self.suppress.is_some_and(|most| length <= most)
    }
}

impl Lookup {
    /// All routes of these tables.
    pub fn plain(tables: impl IntoIterator<Item = u32>) -> Lookup {
        Lookup {
            tables: tables.into_iter().map(TableLookup::all).collect(),
            end: Reason::NoRoute,
        }
    }
}

/// The link that packets come in by, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<'a> {
    /// A link of its own.
    Link(&'a str),
    /// A link that is enslaved to a VRF: packets are looked up in its table.
    Vrf {
        /// The VRF's name.
        name: &'a str,
        /// The link's.
        slave: &'a str,
        /// Its table; none where that is not known.
        table: Option<u32>,
    },
}

impl<'a> Arrival<'a> {
    /// How packets come in by `link`; `by_index` gives the others.
    pub fn of(link: &'a Link, by_index: impl FnOnce(u32) -> Option<&'a Link>) -> Arrival<'a> {
        match vrf_of(link, by_index) {
            Some(vrf) => Arrival::Vrf {
                name: &vrf.name,
                slave: &link.name,
                table: vrf.vrf_table,
            },
            None => Arrival::Link(&link.name),
        }
    }

    /// Whether a packet of this family comes in by the link that a rule names (`iif`); none where that depends on the kernel.
    ///
    /// 1. In a VRF, IPv6 comes in by the VRF (`vrf_ip6_rcv`), and not by its link.
    /// 2. IPv4 comes in by the link (`ip_rcv_finish`). A rule for the VRF is asked since Linux 6.15, and in those before that took
    ///    the correction over.
    fn comes_by(self, family: u8, iif: &str) -> Option<bool> {
        match self {
            Arrival::Link(name) => Some(iif == name),
            Arrival::Vrf { name, .. } if family == 6 => Some(iif == name),
            Arrival::Vrf { name, .. } if iif == name => None,
            Arrival::Vrf { slave, .. } => Some(iif == slave),
        }
    }
}

/// The VRF that a link is enslaved to.
pub fn vrf_of<'a>(link: &Link, by_index: impl FnOnce(u32) -> Option<&'a Link>) -> Option<&'a Link> {
    by_index(link.master?).filter(|master| master.kind.as_deref() == Some("vrf"))
}

/// Where packets are looked up that come in so (`fib_rules_lookup`, `fib_rule_match`).
///
/// 1. Without any rules known: local, main and, for IPv4, default.
/// 2. Rules of the family are asked by priority, each whether it matches the packets:
///    a. `iif`: those that come in by this link. In a VRF IPv6 comes in by that, and IPv4 by its link; an IPv4 rule for the
///    VRF is not followed, since kernels differ.
///    b. `oif`: none, a packet that is forwarded has no output link yet.
///    c. `fwmark`: those whose mark is so. Nothing has marked what engines get, so the mark is 0: a firewall or a tc
///    filter that might mark a packet has it punted.
///    d. `l3mdev`: those that come in by a VRF.
///    e. `uidrange`: none but for a range with 0 in it, which is not followed.
///    f. `not` turns the answer round.
/// 3. A rule that matches looks into its table, or the VRF's (`l3mdev`), with `suppress_prefixlength` but for routes so
///    short; or it ends the look-up (`unreachable`, `prohibit`); or the next rule that is asked has the priority
///    that it names (`goto`), if there is one; or it does nothing (`nop`).
/// 4. A rule that matches by what else the packet shows (addresses, TOS, ports, ...), or that does something else, is
///    not followed: the kernel's business. [`rule_beyond_engines`] tells which one it is.
///
/// [`lookup_apart`] follows rules by addresses as far as they can be.
///
/// # Errors
/// [`Reason::Rules`] by rule 4.
pub fn lookup_for(rules: &[Rule], family: u8, arrival: Arrival<'_>) -> Result<Lookup, Reason> {
    match lookup_apart(rules, family, arrival) {
        Ok(Apart { lookup, by_address }) if by_address.is_empty() => Ok(lookup),
        _ => Err(Reason::Rules),
    }
}

/// How packets are looked up but for those whose addresses a rule asks for, which are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart<'a> {
    /// As all others are looked up.
    pub lookup: Lookup,
    /// The rules that ask for addresses, by priority; [`Rule::asks_for`] tells whose.
    pub by_address: Vec<&'a Rule>,
}

/// At most so many rules by addresses are followed for a link: each takes a range of the image, and another one for the
/// way back where there is `rp_filter`.
pub const RULES_BY_ADDRESS: usize = RANGES / 2;

impl Rule {
    /// Whether the rule may match a packet with these addresses other than one with none of those that it names (`from`,
    /// `to`). It does for all addresses where it names none.
    pub fn asks_for(&self, src: IpAddr, dst: IpAddr) -> bool {
        let covers = |net: &Option<ipnet::IpNet>, address: IpAddr| {
            net.is_none_or(|net| net.prefix_len() == 0 || net.contains(&address))
        };
        covers(&self.from, src) && covers(&self.to, dst)
    }
}

/// [`lookup_for`], where rules by addresses (`from`, `to`) do not send all packets to the kernel:
///
/// 1. Such a rule does not match packets with other addresses, or does with `not`, whatever else it wants. Those with
///    these addresses are the kernel's.
/// 2. There are at most [`RULES_BY_ADDRESS`] of them; the next one is not followed.
/// 3. What `not` turns round is not followed where the rule has what is not known here: that may change what it leads to.
///
/// # Errors
/// The rule that is not followed.
pub fn lookup_apart<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
) -> Result<Apart<'a>, &'a Rule> {
    let mut by_address = Vec::new();
    let lookup = walk(rules, family, arrival, &mut by_address)?;
    Ok(Apart { lookup, by_address })
}

/// The look-up of [`lookup_apart`].
fn walk<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
    by_address: &mut Vec<&'a Rule>,
) -> Result<Lookup, &'a Rule> {
    let mut asked: Vec<&Rule> = rules.iter().filter(|r| r.family == family).collect();
    if asked.is_empty() {
        let all = [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];
        return Ok(Lookup::plain(all.into_iter().take(if family == 4 {
            3
        } else {
            2
        })));
    }
    asked.sort_by_key(|rule| rule.priority);
    let mut lookup = Lookup::plain([]);
    // Of a `goto`: rules before this priority are not asked.
    let mut from = 0;
    for rule in asked.iter().copied() {
        if rule.priority < from {
            continue;
        }
        let matches = matches(rule, arrival).ok_or(rule)?;
        if matches.by_address {
            if by_address.len() == RULES_BY_ADDRESS {
                return Err(rule);
            }
            by_address.push(rule);
        }
        if !matches.others {
            continue;
        }
        match rule.action {
            TO_TABLE => {
                let table = match (rule.other.contains(&RULE_OTHER_L3MDEV), arrival) {
                    (false, _) => rule.table,
                    (true, Arrival::Vrf { table, .. }) => table.ok_or(rule)?,
                    (true, Arrival::Link(_)) => return Err(rule),
                };
                let suppress = rule.suppress_prefixlength;
                let suppress = suppress.map(|most| u8::try_from(most).unwrap_or(u8::MAX));
                let next = TableLookup { table, suppress };
                let is_idle = |before: &TableLookup| {
                    before.table == table
                        && (before.suppress.is_none() || before.suppress == suppress)
                };
                if !lookup.tables.iter().any(is_idle) {
                    lookup.tables.push(next);
                }
            }
            GOTO => {
                let target = rule.goto.ok_or(rule)?;
                if asked.iter().any(|rule| rule.priority == target) {
                    from = target;
                }
            }
            NOP => {}
            UNREACHABLE => {
                lookup.end = Reason::Unreachable;
                return Ok(lookup);
            }
            PROHIBIT => {
                lookup.end = Reason::Prohibit;
                return Ok(lookup);
            }
            _ => return Err(rule),
        }
    }
    Ok(lookup)
}

/// Which packets a rule matches.
struct Matches {
    /// It asks for addresses; what it makes of those is not known.
    by_address: bool,
    /// It matches all others.
    others: bool,
}

/// Rule 2 of [`lookup_for`] and rule 1 of [`lookup_apart`]; none where something else of the packet decides.
fn matches(rule: &Rule, arrival: Arrival<'_>) -> Option<Matches> {
    let narrows = |net: &Option<ipnet::IpNet>| net.is_some_and(|net| net.prefix_len() > 0);
    let marked = rule.fwmark.is_some_and(|(mark, mask)| mark & mask != 0);
    let comes = rule
        .iif
        .as_ref()
        .map(|iif| arrival.comes_by(rule.family, iif));
    let never = rule.oif.is_some()
        || comes == Some(Some(false))
        || marked
        || rule.uidrange.is_some_and(|(first, _)| first > 0)
        || rule.other.contains(&RULE_OTHER_L3MDEV) && matches!(arrival, Arrival::Link(_));
    let known = [RULE_OTHER_L3MDEV, RULE_OTHER_INVERT];
    let by_address = !never && (narrows(&rule.from) || narrows(&rule.to));
    let by_packet = comes == Some(None)
        || rule.uidrange.is_some_and(|(first, _)| first == 0)
        || rule.other.iter().any(|other| !known.contains(other));
    // Among what is not known may be what changes the result (`suppress_ifgroup`), not who matches.
    let inverted = rule.other.contains(&RULE_OTHER_INVERT);
    if (never || by_address) && inverted && rule.other.iter().any(|other| !known.contains(other)) {
        return None;
    }
    let base = match (never || by_address, by_packet) {
        (true, _) => false,
        (false, true) => return None,
        (false, false) => true,
    };
    Some(Matches {
        by_address,
        others: base != inverted,
    })
}

/// The tables in which the kernel may look up the source of an IPv4 packet that it forwards
/// (`__fib_validate_source`); none for all that there are. It asks the rules as for a packet the other way
/// round, which comes in by the out-link: any rule may be asked.
///
/// 1. Its own three, always.
/// 2. Those that rules name, whatever else the rules want.
/// 3. A rule for VRFs may lead to any.
pub(crate) fn tables_for_sources(rules: &[Rule]) -> Option<Vec<u32>> {
    let mut tables = vec![TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];
    for rule in rules.iter().filter(|rule| rule.family == 4) {
        if rule.other.contains(&RULE_OTHER_L3MDEV) {
            return None;
        }
        if rule.action == TO_TABLE {
            tables.push(rule.table);
        }
    }
    Some(tables)
}

/// The rule because of which the kernel forwards all packets of a family that come in so: the first by rule 4 of
/// [`lookup_for`] that [`lookup_apart`] does not follow. None where engines can follow all of them.
pub fn rule_beyond_engines<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
) -> Option<&'a Rule> {
    lookup_apart(rules, family, arrival).err()
}

#[cfg(test)]
mod tests;

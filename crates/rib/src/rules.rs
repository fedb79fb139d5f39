//! Which tables a packet is looked up in.

use crate::event::{Link, RULE_OTHER_INVERT, RULE_OTHER_L3MDEV, Rule};
use raddle_image::{RANGES, Reason};

mod asked;
mod words;

pub use asked::{Asked, Fields, PROTOCOLS};
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
    /// A link of its own, and its alternative names.
    Link(&'a str, &'a [String]),
    /// A link that is enslaved to a VRF: packets are looked up in its table.
    Vrf {
        /// The VRF's name.
        name: &'a str,
        /// The link's.
        slave: &'a str,
        /// Its table; none where that is not known.
        table: Option<u32>,
        /// Alternative names of the VRF and of the link.
        others: [&'a [String]; 2],
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
                others: [&vrf.altnames, &link.altnames],
            },
            None => Arrival::Link(&link.name, &link.altnames),
        }
    }

    /// Whether a packet of this family comes in by the link that a rule names (`iif`); none where that depends on the kernel.
    ///
    /// 1. In a VRF, IPv6 comes in by the VRF (`vrf_ip6_rcv`), and not by its link.
    /// 2. IPv4 comes in by the link (`ip_rcv_finish`). A rule for the VRF is asked since Linux 6.15, and in those before that took
    ///    the correction over.
    /// 3. A rule that names a link by an alternative name is bound to it if the link had that name when the rule came, which
    ///    nothing tells.
    fn comes_by(self, family: u8, iif: &str) -> Option<bool> {
        let is_other = match self {
            Arrival::Link(_, others) => others.iter().any(|name| name == iif),
            Arrival::Vrf { others, .. } => others.concat().iter().any(|name| name == iif),
        };
        match self {
            _ if is_other => None,
            Arrival::Link(name, _) => Some(iif == name),
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
///    VRF is not followed, since kernels differ, nor is one for an alternative name of a link.
///    b. `oif`: none, a packet that is forwarded has no output link yet.
///    c. `fwmark`: those whose mark is so. Nothing has marked what engines get, so the mark is 0: a firewall or a tc
///    filter that might mark a packet has it punted.
///    d. `l3mdev`: those that come in by a VRF.
///    e. `uidrange`: none but for a range with 0 in it, which is not followed.
///    f. `not` turns the answer round.
/// 3. A rule that matches looks into its table, or the VRF's (`l3mdev`), with `suppress_prefixlength` but for routes so
///    short; or it ends the look-up (`unreachable`, `prohibit`); or the next rule that is asked has the priority
///    that it names (`goto`), if there is one; or it does nothing (`nop`).
/// 4. A rule that asks for what a packet shows ([`Asked`]), or that does something else, is not followed: the kernel's business.
///
/// [`lookup_apart`] follows rules that ask for what packets show.
///
/// # Errors
/// [`Reason::Rules`] by rule 4.
pub fn lookup_for(rules: &[Rule], family: u8, arrival: Arrival<'_>) -> Result<Lookup, Reason> {
    match lookup_apart(rules, family, arrival) {
        Ok(Apart { lookup, by_packet }) if by_packet.is_empty() => Ok(lookup),
        _ => Err(Reason::Rules),
    }
}

/// How packets are looked up but for those that a rule asks for by what they show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart<'a> {
    /// As all others are looked up.
    pub lookup: Lookup,
    /// The rules that ask for some packets, by priority; [`Asked::of`] tells for which.
    pub by_packet: Vec<&'a Rule>,
}

/// At most so many rules that ask for what packets show are followed for a link: each takes at least one range of the image, and another
/// one for the way back where there is `rp_filter`.
pub const RULES_BY_PACKET: usize = RANGES / 2;

/// [`lookup_for`], where rules that ask for what a packet shows do not send all packets to the kernel:
///
/// 1. Such a rule does not match packets that it does not ask for, or does with `not`, whatever else it wants. How those that it asks for
///    are looked up, [`cells`] tells.
/// 2. There are at most [`RULES_BY_PACKET`] of them; the next one is not followed.
/// 3. What `not` turns round is not followed where the rule has what is not known here: that may change what it leads to.
///
/// # Errors
/// The rule that is not followed.
pub fn lookup_apart<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
) -> Result<Apart<'a>, &'a Rule> {
    let asked = by_priority(rules, family);
    let is_by_packet =
        |rule: &&&Rule| matches(rule, arrival).is_some_and(|matches| matches.by_packet);
    let by_packet: Vec<&Rule> = asked.iter().filter(is_by_packet).copied().collect();
    if let Some(beyond) = by_packet.get(RULES_BY_PACKET) {
        return Err(beyond);
    }
    let lookup = walk(&asked, family, arrival, |_| false)?;
    Ok(Apart { lookup, by_packet })
}

/// At most so many cells are made, before those are left out that change nothing; rule 4 of [`cells`].
const CELLS: usize = 64;

/// Packets that are looked up otherwise than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What they show.
    pub asked: Asked,
    /// Where they are looked up, but for those of a cell before; none where only the kernel knows.
    pub lookup: Option<Lookup>,
}

/// How packets are looked up that some of [`Apart::by_packet`] ask for: those of the first cell that a packet is of count, in this order or in
/// any other in which a cell comes before those that it is part of.
///
/// 1. What rules ask for, and what several of them ask for together, is a cell each, and one before those that it is part of.
/// 2. A rule that wants something else of them that is not known here leaves the cell to the kernel, and so does what
///    [`lookup_for`] does not follow.
/// 3. A cell that is looked up as its packets are without it, whichever of those that it is part of comes first, is left out.
/// 4. Where more than [`RANGES`] are left, or there were more than 64, all that any rule asks for is the kernel's.
pub fn cells(rules: &[Rule], family: u8, arrival: Arrival<'_>, by_packet: &[&Rule]) -> Vec<Cell> {
    let mut all: Vec<Asked> = Vec::new();
    for rule in by_packet {
        let asked = Asked::of(rule);
        if !all.contains(&asked) {
            all.push(asked);
        }
    }
    let kernels: Vec<Cell> = all
        .iter()
        .map(|asked| Cell {
            asked: *asked,
            lookup: None,
        })
        .collect();
    let mut at = 0;
    while at < all.len() && all.len() <= CELLS {
        for other in 0..at {
            if let Some(both) = all[at].and(&all[other])
                && !all.contains(&both)
            {
                all.push(both);
            }
        }
        at += 1;
    }
    if all.len() > CELLS {
        return kernels;
    }
    let sorted = by_priority(rules, family);
    let mut cells: Vec<Cell> = Vec::new();
    for asked in all {
        let met = |rule: &Rule| Asked::of(rule).contains(&asked);
        let lookup = walk(&sorted, family, arrival, met).ok();
        let larger = cells.iter().position(|cell| cell.asked.contains(&asked));
        let place = larger.unwrap_or(cells.len());
        cells.insert(place, Cell { asked, lookup });
    }
    let others = walk(&sorted, family, arrival, |_| false).ok();
    for at in (0..cells.len()).rev() {
        let (cell, behind) = (&cells[at], &cells[at + 1..]);
        let around = || behind.iter().filter(|of| of.asked.contains(&cell.asked));
        let is_next = |of: &&Cell| {
            let mut others = around().filter(|other| other.asked != of.asked);
            !others.any(|other| of.asked.contains(&other.asked))
        };
        let mut next = around().filter(is_next).map(|of| &of.lookup);
        let as_without = match next.next() {
            None => others == cell.lookup,
            Some(first) => first == &cell.lookup && next.all(|lookup| lookup == first),
        };
        if as_without {
            cells.remove(at);
        }
    }
    if cells.len() > RANGES {
        return kernels;
    }
    cells
}

/// How a packet is looked up that shows this.
///
/// # Errors
/// The rule that is not followed.
pub fn lookup_of<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
    fields: &Fields,
) -> Result<Lookup, &'a Rule> {
    let asked = by_priority(rules, family);
    walk(&asked, family, arrival, |rule| {
        Asked::of(rule).holds(fields)
    })
}

/// How all packets are looked up that show this.
///
/// # Errors
/// A rule that is not followed, or that asks for some of them and not for others.
pub fn lookup_all<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
    packets: &Asked,
) -> Result<Lookup, &'a Rule> {
    let sorted = by_priority(rules, family);
    let is_by_packet =
        |rule: &Rule| matches(rule, arrival).is_some_and(|matches| matches.by_packet);
    let parts = |rule: &Rule| {
        let of = Asked::of(rule);
        is_by_packet(rule) && of.and(packets).is_some() && !of.contains(packets)
    };
    if let Some(rule) = sorted.iter().find(|rule| parts(rule)) {
        return Err(rule);
    }
    let met = |rule: &Rule| Asked::of(rule).contains(packets);
    walk(&sorted, family, arrival, met)
}

/// Whether all packets of a family are looked up in table local before all others, so that none to an address of this machine is
/// forwarded.
pub fn is_local_first(rules: &[Rule], family: u8) -> bool {
    let of_family = rules.iter().filter(|rule| rule.family == family);
    // The first of those that are equal.
    of_family
        .min_by_key(|rule| rule.priority)
        .is_none_or(|first| {
            *first
                == Rule {
                    family,
                    priority: first.priority,
                    table: TABLE_LOCAL,
                    action: TO_TABLE,
                    protocol: first.protocol,
                    ..Rule::default()
                }
        })
}

/// The rules of a family in the order in which they are asked.
fn by_priority(rules: &[Rule], family: u8) -> Vec<&Rule> {
    let mut asked: Vec<&Rule> = rules.iter().filter(|r| r.family == family).collect();
    asked.sort_by_key(|rule| rule.priority);
    asked
}

/// Where packets are looked up that rules ask for if `met` says so, of those that ask for what a packet shows.
fn walk<'a>(
    asked: &[&'a Rule],
    family: u8,
    arrival: Arrival<'_>,
    met: impl Fn(&Rule) -> bool,
) -> Result<Lookup, &'a Rule> {
    if asked.is_empty() {
        let all = [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];
        return Ok(Lookup::plain(all.into_iter().take(if family == 4 {
            3
        } else {
            2
        })));
    }
    let mut lookup = Lookup::plain([]);
    // Of a `goto`: rules before this priority are not asked.
    let mut from = 0;
    for rule in asked.iter().copied() {
        if rule.priority < from {
            continue;
        }
        let matches = matches(rule, arrival).ok_or(rule)?;
        let is_met = matches.by_packet && met(rule);
        if is_met && matches.odd {
            return Err(rule);
        }
        if matches.others == is_met {
            continue;
        }
        match rule.action {
            TO_TABLE => {
                let table = match (rule.other.contains(&RULE_OTHER_L3MDEV), arrival) {
                    (false, _) => rule.table,
                    (true, Arrival::Vrf { table, .. }) => table.ok_or(rule)?,
                    (true, Arrival::Link(..)) => return Err(rule),
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
    /// It asks for what a packet shows: of those packets [`Matches::others`] says the opposite.
    by_packet: bool,
    /// And for something that is not known here: what it makes of those packets is not either.
    odd: bool,
    /// It matches all others.
    others: bool,
}

/// Rule 2 of [`lookup_for`] and rule 1 of [`lookup_apart`]; none where something that is not known here decides.
fn matches(rule: &Rule, arrival: Arrival<'_>) -> Option<Matches> {
    let marked = rule.fwmark.is_some_and(|(mark, mask)| mark & mask != 0);
    let comes = rule
        .iif
        .as_ref()
        .map(|iif| arrival.comes_by(rule.family, iif));
    let never = rule.oif.is_some()
        || comes == Some(Some(false))
        || marked
        || rule.uidrange.is_some_and(|(first, _)| first > 0)
        || rule.other.contains(&RULE_OTHER_L3MDEV) && matches!(arrival, Arrival::Link(..));
    let known = [RULE_OTHER_L3MDEV, RULE_OTHER_INVERT];
    let by_packet = !never && Asked::of(rule) != Asked::all(rule.family);
    let odd = comes == Some(None)
        || rule.uidrange.is_some_and(|(first, _)| first == 0)
        || rule.other.iter().any(|other| !known.contains(other));
    // Among what is not known may be what changes the result (`suppress_ifgroup`), not who matches.
    let inverted = rule.other.contains(&RULE_OTHER_INVERT);
    if (never || by_packet) && inverted && rule.other.iter().any(|other| !known.contains(other)) {
        return None;
    }
    let base = match (never || by_packet, odd) {
        (true, _) => false,
        (false, true) => return None,
        (false, false) => true,
    };
    Some(Matches {
        by_packet,
        odd,
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

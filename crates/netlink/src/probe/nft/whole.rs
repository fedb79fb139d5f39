//! The whole ruleset: all rules, sets and objects, and whether it has changed.

use super::super::Error;
use super::super::talk::Talk;
use super::{
    Family, GETRULE, Rule, SUBSYSTEM, be32, decode_rule, find, is_absent, name_of, request,
};
use crate::codec::{DecodeError, Message};

const NEWSET: u16 = SUBSYSTEM | 9;
const GETSET: u16 = SUBSYSTEM | 10;
const NEWGEN: u16 = SUBSYSTEM | 15;
const GETGEN: u16 = SUBSYSTEM | 16;
const NEWOBJ: u16 = SUBSYSTEM | 18;
const GETOBJ: u16 = SUBSYSTEM | 19;

const GENERATION_ID: u16 = 1;

const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
/// One statement that is kept for each element, or a list of several.
const SET_EXPRESSION: u16 = 17;
const SET_EXPRESSIONS: u16 = 18;

const OBJECT_TABLE: u16 = 1;
const OBJECT_NAME: u16 = 2;
const OBJECT_TYPE: u16 = 3;

/// A rule and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its table's family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its chain, on a hook or not.
    pub chain: String,
    /// The rule.
    pub rule: Rule,
}

/// All rules of the namespace, those of dormant tables and of chains that nothing jumps to as well.
/// None if it has no nf_tables. Costs a dump of all rules.
///
/// # Errors
/// As [`base_chains`](super::base_chains).
pub fn rules() -> Result<Vec<Placed>, Error> {
    everything(GETRULE, "list nftables rules", |message| {
        let family = family_of(message)?;
        Ok(decode_rule(message)?.map(|(rule, table, chain)| Placed {
            family,
            table,
            chain,
            rule,
        }))
    })
}

/// A stateful object (`ct helper`, `counter`, ...).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its table's family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What it is (`NFT_OBJECT_*`).
    pub kind: u32,
}

/// All objects of the namespace. None if it has no nf_tables.
///
/// # Errors
/// As [`base_chains`](super::base_chains).
pub fn objects() -> Result<Vec<Object>, Error> {
    everything(GETOBJ, "list nftables objects", decode_object)
}

/// A set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its table's family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The names of the expressions that it keeps for each of its elements: `counter`, `connlimit`.
    pub kept: Vec<String>,
}

/// All named sets of the namespace, and those without a name of rules. None if it has no nf_tables.
///
/// # Errors
/// As [`base_chains`](super::base_chains).
pub fn sets() -> Result<Vec<Set>, Error> {
    everything(GETSET, "list nftables sets", decode_set)
}

/// What all answers to `request` without a filter tell.
fn everything<T>(
    kind: u16,
    what: &'static str,
    decode: impl Fn(&Message<'_>) -> Result<Option<T>, DecodeError>,
) -> Result<Vec<T>, Error> {
    let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
        return Ok(Vec::new());
    };
    match talk.dump(&mut request(kind, 0), what, decode) {
        Err(e) if is_absent(&e) => Ok(Vec::new()),
        other => other,
    }
}

/// The number of the ruleset, which each change of it raises. None if there is no nf_tables.
///
/// # Errors
/// As [`base_chains`](super::base_chains).
pub fn generation() -> Result<Option<u32>, Error> {
    let what = "ask for the generation of nftables";
    let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
        return Ok(None);
    };
    match talk.ask(&mut request(GETGEN, 0), what, decode_generation) {
        Err(e) if is_absent(&e) => Ok(None),
        other => other,
    }
}

fn family_of(message: &Message<'_>) -> Result<Family, DecodeError> {
    let (head, _) = message.split::<4>("nfgenmsg")?;
    Ok(Family::from_number(head[0]))
}

pub(in crate::probe) fn decode_generation(
    message: &Message<'_>,
) -> Result<Option<u32>, DecodeError> {
    if message.kind != NEWGEN {
        return Ok(None);
    }
    let (_, attributes) = message.split::<4>("nfgenmsg")?;
    find(attributes, GENERATION_ID)?
        .map(|a| be32(&a, "NFTA_GEN_ID"))
        .transpose()
}

pub(in crate::probe) fn decode_set(message: &Message<'_>) -> Result<Option<Set>, DecodeError> {
    if message.kind != NEWSET {
        return Ok(None);
    }
    let (head, attributes) = message.split::<4>("nfgenmsg")?;
    let mut set = Set {
        family: Family::from_number(head[0]),
        table: String::new(),
        name: String::new(),
        kept: Vec::new(),
    };
    for a in attributes {
        let a = a?;
        match a.kind {
            SET_TABLE => set.table = a.string(),
            SET_NAME => set.name = a.string(),
            SET_EXPRESSION => set.kept.push(name_of(a.nested())?),
            SET_EXPRESSIONS => {
                for element in a.nested() {
                    set.kept.push(name_of(element?.nested())?);
                }
            }
            _ => {}
        }
    }
    Ok(Some(set))
}

pub(in crate::probe) fn decode_object(
    message: &Message<'_>,
) -> Result<Option<Object>, DecodeError> {
    if message.kind != NEWOBJ {
        return Ok(None);
    }
    let (head, attributes) = message.split::<4>("nfgenmsg")?;
    let mut object = Object {
        family: Family::from_number(head[0]),
        table: String::new(),
        name: String::new(),
        kind: 0,
    };
    for a in attributes {
        let a = a?;
        match a.kind {
            OBJECT_TABLE => object.table = a.string(),
            OBJECT_NAME => object.name = a.string(),
            OBJECT_TYPE => object.kind = be32(&a, "NFTA_OBJ_TYPE")?,
            _ => {}
        }
    }
    Ok(Some(object))
}

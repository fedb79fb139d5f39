//! The whole ruleset, expression by expression.

use super::super::Error;
use super::super::talk::Talk;
use super::{
    BaseChain, EXPRESSION_DATA, EXPRESSION_NAME, Family, GETRULE, NEWRULE, RULE_CHAIN,
    RULE_EXPRESSIONS, RULE_HANDLE, RULE_TABLE, RULE_USERDATA, base_chains, be32, comment, find,
    generation, is_absent, request,
};
use crate::codec::{Attribute, Attributes, DecodeError, Message};

use super::contents::{Contents, contents};

/// How often the ruleset is read again because it changed meanwhile.
const ATTEMPTS: usize = 8;

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ends the base chain.
    Accept,
    /// Ends everything.
    Drop,
    /// Goes on with the next rule.
    Continue,
    /// Back to where the chain was called from.
    Return,
    /// Calls a chain.
    Jump(String),
    /// Goes on in a chain.
    Goto(String),
    /// One that this version does not know (queue).
    Other(i32),
}

/// One side of a packet's way, or of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// In-link; source.
    From,
    /// Out-link; destination.
    To,
}

/// What a register is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A link's name, 16 bytes.
    LinkName(Side),
    /// A link's index, in the host's byte order.
    LinkIndex(Side),
    /// The packet's mark, in the host's byte order.
    Mark,
    /// `NFPROTO_*`, one byte.
    Version,
    /// The protocol behind the IP header and its extensions, one byte.
    Protocol,
    /// The Ethernet type, two bytes.
    EtherType,
    /// Bytes of the network header.
    Network {
        /// Of the first one.
        offset: u32,
        /// How many.
        length: u32,
    },
    /// The destination port of UDP, TCP and others that have it there, two bytes.
    DestinationPort,
    /// `fib daddr type` without further qualification: `RTN_*`, in the host's byte order.
    DestinationType,
    /// Anything else.
    Other,
}

/// One expression of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// Loads register `to`.
    Load {
        /// The register; none where this version does not know which.
        to: Option<u32>,
        /// With what.
        what: Load,
        /// The expression's name.
        name: String,
    },
    /// `to = (from & mask) ^ xor`; none for other operations.
    Mask {
        /// Register.
        from: u32,
        /// Register.
        to: u32,
        /// What is kept.
        mask: Option<Vec<u8>>,
    },
    /// Loads a constant.
    Constant {
        /// Register.
        to: u32,
        /// Its value.
        value: Vec<u8>,
    },
    /// Goes on if the comparison (`NFT_CMP_*`) holds.
    Compare {
        /// Register.
        register: u32,
        /// 0 =, 1 !=, 2 <, 3 <=, 4 >, 5 >=.
        operator: u32,
        /// With this.
        value: Vec<u8>,
    },
    /// Goes on if the register is in a range, or not.
    Range {
        /// Register.
        register: u32,
        /// If it is not.
        inverted: bool,
        /// First.
        from: Vec<u8>,
        /// Last.
        to: Vec<u8>,
    },
    /// Goes on if the register is in a set, or not; loads what a map has, or follows its verdict.
    Lookup {
        /// Register.
        register: u32,
        /// If it is not.
        inverted: bool,
        /// The set's name.
        set: String,
        /// The register that a map's value is loaded into; 0 for a verdict.
        to: Option<u32>,
    },
    /// A verdict.
    Verdict(Verdict),
    /// An extension of xtables.
    Extension {
        /// `target`, not `match`.
        target: bool,
        /// Its name.
        name: String,
        /// Its revision.
        revision: u32,
        /// Its data.
        info: Vec<u8>,
    },
    /// `counter`.
    Counter,
    /// `snat` or `dnat`.
    Nat {
        /// `dnat`.
        destination: bool,
        /// Registers with the first and last address; none when only ports are translated.
        addresses: Option<(u32, u32)>,
    },
    /// Packets add elements to a set, change them or take them out (`add @set { ... }`).
    Fills {
        /// Its name.
        set: String,
    },
    /// Any other, by name.
    Other(String),
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its table.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its handle.
    pub handle: u64,
    /// Its comment.
    pub comment: Option<String>,
    /// Its expressions.
    pub terms: Vec<Term>,
}

/// All that a packet can meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Base chains, without those of dormant tables.
    pub chains: Vec<BaseChain>,
    /// All rules in order, with their table's family.
    pub rules: Vec<(Family, Program)>,
    /// Sets and maps.
    pub sets: Vec<Contents>,
}

/// The whole ruleset. Costs several dumps.
///
/// # Errors
/// As [`base_chains`].
pub fn ruleset() -> Result<Ruleset, Error> {
    let what = "list nftables rules";
    let mut last = Ruleset::default();
    for _ in 0..ATTEMPTS {
        let before = generation()?;
        if before.is_none() {
            return Ok(Ruleset::default());
        }
        let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
            return Ok(Ruleset::default());
        };
        let rules = match talk.dump(&mut request(GETRULE, 0), what, decode_program) {
            Err(e) if is_absent(&e) => Vec::new(),
            other => other?,
        };
        let mut sets = contents()?;
        forget_filled(&rules, &mut sets);
        last = Ruleset {
            chains: base_chains()?,
            rules,
            sets,
        };
        if generation()? == before {
            break;
        }
    }
    Ok(last)
}

/// Elements that packets change without a new generation: whatever flags their set has, and wherever the rule is.
fn forget_filled(rules: &[(Family, Program)], sets: &mut [Contents]) {
    for (family, rule) in rules {
        for term in &rule.terms {
            let Term::Fills { set: name } = term else {
                continue;
            };
            let is = |set: &&mut Contents| {
                set.family == *family && set.table == rule.table && set.name == *name
            };
            for set in sets.iter_mut().filter(is) {
                set.elements = None;
            }
        }
    }
}

pub(in crate::probe) fn decode_program(
    message: &Message<'_>,
) -> Result<Option<(Family, Program)>, DecodeError> {
    if message.kind != NEWRULE {
        return Ok(None);
    }
    let (head, attributes) = message.split::<4>("nfgenmsg")?;
    let mut rule = Program::default();
    for a in attributes {
        let a = a?;
        match a.kind {
            RULE_TABLE => rule.table = a.string(),
            RULE_CHAIN => rule.chain = a.string(),
            RULE_HANDLE => rule.handle = u64::from_be_bytes(*a.bytes::<8>("NFTA_RULE_HANDLE")?),
            RULE_EXPRESSIONS => {
                for element in a.nested() {
                    rule.terms.push(term(element?.nested())?);
                }
            }
            RULE_USERDATA => rule.comment = comment(a.payload),
            _ => {}
        }
    }
    Ok(Some((Family::from_number(head[0]), rule)))
}

/// The attributes of an expression, by their number.
struct Data<'a>(Option<Attribute<'a>>);

impl<'a> Data<'a> {
    fn get(&self, kind: u16) -> Result<Option<Attribute<'a>>, DecodeError> {
        match &self.0 {
            Some(data) => find(data.nested(), kind),
            None => Ok(None),
        }
    }

    fn number(&self, kind: u16) -> Result<Option<u32>, DecodeError> {
        self.get(kind)?
            .map(|a| be32(&a, "a number of an nftables expression"))
            .transpose()
    }

    fn text(&self, kind: u16) -> Result<String, DecodeError> {
        Ok(self.get(kind)?.map(|a| a.string()).unwrap_or_default())
    }

    /// `NFTA_DATA_VALUE` in attribute `kind`.
    fn value(&self, kind: u16) -> Result<Option<Vec<u8>>, DecodeError> {
        match self.get(kind)? {
            Some(a) => Ok(find(a.nested(), 1)?.map(|value| value.payload.to_vec())),
            None => Ok(None),
        }
    }
}

fn term(attributes: Attributes<'_>) -> Result<Term, DecodeError> {
    let mut name = String::new();
    let mut data = Data(None);
    for a in attributes {
        let a = a?;
        match a.kind {
            EXPRESSION_NAME => name = a.string(),
            EXPRESSION_DATA => data.0 = Some(a),
            _ => {}
        }
    }
    let known = match name.as_str() {
        "meta" | "payload" | "ct" | "exthdr" | "fib" | "rt" | "osf" | "xfrm" | "socket"
        | "hash" | "byteorder" | "tunnel" => load(&name, &data)?,
        "bitwise" => {
            let operation = data.number(6)?.unwrap_or(0);
            let clean = data.value(5)?.is_some_and(|x| x.iter().all(|&b| b == 0));
            let mask = data.value(4)?.filter(|_| operation == 0 && clean);
            match (data.number(1)?, data.number(2)?) {
                (Some(from), Some(to)) => Some(Term::Mask { from, to, mask }),
                _ => None,
            }
        }
        "immediate" => match data
            .get(2)?
            .map(|a| verdict(a.nested()))
            .transpose()?
            .flatten()
        {
            Some(verdict) => Some(Term::Verdict(verdict)),
            None => match (data.number(1)?, data.value(2)?) {
                (Some(to), Some(value)) => Some(Term::Constant { to, value }),
                _ => None,
            },
        },
        "cmp" => match (data.number(1)?, data.number(2)?, data.value(3)?) {
            (Some(register), Some(operator), Some(value)) => Some(Term::Compare {
                register,
                operator,
                value,
            }),
            _ => None,
        },
        "range" => match (
            data.number(1)?,
            data.number(2)?,
            data.value(3)?,
            data.value(4)?,
        ) {
            (Some(register), Some(operator @ 0..=1), Some(from), Some(to)) => Some(Term::Range {
                register,
                inverted: operator == 1,
                from,
                to,
            }),
            _ => None,
        },
        "lookup" => data
            .number(2)?
            .map(|register| {
                Ok::<_, DecodeError>(Term::Lookup {
                    register,
                    inverted: data.number(5)?.unwrap_or(0) & 1 != 0,
                    set: data.text(1)?,
                    to: data.number(3)?,
                })
            })
            .transpose()?,
        "match" | "target" => Some(Term::Extension {
            target: name == "target",
            name: data.text(1)?,
            revision: data.number(2)?.unwrap_or(0),
            info: data.get(3)?.map(|a| a.payload.to_vec()).unwrap_or_default(),
        }),
        "counter" => Some(Term::Counter),
        // NFTA_DYNSET_SET_NAME
        "dynset" => Some(Term::Fills { set: data.text(1)? }),
        "nat" => {
            let first = data.number(3)?;
            let last = data.number(4)?.or(first);
            data.number(1)?.map(|kind| Term::Nat {
                destination: kind == 1,
                addresses: first.zip(last),
            })
        }
        _ => None,
    };
    Ok(known.unwrap_or(Term::Other(name)))
}

/// Expressions that load a register; none for those that set something.
fn load(name: &str, data: &Data<'_>) -> Result<Option<Term>, DecodeError> {
    let sets = match name {
        "meta" => data.get(3)?,
        "payload" => data.get(5)?,
        "ct" => data.get(4)?,
        "exthdr" => data.get(7)?,
        _ => None,
    };
    // `reset tcp option` loads and sets nothing.
    if sets.is_some() || (name == "exthdr" && data.get(1)?.is_none()) {
        return Ok(None);
    }
    let to = match name {
        "socket" | "hash" | "byteorder" | "tunnel" => data.number(2)?,
        _ => data.number(1)?,
    };
    let what = match (name, data.number(2)?) {
        ("meta", Some(1)) => Load::EtherType,
        ("meta", Some(3)) => Load::Mark,
        ("meta", Some(4)) => Load::LinkIndex(Side::From),
        ("meta", Some(5)) => Load::LinkIndex(Side::To),
        ("meta", Some(6)) => Load::LinkName(Side::From),
        ("meta", Some(7)) => Load::LinkName(Side::To),
        ("meta", Some(15)) => Load::Version,
        ("meta", Some(16)) => Load::Protocol,
        // NFT_PAYLOAD_NETWORK_HEADER
        ("payload", Some(1)) => match (data.number(3)?, data.number(4)?) {
            (Some(offset), Some(length)) => Load::Network { offset, length },
            _ => Load::Other,
        },
        // NFT_PAYLOAD_TRANSPORT_HEADER
        ("payload", Some(2)) => match (data.number(3)?, data.number(4)?) {
            (Some(2), Some(2)) => Load::DestinationPort,
            _ => Load::Other,
        },
        // NFT_FIB_RESULT_ADDRTYPE of NFTA_FIB_F_DADDR alone
        ("fib", Some(3)) if data.number(3)? == Some(2) => Load::DestinationType,
        _ => Load::Other,
    };
    Ok(Some(Term::Load {
        to,
        what,
        name: name.to_owned(),
    }))
}

/// The verdict in `NFTA_IMMEDIATE_DATA` or `NFTA_SET_ELEM_DATA`, if it is one.
pub(super) fn verdict(data: Attributes<'_>) -> Result<Option<Verdict>, DecodeError> {
    let Some(verdict) = find(data, 2)? else {
        return Ok(None);
    };
    let Some(code) = find(verdict.nested(), 1)? else {
        return Ok(None);
    };
    let chain = find(verdict.nested(), 2)?
        .map(|a| a.string())
        .unwrap_or_default();
    Ok(Some(match be32(&code, "NFTA_VERDICT_CODE")? as i32 {
        0 => Verdict::Drop,
        1 => Verdict::Accept,
        -1 | -2 => Verdict::Continue,
        -3 => Verdict::Jump(chain),
        -4 => Verdict::Goto(chain),
        -5 => Verdict::Return,
        other => Verdict::Other(other),
    }))
}

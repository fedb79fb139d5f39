//! What sets and maps hold.

use super::super::Error;
use super::super::talk::Talk;
use super::terms::{Verdict, verdict};
use super::{Family, SUBSYSTEM, be32, find, is_absent, request};
use crate::codec::{Attributes, Builder, DecodeError, Message};

const NEWSET: u16 = SUBSYSTEM | 9;
const GETSET: u16 = SUBSYSTEM | 10;
const NEWSETELEM: u16 = SUBSYSTEM | 12;
const GETSETELEM: u16 = SUBSYSTEM | 13;

const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_LENGTH: u16 = 5;
const SET_EXPRESSION: u16 = 17;
const SET_EXPRESSIONS: u16 = 18;
/// `NFT_SET_TIMEOUT`, `NFT_SET_EVAL`: elements come and go without a new generation.
const CHANGES: u32 = 0x10 | 0x20;
const INTERVAL: u32 = 4;

const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const ELEMENT_FLAGS: u16 = 3;
const ELEMENT_EXPRESSION: u16 = 7;
const ELEMENT_OBJECT: u16 = 9;
const ELEMENT_KEY_END: u16 = 10;
const ELEMENT_EXPRESSIONS: u16 = 11;
const INTERVAL_END: u32 = 1;
const CATCH_ALL: u32 = 2;

/// Sets with more elements are not judged by their elements.
const MOST: usize = 4096;

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its key; none for what is in no other (`*`).
    pub key: Option<Vec<u8>>,
    /// An interval ends before it.
    pub end: bool,
    /// Where a verdict map leads.
    pub verdict: Option<Verdict>,
}

/// A set or map and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Its table's family.
    pub family: Family,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Bytes of a key.
    pub key_length: u32,
    /// Its keys are the bounds of intervals.
    pub intervals: bool,
    /// It keeps something for each element that packets change (a counter).
    pub keeps: bool,
    /// Its elements; none where packets or time change them, or they cannot be told.
    pub elements: Option<Vec<Element>>,
}

/// All sets with their elements.
pub(super) fn contents() -> Result<Vec<Contents>, Error> {
    let what = "list nftables sets";
    let Some(mut talk) = Talk::open(libc::NETLINK_NETFILTER, what)? else {
        return Ok(Vec::new());
    };
    let mut sets = match talk.dump(&mut request(GETSET, 0), what, decode_contents) {
        Err(e) if is_absent(&e) => return Ok(Vec::new()),
        other => other?,
    };
    for set in sets.iter_mut().filter(|set| set.elements.is_some()) {
        let mut b = Builder::new();
        b.begin(GETSETELEM, 0, &[set.family.number(), 0, 0, 0])
            .put_str(LIST_TABLE, &set.table)
            .put_str(LIST_SET, &set.name)
            .end()?;
        let lists = match talk.dump(&mut b, what, decode_elements) {
            // It went meanwhile: the generation tells.
            Err(e) if e.errno() == Some(libc::ENOENT) => Vec::new(),
            other => other?,
        };
        let elements: Option<Vec<Element>> =
            lists.into_iter().collect::<Option<Vec<_>>>().map(|lists| {
                lists
                    .into_iter()
                    .flat_map(|(keeps, elements)| {
                        set.keeps |= keeps;
                        elements
                    })
                    .collect()
            });
        set.elements = elements.filter(|elements| elements.len() <= MOST);
    }
    Ok(sets)
}

pub(in crate::probe) fn decode_contents(
    message: &Message<'_>,
) -> Result<Option<Contents>, DecodeError> {
    if message.kind != NEWSET {
        return Ok(None);
    }
    let (head, attributes) = message.split::<4>("nfgenmsg")?;
    let mut set = Contents {
        family: Family::from_number(head[0]),
        table: String::new(),
        name: String::new(),
        key_length: 0,
        intervals: false,
        keeps: false,
        elements: Some(Vec::new()),
    };
    for a in attributes {
        let a = a?;
        match a.kind {
            SET_TABLE => set.table = a.string(),
            SET_NAME => set.name = a.string(),
            SET_KEY_LENGTH => set.key_length = be32(&a, "NFTA_SET_KEY_LEN")?,
            SET_FLAGS => {
                let flags = be32(&a, "NFTA_SET_FLAGS")?;
                set.intervals = flags & INTERVAL != 0;
                if flags & CHANGES != 0 {
                    set.elements = None;
                }
            }
            SET_EXPRESSION | SET_EXPRESSIONS => set.keeps = true,
            _ => {}
        }
    }
    Ok(Some(set))
}

/// Elements, and whether something is kept for one; no elements where one makes no sense.
type List = Option<(bool, Vec<Element>)>;

pub(in crate::probe) fn decode_elements(
    message: &Message<'_>,
) -> Result<Option<List>, DecodeError> {
    if message.kind != NEWSETELEM {
        return Ok(None);
    }
    let (_, attributes) = message.split::<4>("nfgenmsg")?;
    let (mut keeps, mut elements) = (false, Vec::new());
    let Some(list) = find(attributes, LIST_ELEMENTS)? else {
        return Ok(None);
    };
    for item in list.nested() {
        let Some(element) = decode_element(item?.nested(), &mut keeps)? else {
            return Ok(Some(None));
        };
        elements.push(element);
    }
    Ok(Some(Some((keeps, elements))))
}

fn decode_element(
    attributes: Attributes<'_>,
    keeps: &mut bool,
) -> Result<Option<Element>, DecodeError> {
    let mut element = Element::default();
    let mut catch_all = false;
    for a in attributes {
        let a = a?;
        match a.kind {
            ELEMENT_KEY => element.key = find(a.nested(), 1)?.map(|v| v.payload.to_vec()),
            ELEMENT_DATA => element.verdict = verdict(a.nested())?,
            ELEMENT_FLAGS => {
                let flags = be32(&a, "NFTA_SET_ELEM_FLAGS")?;
                element.end = flags & INTERVAL_END != 0;
                catch_all = flags & CATCH_ALL != 0;
            }
            ELEMENT_EXPRESSION | ELEMENT_EXPRESSIONS | ELEMENT_OBJECT => *keeps = true,
            ELEMENT_KEY_END => return Ok(None),
            _ => {}
        }
    }
    Ok((element.key.is_some() || catch_all).then_some(element))
}

//! Objects of `ip -j`, and the names in them.

use std::collections::HashMap;

use raddle_rib::event::RouteKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Error, Fault};
use crate::names::Names;

/// The objects of a file.
pub(super) struct Objects {
    file: String,
    objects: Vec<Value>,
}

/// Keys by which an object is named in an error, the first that it has.
const NAMING: [&str; 5] = ["ifname", "id", "dst", "priority", "ifindex"];

impl Objects {
    /// Parses a file; an empty one has no objects (`ip -j nexthop` without any prints nothing).
    pub(super) fn parse(file: &str, text: &str) -> Result<Objects, Error> {
        let objects = if text.trim().is_empty() {
            Vec::new()
        } else {
            serde_json::from_str(text).map_err(|source| Error::Json {
                file: file.to_owned(),
                source,
            })?
        };
        Ok(Objects {
            file: file.to_owned(),
            objects,
        })
    }

    /// Each object as a `T`, made into something by `make`; empty ones are passed over, as `ip` prints
    /// them for what its filters leave out.
    pub(super) fn each<T: DeserializeOwned, U>(
        &self,
        mut make: impl FnMut(T) -> Result<U, Fault>,
    ) -> Result<Vec<U>, Error> {
        let full = |object: &&Value| object.as_object().is_none_or(|map| !map.is_empty());
        let objects = self.objects.iter().filter(full).enumerate();
        objects
            .map(|(i, object)| {
                let read = T::deserialize(object).map_err(Fault::from);
                read.and_then(&mut make).map_err(|what| Error::Object {
                    file: self.file.clone(),
                    object: name(i, object),
                    what,
                })
            })
            .collect()
    }
}

/// `object 3 (ifname eth0)`.
fn name(i: usize, object: &Value) -> String {
    let number = i + 1;
    let key = NAMING.iter().find(|key| object.get(**key).is_some());
    match key {
        Some(key) => {
            let value = &object[*key];
            let value = value.as_str().map_or(value.to_string(), str::to_owned);
            format!("object {number} ({key} {value})")
        }
        None => format!("object {number}"),
    }
}

/// A word that `ip` prints as a name, as a number in quotes, or as a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Word {
    Number(u32),
    Text(String),
}

impl Word {
    pub(super) fn text(&self) -> String {
        match self {
            Word::Number(number) => number.to_string(),
            Word::Text(text) => text.clone(),
        }
    }
}

/// Numbers of what has a name.
pub(super) struct Lookup {
    names: Names,
    links: HashMap<String, u32>,
}

#[derive(Deserialize)]
struct LinkName {
    ifindex: u32,
    ifname: String,
}

impl Lookup {
    pub(super) fn new(names: Names, links: Objects) -> Result<Lookup, Error> {
        let links = links.each(|link: LinkName| Ok((link.ifname, link.ifindex)))?;
        Ok(Lookup {
            names,
            links: links.into_iter().collect(),
        })
    }

    /// The index of a link.
    pub(super) fn link(&self, name: &str) -> Result<u32, Fault> {
        let index = self.links.get(name).copied();
        index.ok_or_else(|| Fault::Link(name.to_owned()))
    }

    pub(super) fn table(&self, word: &Option<Word>) -> Result<Option<u32>, Fault> {
        numbered("table", word, |text| self.names.table_number(text))
    }

    pub(super) fn protocol(&self, word: &Option<Word>) -> Result<Option<u8>, Fault> {
        numbered("protocol", word, |text| self.names.protocol_number(text))
    }

    pub(super) fn scope(&self, word: &Option<Word>) -> Result<Option<u8>, Fault> {
        numbered("scope", word, |text| self.names.scope_number(text))
    }

    pub(super) fn kind(&self, word: &Option<Word>) -> Result<Option<RouteKind>, Fault> {
        numbered("type", word, Names::kind_number)
    }

    pub(super) fn tos(&self, word: &Option<Word>) -> Result<Option<u8>, Fault> {
        numbered("tos", word, |text| self.names.tos_number(text))
    }
}

fn numbered<T>(
    what: &'static str,
    word: &Option<Word>,
    find: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Fault> {
    let Some(word) = word else { return Ok(None) };
    let text = word.text();
    match find(&text) {
        Some(number) => Ok(Some(number)),
        None => Err(Fault::Name { what, name: text }),
    }
}

/// The bits that words stand for; words that stand for none are passed over.
pub(super) fn bits(words: &[String], known: &[(&str, u32)]) -> u32 {
    let bit = |word: &String| known.iter().find(|(name, _)| name == word);
    let found = words.iter().filter_map(bit);
    found.fold(0, |bits, (_, bit)| bits | bit)
}

/// An address in a message.
pub(super) fn address(text: &str) -> Result<std::net::IpAddr, Fault> {
    let address = text.parse();
    address.map_err(|_| Fault::Address(text.to_owned()))
}

/// A 6-byte link-layer address; none for others.
pub(super) fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

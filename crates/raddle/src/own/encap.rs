//! Encapsulations by several segment lists, among which flows are spread as among nexthops.

use std::net::Ipv6Addr;

use ipnet::IpNet;
use raddle_rib::event::{Route, RouteNexthop, RouteTarget};
use raddle_rib::seg6::{Encaps, Mode, Seg6};
use serde::Deserialize;

use super::words::{Table, Words};
use super::{MAIN, OwnError, own_route, prefix, segments};

/// An encapsulation that only raddle has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawEncap")]
pub(crate) struct OwnEncap {
    prefix: IpNet,
    table: u32,
    dev: Option<String>,
    lists: Vec<(Encaps, u16)>,
}

/// One as the configuration has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table of its own: [[encap]] with prefix, and segs or lists"
)]
struct RawEncap {
    prefix: String,
    route_table: Option<Table>,
    mode: Option<String>,
    segs: Vec<Ipv6Addr>,
    lists: Vec<List>,
    dev: Option<String>,
}

/// A segment list, in the order of travel.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { segs = [\"fc00::1\"], weight = 2 }"
)]
struct List {
    segs: Vec<Ipv6Addr>,
    #[serde(default = "one")]
    weight: u16,
}

fn one() -> u16 {
    1
}

impl OwnEncap {
    /// The link that it names.
    pub(crate) fn link(&self) -> Option<&str> {
        self.dev.as_deref()
    }

    pub(crate) fn prefix(&self) -> IpNet {
        self.prefix
    }

    pub(crate) fn table(&self) -> u32 {
        self.table
    }

    /// Whether flows are spread over several lists.
    pub(crate) fn spreads(&self) -> bool {
        self.lists.len() > 1
    }

    /// The route that it is, with the index of its link as it is now.
    pub(crate) fn route(&self, index: &dyn Fn(&str) -> u32) -> Route {
        let hop = |(encaps, weight): &(Encaps, u16)| RouteNexthop {
            index: self.dev.as_deref().map_or(0, index),
            weight: *weight,
            encap: Some(Seg6::Encaps(encaps.clone()).encode()),
            ..RouteNexthop::default()
        };
        let target = match self.lists.as_slice() {
            [only] => RouteTarget::Single(hop(only)),
            lists => RouteTarget::Multipath(lists.iter().map(hop).collect()),
        };
        own_route(self.prefix, self.table, target)
    }
}

impl TryFrom<RawEncap> for OwnEncap {
    type Error = OwnError;

    fn try_from(raw: RawEncap) -> Result<OwnEncap, OwnError> {
        let prefix = prefix(&raw.prefix)?;
        let mode = match &raw.mode {
            None => Mode::default(),
            Some(name) => Mode::ALL
                .into_iter()
                .find(|mode| mode.name() == name)
                .ok_or_else(|| OwnError::Mode(name.clone()))?,
        };
        if mode == Mode::Inline && matches!(prefix, IpNet::V4(_)) {
            return Err(OwnError::Inline(prefix));
        }
        let raw_lists = match (raw.segs.is_empty(), raw.lists.is_empty()) {
            (false, true) => vec![List {
                segs: raw.segs,
                weight: 1,
            }],
            (true, false) => raw.lists,
            _ => return Err(OwnError::Lists),
        };
        let mut lists: Vec<(Encaps, u16)> = Vec::new();
        for list in raw_lists {
            if list.segs.is_empty() {
                return Err(OwnError::NoSegments);
            }
            let encaps = Encaps::new(mode, &list.segs)?;
            if list.weight == 0 {
                return Err(OwnError::Weight);
            }
            if lists.iter().any(|(known, _)| *known == encaps) {
                return Err(OwnError::SameList);
            }
            lists.push((encaps, list.weight));
        }
        Ok(OwnEncap {
            prefix,
            table: raw.route_table.map_or(MAIN, |table| table.0),
            dev: raw.dev,
            lists,
        })
    }
}

impl std::str::FromStr for OwnEncap {
    type Err = OwnError;

    /// `PREFIX [table TABLE] encap seg6 mode MODE segs A,B [weight N] [segs C,D [weight N]]... [dev DEV]`.
    fn from_str(text: &str) -> Result<OwnEncap, OwnError> {
        let mut words = Words::new(text);
        let mut raw = RawEncap {
            prefix: words.value("a prefix")?.into(),
            ..RawEncap::default()
        };
        if words.take("table") {
            raw.route_table = Some(Table(words.table("table")?));
        }
        words.expect(
            "encap",
            "the form is PREFIX encap seg6 mode MODE segs A,B ...",
        )?;
        words.expect("seg6", "an encapsulation is encap seg6")?;
        while let Some(word) = words.next() {
            match word {
                "mode" => raw.mode = Some(words.value("mode")?.into()),
                "dev" => raw.dev = Some(words.value("dev")?.into()),
                "segs" => {
                    let segs = segments(words.value("segs")?)?;
                    let weight = match words.take("weight") {
                        true => words.number("weight")?,
                        false => 1,
                    };
                    raw.lists.push(List { segs, weight });
                }
                word => {
                    let want = "the words are mode, segs, weight behind its segs, and dev";
                    let word = word.into();
                    return Err(OwnError::Word { word, want });
                }
            }
        }
        OwnEncap::try_from(raw)
    }
}

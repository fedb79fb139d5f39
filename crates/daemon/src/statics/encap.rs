//! Encapsulations by several segment lists, among which flows are spread as among nexthops.

use std::net::Ipv6Addr;

use ipnet::IpNet;
use raddle_config::{At, Spanned};
use raddle_rib::event::{Route, RouteNexthop, RouteTarget};
use raddle_rib::seg6::{Encaps, Mode, Seg6};
use serde::Deserialize;

use super::words::{Table, Words};
use super::{MAIN, StaticError, from_option, prefix, segments, static_route};

/// An encapsulation that only raddle has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticEncap {
    prefix: IpNet,
    table: u32,
    dev: Option<String>,
    lists: Vec<(Encaps, u16)>,
}

/// One as the configuration has it.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table of its own: [[encap]] with prefix, and segs or lists"
)]
pub(crate) struct RawEncap {
    pub prefix: Spanned<String>,
    route_table: Option<Table>,
    mode: Option<Spanned<String>>,
    segs: Option<Spanned<Vec<Ipv6Addr>>>,
    #[serde(default)]
    lists: Vec<Spanned<List>>,
    dev: Option<String>,
}

/// A segment list, in the order of travel.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { segs = [\"fc00::1\"], weight = 2 }"
)]
struct List {
    segs: Spanned<Vec<Ipv6Addr>>,
    weight: Option<Spanned<u16>>,
}

impl StaticEncap {
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
        static_route(self.prefix, self.table, target)
    }
}

type Wrong = At<StaticError>;

impl StaticEncap {
    /// What a table of the file says.
    pub(crate) fn of(table: &Spanned<RawEncap>) -> Result<StaticEncap, Wrong> {
        let raw = table.get_ref();
        let prefix = prefix(raw.prefix.get_ref()).map_err(|e| At::new(&raw.prefix, e))?;
        let mode = raw.mode.as_ref().map_or(Ok(Mode::default()), mode)?;
        if mode == Mode::Inline && matches!(prefix, IpNet::V4(_)) {
            return Err(At::new(&raw.prefix, StaticError::Inline(prefix)));
        }
        let mut lists: Vec<(Encaps, u16)> = Vec::new();
        // An empty list of segments beside others says nothing.
        let says = |segs: &&Spanned<Vec<_>>| raw.lists.is_empty() || !segs.get_ref().is_empty();
        match (raw.segs.as_ref().filter(says), raw.lists.as_slice()) {
            (Some(segs), []) => lists.push((encaps(mode, segs)?, 1)),
            (None, [_, ..]) => {
                for list in &raw.lists {
                    let List { segs, weight } = list.get_ref();
                    let encaps = encaps(mode, segs)?;
                    let weight = weight.as_ref().map_or(Ok(1), positive)?;
                    if lists.iter().any(|(known, _)| *known == encaps) {
                        return Err(At::new(list, StaticError::SameList));
                    }
                    lists.push((encaps, weight));
                }
            }
            _ => return Err(At::new(table, StaticError::Lists)),
        }
        Ok(StaticEncap {
            prefix,
            table: raw.route_table.map_or(MAIN, |table| table.0),
            dev: raw.dev.clone(),
            lists,
        })
    }
}

fn mode(name: &Spanned<String>) -> Result<Mode, Wrong> {
    let mut all = Mode::ALL.into_iter();
    let mode = all.find(|mode| mode.name() == name.get_ref());
    mode.ok_or_else(|| At::new(name, StaticError::Mode(name.get_ref().clone())))
}

fn encaps(mode: Mode, segs: &Spanned<Vec<Ipv6Addr>>) -> Result<Encaps, Wrong> {
    if segs.get_ref().is_empty() {
        return Err(At::new(segs, StaticError::NoSegments));
    }
    Encaps::new(mode, segs.get_ref()).map_err(|e| At::new(segs, e.into()))
}

fn positive(weight: &Spanned<u16>) -> Result<u16, Wrong> {
    match *weight.get_ref() {
        0 => Err(At::new(weight, StaticError::Weight)),
        weight => Ok(weight),
    }
}

impl std::str::FromStr for StaticEncap {
    type Err = StaticError;

    /// `PREFIX [table TABLE] encap seg6 mode MODE segs A,B [weight N] [segs C,D [weight N]]... [dev DEV]`.
    fn from_str(text: &str) -> Result<StaticEncap, StaticError> {
        let mut words = Words::new(text);
        let mut raw = RawEncap {
            prefix: from_option(words.value("a prefix")?.into()),
            route_table: None,
            mode: None,
            segs: None,
            lists: Vec::new(),
            dev: None,
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
                "mode" => raw.mode = Some(from_option(words.value("mode")?.into())),
                "dev" => raw.dev = Some(words.value("dev")?.into()),
                "segs" => {
                    let segs = from_option(segments(words.value("segs")?)?);
                    let weight = match words.take("weight") {
                        true => Some(from_option(words.number("weight")?)),
                        false => None,
                    };
                    raw.lists.push(from_option(List { segs, weight }));
                }
                word => {
                    let want = "the words are mode, segs, weight behind its segs, and dev";
                    let word = word.into();
                    return Err(StaticError::Word { word, want });
                }
            }
        }
        StaticEncap::of(&from_option(raw)).map_err(|at| at.error)
    }
}

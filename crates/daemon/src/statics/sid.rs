//! SIDs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;
use raddle_config::{At, Spanned};
use raddle_image::flavours;
use raddle_rib::event::{Route, RouteNexthop, RouteTarget};
use raddle_rib::seg6::{Behaviour, Seg6, Seg6Error, Sid, TableRef};
use serde::Deserialize;

use super::words::{Table, Words};
use super::{MAIN, StaticError, from_option, prefix, segments, static_route};

/// A SID that only raddle has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSid {
    prefix: IpNet,
    table: u32,
    dev: Option<String>,
    /// Out-links in it are positions in `links`.
    sid: Sid,
    links: Vec<String>,
}

/// A SID as the configuration has it. The words are iproute2's.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table of its own: [[sid]] with prefix, action and what that takes"
)]
pub(crate) struct RawSid {
    pub prefix: Spanned<String>,
    /// Table that has the SID.
    route_table: Option<Table>,
    action: Option<Spanned<String>>,
    nh4: Option<Spanned<Ipv4Addr>>,
    nh6: Option<Spanned<Ipv6Addr>>,
    /// Table that the behaviour looks in.
    table: Option<Spanned<Table>>,
    oif: Option<Spanned<String>>,
    segs: Option<Spanned<Vec<Ipv6Addr>>>,
    vlans: Option<Spanned<Vec<Vlan>>>,
    flavors: Option<Spanned<Vec<Spanned<String>>>>,
    lblen: Option<Spanned<u8>>,
    nflen: Option<Spanned<u8>>,
    #[serde(default)]
    counters: bool,
    dev: Option<String>,
}

/// Where End.DX2V sends the frames of a VLAN.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { vlan = 7, dev = \"eth0\" }"
)]
struct Vlan {
    vlan: Spanned<u16>,
    dev: String,
}

impl StaticSid {
    /// The links that it names.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        self.links.iter().chain(&self.dev).map(String::as_str)
    }

    /// The table that its behaviour looks in.
    pub(crate) fn looks_in(&self) -> Option<u32> {
        match &self.sid.behaviour {
            Behaviour::T { table } => Some(*table),
            Behaviour::Dt4 { table } | Behaviour::Dt6 { table } | Behaviour::Dt46 { table } => {
                Some(table.number())
            }
            _ => None,
        }
    }

    pub(crate) fn prefix(&self) -> IpNet {
        self.prefix
    }

    pub(crate) fn table(&self) -> u32 {
        self.table
    }

    /// The route that it is, with the indices of links as they are now.
    pub(crate) fn route(&self, index: &dyn Fn(&str) -> u32) -> Route {
        let of = |place: u32| self.links.get(place as usize).map_or(0, |name| index(name));
        let mut sid = self.sid.clone();
        match &mut sid.behaviour {
            Behaviour::Dx2 { oif } => *oif = of(*oif),
            Behaviour::Dx2v { vlans } => {
                for (_, out) in vlans {
                    *out = of(*out);
                }
            }
            _ => {}
        }
        let hop = RouteNexthop {
            index: self.dev.as_deref().map_or(0, index),
            encap: Some(Seg6::Sid(sid).encode()),
            ..RouteNexthop::default()
        };
        static_route(self.prefix, self.table, RouteTarget::Single(hop))
    }
}

type Wrong = At<StaticError>;

impl RawSid {
    fn new(prefix: &str) -> RawSid {
        RawSid {
            prefix: from_option(prefix.to_owned()),
            route_table: None,
            action: None,
            nh4: None,
            nh6: None,
            table: None,
            oif: None,
            segs: None,
            vlans: None,
            flavors: None,
            lblen: None,
            nflen: None,
            counters: false,
            dev: None,
        }
    }

    /// The flavours as bits, and the lengths of compressed SIDs.
    fn flavours(&self) -> Result<(u8, u8, u8), Wrong> {
        let mut bits = 0;
        for flavour in self.flavors.iter().flat_map(|list| list.get_ref()) {
            bits |= match flavour.get_ref().as_str() {
                "psp" => flavours::PSP,
                "usp" => flavours::USP,
                "usd" => flavours::USD,
                "next-csid" => flavours::NEXT_CSID,
                "replace-csid" => flavours::REPLACE_CSID,
                other => return Err(At::new(flavour, StaticError::Flavour(other.into()))),
            };
        }
        const BOTH: u8 = flavours::NEXT_CSID | flavours::REPLACE_CSID;
        let length = self.lblen.as_ref().or(self.nflen.as_ref());
        let of = |length: &Option<Spanned<u8>>, default| {
            length.as_ref().map_or(default, |n| *n.get_ref())
        };
        match (bits & BOTH, length, &self.flavors) {
            (BOTH, _, Some(flavours)) => Err(At::new(flavours, StaticError::TwoCompressions)),
            (0, Some(length), _) => Err(At::new(length, StaticError::Lengths)),
            (0, None, _) => Ok((bits, 0, 0)),
            _ => Ok((bits, of(&self.lblen, 32), of(&self.nflen, 16))),
        }
    }

    /// Names what is given and `action` does not use. An empty list is none.
    fn nothing_else(&self, action: &str, used: &[&str]) -> Result<(), Wrong> {
        fn given<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
            value.as_ref().map(Spanned::span)
        }
        fn some<T>(list: &Option<Spanned<Vec<T>>>) -> Option<Range<usize>> {
            let list = list.as_ref().filter(|list| !list.get_ref().is_empty());
            list.map(Spanned::span)
        }
        let given = [
            ("nh4", given(&self.nh4)),
            ("nh6", given(&self.nh6)),
            ("table", given(&self.table)),
            ("oif", given(&self.oif)),
            ("segs", some(&self.segs)),
            ("vlans", some(&self.vlans)),
            ("flavors", some(&self.flavors)),
        ];
        for (what, given) in given {
            if let Some(span) = given
                && !used.contains(&what)
            {
                let action = action.to_owned();
                let error = StaticError::Useless { action, what };
                return Err(At { error, span });
            }
        }
        Ok(())
    }

    /// The behaviour, in which out-links are positions in the list of their names.
    fn behaviour(&self, action: &Spanned<String>) -> Result<(Behaviour, Vec<String>), Wrong> {
        let name = action.get_ref().as_str();
        let needs = Needs(action);
        let table = || needs.one(&self.table, "table").map(|table| table.0);
        let table_ref = || table().map(TableRef::Table);
        let segs = |of: &dyn Fn(&[Ipv6Addr]) -> Result<Behaviour, Seg6Error>| {
            let segs = needs.some(&self.segs, "segs")?;
            of(segs.get_ref()).map_err(|e| At::new(segs, e.into()))
        };
        let (behaviour, used): (Behaviour, &[&str]) = match name {
            "End" => (Behaviour::End, &["flavors"]),
            "End.X" => {
                let nh6 = *needs.one(&self.nh6, "nh6")?;
                (Behaviour::X { nh6, oif: None }, &["nh6", "flavors"])
            }
            "End.T" => (Behaviour::T { table: table()? }, &["table", "flavors"]),
            "End.DX2" => {
                let oif = needs.one(&self.oif, "oif")?;
                self.nothing_else(name, &["oif"])?;
                return Ok((Behaviour::Dx2 { oif: 0 }, vec![oif.clone()]));
            }
            "End.DX2V" => {
                self.nothing_else(name, &["vlans"])?;
                return self.dx2v(&needs);
            }
            "End.DX4" => {
                let nh4 = *needs.one(&self.nh4, "nh4")?;
                (Behaviour::Dx4 { nh4 }, &["nh4"])
            }
            "End.DX6" => {
                let nh6 = *needs.one(&self.nh6, "nh6")?;
                (Behaviour::Dx6 { nh6 }, &["nh6"])
            }
            "End.DT4" => (
                Behaviour::Dt4 {
                    table: table_ref()?,
                },
                &["table"],
            ),
            "End.DT6" => (
                Behaviour::Dt6 {
                    table: table_ref()?,
                },
                &["table"],
            ),
            "End.DT46" => (
                Behaviour::Dt46 {
                    table: table_ref()?,
                },
                &["table"],
            ),
            "End.B6" => (segs(&Behaviour::b6)?, &["segs"]),
            "End.B6.Encaps" => (segs(&|segs| Behaviour::b6_encaps(segs, false))?, &["segs"]),
            "End.B6.Encaps.Red" => (segs(&|segs| Behaviour::b6_encaps(segs, true))?, &["segs"]),
            other => return Err(At::new(action, StaticError::Action(other.into()))),
        };
        self.nothing_else(name, used)?;
        Ok((behaviour, Vec::new()))
    }

    fn dx2v(&self, needs: &Needs<'_>) -> Result<(Behaviour, Vec<String>), Wrong> {
        let list = needs.some(&self.vlans, "vlans: each a vlan and a dev")?;
        let mut list: Vec<&Vlan> = list.get_ref().iter().collect();
        let number = |entry: &Vlan| *entry.vlan.get_ref();
        list.sort_by_key(|entry| number(entry));
        let twice = list
            .windows(2)
            .find(|pair| number(pair[0]) == number(pair[1]));
        let beyond = list.iter().find(|entry| number(entry) > 4094);
        if let Some(bad) = beyond.copied().or(twice.map(|pair| pair[1])) {
            return Err(At::new(&bad.vlan, StaticError::Vlan(number(bad))));
        }
        let vlans = (0..)
            .zip(&list)
            .map(|(place, entry)| (number(entry), place));
        let vlans = vlans.collect();
        let names = list.iter().map(|entry| entry.dev.clone()).collect();
        Ok((Behaviour::Dx2v { vlans }, names))
    }
}

/// What an action cannot do without.
struct Needs<'a>(&'a Spanned<String>);

impl Needs<'_> {
    /// There is nothing but what stands at `at`.
    fn missing<T>(&self, at: &Spanned<T>, what: &'static str) -> Wrong {
        let action = self.0.get_ref().clone();
        At::new(at, StaticError::Needs { action, what })
    }

    fn one<'v, T>(
        &self,
        value: &'v Option<Spanned<T>>,
        what: &'static str,
    ) -> Result<&'v T, Wrong> {
        let value = value.as_ref().map(Spanned::get_ref);
        value.ok_or_else(|| self.missing(self.0, what))
    }

    /// A list that is not empty.
    fn some<'v, T>(
        &self,
        list: &'v Option<Spanned<Vec<T>>>,
        what: &'static str,
    ) -> Result<&'v Spanned<Vec<T>>, Wrong> {
        match list {
            Some(list) if list.get_ref().is_empty() => Err(self.missing(list, what)),
            Some(list) => Ok(list),
            None => Err(self.missing(self.0, what)),
        }
    }
}

impl StaticSid {
    /// What a table of the file says.
    pub(crate) fn of(table: &Spanned<RawSid>) -> Result<StaticSid, Wrong> {
        let raw = table.get_ref();
        let prefix = prefix(raw.prefix.get_ref()).map_err(|e| At::new(&raw.prefix, e))?;
        if matches!(prefix, IpNet::V4(_)) {
            return Err(At::new(&raw.prefix, StaticError::NotIpv6(prefix)));
        }
        let action = raw.action.as_ref();
        let action = action.ok_or_else(|| At::new(table, StaticError::NoAction))?;
        let (behaviour, links) = raw.behaviour(action)?;
        let (flavours, block, csid) = raw.flavours()?;
        let sid = Sid {
            behaviour,
            flavours,
            block,
            csid,
            counters: raw.counters,
        };
        // What remains to be wrong is a length, where one is given.
        let last = raw.lblen.as_ref().or(raw.nflen.as_ref());
        let at = |error: StaticError| match last {
            Some(length) => At::new(length, error),
            None => At::new(action, error),
        };
        // What the mirror would not read, it says here.
        Seg6::parse(&Seg6::Sid(sid.clone()).encode()).map_err(|e| at(e.into()))?;
        let bits = u16::from(block) + u16::from(csid);
        if flavours & flavours::REPLACE_CSID != 0 && bits > 120 {
            return Err(at(StaticError::NoIndex(bits)));
        }
        Ok(StaticSid {
            prefix,
            table: raw.route_table.map_or(MAIN, |table| table.0),
            dev: raw.dev.clone(),
            sid,
            links,
        })
    }
}

impl std::str::FromStr for StaticSid {
    type Err = StaticError;

    /// `PREFIX [table TABLE] encap seg6local action ACTION ...`, as for `ip -6 route add`.
    fn from_str(text: &str) -> Result<StaticSid, StaticError> {
        let mut words = Words::new(text);
        let mut raw = RawSid::new(words.value("a SID")?);
        if words.take("table") {
            raw.route_table = Some(Table(words.table("table")?));
        }
        words.expect(
            "encap",
            "the form is PREFIX encap seg6local action ACTION ...",
        )?;
        words.expect("seg6local", "a SID is encap seg6local")?;
        words.expect("action", "what comes first is action ACTION")?;
        raw.action = Some(from_option(words.value("action")?.into()));
        while let Some(word) = words.next() {
            match word {
                "nh4" => raw.nh4 = Some(from_option(words.address("nh4")?)),
                "nh6" => raw.nh6 = Some(from_option(words.address("nh6")?)),
                "table" => raw.table = Some(from_option(Table(words.table("table")?))),
                "oif" => raw.oif = Some(from_option(words.value("oif")?.into())),
                "dev" => raw.dev = Some(words.value("dev")?.into()),
                "count" => raw.counters = true,
                "srh" => {
                    words.expect("segs", "srh is followed by segs")?;
                    raw.segs = Some(from_option(segments(words.value("segs")?)?));
                }
                "flavors" => {
                    let list = words.value("flavors")?;
                    let list = list
                        .split(',')
                        .map(|flavour| from_option(flavour.to_owned()));
                    raw.flavors = Some(from_option(list.collect()));
                }
                "lblen" => raw.lblen = Some(from_option(words.number("lblen")?)),
                "nflen" => raw.nflen = Some(from_option(words.number("nflen")?)),
                "vlan" => {
                    let vlan = from_option(words.number("vlan")?);
                    words.expect("dev", "a vlan is followed by its dev")?;
                    let dev = words.value("dev")?.into();
                    let vlans = raw.vlans.get_or_insert_with(|| from_option(Vec::new()));
                    vlans.get_mut().push(Vlan { vlan, dev });
                }
                word => {
                    let want = "the words are nh4, nh6, table, oif, srh segs, vlan, flavors, lblen, nflen, \
                                count and dev";
                    let word = word.into();
                    return Err(StaticError::Word { word, want });
                }
            }
        }
        StaticSid::of(&from_option(raw)).map_err(|at| at.error)
    }
}

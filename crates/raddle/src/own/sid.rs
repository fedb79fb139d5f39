//! SIDs.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use raddle_image::flavours;
use raddle_rib::event::{Route, RouteNexthop, RouteTarget};
use raddle_rib::seg6::{Behaviour, Seg6, Sid, TableRef};
use serde::Deserialize;

use super::words::{Table, Words};
use super::{MAIN, OwnError, own_route, prefix, segments};

/// A SID that only raddle has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawSid")]
pub(crate) struct OwnSid {
    prefix: IpNet,
    table: u32,
    dev: Option<String>,
    /// Out-links in it are positions in `links`.
    sid: Sid,
    links: Vec<String>,
}

/// A SID as the configuration has it. The words are iproute2's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a table of its own: [[sid]] with prefix, action and what that takes"
)]
struct RawSid {
    prefix: String,
    /// Table that has the SID.
    route_table: Option<Table>,
    action: String,
    nh4: Option<Ipv4Addr>,
    nh6: Option<Ipv6Addr>,
    /// Table that the behaviour looks in.
    table: Option<Table>,
    oif: Option<String>,
    segs: Vec<Ipv6Addr>,
    vlans: Vec<Vlan>,
    flavors: Vec<String>,
    lblen: Option<u8>,
    nflen: Option<u8>,
    counters: bool,
    dev: Option<String>,
}

/// Where End.DX2V sends the frames of a VLAN.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { vlan = 7, dev = \"eth0\" }"
)]
struct Vlan {
    vlan: u16,
    dev: String,
}

impl OwnSid {
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
        own_route(self.prefix, self.table, RouteTarget::Single(hop))
    }
}

impl RawSid {
    /// The flavours as bits, and the lengths of compressed SIDs.
    fn flavours(&self) -> Result<(u8, u8, u8), OwnError> {
        let mut bits = 0;
        for flavour in &self.flavors {
            bits |= match flavour.as_str() {
                "psp" => flavours::PSP,
                "usp" => flavours::USP,
                "usd" => flavours::USD,
                "next-csid" => flavours::NEXT_CSID,
                "replace-csid" => flavours::REPLACE_CSID,
                other => return Err(OwnError::Flavour(other.into())),
            };
        }
        const BOTH: u8 = flavours::NEXT_CSID | flavours::REPLACE_CSID;
        match (bits & BOTH, self.lblen, self.nflen) {
            (BOTH, _, _) => Err(OwnError::TwoCompressions),
            (0, None, None) => Ok((bits, 0, 0)),
            (0, _, _) => Err(OwnError::Lengths),
            (_, block, csid) => Ok((bits, block.unwrap_or(32), csid.unwrap_or(16))),
        }
    }

    /// Names what is given and not used.
    fn nothing_else(&self, used: &[&str]) -> Result<(), OwnError> {
        let given = [
            ("nh4", self.nh4.is_some()),
            ("nh6", self.nh6.is_some()),
            ("table", self.table.is_some()),
            ("oif", self.oif.is_some()),
            ("segs", !self.segs.is_empty()),
            ("vlans", !self.vlans.is_empty()),
            ("flavors", !self.flavors.is_empty()),
        ];
        for (what, given) in given {
            if given && !used.contains(&what) {
                let action = self.action.clone();
                return Err(OwnError::Useless { action, what });
            }
        }
        Ok(())
    }

    fn needs<T>(&self, value: Option<T>, what: &'static str) -> Result<T, OwnError> {
        let action = || self.action.clone();
        value.ok_or_else(|| OwnError::Needs {
            action: action(),
            what,
        })
    }

    /// The behaviour, in which out-links are positions in the list of their names.
    fn behaviour(&self) -> Result<(Behaviour, Vec<String>), OwnError> {
        let table = || {
            self.needs(self.table, "table")
                .map(|table| TableRef::Table(table.0))
        };
        let some_segs = || {
            let segs = Some(&self.segs).filter(|segs| !segs.is_empty());
            self.needs(segs, "segs")
        };
        let (behaviour, used): (Behaviour, &[&str]) = match self.action.as_str() {
            "End" => (Behaviour::End, &["flavors"]),
            "End.X" => {
                let nh6 = self.needs(self.nh6, "nh6")?;
                (Behaviour::X { nh6, oif: None }, &["nh6", "flavors"])
            }
            "End.T" => {
                let table = self.needs(self.table, "table")?.0;
                (Behaviour::T { table }, &["table", "flavors"])
            }
            "End.DX2" => {
                let oif = self.needs(self.oif.clone(), "oif")?;
                self.nothing_else(&["oif"])?;
                return Ok((Behaviour::Dx2 { oif: 0 }, vec![oif]));
            }
            "End.DX2V" => {
                self.nothing_else(&["vlans"])?;
                return self.dx2v();
            }
            "End.DX4" => {
                let nh4 = self.needs(self.nh4, "nh4")?;
                (Behaviour::Dx4 { nh4 }, &["nh4"])
            }
            "End.DX6" => {
                let nh6 = self.needs(self.nh6, "nh6")?;
                (Behaviour::Dx6 { nh6 }, &["nh6"])
            }
            "End.DT4" => (Behaviour::Dt4 { table: table()? }, &["table"]),
            "End.DT6" => (Behaviour::Dt6 { table: table()? }, &["table"]),
            "End.DT46" => (Behaviour::Dt46 { table: table()? }, &["table"]),
            "End.B6" => (Behaviour::b6(some_segs()?)?, &["segs"]),
            "End.B6.Encaps" => (Behaviour::b6_encaps(some_segs()?, false)?, &["segs"]),
            "End.B6.Encaps.Red" => (Behaviour::b6_encaps(some_segs()?, true)?, &["segs"]),
            "" => return Err(OwnError::NoAction),
            other => return Err(OwnError::Action(other.into())),
        };
        self.nothing_else(used)?;
        Ok((behaviour, Vec::new()))
    }

    fn dx2v(&self) -> Result<(Behaviour, Vec<String>), OwnError> {
        let mut list: Vec<&Vlan> = self.vlans.iter().collect();
        list.sort_by_key(|entry| entry.vlan);
        let twice = list.windows(2).find(|pair| pair[0].vlan == pair[1].vlan);
        let beyond = list.iter().find(|entry| entry.vlan > 4094);
        if let Some(bad) = beyond.copied().or(twice.map(|pair| pair[0])) {
            return Err(OwnError::Vlan(bad.vlan));
        }
        let some = Some(list).filter(|list| !list.is_empty());
        let list = self.needs(some, "vlans: each a vlan and a dev")?;
        let vlans = (0..).zip(&list).map(|(place, entry)| (entry.vlan, place));
        let vlans = vlans.collect();
        let names = list.iter().map(|entry| entry.dev.clone()).collect();
        Ok((Behaviour::Dx2v { vlans }, names))
    }
}

impl TryFrom<RawSid> for OwnSid {
    type Error = OwnError;

    fn try_from(raw: RawSid) -> Result<OwnSid, OwnError> {
        let prefix = prefix(&raw.prefix)?;
        if matches!(prefix, IpNet::V4(_)) {
            return Err(OwnError::NotIpv6(prefix));
        }
        let (behaviour, links) = raw.behaviour()?;
        let (flavours, block, csid) = raw.flavours()?;
        let sid = Sid {
            behaviour,
            flavours,
            block,
            csid,
            counters: raw.counters,
        };
        // What the mirror would not read, it says here.
        Seg6::parse(&Seg6::Sid(sid.clone()).encode())?;
        let bits = u16::from(block) + u16::from(csid);
        if flavours & flavours::REPLACE_CSID != 0 && bits > 120 {
            return Err(OwnError::NoIndex(bits));
        }
        Ok(OwnSid {
            prefix,
            table: raw.route_table.map_or(MAIN, |table| table.0),
            dev: raw.dev,
            sid,
            links,
        })
    }
}

impl std::str::FromStr for OwnSid {
    type Err = OwnError;

    /// `PREFIX [table TABLE] encap seg6local action ACTION ...`, as for `ip -6 route add`.
    fn from_str(text: &str) -> Result<OwnSid, OwnError> {
        let mut words = Words::new(text);
        let mut raw = RawSid {
            prefix: words.value("a SID")?.into(),
            ..RawSid::default()
        };
        if words.take("table") {
            raw.route_table = Some(Table(words.table("table")?));
        }
        words.expect(
            "encap",
            "the form is PREFIX encap seg6local action ACTION ...",
        )?;
        words.expect("seg6local", "a SID is encap seg6local")?;
        words.expect("action", "what comes first is action ACTION")?;
        raw.action = words.value("action")?.into();
        while let Some(word) = words.next() {
            match word {
                "nh4" => raw.nh4 = Some(words.address("nh4")?),
                "nh6" => raw.nh6 = Some(words.address("nh6")?),
                "table" => raw.table = Some(Table(words.table("table")?)),
                "oif" => raw.oif = Some(words.value("oif")?.into()),
                "dev" => raw.dev = Some(words.value("dev")?.into()),
                "count" => raw.counters = true,
                "srh" => {
                    words.expect("segs", "srh is followed by segs")?;
                    raw.segs = segments(words.value("segs")?)?;
                }
                "flavors" => {
                    let list = words.value("flavors")?;
                    raw.flavors = list.split(',').map(String::from).collect();
                }
                "lblen" => raw.lblen = Some(words.number("lblen")?),
                "nflen" => raw.nflen = Some(words.number("nflen")?),
                "vlan" => {
                    let vlan = words.number("vlan")?;
                    words.expect("dev", "a vlan is followed by its dev")?;
                    let dev = words.value("dev")?.into();
                    raw.vlans.push(Vlan { vlan, dev });
                }
                word => {
                    let want = "the words are nh4, nh6, table, oif, srh segs, vlan, flavors, lblen, nflen, \
                                count and dev";
                    let word = word.into();
                    return Err(OwnError::Word { word, want });
                }
            }
        }
        OwnSid::try_from(raw)
    }
}

//! `raddle neigh show`.

use ipnet::IpNet;
use raddle_rib::event::Neighbour;

use super::args::{Args, abbreviates};
use super::out::Out;
use super::prefix::Prefix;
use super::{Context, Error, Family};
use crate::names::{Names, parse_number};

pub(crate) const USAGE: &str = "\
Usage: raddle [ OPTIONS ] neigh [ { show | list } SELECTOR ]
SELECTOR := [ proxy ] [ [ to ] PREFIX ] [ dev DEVICE ] [ nud STATE ] [ proto PROTOCOL ]
STATE := { all | permanent | noarp | stale | reachable | none | incomplete | delay | probe |
           failed }
OPTIONS := [ -4 | -6 | -family { inet | inet6 } ] [ -json [ -pretty ] ] [ -Numeric ]
           [ --snapshot FILE ]
";

/// `NUD_*` states in the order in which `ip` prints them.
const STATES: [(u16, &str); 8] = [
    (0x01, "INCOMPLETE"),
    (0x02, "REACHABLE"),
    (0x04, "STALE"),
    (0x08, "DELAY"),
    (0x10, "PROBE"),
    (0x20, "FAILED"),
    (0x40, "NOARP"),
    (0x80, "PERMANENT"),
];
/// `NUD_NOARP`, hidden unless asked for.
const NOARP: u16 = 0x40;
/// Our bit for entries without any state, beyond those of `ndm_state`.
const NONE: u16 = 0x100;

const NTF_PROXY: u8 = 0x08;
const NTF_EXT_LEARNED: u8 = 0x10;
/// `NTF_*` flags in the order in which `ip` prints them.
const FLAGS: [(u8, &str); 4] = [
    (0x80, "router"),
    (NTF_PROXY, "proxy"),
    (NTF_EXT_LEARNED, "extern_learn"),
    (0x20, "offload"),
];

/// Which neighbours are shown.
#[derive(Debug)]
pub(crate) struct Filter {
    to: Option<Prefix>,
    device: Option<String>,
    /// `NUD_*` bits and [`NONE`].
    states: u16,
    proxy: bool,
    protocol: Option<u8>,
}

impl Filter {
    pub(crate) fn parse(
        args: &mut Args<'_>,
        family: Option<Family>,
        names: &Names,
    ) -> Result<Filter, Error> {
        let mut filter = Filter {
            to: None,
            device: None,
            states: 0,
            proxy: false,
            protocol: None,
        };
        while let Some(word) = args.next() {
            if word == "dev" {
                filter.device = Some(args.value()?.to_owned());
            } else if word == "nud" {
                filter.states |= args.parsed(parse_state, "nud state is bad")?;
            } else if word == "proxy" {
                filter.proxy = true;
            } else if abbreviates(word, "protocol") {
                let why = "invalid \"protocol\"";
                filter.protocol = Some(args.parsed(|value| names.protocol_number(value), why)?);
            } else {
                let prefix = if word == "to" { args.value()? } else { word };
                filter.to = Some(Prefix::parse(prefix, family)?);
            }
        }
        if filter.states == 0 {
            filter.states = 0xff & !NOARP;
        }
        Ok(filter)
    }

    /// As in `ip`, a state chosen does not hide what a controller has put in place.
    fn selects(&self, neighbour: &Neighbour) -> bool {
        let state = if neighbour.state == 0 {
            NONE
        } else {
            neighbour.state
        };
        let proxy = neighbour.flags & NTF_PROXY != 0;
        self.proxy == proxy
            && (proxy || neighbour.flags & NTF_EXT_LEARNED != 0 || self.states & state != 0)
            && self
                .protocol
                .is_none_or(|protocol| protocol == neighbour.protocol)
            && self
                .to
                .is_none_or(|to| to.contains(&IpNet::from(neighbour.dst)))
    }
}

fn parse_state(text: &str) -> Option<u16> {
    if text == "all" {
        return Some(NONE | 0xff);
    }
    let order = [
        "PERMANENT",
        "REACHABLE",
        "NOARP",
        "NONE",
        "STALE",
        "INCOMPLETE",
        "DELAY",
    ];
    let known = order.into_iter().chain(["PROBE", "FAILED"]);
    let wanted = text.to_ascii_uppercase();
    match known.into_iter().find(|name| abbreviates(&wanted, name)) {
        Some("NONE") => Some(NONE),
        Some(name) => STATES
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(bit, _)| *bit),
        None => u8::try_from(parse_number(text)?).ok().map(u16::from),
    }
}

/// Prints the neighbours that `filter` selects: IPv4 before IPv6, by link and address. (The
/// kernel's own order is that of a hash with a random seed.)
pub(crate) fn print(
    out: &mut Out<'_>,
    context: &Context<'_>,
    filter: &Filter,
    neighbours: &[Neighbour],
) -> Result<(), Error> {
    let dev = context.lookup.index(filter.device.as_deref())?;
    let of = |neighbour: &Neighbour, family| match family {
        Family::Inet => neighbour.dst.is_ipv4(),
        Family::Inet6 => neighbour.dst.is_ipv6(),
    };
    let mut selected: Vec<&Neighbour> = neighbours
        .iter()
        .filter(|neighbour| context.family.is_none_or(|family| of(neighbour, family)))
        .filter(|neighbour| dev.is_none_or(|dev| dev == neighbour.index))
        .filter(|neighbour| filter.selects(neighbour))
        .collect();
    selected.sort_by_key(|neighbour| (neighbour.dst.is_ipv6(), neighbour.index, neighbour.dst));
    out.begin_array("");
    for neighbour in selected {
        out.begin_object("");
        print_one(out, context, neighbour, dev.is_none());
        out.end_object();
        out.text('\n');
        out.spill().map_err(Error::Write)?;
    }
    out.end_array();
    Ok(())
}

fn print_one(out: &mut Out<'_>, context: &Context<'_>, neighbour: &Neighbour, with_dev: bool) {
    out.string("dst", "", neighbour.dst);
    if with_dev {
        out.string("dev", "dev", context.lookup.link(neighbour.index));
    }
    if let Some(mac) = &neighbour.mac {
        out.string(
            "lladdr",
            "lladdr",
            mac.map(|byte| format!("{byte:02x}")).join(":"),
        );
    }
    for (_, name) in FLAGS.iter().filter(|(bit, _)| neighbour.flags & bit != 0) {
        out.fact(name);
    }
    if neighbour.state != 0 {
        let states = STATES.iter().filter(|(bit, _)| neighbour.state & bit != 0);
        out.words("state", states.map(|(_, name)| name));
    }
    if neighbour.protocol != 0 {
        out.string(
            "protocol",
            "proto",
            context.names.protocol(neighbour.protocol),
        );
    }
}

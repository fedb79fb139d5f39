//! `raddle nexthop show`.

use raddle_netlink::EncapOf;
use raddle_rib::event::{GroupMember, Nexthop, NexthopKind};

use super::args::{Args, abbreviates};
use super::lookup::{Carried, is_group};
use super::metrics::general;
use super::out::Out;
use super::route::print_flags;
use super::{Context, Error, Family, encap};
use crate::names::{Names, parse_number};

pub(crate) const USAGE: &str = "\
Usage: raddle [ OPTIONS ] nexthop [ { show | list } SELECTOR ]
       raddle [ OPTIONS ] nexthop get id ID
       raddle [ OPTIONS ] nexthop bucket [ { show | list } BUCKET_SELECTOR ]
       raddle [ OPTIONS ] nexthop bucket get id ID index INDEX
SELECTOR := [ id ID ] [ dev DEVICE ] [ groups ] [ fdb ] [ proto PROTOCOL ]
BUCKET_SELECTOR := [ id ID ] [ nhid ID ] [ dev DEVICE ]
OPTIONS := [ -4 | -6 | -family { inet | inet6 } ] [ -json [ -pretty ] ] [ -details ]
           [ -statistics ] [ -oneline ] [ -Numeric ] [ --snapshot FILE ]
";

/// Which nexthop objects are shown.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    id: Option<u32>,
    device: Option<String>,
    groups: bool,
    fdb: bool,
    protocol: Option<u8>,
}

impl Filter {
    /// Parses a selector; `get` demands an id.
    pub(crate) fn parse(args: &mut Args<'_>, names: &Names, get: bool) -> Result<Filter, Error> {
        let mut filter = Filter::default();
        while let Some(word) = args.next() {
            if word == "id" {
                filter.id = Some(args.parsed(parse_number, "invalid id value")?);
            } else if word == "dev" {
                filter.device = Some(args.value()?.to_owned());
            } else if abbreviates(word, "groups") {
                filter.groups = true;
            } else if abbreviates(word, "protocol") {
                let why = "invalid protocol value";
                filter.protocol = Some(args.parsed(|value| names.protocol_number(value), why)?);
            } else if word == "fdb" {
                filter.fdb = true;
            } else {
                return Err(Error::argument(
                    word,
                    "expected id, dev, groups, proto or fdb",
                ));
            }
        }
        if get && filter.id.is_none() {
            Err(Error::Incomplete)
        } else {
            Ok(filter)
        }
    }
}

/// Prints the nexthop objects that `filter` selects, by id. An id that does not exist is an error.
pub(crate) fn print(
    out: &mut Out<'_>,
    context: &Context<'_>,
    filter: &Filter,
    nexthops: &[Nexthop],
) -> Result<(), Error> {
    let dev = context.lookup.index(filter.device.as_deref())?;
    if let Some(id) = filter.id
        && context.lookup.nexthop(id).is_none()
    {
        return Err(Error::NoNexthop(id));
    }
    // Groups belong to no family.
    let family = context.family.map(Family::number);
    let goes_out = |nexthop: &Nexthop, dev: u32| match &nexthop.kind {
        NexthopKind::Single { index, .. } => *index == dev,
        _ => false,
    };
    let mut selected: Vec<&Nexthop> = nexthops
        .iter()
        .filter(|nexthop| filter.id.is_none_or(|id| id == nexthop.id))
        .filter(|nexthop| dev.is_none_or(|dev| goes_out(nexthop, dev)))
        .filter(|nexthop| !filter.groups || is_group(nexthop))
        .filter(|nexthop| !filter.fdb || nexthop.fdb)
        .filter(|nexthop| {
            filter
                .protocol
                .is_none_or(|protocol| protocol == nexthop.protocol)
        })
        .filter(|nexthop| {
            family.is_none_or(|family| family == nexthop.family) || filter.id.is_some()
        })
        .collect();
    selected.sort_by_key(|nexthop| nexthop.id);
    out.begin_array("");
    for nexthop in selected {
        out.begin_object("");
        print_one(out, context, nexthop);
        out.end_object();
        out.text('\n');
        out.spill().map_err(Error::Write)?;
    }
    out.end_array();
    Ok(())
}

/// The fields of one nexthop object, without the end of its line.
pub(crate) fn print_one(out: &mut Out<'_>, context: &Context<'_>, nexthop: &Nexthop) {
    let Context {
        lookup,
        names,
        details,
        ..
    } = context;
    out.number("id", "id", u64::from(nexthop.id));
    match &nexthop.kind {
        NexthopKind::Group(members) => print_group(out, members),
        NexthopKind::Resilient {
            members,
            buckets,
            idle_timer,
            unbalanced_timer,
            unbalanced_time,
        } => {
            print_group(out, members);
            out.string("type", "type", "resilient");
            out.begin_object("resilient_args");
            out.number("buckets", "buckets", u64::from(*buckets));
            print_time(out, "idle_timer", u64::from(*idle_timer));
            print_time(out, "unbalanced_timer", u64::from(*unbalanced_timer));
            print_time(out, "unbalanced_time", *unbalanced_time);
            out.end_object();
        }
        NexthopKind::Single {
            gateway,
            index,
            encap,
        } => {
            if let Some(encap) = encap {
                let carried = Carried {
                    encap,
                    place: EncapOf::Nexthop(nexthop.id),
                    index: *index,
                };
                encap::print(out, context, &carried);
            }
            if let Some(gateway) = gateway {
                out.string("gateway", "via", gateway);
            }
            if *index != 0 {
                out.string("dev", "dev", lookup.link(*index));
            }
            if let Some(figures) = context.figures {
                figures.print_sent(out, *index, *gateway);
            }
        }
        NexthopKind::Blackhole => {}
    }
    if nexthop.scope != 0 || *details {
        out.string("scope", "scope", names.scope(nexthop.scope));
    }
    if nexthop.kind == NexthopKind::Blackhole {
        out.fact("blackhole");
    }
    if nexthop.protocol != 0 || *details {
        out.string("protocol", "proto", names.protocol(nexthop.protocol));
    }
    print_flags(out, nexthop.flags);
    if nexthop.fdb {
        // The one fact that `ip` prints without a space behind it.
        if out.is_json() {
            out.fact("fdb");
        } else {
            out.text("fdb");
        }
    }
}

/// `group 1,3/2`; a weight of 1 goes without saying.
fn print_group(out: &mut Out<'_>, members: &[GroupMember]) {
    out.text("group ");
    out.begin_array("group");
    for (i, member) in members.iter().enumerate() {
        out.begin_object("");
        out.text(format_args!(
            "{}{}",
            if i == 0 { "" } else { "/" },
            member.id
        ));
        out.json_number("id", u64::from(member.id));
        if member.weight != 1 {
            out.text(format_args!(",{}", member.weight));
            out.json_number("weight", u64::from(member.weight));
        }
        out.end_object();
    }
    out.end_array();
    out.text(' ');
}

/// A time in hundredths of a second (`clock_t`), printed in seconds.
fn print_time(out: &mut Out<'_>, key: &str, hundredths: u64) {
    let seconds = general(hundredths as f64 / 100.0);
    out.text(format_args!("{key} {seconds} "));
    out.json_raw(key, &seconds);
}

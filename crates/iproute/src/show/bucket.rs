//! `raddle nexthop bucket show`: who owns which bucket of resilient groups.

use raddle_rib::event::{Bucket, Nexthop, NexthopKind};

use super::args::Args;
use super::metrics::general;
use super::out::Out;
use super::route::print_flags;
use super::{Context, Error};
use crate::names::parse_number;

/// Which buckets are shown.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    group: Option<u32>,
    index: Option<u32>,
    nexthop: Option<u32>,
    device: Option<String>,
}

impl Filter {
    /// Parses a selector; `get` demands a group and an index.
    pub(crate) fn parse(args: &mut Args<'_>, get: bool) -> Result<Filter, Error> {
        let mut filter = Filter::default();
        while let Some(word) = args.next() {
            let number = |args: &mut Args<'_>, why| args.parsed(parse_number, why).map(Some);
            match word {
                "id" => filter.group = number(args, "invalid id value")?,
                "index" if get => filter.index = number(args, "invalid bucket index value")?,
                "nhid" if !get => filter.nexthop = number(args, "invalid nhid value")?,
                "dev" if !get => filter.device = Some(args.value()?.to_owned()),
                _ if get => return Err(Error::argument(word, "expected id or index")),
                _ => return Err(Error::argument(word, "expected id, nhid or dev")),
            }
        }
        if get && (filter.group.is_none() || filter.index.is_none()) {
            Err(Error::Incomplete)
        } else {
            Ok(filter)
        }
    }
}

/// Prints the buckets that `filter` selects, by group and index. A group or bucket that does not exist
/// is an error.
pub(crate) fn print(
    out: &mut Out<'_>,
    context: &Context<'_>,
    filter: &Filter,
    buckets: &[Bucket],
) -> Result<(), Error> {
    let lookup = &context.lookup;
    let dev = lookup.index(filter.device.as_deref())?;
    if let Some(id) = filter.group {
        let group = lookup.nexthop(id).ok_or(Error::NoNexthop(id))?;
        let NexthopKind::Resilient { buckets, .. } = group.kind else {
            return Err(Error::NotResilient(id));
        };
        if filter.index.is_some_and(|index| index >= buckets.into()) {
            return Err(Error::NoBucket(buckets));
        }
    }
    let owner = |bucket: &Bucket, is: &dyn Fn(&Nexthop) -> bool| {
        lookup.nexthop(bucket.nexthop).is_some_and(is)
    };
    let goes_out = |dev| move |owner: &Nexthop| matches!(owner.kind, NexthopKind::Single { index, .. } if index == dev);
    // The kernel looks at the family of the owner, unless it is asked for one bucket.
    let family = context.family.filter(|_| filter.index.is_none());
    let mut selected: Vec<&Bucket> = buckets
        .iter()
        .filter(|b| filter.group.is_none_or(|id| id == b.group))
        .filter(|b| filter.index.is_none_or(|index| index == u32::from(b.index)))
        .filter(|b| filter.nexthop.is_none_or(|id| id == b.nexthop))
        .filter(|b| dev.is_none_or(|dev| owner(b, &goes_out(dev))))
        .filter(|b| family.is_none_or(|f| owner(b, &|owner| owner.family == f.number())))
        .collect();
    selected.sort_by_key(|bucket| (bucket.group, bucket.index));
    out.begin_array("");
    for bucket in selected {
        out.begin_object("");
        out.number("id", "id", u64::from(bucket.group));
        out.begin_object("bucket");
        out.number("index", "index", u64::from(bucket.index));
        let idle = general(bucket.idle_time as f64 / 100.0);
        out.text(format_args!("idle_time {idle} "));
        out.json_raw("idle_time", &idle);
        out.number("nhid", "nhid", u64::from(bucket.nexthop));
        out.end_object();
        print_flags(out, bucket.flags);
        out.end_object();
        out.text('\n');
        out.spill().map_err(Error::Write)?;
    }
    out.end_array();
    Ok(())
}

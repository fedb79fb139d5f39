//! `raddle sr show` and `raddle sr save`: SIDs and segment lists.

use std::io::{self, IsTerminal, Write};

use raddle_netlink::codec::{Builder, DecodeError, SidCounters, encode};
use raddle_rib::event::{
    Encap, Event, ROUTE_FPM, ROUTE_STATIC, Route, RouteNexthop, RouteOp, RouteTarget,
};

use super::args::Args;
use super::encap::{SEG6, SEG6LOCAL};
use super::figures::Figures;
use super::lookup::{Lookup, Path, Paths};
use super::out::Out;
use super::{Context, Error, Family, order, route};
use crate::names::Names;

pub(crate) const USAGE: &str = "\
Usage: raddle [ OPTIONS ] sr [ { show | list } SELECTOR ]
       raddle [ OPTIONS ] sr save SELECTOR > FILE
SELECTOR := [ SID | PREFIX ] [ table { TABLE | all } ] [ dev DEVICE ] [ proto PROTOCOL ]
            [ metric NUMBER ]
OPTIONS := [ -4 | -6 | -family { inet | inet6 } ] [ -json [ -pretty ] ] [ -details ]
           [ -statistics ] [ -oneline ] [ -Numeric ] [ --snapshot FILE ]
SID: the routes that cover the address; PREFIX: those within it. Without either all are shown, of all
tables. save writes an rtnetlink dump that 'ip route showdump' reads, with what the engine and the
kernel have counted, added up.
";

/// What `ip route save` begins its dumps with.
pub(crate) const MAGIC: u32 = 0x4531_1224;
/// The heaviest nexthop that a route's message can tell of (`rtnh_hops` is a byte, and one less).
const HEAVIEST: u16 = 256;
/// `NLM_F_MULTI`.
const MULTI: u16 = 2;

/// Which SIDs and segment lists are shown.
#[derive(Debug)]
pub(crate) struct Filter {
    routes: route::Filter,
}

impl Filter {
    /// Parses a selector: that of `route show`, over all tables, in which an address stands for the
    /// routes that cover it and a prefix for those within it.
    pub(crate) fn parse(
        args: &mut Args<'_>,
        family: Option<Family>,
        names: &Names,
    ) -> Result<Filter, Error> {
        let mut words = vec!["table", "all"];
        while let Some(word) = args.next() {
            let is_prefix = word.contains(['/', ':', '.']) && !words_take(&words);
            if is_prefix {
                words.push(if word.contains('/') { "root" } else { "match" });
            }
            words.push(word);
        }
        let routes = route::Filter::parse(&mut Args::of(words), family, names)?;
        Ok(Filter { routes })
    }
}

/// Whether the next word is the value of a keyword.
fn words_take(words: &[&str]) -> bool {
    let keywords = [
        "root", "match", "exact", "to", "from", "dev", "oif", "via", "src",
    ];
    // The first two are ours, and have their value.
    words.len() > 2 && words.last().is_some_and(|last| keywords.contains(last))
}

fn is_segment(encap: Option<&Encap>) -> bool {
    encap.is_some_and(|encap| [SEG6, SEG6LOCAL].contains(&encap.kind))
}

/// Whether a route has a SID or a segment list.
fn concerns(lookup: &Lookup<'_>, route: &Route) -> bool {
    let (_, paths) = lookup.expand(route);
    let concerns = |path: &Path<'_>| is_segment(path.encap);
    match &paths {
        Paths::One(path) => concerns(path),
        Paths::Many(paths) => paths.iter().any(concerns),
    }
}

/// The routes that `filter` selects, in the kernel's order.
fn selected<'a>(
    context: &Context<'_>,
    filter: &Filter,
    routes: &'a [Route],
) -> Result<Vec<&'a Route>, Error> {
    let mut selected = filter.routes.select(context, routes)?;
    selected.retain(|route| concerns(&context.lookup, route));
    selected.sort_by(|a, b| order::compare(a, b));
    Ok(selected)
}

/// Prints the routes with SIDs or segment lists that `filter` selects.
pub(crate) fn print(
    out: &mut Out<'_>,
    context: &Context<'_>,
    filter: &Filter,
    routes: &[Route],
) -> Result<(), Error> {
    out.begin_array("");
    for route in selected(context, filter, routes)? {
        out.begin_object("");
        route::print_route(out, context, &filter.routes, route);
        if let Some(figures) = context.figures {
            print_apart(out, context, figures, route);
        }
        out.end_object();
        out.text('\n');
        out.spill().map_err(Error::Write)?;
    }
    out.end_array();
    Ok(())
}

/// Who has counted what, of a route that has one SID or segment list. (Those of several have theirs
/// beside each.)
fn print_apart(out: &mut Out<'_>, context: &Context<'_>, figures: &Figures, route: &Route) {
    let (_, paths) = context.lookup.expand(route);
    if let Paths::One(path) = &paths
        && is_segment(path.encap)
        && let Some(carried) = path.carried(route)
    {
        figures.print_apart(out, &carried, context.details);
    }
}

/// Writes the routes that `filter` selects as an rtnetlink dump.
///
/// # Errors
/// [`Error::Terminal`] when `out` is one: it is binary. [`Error::Dump`] for a route that cannot be
/// written as a message, [`Error::Weight`] for one whose weights cannot. Nothing is written then.
pub(crate) fn save(
    out: &mut dyn io::Write,
    context: &Context<'_>,
    filter: &Filter,
    routes: &[Route],
) -> Result<(), Error> {
    let mut messages = Builder::new();
    for route in selected(context, filter, routes)? {
        let route = counted(context, route)?;
        let event = Event::Route(route, RouteOp::Add);
        encode(&mut messages, &event, MULTI).map_err(|e| Error::Dump(e.to_string()))?;
    }
    out.write_all(&MAGIC.to_ne_bytes()).map_err(Error::Write)?;
    out.write_all(messages.as_bytes()).map_err(Error::Write)?;
    out.flush().map_err(Error::Write)
}

/// Standard output, unless somebody would look at it.
pub fn binary_stdout() -> Result<impl Write, Error> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(Error::Terminal);
    }
    Ok(stdout.lock())
}

/// The route with what has been counted in the attributes of its SIDs; one that leads to a nexthop object
/// has the object's encapsulation in itself, as the kernel dumps it.
fn counted(context: &Context<'_>, route: &Route) -> Result<Route, Error> {
    let (_, paths) = context.lookup.expand(route);
    let hop = |path: &Path<'_>| -> Result<RouteNexthop, Error> {
        let mut hop = path.to_nexthop();
        if let Some(carried) = path.carried(route).filter(|c| c.encap.kind == SEG6LOCAL)
            && let Some(encap) = &mut hop.encap
        {
            let dump = |e: DecodeError| Error::Dump(e.to_string());
            // One that does not count stays so.
            if let Some(before) = SidCounters::find(&encap.data).map_err(dump)? {
                let total = context.figures.and_then(|figures| figures.total(&carried));
                encap.data = total.unwrap_or(before).put(&encap.data).map_err(dump)?;
            }
        }
        Ok(hop)
    };
    let target = match &paths {
        Paths::One(path) => RouteTarget::Single(hop(path)?),
        Paths::Many(paths) => {
            if let Some(path) = paths.iter().find(|path| path.weight > HEAVIEST) {
                let (dst, weight) = (route.dst, path.weight);
                return Err(Error::Weight { dst, weight });
            }
            RouteTarget::Multipath(paths.iter().map(hop).collect::<Result<_, _>>()?)
        }
    };
    Ok(Route {
        target,
        flags: route.flags & !(ROUTE_STATIC | ROUTE_FPM),
        ..route.clone()
    })
}

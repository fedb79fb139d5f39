//! Connections that are made again from the same address and port, around a link that is silent if need be.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::Asked;
use raddle_rib::event::{Metrics, RouteNexthop, RouteTarget};
use raddle_rpc::proxy::Again;
use raddle_rpc::replay::{Blame, Try, Way, next_way};
use tokio::net::TcpStream;

use crate::candidates::live;
use crate::detour::{Detour, Detours};
use crate::dial::{BRIEF, connect_by};
use crate::placing::name_of;
use raddle_plan::paths::{self, Place};

/// Rounds after which an attempt gets no longer time: 8 times as long as the first, 2 s. When a way is back, it is
/// noticed by the next attempt, or by the repetition within this one.
const DOUBLED: u32 = 3;

/// A connection that was made again.
pub(crate) struct Made {
    pub stream: TcpStream,
    /// The way that it goes.
    pub place: Option<Place>,
    /// The detour, to be kept as long as the connection.
    pub detour: Option<Rc<Detour>>,
}

/// Tries one way after the other. `working` are the links that other connections to the server go out by;
/// `back` is the one that this one's answers came by.
///
/// # Errors
/// Why no way was found.
pub(crate) async fn again(
    detours: &Detours,
    again: Again,
    working: &[String],
    back: Option<&str>,
) -> io::Result<Made> {
    let own = own_place(again);
    let (others, metrics) = places(again.to.ip());
    let others = others.into_iter().filter(|place| Some(*place) != own);
    let places: Vec<Option<Place>> = std::iter::once(own).chain(others.map(Some)).collect();
    let names: Vec<Option<String>> = places.iter().map(|p| p.map(|p| name_of(p.index))).collect();
    let works = |name: &Option<String>| name.as_ref().is_some_and(|n| working.contains(n));
    let mut ways: Vec<Way> = names
        .iter()
        .enumerate()
        .map(|(i, name)| Way {
            own: i == 0,
            works: works(name),
            tried: false,
        })
        .collect();
    let patience = BRIEF * 2_u32.pow(again.round.min(DOUBLED));
    loop {
        let (next, rule) = next_way(again.silent, detours.are_possible(), &ways);
        let i = match next {
            Try::By(i) => i,
            Try::Wait(blame) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    said(again, blame, &names, back),
                ));
            }
        };
        ways[i].tried = true;
        let link = names[i].clone();
        let detour = match places[i].filter(|_| i > 0) {
            None => None,
            Some(place) => match detours.by(again.to.ip(), &place, &metrics) {
                Ok(detour) => Some(detour),
                Err(e) => {
                    tracing::debug!(link = link.as_deref(), "no detour: {e}");
                    continue;
                }
            },
        };
        let mark = detour.as_ref().map(|detour| detour.mark());
        let made = connect_by(again.to, Some(again.from), patience, mark).await;
        let error = made.as_ref().err().map(tracing::field::display);
        let by = link.as_deref();
        tracing::debug!(from = %again.from, link = by, rule, error, "the same port again");
        match made {
            Ok(stream) => {
                return Ok(Made {
                    stream,
                    place: places[i],
                    detour,
                });
            }
            Err(e) if is_silence(&e) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether another way may do.
fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut};
    matches!(
        error.kind(),
        TimedOut | HostUnreachable | NetworkUnreachable | PermissionDenied
    )
}

/// What people are told.
fn said(again: Again, blame: Blame, names: &[Option<String>], back: Option<&str>) -> String {
    let Again { from, to, .. } = again;
    let ways: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    let way = ways.first().copied().unwrap_or("its link");
    match blame {
        Blame::OwnWay => format!("{to} does not answer {from} by {way}, and no detour may be made"),
        Blame::WayBack => format!(
            "{to} does not answer {from} by any of {}, and answers others: the way back, {}, is silent, and the \
             server's routing to change",
            ways.join(", "),
            back.map_or_else(
                || "by a link that is not known".to_owned(),
                |back| format!("by {back}")
            ),
        ),
        Blame::Server => format!("{to} does not answer {from} by any of {}", ways.join(", ")),
    }
}

/// Where routing sends this connection.
fn own_place(again: Again) -> Option<Place> {
    let query = RouteQuery {
        src: Some(again.from.ip()),
        ip_proto: Some(6),
        sport: Some(again.from.port()),
        dport: Some(again.to.port()),
        ..RouteQuery::default()
    };
    let said = Socket::open().ok()?.get_route(again.to.ip(), &query).ok()?;
    Some(Place {
        index: said.index,
        gateway: said.gateway,
        member: None,
    })
}

/// The ways to a server, and the metrics of its route. None where they carry segments.
fn places(server: IpAddr) -> (Vec<Place>, Metrics) {
    let query = RouteQuery {
        fib_match: true,
        ..RouteQuery::default()
    };
    let Ok(said) = Socket::open().and_then(|mut socket| socket.get_route(server, &query)) else {
        return Default::default();
    };
    let route = said.route;
    let of = |hops: &[RouteNexthop]| {
        let plain = hops.iter().filter(|hop| hop.encap.is_none());
        plain
            .map(|hop| Place {
                index: hop.index,
                gateway: hop.gateway,
                member: None,
            })
            .collect()
    };
    let mut places: Vec<Place> = match &route.target {
        RouteTarget::None => Vec::new(),
        RouteTarget::Single(hop) => of(std::slice::from_ref(hop)),
        RouteTarget::Multipath(hops) => of(hops),
        // Its members are not told with the route.
        RouteTarget::Object(_) => {
            let choice = live()
                .ok()
                .and_then(|rib| paths::choice(&rib, "", &Asked::to(server)).ok());
            choice.map_or_else(Vec::new, |choice| {
                choice.hops.iter().map(Place::of).collect()
            })
        }
    };
    let mut seen = Vec::new();
    places.retain(|place| {
        let new = !seen.contains(place);
        seen.push(*place);
        new
    });
    (places, route.metrics)
}

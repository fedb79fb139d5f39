//! Source ports with known paths, for every pair of an address of the server and an own one.

use std::net::{IpAddr, SocketAddr};

use raddle_netlink::{Mirror, RouteQuery, Socket};
use raddle_rib::{Asked, Rib};

use crate::error::Unplaced;
use raddle_plan::paths::{self, Kind, link_name};
use raddle_plan::ports;

/// `IFF_LOWER_UP`: the link has a carrier.
const LOWER_UP: u32 = 0x1_0000;
/// Ports that are planned, or asked for, for each pair of addresses.
const PORTS: (usize, usize) = (64, 8192);
/// Ports for each link and link that a connection may come back by: that none of 16 leads there has a
/// probability of e^-16.
const EACH: usize = 16;

/// A port that may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Try {
    /// The server.
    pub server: SocketAddr,
    /// Own address and port.
    pub from: SocketAddr,
    /// The link that connections go out by.
    pub dev: String,
}

/// What may be tried, and what may not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tries {
    /// Ports, by server and own address.
    pub list: Vec<Try>,
    /// What connections cannot be placed over, and why.
    pub notes: Vec<String>,
    /// Whether the kernel can be asked about the connections' paths.
    pub askable: bool,
}

impl Tries {
    /// The links that connections can go out by, in the order of addresses.
    pub(crate) fn links(&self) -> Vec<&str> {
        let mut links: Vec<&str> = Vec::new();
        for of in &self.list {
            if !links.contains(&of.dev.as_str()) {
                links.push(&of.dev);
            }
        }
        links
    }
}

/// The live kernel's state.
pub(crate) fn live() -> Result<Rib, raddle_netlink::Error> {
    let mut rib = Rib::detached();
    Mirror::open()?.initial(&mut |event| rib.apply(event))?;
    Ok(rib)
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// The server's addresses.
    pub servers: Vec<SocketAddr>,
    /// Own addresses; without any, the ones that the kernel chooses.
    pub local: Vec<IpAddr>,
    /// The ports, if not those that the kernel gives.
    pub range: Option<(u16, u16)>,
}

/// Ports with known paths.
///
/// 1. Each own address is paired with each address of the server; a pair without a way is left out, with a note.
/// 2. Where a pair's route has several nexthops and the hash can be computed, ports are planned as by `raddle
///    ports plan`, and the kernel is asked about one of each path (`RTM_GETROUTE`).
/// 3. Where it cannot (an unknown seed, rules by source address, a hash that does not look at ports), or the
///    kernel says otherwise, it is asked about every port. About IPv4 under the policies 2 and 3 it cannot be:
///    it answers for a router there. Without a known seed there is no way then.
/// 4. Links without a carrier are left out while others have one.
///
/// Costs one dump of the kernel's state, and 10 microseconds for each port that is asked about.
///
/// # Errors
/// Why there is no pair with known paths.
pub(crate) fn find(ends: &Ends) -> Result<Tries, Unplaced> {
    let local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if let Some(server) = ends.servers.iter().find(|server| local(server.ip())) {
        return Err(Unplaced::LinkLocal(server.ip()));
    }
    let rib = live()?;
    let mut socket = Socket::open()?;
    let mut tries = Tries {
        askable: true,
        ..Tries::default()
    };
    let mut failed = None;
    for server in &ends.servers {
        let locals: Vec<Option<IpAddr>> = match ends.local.is_empty() {
            true => vec![None],
            false => ends.local.iter().copied().map(Some).collect(),
        };
        for local in locals {
            match pair(&rib, &mut socket, *server, local, ends.range) {
                Ok(found) => {
                    tries.askable &= found.askable;
                    tries.list.extend(found.list);
                    tries.notes.extend(found.notes);
                }
                Err(e) => {
                    let from = local.map_or_else(String::new, |local| format!(" from {local}"));
                    tries.notes.push(format!("{}{from}: {e}", server.ip()));
                    failed = Some(e);
                }
            }
        }
    }
    if let (true, Some(e)) = (tries.list.is_empty(), failed) {
        return Err(e);
    }
    let carrier = |of: &Try| {
        let link = rib.link_named(&of.dev);
        link.is_none_or(|link| link.flags & LOWER_UP != 0)
    };
    if tries.list.iter().any(carrier) {
        for link in tries.links() {
            let link = rib.link_named(link).filter(|l| l.flags & LOWER_UP == 0);
            if let Some(link) = link {
                tracing::debug!(link = link.name, "no carrier");
            }
        }
        tries.list.retain(carrier);
    }
    Ok(tries)
}

/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// Rules 2 and 3 of [`find`].
fn pair(
    rib: &Rib,
    socket: &mut Socket,
    server: SocketAddr,
    local: Option<IpAddr>,
    range: Option<(u16, u16)>,
) -> Result<Tries, Unplaced> {
    let mut packets = Asked {
        proto: Some(TCP),
        dport: (server.port(), server.port()),
        sport: range.unwrap_or((0, u16::MAX)),
        ..Asked::to(server.ip())
    };
    if let Some(local) = local {
        packets.src = local.into();
    }
    let choice = paths::choice(rib, "", &packets).ok();
    let (policy, ..) = paths::hash_settings(rib, server.ip(), None);
    let askable = server.is_ipv6() || policy < 2;
    let one = choice.as_ref().is_some_and(|c| c.kind == Kind::One);
    let tries = |list| Tries {
        list,
        notes: Vec::new(),
        askable,
    };
    let mut why = None;
    if let Some(choice) = choice.filter(|_| !one) {
        match planned(rib, server, local, range, choice.hops.len()) {
            Ok(list) if !askable => return Ok(tries(list)),
            Ok(list) => match confirm(&list, rib, socket) {
                Ok(()) => return Ok(tries(list)),
                Err(e) => why = Some(e),
            },
            Err(e) => why = Some(e),
        }
        if !askable {
            return Err(why.unwrap_or_else(|| Unplaced::NoPorts));
        }
    }
    let mut found = tries(asked(rib, socket, server, local, range, one)?);
    if let Some(e) = why
        && found.links().len() == 1
    {
        found.notes.push(format!(
            "{}: all connections go by {}: {e}",
            server.ip(),
            found.links()[0]
        ));
    }
    Ok(found)
}

/// Rule 2: as many for each path.
fn planned(
    rib: &Rib,
    server: SocketAddr,
    local: Option<IpAddr>,
    range: Option<(u16, u16)>,
    paths: usize,
) -> Result<Vec<Try>, Unplaced> {
    let kernel = raddle_preflight::running_kernel().ok();
    let to = (server.ip(), server.port());
    let mut count = (EACH * paths * paths).clamp(PORTS.0, PORTS.1);
    let candidates = loop {
        let planned = ports::candidates(rib, kernel, to, local, range, count);
        match planned {
            Err(_) if count > 2 * paths => count /= 2,
            done => break done?,
        }
    };
    let of = |c: ports::Candidate| {
        Some(Try {
            server,
            from: SocketAddr::new(c.from?, c.port),
            dev: c.path.dev,
        })
    };
    Ok(candidates.into_iter().filter_map(of).collect())
}

/// Asks the kernel about one port of each path.
fn confirm(tries: &[Try], rib: &Rib, socket: &mut Socket) -> Result<(), Unplaced> {
    let mut asked = std::collections::BTreeSet::new();
    for of in tries {
        if !asked.insert((of.from.ip(), &of.dev)) {
            continue;
        }
        let query = query(of.from, of.server);
        let said = link_name(rib, socket.get_route(of.server.ip(), &query)?.index);
        if said != of.dev {
            return Err(Unplaced::Otherwise {
                port: of.from.port(),
                dev: of.dev.clone(),
                said,
            });
        }
    }
    Ok(())
}

/// The kernel's word for a connection.
pub(crate) fn query(from: SocketAddr, server: SocketAddr) -> RouteQuery {
    RouteQuery {
        src: Some(from.ip()),
        ip_proto: Some(6),
        sport: Some(from.port()),
        dport: Some(server.port()),
        ..RouteQuery::default()
    }
}

/// Rule 3: by the kernel's word, until each link that was seen has enough ports. About a pair with `one` path it
/// is asked once. Where the source is the kernel's choice it is asked twice, the second time with the source
/// that it has named, which the connection is then bound to.
fn asked(
    rib: &Rib,
    socket: &mut Socket,
    server: SocketAddr,
    local: Option<IpAddr>,
    range: Option<(u16, u16)>,
    one: bool,
) -> Result<Vec<Try>, Unplaced> {
    let mut list: Vec<Try> = Vec::new();
    let mut links: Vec<(String, usize)> = Vec::new();
    for port in ports::own(range)?.into_iter().take(PORTS.1) {
        if let (true, Some(Try { from, dev, .. })) = (one, list.first().cloned()) {
            if list.len() >= PORTS.0 {
                break;
            }
            let from = SocketAddr::new(from.ip(), port);
            list.push(Try { server, from, dev });
            continue;
        }
        let enough = EACH * links.len() * links.len();
        if list.len() >= PORTS.0 && links.iter().all(|(_, count)| count * links.len() >= enough) {
            break;
        }
        let any = RouteQuery {
            src: local,
            ..query(SocketAddr::new(server.ip(), port), server)
        };
        let mut said = socket.get_route(server.ip(), &any)?;
        let from = match local {
            Some(local) => local,
            None => {
                let source = said.prefsrc.ok_or(Unplaced::NoSource)?;
                let bound = query(SocketAddr::new(source, port), server);
                said = socket.get_route(server.ip(), &bound)?;
                source
            }
        };
        let dev = link_name(rib, said.index);
        match links.iter_mut().find(|(link, _)| *link == dev) {
            Some((_, count)) => *count += 1,
            None => links.push((dev.clone(), 1)),
        }
        let from = SocketAddr::new(from, port);
        list.push(Try { server, from, dev });
    }
    Ok(list)
}

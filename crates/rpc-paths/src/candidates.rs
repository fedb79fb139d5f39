//! Source ports with known paths, for every pair of an address of the server and an own one.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use raddle_netlink::{Mirror, RouteQuery, Socket};
use raddle_preflight::bond_members;
use raddle_rib::{Asked, Hop, Rib};

use crate::error::Unplaced;
use crate::placing::name_of;
use raddle_plan::bonds::{Bonds, Leaving, Traffic};
use raddle_plan::paths::{self, Kind, Place, link_name};
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
    /// The neighbour there; none for a direct route.
    pub gateway: Option<IpAddr>,
    /// The member of it that they leave by, where it is a bond, or a VLAN upon one, whose members are told apart.
    pub member: Option<String>,
}

impl Try {
    /// The link that frames leave by, as far as it is known: what connections lie on, on the way out.
    pub(crate) fn out(&self) -> &str {
        self.member.as_ref().unwrap_or(&self.dev)
    }
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
    /// How packets leave by the nexthops that there are.
    leaving: Vec<Out>,
}

impl Tries {
    /// The links that connections can go out by, members of bonds where these are told apart, in the order of addresses.
    pub(crate) fn links(&self) -> Vec<&str> {
        distinct(self.list.iter().map(Try::out))
    }

    /// The same with bonds in place of their members: those that answers come in by.
    pub(crate) fn devs(&self) -> Vec<&str> {
        distinct(self.list.iter().map(|of| of.dev.as_str()))
    }

    /// The link that a connection goes out by, given by which nexthop the kernel sends it.
    pub(crate) fn out(
        &self,
        (index, gateway): (u32, Option<IpAddr>),
        (from, server): (SocketAddr, SocketAddr),
    ) -> String {
        let place = Place {
            index,
            gateway,
            member: None,
        };
        let of = self
            .leaving
            .iter()
            .find(|of| of.is_for(&place, from, server));
        let member = of.and_then(|of| of.leaving.of_connection(from, server));
        name_of(member.unwrap_or(index))
    }
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut links: Vec<&str> = Vec::new();
    for link in all {
        if !links.contains(&link) {
            links.push(link);
        }
    }
    links
}

/// How connections leave by a nexthop.
#[derive(Clone, Debug)]
struct Out {
    place: Place,
    server: IpAddr,
    /// None for any.
    local: Option<IpAddr>,
    leaving: Leaving,
}

impl Out {
    fn is_for(&self, place: &Place, from: SocketAddr, server: SocketAddr) -> bool {
        let ends = self.server == server.ip() && self.local.is_none_or(|local| local == from.ip());
        ends && self.place.is_same_for(place, server.ip())
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
/// 5. Members of a bond are links of their own, where its hash tells ports apart ([`Leaving::by`]): by what /sys says of them, as the
///    kernel says nothing of them.
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
    let bonds = Bonds::told(&rib, |bond| bond_members(Path::new("/sys/class/net"), bond));
    let state = (&rib, &bonds);
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
            match pair(state, &mut socket, *server, local, ends.range) {
                Ok(found) => {
                    tries.askable &= found.askable;
                    tries.list.extend(found.list);
                    tries.notes.extend(found.notes);
                    tries.leaving.extend(found.leaving);
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
        for link in tries.devs() {
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

/// Rules 2, 3 and 5 of [`find`].
fn pair(
    (rib, bonds): (&Rib, &Bonds),
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
    let out = |hop: &Hop| {
        let place = Place::of(hop);
        let own = Traffic::connections(local, server);
        Out {
            place,
            server: server.ip(),
            local,
            leaving: Leaving::by(rib, bonds, &place, &own),
        }
    };
    let hops = choice.iter().flat_map(|choice| &choice.hops);
    let leaving: Vec<Out> = hops.map(out).collect();
    let paths = leaving.iter().map(|of| of.leaving.paths()).sum();
    let tries = |list| Tries {
        list,
        notes: leaving.iter().filter_map(|of| of.leaving.note()).collect(),
        askable,
        leaving: leaving.clone(),
    };
    let mut why = None;
    if choice.is_some() && !one {
        match planned((rib, bonds), server, local, range, paths) {
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
    let one = one.then_some(paths);
    let mut found = tries(asked(rib, socket, server, local, range, one)?);
    for of in &mut found.list {
        of.member = member(rib, &found.leaving, of);
    }
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

/// The member of a bond that connections from a port leave by.
fn member(rib: &Rib, leaving: &[Out], of: &Try) -> Option<String> {
    let place = Place {
        index: rib.link_named(&of.dev)?.index,
        gateway: of.gateway,
        member: None,
    };
    let out = leaving
        .iter()
        .find(|out| out.is_for(&place, of.from, of.server))?;
    let member = out.leaving.of_connection(of.from, of.server)?;
    Some(link_name(rib, member))
}

/// Rule 2: as many for each path.
fn planned(
    (rib, bonds): (&Rib, &Bonds),
    server: SocketAddr,
    local: Option<IpAddr>,
    range: Option<(u16, u16)>,
    paths: usize,
) -> Result<Vec<Try>, Unplaced> {
    let kernel = raddle_preflight::running_kernel().ok();
    let to = (server.ip(), server.port());
    let mut count = (EACH * paths * paths).clamp(PORTS.0, PORTS.1);
    let candidates = loop {
        let planned = ports::candidates(rib, kernel, bonds, to, local, range, count);
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
            gateway: c.path.via,
            member: c.path.member,
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

/// Rule 3: by the kernel's word, until each link that was seen has enough ports. About a pair with `one` nexthop, of so many paths, it
/// is asked once. Where the source is the kernel's choice it is asked twice, the second time with the source
/// that it has named, which the connection is then bound to.
fn asked(
    rib: &Rib,
    socket: &mut Socket,
    server: SocketAddr,
    local: Option<IpAddr>,
    range: Option<(u16, u16)>,
    one: Option<usize>,
) -> Result<Vec<Try>, Unplaced> {
    let mut list: Vec<Try> = Vec::new();
    let mut links: Vec<(String, usize)> = Vec::new();
    for port in ports::own(range)?.into_iter().take(PORTS.1) {
        if let (Some(paths), Some(first)) = (one, list.first().cloned()) {
            if list.len() >= (EACH * paths * paths).clamp(PORTS.0, PORTS.1) {
                break;
            }
            let from = SocketAddr::new(first.from.ip(), port);
            list.push(Try { from, ..first });
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
        list.push(Try {
            server,
            from,
            dev,
            gateway: said.gateway,
            member: None,
        });
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use raddle_rib::event::{Bond, Event, Link, Neighbour};

    use super::*;
    use crate::place::{Loads, least};

    /// A bond of four with this policy, and what /sys says of it, in `sys`.
    fn bond(sys: &Path, policy: u8) -> (Rib, Bonds) {
        let mut rib = Rib::detached();
        let mac = [2, 0, 0, 0, 2, 5];
        rib.apply(Event::Link(Link {
            kind: Some("bond".to_owned()),
            bond: Some(Bond {
                mode: 4,
                policy,
                by_traffic: false,
                ..Bond::default()
            }),
            ..Link::ethernet(5, "bond0", mac)
        }));
        let write = |file: String, text: &str| {
            let file = sys.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        for (index, name) in (11..).zip(["m1", "m2", "m3", "m4"]) {
            rib.apply(Event::Link(Link {
                master: Some(5),
                bond_active: Some(true),
                ..Link::ethernet(index, name, mac)
            }));
            for (file, text) in [
                ("mii_status", "up"),
                ("ad_aggregator_id", "1"),
                ("queue_id", "0"),
            ] {
                write(format!("{name}/bonding_slave/{file}"), text);
            }
        }
        for (file, text) in [
            ("ifindex", "5"),
            ("address", "02:00:00:00:02:05"),
            ("bonding/slaves", "m3 m1 m4 m2"),
            ("bonding/ad_aggregator", "1"),
        ] {
            write(format!("bond0/{file}"), text);
        }
        let bonds = Bonds::told(&rib, |bond| bond_members(sys, bond));
        (rib, bonds)
    }

    #[test]
    fn four_connections_over_a_bond_of_four_go_out_by_four() {
        let sys = tempfile::tempdir().unwrap();
        let (rib, bonds) = bond(sys.path(), 1);
        let server: SocketAddr = "10.0.0.2:2049".parse().unwrap();
        // As of a direct route, of which the kernel names no gateway.
        let place = Place {
            index: 5,
            gateway: Some(server.ip()),
            member: None,
        };
        let leaving = Leaving::by(&rib, &bonds, &place, &Traffic::connections(None, server));
        assert_eq!((leaving.paths(), leaving.note()), (4, None));
        let out = Out {
            place,
            server: server.ip(),
            local: None,
            leaving,
        };
        let tried = |port| Try {
            server,
            from: SocketAddr::new([10, 0, 0, 1].into(), port),
            dev: "bond0".to_owned(),
            gateway: None,
            member: None,
        };
        let mut tries = Tries {
            list: (32768..32832).map(tried).collect(),
            leaving: vec![out],
            ..Tries::default()
        };
        for of in &mut tries.list {
            of.member = member(&rib, &tries.leaving, of);
        }
        assert_eq!((tries.links().len(), tries.devs()), (4, vec!["bond0"]));
        let mut loads = Loads::new();
        for _ in 0..8 {
            let link = least(&tries.links(), &loads, &BTreeSet::new()).unwrap();
            *loads.entry(link.to_owned()).or_default() += 1;
        }
        assert!(loads.len() == 4 && loads.values().all(|load| *load == 2));
    }

    /// With layer2 the gateway's MAC address decides.
    #[test]
    fn two_gateways_on_one_bond_have_a_member_each() {
        let sys = tempfile::tempdir().unwrap();
        let (mut rib, bonds) = bond(sys.path(), 0);
        let server: SocketAddr = "10.9.0.2:2049".parse().unwrap();
        let gateways: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        for (gateway, last) in gateways.into_iter().zip(1..) {
            rib.apply(Event::Neighbour(Neighbour {
                index: 5,
                dst: gateway,
                mac: Some([2, 0, 0, 0, 9, last]),
                state: 2,
                flags: 0,
                protocol: 0,
            }));
        }
        let from = SocketAddr::new([10, 0, 0, 9].into(), 40000);
        let place = |gateway| Place {
            index: 5,
            gateway: Some(gateway),
            member: None,
        };
        let traffic = Traffic::connections(Some(from.ip()), server);
        let out = |gateway| Out {
            place: place(gateway),
            server: server.ip(),
            local: Some(from.ip()),
            leaving: Leaving::by(&rib, &bonds, &place(gateway), &traffic),
        };
        let leaving: Vec<Out> = gateways.into_iter().map(out).collect();
        let by = |gateway| {
            let of = Try {
                server,
                from,
                dev: "bond0".to_owned(),
                gateway: Some(gateway),
                member: None,
            };
            member(&rib, &leaving, &of).unwrap()
        };
        assert_ne!(by(gateways[0]), by(gateways[1]));
    }
}

//! Which ports, or flow labels, cover all paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::{Asked as Packets, MpAlgo, Rib};
use raddle_select::{Flow, KernelVersion, KeyKind};
use raddle_sim::Layout;
use raddle_sim::ports::{self, Alike, Connection, Places, PlanError, Spare, Vary};

use super::beyond::{Behind, Beyond};
use super::certificate::{
    Certificate, HashSettings, PlannedConnection, PlannedFlow, PlannedPath, PlannedSpare, Varied,
};
use super::question::has_ports;
use super::{Error, Question, range};
use crate::bonds::{Bonds, Differ, Fan, Traffic};
use crate::paths::{self, Choice, Kind, Named, PathError, Place, link_name};
use crate::sockets::{Sockets, Unbound};

/// Flow labels that are tried: as many as are plenty.
const LABELS: u32 = 1 << 16;
/// Look-ups that show which sources the kernel gives to sockets without an address.
const PROBES: u16 = 32;

/// The plan that was asked for.
///
/// 1. Packets that come in by a link are hashed, and paths are shares of the hash space.
/// 2. Connections of this machine's own with a source: the same, but for IPv4 routes' own nexthops, of
///    which those with that source are preferred ([`raddle_select::choose_local4`]).
/// 3. IPv4 ones without a source, where it depends on the path: two look-ups (`Unbound`).
/// 4. A nexthop over a bond is as many paths as members of it that ports tell apart ([`Leaving::by`]); `bonds` is what the machine
///    tells of them.
///
/// [`Leaving::by`]: crate::bonds::Leaving::by
///
/// # Errors
/// Why they cannot be found.
pub fn plan(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    bonds: &Bonds,
    question: &Question,
) -> Result<Certificate, Error> {
    plan_beyond(rib, kernel, bonds, question, &[])
}

/// As [`plan`], for connections that all pass these routers as well: they cover the links of each of them, too. What is opened
/// when a link fails does not look at them.
///
/// # Errors
/// Why they cannot be found; [`Error::NoRouteBehind`].
pub fn plan_beyond(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    bonds: &Bonds,
    question: &Question,
    behind: &[Behind<'_>],
) -> Result<Certificate, Error> {
    let dst = question.dst;
    let iif = paths::input(rib, question.iif.as_deref())?;
    let given = given(rib, question)?;
    let candidates = candidates(question)?;
    let first = paths::needed(rib, iif, &question.packets(given, &candidates))?;
    let from = from(Sockets::new(rib, &first, kernel), given, question)?;
    // Rules may ask for the source that they get.
    let mut packets = question.packets(Some(from), &candidates);
    if from.is_unspecified() {
        packets.src = Packets::to(dst).src;
    }
    let choice = paths::needed(rib, iif, &packets)?;
    let sockets = Sockets::new(rib, &choice, kernel);
    let flow = Flow::new(from, dst).ok_or(Error::Families { from, dst })?;
    let flow = flow.ports(question.proto, question.sport, question.dport);
    let algo = paths::algo(rib, iif, &packets);
    // Where there is one path, nothing is hashed, and no key is needed.
    let hashing = match paths::hashing(rib, iif, dst, algo) {
        Ok(hashing) => Some(hashing),
        Err(why) if choice.is_many() => return Err(Error::NotHashed { dst, why }),
        Err(_) => None,
    };
    let beyond = Beyond::new(behind, dst)?;
    let asked = Asked {
        beyond,
        rib,
        question,
        choice: &choice,
        fan: fan(rib, bonds, &choice, question, &flow),
        algo,
        shows_hashes: hashing
            .as_ref()
            .is_some_and(|hashing| rib.key_kind() != KeyKind::Kernel && !hashing.is_steered()),
        from,
        flow,
        candidates,
    };
    let of_own = iif.is_empty() && from == Ipv4Addr::UNSPECIFIED;
    if let (true, Some(hashing)) = (of_own, &hashing) {
        let failures = failures(&choice, &choice.layout, &asked.fan);
        let places = Unbound::new(sockets, hashing, (dst, &flow), &gone(&failures));
        return asked.certificate(&places, &failures, |failure, port| {
            places.connect(failure, port).map(|(source, _, _)| source)
        });
    }
    let layout = |gone: &[usize]| match iif.is_empty() {
        true => sockets.layout(from, |i| gone.contains(&i)),
        false if gone.is_empty() => choice.layout.clone(),
        false => choice.without(|i| gone.contains(&i)),
    };
    let now = layout(&[]);
    let failures = failures(&choice, &now, &asked.fan);
    let without: Vec<Layout> = failures.iter().map(|of| layout(&of.hops)).collect();
    let places = Alike {
        hashing: hashing.as_ref(),
        flow: &flow,
        vary: question.vary,
        layout: &now,
        without: &without,
    };
    asked.certificate(&places, &failures, |_, _| None)
}

/// The paths behind the nexthops of a choice.
fn fan(rib: &Rib, bonds: &Bonds, choice: &Choice, question: &Question, flow: &Flow) -> Fan {
    let hops: Vec<Place> = choice.hops.iter().map(Place::of).collect();
    let traffic = Traffic {
        forwarded: question.iif.as_deref().map(|iif| paths::brings(rib, iif)),
        flow: *flow,
        differ: match question.by_label() {
            true => Differ::Label,
            false => Differ::Sport,
        },
    };
    Fan::new(rib, bonds, &hops, &traffic)
}

/// A link that may fail.
struct Failure {
    /// The link.
    link: u32,
    /// The nexthops that go with it, by number.
    hops: Vec<usize>,
    /// Whether it is a member of a bond, whose others take over.
    is_member: bool,
}

impl Failure {
    /// The member of a bond that it is.
    fn member(&self) -> Option<u32> {
        self.is_member.then_some(self.link)
    }

    /// The paths that go with it, by number.
    fn paths(&self, fan: &Fan) -> Vec<usize> {
        match self.member() {
            Some(member) => {
                let paths = fan.places().iter().enumerate();
                let those = paths.filter(|(_, place)| place.member == Some(member));
                those.map(|(path, _)| path).collect()
            }
            None => self.hops.iter().flat_map(|hop| fan.of(*hop)).collect(),
        }
    }
}

fn gone(failures: &[Failure]) -> Vec<Vec<usize>> {
    failures.iter().map(|of| of.hops.clone()).collect()
}

/// What is wanted of a plan.
struct Asked<'a> {
    beyond: Beyond<'a>,
    rib: &'a Rib,
    question: &'a Question,
    choice: &'a Choice,
    fan: Fan,
    algo: Option<MpAlgo>,
    /// There are hashes, and none is by a key of the kernel that no setting tells.
    shows_hashes: bool,
    from: IpAddr,
    flow: Flow,
    candidates: Vec<u32>,
}

impl Asked<'_> {
    /// That what differs between the connections tells nexthops apart, whatever it does to the members of their bonds.
    ///
    /// # Errors
    /// [`Error::PortsNotHashed`], [`Error::LabelsNotHashed`].
    fn check_hops(&self, places: &impl Places) -> Result<(), Error> {
        let several = places
            .shares(None)
            .iter()
            .filter(|share| **share > 0)
            .count()
            > 1;
        if !several || self.question.count < 2 || !self.fan.is_wider() {
            return Ok(());
        }
        let mut hashes = self
            .candidates
            .iter()
            .map(|value| places.opened(None, *value).0);
        let first = hashes.next();
        match self.candidates.len() > 1 && hashes.all(|hash| Some(hash) == first) {
            true => Err(not_hashed(self.question)),
            false => Ok(()),
        }
    }

    /// The plan, for connections whose nexthops these places are of, with these failures. `source` says which address a connection gets that is opened as things are, or with such a failure, where that
    /// depends on its port.
    fn certificate(
        &self,
        places: &impl Places,
        failures: &[Failure],
        source: impl Fn(Option<usize>, u32) -> Option<Ipv4Addr>,
    ) -> Result<Certificate, Error> {
        let (rib, question, choice) = (self.rib, self.question, self.choice);
        let asked = (question.count, question.share_out);
        let vary = question.vary;
        self.check_hops(places)?;
        let flow = |failure: Option<usize>, value: u32| {
            let flow = vary.apply(&self.flow, value);
            let from = source(failure, value).map_or(self.from, IpAddr::V4);
            let own = Flow::new(from, question.dst);
            own.map_or(flow, |own| Flow {
                addresses: own.addresses,
                ..flow
            })
        };
        let links = |failure: Option<usize>, value: u32| self.beyond.links(&flow(failure, value));
        let fan = &self.fan;
        let through = Through {
            places,
            fan,
            members: &failures.iter().map(Failure::member).collect::<Vec<_>>(),
            flow: &flow,
        };
        let passing = Passing {
            places: &through,
            links: |value| links(None, value),
            weights: self.beyond.weights(),
        };
        let failed: Vec<Vec<usize>> = failures.iter().map(|of| of.paths(fan)).collect();
        let plan = ports::plan(&passing, &failed, &self.candidates, asked)
            .map_err(|e| why_not(&e, rib, question, fan))?;
        let (policy, fields, seed) = paths::hash_settings(rib, question.dst, self.algo);
        let hops = places.shares(None);
        let hashes = through.shares(None);
        let used = |shares: &[u64]| shares.iter().filter(|share| **share > 0).count();
        let connection = |failure: Option<usize>, connection: &Connection| PlannedConnection {
            value: connection.value,
            hash: self.shows_hashes.then_some(connection.hash31),
            path: connection.path,
            from: source(failure, connection.value),
            beyond: links(failure, connection.value),
        };
        let mut beyond = self.beyond.routers.clone();
        for connection in &plan.connections {
            for (router, link) in beyond.iter_mut().zip(links(None, connection.value)) {
                router.links[link].connections += 1;
            }
        }
        let path = |(i, place): (usize, &Place)| PlannedPath {
            path: Named::of(place, rib),
            weight: choice.hops[fan.hop(i)].weight,
            hashes: hashes.get(i).copied().unwrap_or(0),
        };
        let spare = |(failure, (of, mut spare)): (usize, (&Failure, Spare))| {
            let opened = |c: &Connection| connection(Some(failure), c);
            spare.loads.resize(fan.places().len(), 0);
            PlannedSpare {
                dev: link_name(rib, of.link),
                connections: spare.connections.iter().map(opened).collect(),
                close: spare.close,
                moved: spare.moved,
                loads: spare.loads,
            }
        };
        Ok(Certificate {
            format: Certificate::FORMAT.into(),
            flow: PlannedFlow {
                dst: question.dst,
                from: self.from,
                iif: question.iif.clone(),
                proto: question.proto,
                sport: self.flow.sport,
                dport: self.flow.dport,
                vary: match question.vary {
                    Vary::SourcePort => Varied::Sport,
                    Vary::FlowLabel => Varied::FlowLabel,
                },
            },
            settings: HashSettings {
                policy,
                fields,
                seed,
            },
            route: choice.route.dst.to_string(),
            group: match choice.kind {
                Kind::Group(id) | Kind::Resilient(id) => Some(id),
                Kind::One | Kind::Plain => None,
            },
            preferred: used(&hops) < used(&choice.layout.shares()),
            bonds: fan.bonds(),
            paths: fan.places().iter().enumerate().map(path).collect(),
            connections: plan
                .connections
                .iter()
                .map(|c| connection(None, c))
                .collect(),
            beyond,
            spares: failures
                .iter()
                .zip(plan.spares)
                .enumerate()
                .map(spare)
                .collect(),
        })
    }
}

/// Connections that leave by members of bonds.
struct Through<'a, P, F> {
    /// Where they lead, by nexthop.
    places: &'a P,
    fan: &'a Fan,
    /// The member that fails with each failure.
    members: &'a [Option<u32>],
    /// A connection that is opened with a failure, or as things are.
    flow: F,
}

impl<P: Places, F: Fn(Option<usize>, u32) -> Flow> Through<'_, P, F> {
    fn member(&self, failure: Option<usize>) -> Option<u32> {
        self.members.get(failure?).copied().flatten()
    }
}

impl<P: Places, F: Fn(Option<usize>, u32) -> Flow> Places for Through<'_, P, F> {
    fn shares(&self, failure: Option<usize>) -> Vec<u64> {
        let hops = self.places.shares(failure);
        self.fan.shares(&hops, self.member(failure))
    }

    fn opened(&self, failure: Option<usize>, value: u32) -> (u32, raddle_sim::Path) {
        let (hash31, hop) = self.places.opened(failure, value);
        let flow = (self.flow)(failure, value);
        (hash31, self.fan.flow(hop, &flow, self.member(failure)))
    }

    /// The bond hashes the connection as it was opened.
    fn kept(&self, failure: usize, connection: &Connection) -> raddle_sim::Path {
        let of_hop = Connection {
            path: self.fan.hop(connection.path),
            ..*connection
        };
        let hop = self.places.kept(failure, &of_hop);
        let flow = (self.flow)(None, connection.value);
        self.fan.flow(hop, &flow, self.member(Some(failure)))
    }
}

/// Connections that pass routers behind.
struct Passing<'a, P, L> {
    places: &'a P,
    links: L,
    weights: Vec<Vec<u32>>,
}

impl<P: Places, L: Fn(u32) -> Vec<usize>> Places for Passing<'_, P, L> {
    fn shares(&self, failure: Option<usize>) -> Vec<u64> {
        self.places.shares(failure)
    }

    fn opened(&self, failure: Option<usize>, value: u32) -> (u32, raddle_sim::Path) {
        self.places.opened(failure, value)
    }

    fn kept(&self, failure: usize, connection: &Connection) -> raddle_sim::Path {
        self.places.kept(failure, connection)
    }

    fn beyond(&self, value: u32) -> Vec<usize> {
        (self.links)(value)
    }

    fn weights_beyond(&self) -> Vec<Vec<u32>> {
        self.weights.clone()
    }
}

/// The source address that was given, if it can be one; 0.0.0.0 and :: stand for none, as they do for `bind`.
///
/// 1. Nothing is sent from a multicast address, or from 255.255.255.255.
/// 2. Connections of this machine's own, by the live state, have an address of this machine ([`Rib::is_local`]). IPv6 ones may have
///    another where sockets may be bound to such (`net.ipv6.ip_nonlocal_bind`); IPv4 ones may be bound then, and cannot connect.
fn given(rib: &Rib, question: &Question) -> Result<Option<IpAddr>, Error> {
    let Some(from) = question.from.filter(|from| !from.is_unspecified()) else {
        return Ok(None);
    };
    if from.is_multicast() || from == Ipv4Addr::BROADCAST {
        return Err(Error::NotASource(from));
    }
    let own = question.live && question.iif.is_none();
    match own && !rib.is_local(from) && !(from.is_ipv6() && is_any_bound()) {
        true => Err(Error::NotLocal(from)),
        false => Ok(Some(from)),
    }
}

/// Whether IPv6 sockets of this network namespace may be bound to addresses that it does not have.
fn is_any_bound() -> bool {
    let set = fs::read_to_string("/proc/sys/net/ipv6/ip_nonlocal_bind");
    set.is_ok_and(|set| set.trim() != "0")
}

/// The source address: the one that was given, or the one that the kernel gives to such sockets, if that
/// is always the same. 0.0.0.0 where it depends on the path, which a socket over IPv4 follows.
fn from(sockets: Sockets<'_>, given: Option<IpAddr>, question: &Question) -> Result<IpAddr, Error> {
    if let Some(from) = given {
        return Ok(from);
    }
    if question.iif.is_some() {
        return Err(Error::NoSource);
    }
    let sources: BTreeSet<IpAddr> = match question.dst {
        IpAddr::V4(_) => sockets
            .sources()
            .into_iter()
            .map(|source| source.map(IpAddr::V4).ok_or(Error::NoSourceOfPath))
            .collect::<Result<_, _>>()?,
        IpAddr::V6(_) => asked_of_the_kernel(question)?,
    };
    let mut list = sources.iter();
    match (list.next(), list.next(), question.dst) {
        (Some(source), None, _) => Ok(*source),
        (Some(_), Some(_), IpAddr::V4(_)) => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        (Some(_), Some(_), IpAddr::V6(_)) => Err(Error::Sources(sources.into_iter().collect())),
        (None, ..) => Err(Error::NoSourceOfKernel),
    }
}

/// The sources that the live kernel names for some ports.
fn asked_of_the_kernel(question: &Question) -> Result<BTreeSet<IpAddr>, Error> {
    if !question.live {
        return Err(Error::NoSource);
    }
    let mut socket = Socket::open()?;
    let mut sources = BTreeSet::new();
    for probe in 0..PROBES {
        let query = RouteQuery {
            ip_proto: Some(question.proto),
            sport: Some(40000 + probe),
            dport: (question.dport != 0).then_some(question.dport),
            ..RouteQuery::default()
        };
        sources.extend(socket.get_route(question.dst, &query)?.prefsrc);
    }
    Ok(sources)
}

/// The values that may be used.
fn candidates(question: &Question) -> Result<Vec<u32>, Error> {
    let by_label = question.by_label();
    if !by_label && !has_ports(question.proto) {
        return Err(Error::NoPorts(question.proto));
    }
    let most = if by_label { 0xf_ffff } else { 65535 };
    let (first, last) = match (question.first, question.last) {
        (None, None) if by_label => (1, LABELS),
        (None, None) => return range::local(question.live),
        (first, last) => (first.unwrap_or(1), last.unwrap_or(most)),
    };
    if first > last || last > most {
        return Err(Error::Range { first, last, most });
    }
    if by_label && question.dst.is_ipv4() {
        return Err(Error::NoFlowLabels);
    }
    // Port 0 and label 0 stand for "choose one".
    Ok((first.max(1)..=last).collect())
}

/// The links that paths with a share use, and the nexthops over each, by number; and the members of bonds that hashes choose.
fn failures(choice: &Choice, layout: &Layout, fan: &Fan) -> Vec<Failure> {
    let shares = layout.shares();
    let mut links: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, hop) in choice.hops.iter().enumerate() {
        links.entry(hop.index).or_default().push(i);
    }
    let used = |i: &usize| shares.get(*i).is_some_and(|share| *share > 0);
    links.retain(|_, over| over.iter().any(used));
    let links = links.into_iter().map(|(link, hops)| Failure {
        link,
        hops,
        is_member: false,
    });
    let members: BTreeSet<u32> = fan.members().collect();
    let members = members.into_iter().map(|link| Failure {
        link,
        hops: Vec::new(),
        is_member: true,
    });
    links.chain(members).collect()
}

fn why_not(error: &PlanError, rib: &Rib, question: &Question, fan: &Fan) -> Error {
    match error {
        PlanError::NotHashed => not_hashed(question),
        PlanError::TooFew {
            path,
            wanted,
            found,
        } => {
            let place = fan.places().get(*path);
            Error::TooFew {
                path: place.map(|place| place.text(rib)).unwrap_or_default(),
                found: *found,
                wanted: *wanted,
            }
        }
        PlanError::NoPath => {
            let reason = raddle_image::Reason::NoRoute;
            let dst = question.dst;
            PathError::NoPath { dst, reason }.into()
        }
    }
}

/// What differs makes no difference to the hash of the route.
fn not_hashed(question: &Question) -> Error {
    match question.by_label() {
        true => Error::LabelsNotHashed,
        false => Error::PortsNotHashed {
            family: if question.dst.is_ipv4() {
                "ipv4"
            } else {
                "ipv6"
            },
        },
    }
}

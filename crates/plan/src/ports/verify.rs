//! A certificate against the live kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::{MpAlgo, Rib};
use raddle_select::{Brings, Flow, KernelVersion};
use raddle_sim::ports::Vary;
use raddle_sim::{Asker, Hashing, Layout};
use serde::Serialize;

use super::Error;
use super::certificate::{Certificate, HashSettings, PlannedConnection, PlannedPath, Varied};
use super::question::{packets, ports_of};
use crate::bonds::{BondUse, Bonds, Differ, Fan, Traffic};
use crate::paths::{self, Named, Place};
use crate::sockets::{Sockets, Unbound};

/// What the kernel says to a certificate.
#[derive(Debug, Serialize)]
pub struct Verification {
    /// Connections that the kernel sends where the certificate says.
    pub agree: usize,
    /// Connections of the certificate.
    pub of: usize,
    /// Paths that the kernel uses for them.
    pub paths: usize,
    /// The others.
    pub differ: Vec<Difference>,
    /// Their packets bring a hash along, of which the kernel, asked about packets without one, knows nothing: it agrees about
    /// these.
    pub brought: bool,
    /// Settings that are not those of the certificate any more.
    pub changed: Vec<String>,
}

/// A connection that does not go where it should.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Port or label.
    pub value: u32,
    /// What the certificate says.
    pub planned: Named,
    /// What it takes by the state of now.
    pub predicted: Option<Named>,
    /// What the kernel says.
    pub kernel: String,
}

/// Checks each connection.
///
/// 1. By the state of now, it has to take the path that the certificate says: the nexthop, and the member of its bond where the
///    certificate names one and it is known now. A bond of one active member, which the certificate has as one path, is the same
///    path by another member.
/// 2. The kernel has to agree (`RTM_GETROUTE`); about connections that are bound to no address it is asked
///    twice, as by a socket: the second time with the source that the first answer names. It takes a question about IPv4 for a packet, and one about
///    IPv6 for a sender's flow; where the hash policy tells the two apart (2 and 3), it is asked, and has
///    to agree, about the one that it can be asked about. Of rules of the daemon (mp-algo) it knows nothing:
///    it has to agree about the same flow under its own policy; and of hashes that packets bring along, about the same flow
///    without one. Of members of bonds it says nothing.
///
/// # Errors
/// The certificate is about nothing that can be checked, or the kernel does not answer.
pub fn verify(
    certificate: &Certificate,
    rib: &Rib,
    kernel: Option<KernelVersion>,
    bonds: &Bonds,
    socket: &mut Socket,
) -> Result<Verification, Error> {
    let planned = &certificate.flow;
    let iif = paths::input(rib, planned.iif.as_deref())?;
    let index = rib.link_named(iif).map(|link| link.index);
    let mut packets = packets(planned.dst, planned.proto, planned.dport);
    if !planned.from.is_unspecified() {
        packets.src = planned.from.into();
    }
    packets.sport = match planned.vary {
        Varied::Sport => ports_of(certificate.connections.iter().map(|c| c.value)),
        Varied::FlowLabel => (planned.sport, planned.sport),
    };
    let choice = paths::needed(rib, iif, &packets)?;
    let algo = paths::algo(rib, iif, &packets);
    let hashing = |algo| match paths::hashing(rib, iif, planned.dst, algo) {
        Ok(hashing) => Ok(Some(hashing)),
        Err(why) if choice.is_many() => Err(Error::NotChecked(why)),
        // Nothing is hashed where there is one path.
        Err(_) => Ok(None),
    };
    let asker = match planned.dst {
        IpAddr::V4(_) => Asker::Router,
        IpAddr::V6(_) => Asker::Sender,
    };
    // The kernel makes a packet of the question, which brings no hash along.
    let asked =
        hashing(None)?.map(|hashing| hashing.with_brings(Brings::default()).asked_by(asker));
    let hashing = hashing(algo)?;
    let flow = flow_of(certificate)?;
    let vary = match planned.vary {
        Varied::Sport => Vary::SourcePort,
        Varied::FlowLabel => Vary::FlowLabel,
    };
    let sockets = Sockets::new(rib, &choice, kernel);
    let layout = match iif.is_empty() {
        true => sockets.layout(planned.from, |_| false),
        false => choice.layout.clone(),
    };
    let hops: Vec<Place> = choice.hops.iter().map(Place::of).collect();
    let fan = Fan::new(rib, bonds, &hops, &traffic(certificate, rib, flow));
    let way = |hashing| Way::new(certificate, (flow, vary), hashing, (sockets, &layout));
    let (ours, kernels) = (way(hashing.as_ref()), way(asked.as_ref()));
    let now = |value: u32| {
        let (hop, flow) = ours.taken(value)?;
        let path = fan.flow(Some(hop), &flow, None);
        let known = path.and_then(|path| fan.places().get(path));
        Some((*known.or(hops.get(hop))?, fan.has_backups(hop)))
    };
    let by_kernel = |value: u32| {
        let (hop, _) = kernels.taken(value)?;
        hops.get(hop).copied()
    };
    let brought = |flow: &Flow| {
        hashing
            .as_ref()
            .is_some_and(|hashing| hashing.is_brought(flow))
    };
    let paths: Vec<&Named> = certificate.paths.iter().map(|of| &of.path).collect();
    let mut used = BTreeSet::new();
    let mut differ = Vec::new();
    let mut agree = 0;
    for (connection, PlannedPath { path, .. }) in certificate.on_paths() {
        let now = now(connection.value);
        let query = query(certificate, connection, index);
        let said = ask(socket, planned.dst, query, certificate.is_unbound())?;
        let same =
            now.is_some_and(|(now, backups)| is_same(&paths, path, &Named::of(&now, rib), backups));
        let now = now.map(|(now, _)| now);
        let agrees = said
            .as_ref()
            .ok()
            .zip(by_kernel(connection.value))
            .is_some_and(|(said, of)| of.is_same_for(said, planned.dst));
        if same && agrees {
            agree += 1;
            used.extend(now.map(|now| (now.index, now.gateway, now.member)));
            continue;
        }
        differ.push(Difference {
            value: connection.value,
            planned: path.clone(),
            predicted: now.map(|now| Named::of(&now, rib)),
            kernel: said.map_or_else(|Refused(why)| why, |said| said.text(rib)),
        });
    }
    Ok(Verification {
        agree,
        of: certificate.connections.len(),
        paths: used.len(),
        brought: certificate
            .connections
            .iter()
            .any(|connection| brought(&vary.apply(&flow, connection.value))),
        differ,
        changed: changed(certificate, rib, algo, &fan.bonds()),
    })
}

/// Rule 1 of [`verify`]: whether the path that a connection takes now is the planned one of `paths`; `backups`: over a bond of one
/// active member.
fn is_same(paths: &[&Named], planned: &Named, now: &Named, backups: bool) -> bool {
    let nexthop = |path: &Named| Named {
        member: None,
        ..path.clone()
    };
    let other = |path: &&Named| *path != planned && nexthop(path) == nexthop(planned);
    match now.member.is_none() || (backups && !paths.iter().any(other)) {
        true => nexthop(planned).is(now),
        false => planned.is(now),
    }
}

/// A connection of a certificate, but for what differs between them.
fn flow_of(certificate: &Certificate) -> Result<Flow, Error> {
    let planned = &certificate.flow;
    let ends = Flow::new(planned.from, planned.dst).ok_or(Error::CertificateFamilies)?;
    Ok(ends.ports(planned.proto, planned.sport, planned.dport))
}

/// What bonds see of the connections.
fn traffic(certificate: &Certificate, rib: &Rib, flow: Flow) -> Traffic {
    let iif = certificate.flow.iif.as_deref();
    Traffic {
        forwarded: iif.map(|iif| paths::brings(rib, iif)),
        flow,
        differ: match certificate.flow.vary {
            Varied::Sport => Differ::Sport,
            Varied::FlowLabel => Differ::Label,
        },
    }
}

/// Which nexthops connections take by a hash.
struct Way<'a> {
    /// None where there is one nexthop.
    hashing: Option<&'a Hashing>,
    /// Of connections that are bound to no address.
    unbound: Option<Unbound<'a>>,
    layout: &'a Layout,
    flow: Flow,
    vary: Vary,
}

impl<'a> Way<'a> {
    fn new(
        certificate: &Certificate,
        (flow, vary): (Flow, Vary),
        hashing: Option<&'a Hashing>,
        (sockets, layout): (Sockets<'_>, &'a Layout),
    ) -> Way<'a> {
        let dst = certificate.flow.dst;
        let without = hashing.filter(|_| certificate.is_unbound());
        Way {
            hashing,
            unbound: without.map(|hashing| Unbound::new(sockets, hashing, (dst, &flow), &[])),
            layout,
            flow,
            vary,
        }
    }

    /// The number of the nexthop, and the connection with the source that it gets.
    fn taken(&self, value: u32) -> Option<(usize, Flow)> {
        let own = self.vary.apply(&self.flow, value);
        let Some(unbound) = &self.unbound else {
            let hash31 = self.hashing.map_or(0, |hashing| hashing.flow(&own));
            return self.layout.path(hash31).map(|hop| (hop, own));
        };
        let (source, _, hop) = unbound.connect(None, value)?;
        let (_, dst) = own.addresses.ends();
        let ends = Flow::new(IpAddr::V4(source), dst)?;
        Some((hop, ends.ports(own.proto, own.sport, own.dport)))
    }
}

/// The kernel has no path, and this is what it says.
struct Refused(String);

/// The kernel's choice, or its refusal in words. `twice`: by the source that a first answer names.
fn ask(
    socket: &mut Socket,
    dst: IpAddr,
    mut query: RouteQuery,
    twice: bool,
) -> Result<Result<Place, Refused>, Error> {
    let mut said = socket.get_route(dst, &query);
    if twice && let Ok(first) = &said {
        query.src = first.prefsrc;
        said = socket.get_route(dst, &query);
    }
    match said {
        Ok(answer) => Ok(Ok(Place {
            index: answer.index,
            gateway: answer.gateway,
            member: None,
        })),
        Err(e) if e.errno().is_some() => Ok(Err(Refused(e.to_string()))),
        Err(e) => Err(e.into()),
    }
}

fn query(
    certificate: &Certificate,
    connection: &PlannedConnection,
    iif: Option<u32>,
) -> RouteQuery {
    let flow = &certificate.flow;
    let (sport, label) = match flow.vary {
        Varied::Sport => (connection.value as u16, None),
        Varied::FlowLabel => (flow.sport, Some(connection.value)),
    };
    let port = |port: u16| (port != 0).then_some(port);
    RouteQuery {
        src: Some(flow.from).filter(|from: &IpAddr| !from.is_unspecified()),
        iif,
        ip_proto: (flow.proto != 0).then_some(flow.proto),
        sport: port(sport),
        dport: port(flow.dport),
        flow_label: label,
        ..RouteQuery::default()
    }
}

/// Why connections may take other paths.
fn changed(
    certificate: &Certificate,
    rib: &Rib,
    algo: Option<MpAlgo>,
    bonds: &[BondUse],
) -> Vec<String> {
    let (policy_now, fields_now, seed_now) = paths::hash_settings(rib, certificate.flow.dst, algo);
    let HashSettings {
        policy,
        fields,
        seed,
    } = certificate.settings;
    let mut list = Vec::new();
    if policy != policy_now {
        list.push(format!("the hash policy is {policy_now}, not {policy}"));
    }
    if policy == 3 && policy_now == 3 && fields != fields_now {
        list.push(format!(
            "the hash fields are {fields_now:#x}, not {fields:#x}"
        ));
    }
    if seed != seed_now {
        list.push(format!("the hash seed is {seed_now}, not {seed}"));
    }
    for bond in &certificate.bonds {
        let now = bonds.iter().find(|now| now.dev == bond.dev);
        if let Some(now) = now.filter(|now| *now != bond) {
            list.push(format!("bond {now}; it was {bond}"));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_not_known_or_took_over_is_no_other_path() {
        let by = |dev: &str, member: Option<&str>| Named {
            dev: dev.to_owned(),
            via: None,
            member: member.map(str::to_owned),
        };
        let (first, second) = (by("bond0", Some("m1")), by("bond0", Some("m2")));
        let (unknown, other) = (by("bond0", None), by("eth0", None));
        let several = [&first, &second];
        for now in [&first, &unknown] {
            assert!(is_same(&several, &first, now, false));
        }
        assert!(!is_same(&several, &first, &second, false));
        assert!(!is_same(&several, &first, &other, false));
        // One path, whose backup is active now; several are not those of such a bond.
        assert!(is_same(&[&first, &other], &first, &second, true));
        assert!(!is_same(&several, &first, &second, true));
        assert!(!is_same(&[&first], &first, &second, false));
    }
}

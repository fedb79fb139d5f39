//! `raddle ports verify`: a certificate against the live kernel.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::IpAddr;

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::{MpAlgo, Rib};
use raddle_select::Flow;
use raddle_sim::ports::Vary;
use raddle_sim::{Asker, Hashing};
use serde::Serialize;

use super::certificate::{Certificate, HashSettings, PlannedConnection, Varied};
use crate::cli;
use crate::error::Failure;
use crate::paths::{self, Named, Place};
use crate::sockets::{Sockets, Unbound};
use crate::source;

/// What the kernel says to a certificate.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Connections that the kernel sends where the certificate says.
    pub agree: usize,
    /// Connections of the certificate.
    pub of: usize,
    /// Paths that the kernel uses for them.
    pub paths: usize,
    /// The others.
    pub differ: Vec<Difference>,
    /// Settings that are not those of the certificate any more.
    pub changed: Vec<String>,
}

/// A connection that does not go where it should.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    /// Port or label.
    pub value: u32,
    /// What the certificate says.
    pub planned: Named,
    /// What it takes by the state of now.
    pub predicted: Option<Named>,
    /// What the kernel says.
    pub kernel: String,
}

/// Runs the command.
pub(super) fn run(args: &cli::PortsVerify) -> Result<(), Failure> {
    let certificate = read(&args.file)?;
    let mut rib = source::mirror(None)?;
    source::set_algos(&mut rib, &args.algos, None, certificate.flow.iif.as_deref())?;
    let report = check(&certificate, &rib, &mut Socket::open()?)?;
    if args.json {
        let json = serde_json::to_string(&report).map_err(|e| Failure::system(e.to_string()))?;
        println!("{json}");
    } else {
        print!("{}", render(&report));
    }
    match report.agree == report.of {
        true => Ok(()),
        false => Err(Failure::found(format!(
            "{} of {} connections take another path",
            report.of - report.agree,
            report.of
        ))),
    }
}

fn read(file: &std::path::Path) -> Result<Certificate, Failure> {
    let name = file.display();
    let mut text = String::new();
    let done = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    done.map_err(|e| Failure::usage(format!("cannot read the certificate {name}: {e}")))?;
    let certificate: Certificate = serde_json::from_str(&text).map_err(|e| {
        Failure::usage(format!(
            "{name} is not a certificate: {e}; make one with raddle ports plan -j"
        ))
    })?;
    if certificate.format != Certificate::FORMAT {
        return Err(Failure::usage(format!(
            "{name} has the format '{}', not '{}': make it anew with this version",
            certificate.format,
            Certificate::FORMAT
        )));
    }
    Ok(certificate)
}

/// Checks each connection.
///
/// 1. By the state of now, it has to take the path that the certificate says.
/// 2. The kernel has to agree (`RTM_GETROUTE`); about connections that are bound to no address it is asked
///    twice, as by a socket: the second time with the source that the first answer names. It takes a question about IPv4 for a packet, and one about
///    IPv6 for a sender's flow; where the hash policy tells the two apart (2 and 3), it is asked, and has
///    to agree, about the one that it can be asked about. Of rules of the daemon (mp-algo) it knows nothing:
///    it has to agree about the same flow under its own policy.
pub(super) fn check(
    certificate: &Certificate,
    rib: &Rib,
    socket: &mut Socket,
) -> Result<Report, Failure> {
    let planned = &certificate.flow;
    let iif = paths::input(rib, planned.iif.as_deref())?;
    let index = rib.link_named(iif).map(|link| link.index);
    let choice =
        paths::choice(rib, iif, planned.dst).map_err(|e| paths::no_path(planned.dst, e))?;
    let algo = paths::algo(rib, iif, planned.dst);
    let hashing = |algo| {
        paths::hashing(rib, iif, planned.dst, algo)
            .map_err(|e| Failure::usage(format!("cannot check the certificate: {e}")))
    };
    let (hashing, by_kernel) = (hashing(algo)?, hashing(None)?);
    let asked = by_kernel.asked_by(match planned.dst {
        IpAddr::V4(_) => Asker::Router,
        IpAddr::V6(_) => Asker::Sender,
    });
    let flow = Flow::new(planned.from, planned.dst)
        .ok_or_else(|| Failure::usage("the certificate mixes the families"))?
        .ports(planned.proto, planned.sport, planned.dport);
    let vary = match planned.vary {
        Varied::Sport => Vary::SourcePort,
        Varied::FlowLabel => Vary::FlowLabel,
    };
    let sockets = Sockets::new(rib, &choice, raddle_preflight::running_kernel().ok());
    let layout = match iif.is_empty() {
        true => sockets.layout(planned.from, |_| false),
        false => choice.layout.clone(),
    };
    let unbound = |hashing| Unbound::new(sockets, hashing, (planned.dst, &flow), &[]);
    let (unbound_now, unbound_asked) = (unbound(&hashing), unbound(&asked));
    let place = |hashing: &Hashing, unbound: &Unbound<'_>, value: u32| {
        let path = match certificate.is_unbound() {
            true => unbound.connect(None, value).map(|(_, _, path)| path),
            false => layout.path(hashing.flow(&vary.apply(&flow, value))),
        };
        path.and_then(|path| choice.hops.get(path)).map(Place::of)
    };
    let mut used = BTreeSet::new();
    let mut differ = Vec::new();
    for connection in &certificate.connections {
        let path = certificate
            .paths
            .get(connection.path)
            .map(|path| path.path.clone());
        let path = path
            .ok_or_else(|| Failure::usage("the certificate names a path that it does not have"))?;
        let now = place(&hashing, &unbound_now, connection.value);
        let query = query(certificate, connection, index);
        let said = ask(socket, planned.dst, query, certificate.is_unbound())?;
        let same = now.is_some_and(|now| Named::of(&now, rib) == path);
        let agrees = said
            .as_ref()
            .is_ok_and(|said| place(&asked, &unbound_asked, connection.value) == Some(*said));
        if same && agrees {
            used.extend(now.map(|now| (now.index, now.gateway)));
            continue;
        }
        differ.push(Difference {
            value: connection.value,
            planned: path,
            predicted: now.map(|now| Named::of(&now, rib)),
            kernel: said.map_or_else(|e| e, |said| said.text(rib)),
        });
    }
    Ok(Report {
        agree: certificate.connections.len() - differ.len(),
        of: certificate.connections.len(),
        paths: used.len(),
        differ,
        changed: changed(certificate, rib, algo),
    })
}

/// The kernel's choice, or its refusal in words. `twice`: by the source that a first answer names.
fn ask(
    socket: &mut Socket,
    dst: IpAddr,
    mut query: RouteQuery,
    twice: bool,
) -> Result<Result<Place, String>, Failure> {
    let mut said = socket.get_route(dst, &query);
    if twice && let Ok(first) = &said {
        query.src = first.prefsrc;
        said = socket.get_route(dst, &query);
    }
    match said {
        Ok(answer) => Ok(Ok(Place {
            index: answer.index,
            gateway: answer.gateway,
        })),
        Err(e) if e.errno().is_some() => Ok(Err(e.to_string())),
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
fn changed(certificate: &Certificate, rib: &Rib, algo: Option<MpAlgo>) -> Vec<String> {
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
    list
}

fn render(report: &Report) -> String {
    let mut out = format!(
        "the kernel agrees on {} of {} connections; they use {} paths\n",
        report.agree, report.of, report.paths
    );
    for change in &report.changed {
        out += &format!("  {change}\n");
    }
    for difference in &report.differ {
        out += &format!(
            "  {}: planned {}, now {}, the kernel says {}\n",
            difference.value,
            difference.planned.text(),
            difference
                .predicted
                .as_ref()
                .map_or_else(|| "nowhere".to_owned(), Named::text),
            difference.kernel
        );
    }
    out
}

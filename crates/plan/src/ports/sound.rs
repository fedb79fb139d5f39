//! What a certificate has to be to mean anything.

use std::collections::BTreeSet;

use thiserror::Error;

use super::certificate::{Certificate, PlannedConnection, PlannedPath, PlannedSpare, Varied};

/// Why a certificate contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsound {
    /// It is about nothing.
    #[error("it has no connections")]
    NoConnections,
    /// No port or label has that number.
    #[error(
        "it has a connection with number {0}: ports go from 1 to 65535, flow labels from 1 to 1048575"
    )]
    Value(u32),
    /// Two connections that may live together have one port.
    #[error("it has two connections with number {0}")]
    Twice(u32),
    /// A connection has a path that is not listed.
    #[error("connection {value} has path {path}, and it has {paths}, from 0")]
    Path {
        /// Port or label.
        value: u32,
        /// The number of its path.
        path: usize,
        /// How many there are.
        paths: usize,
    },
    /// A connection has no link, or one that is not listed, at a router behind.
    #[error("connection {0} does not have the number of one link for each router behind")]
    Beyond(u32),
    /// Links of a router behind have other connections than are said to be on them.
    #[error("on link {link} of the router {router} are {are} connections, not {said}")]
    BeyondCount {
        /// The router.
        router: String,
        /// Its link.
        link: String,
        /// Connections that have its number.
        are: usize,
        /// Connections that the router is said to have there.
        said: usize,
    },
    /// A link is to fail that no path uses.
    #[error("it says what to do when {0} fails, which no path leads over")]
    SpareLink(String),
    /// A connection is to be closed, or moves, that is none.
    #[error(
        "when {dev} fails, connection {value} is to be closed or moves, which it does not have, or has named before"
    )]
    SpareValue {
        /// The link that fails.
        dev: String,
        /// Port or label.
        value: u32,
    },
    /// The connections that are left when a link has failed are not of these paths, or too many.
    #[error("when {0} fails, the connections on each path are not those of {paths} paths, or are more than it has", paths = .1)]
    SpareLoads(String, usize),
}

/// Whether a certificate holds together:
///
/// 1. It has connections. Each has a number that is a port or a label, a path that is listed, and, of each router behind, a link that is
///    listed. No two have one number.
/// 2. The connections on the links of routers behind are as many as these say.
/// 3. A link that may fail is one that a path leads over, or a member of one that is a bond. What is opened then is as in rule 1, also beside the connections that
///    there are; what is closed or moves is one of these, and named once.
/// 4. The connections on each path by then are as many numbers as there are paths, and together no more than there were.
pub(super) fn check(certificate: &Certificate) -> Result<(), Unsound> {
    if certificate.connections.is_empty() {
        return Err(Unsound::NoConnections);
    }
    let mut values = BTreeSet::new();
    let routers = certificate.beyond.iter();
    let mut on: Vec<Vec<usize>> = routers.map(|router| vec![0; router.links.len()]).collect();
    for connection in &certificate.connections {
        check_connection(certificate, connection)?;
        if !values.insert(connection.value) {
            return Err(Unsound::Twice(connection.value));
        }
        for (on, link) in on.iter_mut().zip(&connection.beyond) {
            on[*link] += 1;
        }
    }
    for (router, on) in certificate.beyond.iter().zip(on) {
        for (link, are) in router.links.iter().zip(on) {
            if are != link.connections {
                return Err(Unsound::BeyondCount {
                    router: router.router.clone(),
                    link: link.link.clone(),
                    are,
                    said: link.connections,
                });
            }
        }
    }
    let mut spares = certificate.spares.iter();
    spares.try_for_each(|spare| check_spare(certificate, spare, &values))
}

/// What rule 1 says of one.
fn check_connection(
    certificate: &Certificate,
    connection: &PlannedConnection,
) -> Result<(), Unsound> {
    let value = connection.value;
    let most = match certificate.flow.vary {
        Varied::Sport => u32::from(u16::MAX),
        Varied::FlowLabel => 0xf_ffff,
    };
    if !(1..=most).contains(&value) {
        return Err(Unsound::Value(value));
    }
    let (path, paths) = (connection.path, certificate.paths.len());
    if path >= paths {
        return Err(Unsound::Path { value, path, paths });
    }
    let routers = &certificate.beyond;
    let mut links = routers.iter().zip(&connection.beyond);
    match connection.beyond.len() == routers.len()
        && links.all(|(router, link)| *link < router.links.len())
    {
        true => Ok(()),
        false => Err(Unsound::Beyond(value)),
    }
}

/// Rules 3 and 4.
fn check_spare(
    certificate: &Certificate,
    spare: &PlannedSpare,
    values: &BTreeSet<u32>,
) -> Result<(), Unsound> {
    let dev = || spare.dev.clone();
    let paths = &certificate.paths;
    let leads_over = |path: &PlannedPath| {
        let path = &path.path;
        path.dev == spare.dev || path.member.as_ref() == Some(&spare.dev)
    };
    if !paths.iter().any(leads_over) {
        return Err(Unsound::SpareLink(dev()));
    }
    let mut opened = BTreeSet::new();
    for connection in &spare.connections {
        let value = connection.value;
        check_connection(certificate, connection)?;
        if values.contains(&value) || !opened.insert(value) {
            return Err(Unsound::Twice(value));
        }
    }
    for list in [&spare.close, &spare.moved] {
        let mut named = BTreeSet::new();
        let wrong = |value: &&u32| !values.contains(value) || !named.insert(**value);
        if let Some(value) = list.iter().find(wrong) {
            let (dev, value) = (dev(), *value);
            return Err(Unsound::SpareValue { dev, value });
        }
    }
    let sum = spare
        .loads
        .iter()
        .try_fold(0, |sum: usize, load| sum.checked_add(*load));
    let fits = sum.is_some_and(|sum| sum <= certificate.connections.len());
    match fits && spare.loads.len() == paths.len() {
        true => Ok(()),
        false => Err(Unsound::SpareLoads(dev(), paths.len())),
    }
}

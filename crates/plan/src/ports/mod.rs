//! Source ports with which connections cover all paths, a certificate that can be checked, and how the connections
//! that there are lie on the paths.

mod audit;
mod beyond;
mod certificate;
mod error;
mod plan;
mod question;
mod range;
mod sound;
#[cfg(test)]
mod sound_test;
#[cfg(test)]
mod tests;
mod text;
mod verify;

use std::net::IpAddr;

use raddle_rib::Rib;
use raddle_select::KernelVersion;

pub use audit::{Audit, Audits, Load, audit};
pub use beyond::{Behind, PlannedLink, PlannedRouter};
pub use certificate::{
    Certificate, HashSettings, PlannedConnection, PlannedFlow, PlannedPath, PlannedSpare, Varied,
};
pub use error::Error;
pub use plan::{plan, plan_beyond};
pub use question::Question;
pub use raddle_sim::ports::{ShareOut, Vary};
pub use sound::Unsound;
pub use verify::{Difference, Verification, verify};

use crate::bonds::Bonds;
use crate::paths::Named;

/// A source port, and where connections from it go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The source address; none where the kernel is to choose.
    pub from: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The path.
    pub path: Named,
}

/// Source ports of TCP connections of this machine's own, as many for each path, by the plan that [`plan()`] makes.
/// `range` has the first and the last port that may be used, if not those that the kernel gives.
///
/// # Errors
/// Why paths cannot be predicted.
pub fn candidates(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    bonds: &Bonds,
    (dst, dport): (IpAddr, u16),
    from: Option<IpAddr>,
    range: Option<(u16, u16)>,
    count: usize,
) -> Result<Vec<Candidate>, Error> {
    let (first, last) = range.unzip();
    let question = Question {
        dport,
        from,
        first: first.map(u32::from),
        last: last.map(u32::from),
        live: true,
        ..Question::new(dst, count)
    };
    let plan = plan(rib, kernel, bonds, &question)?;
    let always = Some(plan.flow.from).filter(|from| !from.is_unspecified());
    let candidate = |c: &PlannedConnection| {
        Some(Candidate {
            from: c.from.map(IpAddr::V4).or(always),
            port: u16::try_from(c.value).ok()?,
            path: plan.paths.get(c.path)?.path.clone(),
        })
    };
    Ok(plan.connections.iter().filter_map(candidate).collect())
}

/// The source ports that this machine's own connections may have: those that the kernel gives, or these.
///
/// # Errors
/// The kernel's range cannot be read.
pub fn own(range: Option<(u16, u16)>) -> Result<Vec<u16>, Error> {
    match range {
        Some((first, last)) => Ok((first.max(1)..=last).collect()),
        None => Ok(range::local(true)?
            .into_iter()
            .filter_map(|port| u16::try_from(port).ok())
            .collect()),
    }
}

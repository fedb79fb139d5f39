//! `raddle ports`: source ports with which connections cover all paths, a certificate that can be
//! checked, and how the connections that there are lie on the paths.

mod audit;
mod certificate;
mod plan;
mod range;
#[cfg(test)]
mod tests;
mod verify;

use std::net::IpAddr;

use raddle_rib::Rib;
use raddle_select::KernelVersion;

use crate::cli;
use crate::error::Failure;
use crate::paths::Named;
use crate::source::AlgoArgs;

/// A source port, and where connections from it go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The source address; none where the kernel is to choose.
    pub from: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The path.
    pub path: Named,
}

/// Source ports of TCP connections of this machine's own, as many for each path, by the plan that `raddle
/// ports plan` makes. `first` and `last` are the ports that may be used, if not those that the kernel gives.
///
/// # Errors
/// Why paths cannot be predicted, as `raddle ports plan` says it.
pub(crate) fn candidates(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    (dst, dport): (IpAddr, u16),
    from: Option<IpAddr>,
    range: Option<(u16, u16)>,
    count: usize,
) -> Result<Vec<Candidate>, Failure> {
    let (first, last) = range.unzip();
    let args = cli::PortsPlan {
        dst,
        count,
        proto: 6,
        dport: Some(dport),
        from,
        iif: None,
        flow_labels: false,
        sport: None,
        first: first.map(u32::from),
        last: last.map(u32::from),
        by_weight: false,
        snapshot: None,
        algos: AlgoArgs::default(),
        out: None,
        plot: None,
        json: false,
    };
    let plan = plan::make(rib, kernel, &args)?;
    let always = Some(plan.flow.from).filter(|from| !from.is_unspecified());
    let candidate = |c: &certificate::PlannedConnection| {
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
pub(crate) fn own(range: Option<(u16, u16)>) -> Result<Vec<u16>, Failure> {
    match range {
        Some((first, last)) => Ok((first.max(1)..=last).collect()),
        None => Ok(range::local(true)?
            .into_iter()
            .filter_map(|port| u16::try_from(port).ok())
            .collect()),
    }
}

/// Runs the command.
pub(crate) fn run(command: &cli::Ports) -> Result<(), Failure> {
    match command {
        cli::Ports::Plan(args) => plan::run(args),
        cli::Ports::Verify(args) => verify::run(args),
        cli::Ports::Audit(args) => audit::run(args),
    }
}

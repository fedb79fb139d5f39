#![doc = include_str!("../README.md")]

mod checks;
mod facts;
mod finding;
mod gather;
mod probe;
mod srv6;
mod text;

use raddle_select::KernelVersion;
use serde::Serialize;

pub use checks::Check;
pub use facts::{Asked, Daemon, Facts, Need};
pub use finding::{Finding, Severity};
pub use gather::{Scope, gather};
pub use text::render;

/// What was looked at, and found.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The kernel's version; none when unknown.
    pub kernel: Option<KernelVersion>,
    /// Links.
    pub links: usize,
    /// Routes with several paths.
    pub multipath_routes: usize,
    /// The checks that ran.
    pub checks: Vec<&'static str>,
    /// What they found, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be seen.
    pub not_seen: Vec<NotSeen>,
}

impl Answer {
    /// How many findings are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|f| f.severity == severity)
            .count()
    }
}

/// Something that could not be seen.
#[derive(Debug, Serialize)]
pub struct NotSeen {
    /// What.
    #[serde(serialize_with = "as_text")]
    pub what: Need,
    /// Why not.
    pub why: String,
    /// The checks that say less for it.
    pub checks: Vec<&'static str>,
}

fn as_text<S: serde::Serializer>(need: &Need, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(need)
}

/// There is no such check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no check '{0}'; raddle doctor --list names them")]
pub struct UnknownCheck(pub String);

/// The checks with these names, in the order in which they run; all without names.
///
/// # Errors
/// A name that no check has.
pub fn chosen(only: &[String]) -> Result<Vec<&'static Check>, UnknownCheck> {
    if let Some(unknown) = only
        .iter()
        .find(|id| !checks::all().any(|check| check.id == **id))
    {
        return Err(UnknownCheck(unknown.clone()));
    }
    let wanted = |check: &&Check| only.is_empty() || only.iter().any(|id| id == check.id);
    Ok(checks::all().filter(wanted).collect())
}

/// The checks with what they look for, a line for each.
pub fn list(checks: &[&Check]) -> String {
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    checks
        .iter()
        .map(|c| format!("{:<width$}  {}\n", c.id, c.title))
        .collect()
}

/// Runs the checks. Findings are in the order of severity, then of checks.
pub fn examine(facts: &Facts, checks: &[&'static Check]) -> Answer {
    let mut findings: Vec<Finding> = Vec::new();
    for check in checks {
        let found = (check.run)(facts).into_iter();
        findings.extend(found.map(|found| Finding::of(check.id, check.source, found)));
    }
    findings.sort_by_key(|finding| finding.severity);
    let concerned = |need: &Need| -> Vec<&'static str> {
        let needing = checks.iter().filter(|check| check.needs.contains(need));
        needing.map(|check| check.id).collect()
    };
    let not_seen = facts.not_seen.iter().map(|(need, why)| NotSeen {
        what: *need,
        why: why.clone(),
        checks: concerned(need),
    });
    Answer {
        kernel: facts.kernel,
        links: facts.links.len(),
        multipath_routes: facts.multipath_routes(4) + facts.multipath_routes(6),
        checks: checks.iter().map(|check| check.id).collect(),
        findings,
        not_seen: not_seen
            .filter(|missing| !missing.checks.is_empty())
            .collect(),
    }
}

#[cfg(test)]
mod answer_test;

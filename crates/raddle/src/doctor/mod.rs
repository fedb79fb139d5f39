//! `raddle doctor`: what is wrong with this machine's multipath, and how to fix it.
//!
//! [`gather`] collects facts once: the mirrored routing state, settings, the kernel's version, and
//! small probes of the live kernel. [`checks`] are pure functions over them. What could not be
//! seen is listed, never guessed.

mod checks;
mod facts;
mod finding;
mod gather;
mod probe;
mod srv6;
mod text;

use raddle_select::KernelVersion;
use serde::Serialize;

use crate::cli;
use crate::error::Failure;
use crate::source;
use checks::Check;
use facts::{Asked, Facts, Need};
use finding::{Finding, Severity};
use gather::Scope;

/// What the command says.
#[derive(Debug, Serialize)]
struct Answer {
    /// The kernel's version; none when unknown.
    kernel: Option<KernelVersion>,
    /// Links, and routes with several paths.
    links: usize,
    multipath_routes: usize,
    /// The checks that ran.
    checks: Vec<&'static str>,
    /// What they found, the worst first.
    findings: Vec<Finding>,
    /// What could not be seen.
    not_seen: Vec<NotSeen>,
}

impl Answer {
    fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|f| f.severity == severity)
            .count()
    }
}

/// Something that could not be seen.
#[derive(Debug, Serialize)]
struct NotSeen {
    /// What.
    #[serde(serialize_with = "as_text")]
    what: Need,
    /// Why not.
    why: String,
    /// The checks that say less for it.
    checks: Vec<&'static str>,
}

fn as_text<S: serde::Serializer>(need: &Need, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(need)
}

/// Runs the command.
pub(crate) fn run(args: &cli::Doctor) -> Result<(), Failure> {
    let checks = chosen(&args.only)?;
    if args.list {
        print!("{}", list(&checks, args.json)?);
        return Ok(());
    }
    let (rib, of_snapshot) = source::mirror_and_kernel(args.snapshot.as_deref())?;
    let kernel = args.kernel.or(of_snapshot);
    let scope = match args.snapshot {
        Some(_) => Scope::Snapshot,
        None => Scope::Live,
    };
    let asked = Asked {
        peer_seeds: args.peers_seed.clone(),
        symmetric: args.symmetric,
    };
    let facts = gather::gather(&rib, &scope, asked, kernel);
    let answer = examine(&facts, &checks);
    if args.json {
        println!("{}", json(&answer)?);
    } else {
        print!("{}", text::render(&answer));
    }
    match answer.count(Severity::Serious) {
        0 => Ok(()),
        1 => Err(Failure::found("1 finding is serious")),
        n => Err(Failure::found(format!("{n} findings are serious"))),
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|e| Failure::system(e.to_string()))
}

/// The checks with these names; all without names.
fn chosen(only: &[String]) -> Result<Vec<&'static Check>, Failure> {
    if let Some(unknown) = only
        .iter()
        .find(|id| !checks::all().any(|check| check.id == **id))
    {
        return Err(Failure::usage(format!(
            "there is no check '{unknown}'; raddle doctor --list names them"
        )));
    }
    let wanted = |check: &&Check| only.is_empty() || only.iter().any(|id| id == check.id);
    Ok(checks::all().filter(wanted).collect())
}

/// The checks with what they look for.
fn list(checks: &[&Check], as_json: bool) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Listed {
        id: &'static str,
        title: &'static str,
        source: &'static str,
    }
    if as_json {
        let listed = checks.iter().map(|c| Listed {
            id: c.id,
            title: c.title,
            source: c.source,
        });
        return Ok(json(&listed.collect::<Vec<_>>())? + "\n");
    }
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    Ok(checks
        .iter()
        .map(|c| format!("{:<width$}  {}\n", c.id, c.title))
        .collect())
}

/// Runs the checks. Findings are in the order of severity, then of checks.
fn examine(facts: &Facts, checks: &[&'static Check]) -> Answer {
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
mod tests;

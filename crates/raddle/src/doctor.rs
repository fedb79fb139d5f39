//! `raddle doctor`: what is wrong with this machine's multipath, and how to fix it.

use raddle_daemon::Error;
use raddle_daemon::kept::{self, Kept};
use raddle_doctor::{Asked, Daemon, Scope, Severity, chosen, examine, gather, list, render};
use serde::Serialize;

use crate::cli;
use crate::error::Failure;
use crate::source;

/// Runs the command.
pub(crate) fn run(args: &cli::Doctor) -> Result<(), Failure> {
    let checks = chosen(&args.only).map_err(|e| Failure::usage(e.to_string()))?;
    if args.list {
        match args.json {
            true => println!("{}", json(&checks)?),
            false => print!("{}", list(&checks)),
        }
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
    let mut facts = gather(&rib, scope, asked, kernel);
    if facts.daemon == Daemon::Absent
        && let Some(gone) = left_behind()
    {
        facts.daemon = gone;
    }
    let answer = examine(&facts, &checks);
    match args.json {
        true => println!("{}", json(&answer)?),
        false => print!("{}", render(&answer)),
    }
    match answer.count(Severity::Serious) {
        0 => Ok(()),
        1 => Err(Failure::found("1 finding is serious")),
        n => Err(Failure::found(format!("{n} findings are serious"))),
    }
}

/// The programs of a daemon that is gone.
fn left_behind() -> Option<Daemon> {
    if let Some(Kept {
        links,
        forwards_for_seconds: seconds,
        ..
    }) = kept::status()
    {
        let links = links.into_iter().map(|link| link.dev).collect();
        return Some(Daemon::Gone { links, seconds });
    }
    match kept::check_unseen() {
        Err(Error::PinsUnseen { links }) => Some(Daemon::Gone {
            links,
            seconds: None,
        }),
        _ => None,
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|e| Failure::system(e.to_string()))
}

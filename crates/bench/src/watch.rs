//! `raddle-bench watch`: how soon a change takes effect, of firewalls and tc, which raddle must not bypass, and of whatever else
//! decides where packets go.
//!
//! A stream of numbered frames goes through a router with `raddle run` while the change is made. Its time is that of the
//! last frame, by when it was sent, that the change had no effect on.

mod bpf;
mod kinds;
mod packet;
mod report;
mod stage;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cli;
use crate::measure::progress;
use crate::router::pin_to_cpu;
use kinds::{ALL, Effect, Kind, Told, UNSEEN};
use raddle_exit::Failure;
use report::{Measured, Results, Round};
use stage::Stage;

/// The stream before a change, and behind one; where the daemon has to look, that may be so long after.
const BEFORE: Duration = Duration::from_millis(40);
const BEHIND: Duration = Duration::from_millis(150);
const BEHIND_LOOKS: Duration = Duration::from_millis(1200);
/// A prime number of milliseconds, by which changes spread over the daemon's rounds.
const LEAD: u64 = 499;
/// A frame that is sent later before the stream's end may be followed by more like it.
const SETTLED: Duration = Duration::from_millis(20);

/// Runs `raddle-bench watch`.
pub(crate) fn watch(args: &cli::Watch) -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root(
            "raddle-bench watch makes network namespaces, runs raddle in one and",
        ));
    }
    let chosen = chosen(&args.only)?;
    let stage = Stage::up()?;
    // After the daemon has started, which takes its own, and for tools, too.
    first();
    let mut results = Results::default();
    for kind in &chosen {
        match measure(&stage, kind, args) {
            Ok(measured) => results.kinds.push(measured),
            Err(Stop::Skip(why)) => results.skipped.push((kind.name, why)),
            Err(Stop::Fail(failure)) => {
                let failed = Failure::system(format!("{}: {failure}", kind.name));
                return Err(failed);
            }
        }
    }
    if args.only.is_empty() {
        let unseen = UNSEEN.iter().map(|(name, why)| (*name, (*why).to_owned()));
        results.skipped.extend(unseen);
    }
    progress("");
    if args.json {
        println!("{}", report::json(&results));
    } else {
        print!("{}", report::text(&results));
    }
    let missed: Vec<&str> = results.missed().collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::found(format!("missed: {}", missed.join(", ")))),
    }
}

fn chosen(only: &[String]) -> Result<Vec<Kind>, Failure> {
    let names = || ALL.iter().map(|kind| kind.name).collect::<Vec<_>>();
    if let Some(wrong) = only.iter().find(|name| !names().contains(&name.as_str())) {
        let names = names().join(", ");
        return Err(Failure::usage(format!("'{wrong}' is not a kind: {names}")));
    }
    let wanted = |kind: &&Kind| only.is_empty() || only.iter().any(|name| name == kind.name);
    Ok(ALL.iter().filter(wanted).copied().collect())
}

/// Why a kind is not measured.
enum Stop {
    /// This machine cannot do it.
    Skip(String),
    Fail(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Fail(failure)
    }
}

fn measure(stage: &Stage, kind: &Kind, args: &cli::Watch) -> Result<Measured, Stop> {
    let mut prepared = Ok(());
    let mut done = 0;
    for command in kind.before {
        prepared = stage.run(command);
        if prepared.is_err() {
            break;
        }
        done += 1;
    }
    let mut rounds = Vec::new();
    let mut result = prepared.map_err(|why| Stop::Skip(why.to_string()));
    for number in 0..args.rounds {
        if result.is_err() {
            break;
        }
        progress(&format!("{} round {}", kind.name, number + 1));
        match round(stage, kind, args.rate, number) {
            Ok(round) => rounds.push(round),
            Err(stop) => result = Err(stop),
        }
    }
    // What was not made cannot be unmade.
    if done == kind.before.len() {
        for command in kind.after {
            stage.run(command)?;
        }
    }
    result?;
    Ok(Measured {
        name: kind.name,
        told: kind.told,
        rounds,
    })
}

fn round(stage: &Stage, kind: &Kind, rate: u32, number: u32) -> Result<Round, Stop> {
    let shape = stage.shape(kind.stranger, kind.length);
    stage.ready(&shape)?;
    let skip = |why: Failure| Stop::Skip(why.to_string());
    let prepared = stage.prepare(kind).map_err(skip)?;
    stream::arrived(&stage.sinks, 0).map_err(Failure::from)?;
    let stop = AtomicBool::new(false);
    let (made, sent) = std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            pin_to_cpu()?;
            let sent = stream::send(&stage.source, &shape, rate, usize::MAX, &stop)?;
            Ok::<_, Failure>(sent)
        });
        // At any time between two looks of the daemon.
        let lead = BEFORE + Duration::from_millis(u64::from(number) * 173 % LEAD);
        std::thread::sleep(lead);
        let made = stage.make(prepared);
        if made.is_ok() {
            std::thread::sleep(match kind.told {
                Told::Polled => BEHIND_LOOKS,
                Told::Announced | Told::Followed => BEHIND,
            });
        }
        stop.store(true, Ordering::Relaxed);
        let sent = stream.join();
        (made, sent)
    });
    let broke = || Failure::system("the stream broke off");
    let sent: Vec<Instant> = sent.map_err(|_| broke())??;
    let made = made.map_err(skip)?;
    std::thread::sleep(Duration::from_millis(3));
    let ways = stream::arrived(&stage.sinks, sent.len()).map_err(Failure::from)?;
    let (Some(&first), Some(&last)) = (sent.first(), sent.last()) else {
        return Err(broke().into());
    };
    let around = stream::last_around(&ways, kind.effect == Effect::Stops);
    let around = around.and_then(|number| sent.get(number).copied());
    // A flow that has not moved yet shows nothing.
    let open = around.is_none_or(|around| around + SETTLED > last);
    let around = around.unwrap_or(last);
    let since = |moment| around.saturating_duration_since(moment).as_secs_f64() * 1e3;
    let round = Round {
        took: (made.end - made.start).as_secs_f64() * 1e3,
        since_start: since(made.start),
        since_end: since(made.end),
        open,
        rate: sent.len() as f64 / (last - first).as_secs_f64(),
    };
    drop(made);
    for command in kind.back {
        stage.run(command)?;
    }
    Ok(round)
}

/// What measures, and what it starts, must not wait for a processor. Where that is not permitted, it may.
fn first() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the pointer is to a live structure that the kernel only reads.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &parameters) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_chosen_by_name_and_told_in_the_help() {
        for kind in ALL {
            assert!(cli::WATCH_HELP.contains(kind.name), "{}", kind.name);
            let chosen = chosen(&[kind.name.to_owned()]).unwrap_or_default();
            assert_eq!(
                chosen.iter().map(|k| k.name).collect::<Vec<_>>(),
                [kind.name]
            );
        }
        assert_eq!(chosen(&[]).map_or(0, |all| all.len()), ALL.len());
        let wrong = chosen(&["iptable".to_owned()]).map(|_| ()).unwrap_err();
        assert!(
            wrong.to_string().contains("nft-rule, nft-element"),
            "{wrong}"
        );
    }
}

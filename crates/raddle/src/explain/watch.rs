//! `--watch`: a new answer whenever a step of it changes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use raddle_explain::{Answer, Step, render};
use raddle_netlink::Mirror;
use raddle_rib::Rib;
use raddle_rib::event::Event;
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::error::Failure;
use crate::{signals, source};
use raddle_daemon::Expiry;

/// How often signals and the time are looked at while nothing happens.
const TICK: Duration = Duration::from_millis(200);

/// When to end by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    /// After so much time.
    pub time: Option<Duration>,
    /// After so many answers, the first included.
    pub answers: Option<u64>,
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    changed: &'a [String],
    answer: &'a Answer,
}

/// Prints the first answer, and another one after every change of it, until SIGINT, SIGTERM or a
/// limit. `own` is what a daemon has beyond the kernel's state.
pub(super) fn watch(
    limits: Limits,
    json: bool,
    own: Vec<Event>,
    mut ask: impl FnMut(&Rib) -> Result<Answer, Failure>,
) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let start = Instant::now();
    let mut rib = Rib::detached();
    let mut mirror = Mirror::open()?;
    mirror.initial(&mut |event| rib.apply(event))?;
    own.into_iter().for_each(|event| rib.apply(event));
    let _ = source::know_key(&mut rib);
    let mut expiry = Expiry::default();
    let mut last = ask(&rib)?;
    let mut answers = 1;
    print(&last, &[], json)?;
    while !stop.load(Ordering::Relaxed) && limits.answers.is_none_or(|most| answers < most) {
        let left = limits.time.map(|time| time.saturating_sub(start.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        mirror.wait(Some(left.map_or(TICK, |left| left.min(TICK))))?;
        expiry.tend(&mut rib, &mirror);
        let batch = mirror.poll(&mut |event| {
            expiry.note(&event);
            rib.apply(event);
        })?;
        if (batch.events == 0 && !rib.has_expiring()) || batch.sweeping {
            continue;
        }
        // The seed may have been taken away.
        let _ = source::know_key(&mut rib);
        let now = ask(&rib)?;
        let changed = changes(&last, &now);
        if !changed.is_empty() {
            print(&now, &changed, json)?;
            answers += 1;
            last = now;
        }
    }
    Ok(())
}

/// The names of the steps that differ, those of the reverse marked so.
fn changes(before: &Answer, after: &Answer) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    let step = |answer: &Answer, (look_up, number)| {
        let is = |step: &&Step| (step.look_up, step.step) == (look_up, number);
        answer.steps.iter().find(is).cloned()
    };
    let steps = before.steps.iter().chain(&after.steps);
    let places: BTreeSet<(u32, u32)> = steps.map(|step| (step.look_up, step.step)).collect();
    for place in places {
        let (old, new) = (step(before, place), step(after, place));
        if let Some(step) = new.as_ref().or(old.as_ref())
            && old != new
        {
            add(step.name);
        }
    }
    if before.confidence != after.confidence {
        add("confidence");
    }
    if (&before.link, before.reason) != (&after.link, after.reason) {
        add("link");
    }
    match (&before.reverse, &after.reverse) {
        (Some(old), Some(new)) => changes(old, new)
            .iter()
            .for_each(|name| add(&format!("reverse {name}"))),
        (None, None) => {}
        _ => add("reverse"),
    }
    names
}

fn print(answer: &Answer, changed: &[String], json: bool) -> Result<(), Failure> {
    let mut time = String::new();
    SystemTime
        .format_time(&mut Writer::new(&mut time))
        .map_err(|e| Failure::system(e.to_string()))?;
    if json {
        let line = Line {
            time: &time,
            changed,
            answer,
        };
        let line = serde_json::to_string(&line).map_err(|e| Failure::system(e.to_string()))?;
        println!("{line}");
    } else {
        match changed {
            [] => println!("{time}"),
            _ => println!("\n{time} changed: {}", changed.join(", ")),
        }
        print!("{}", render(answer));
    }
    // Standard output may be a pipe, and the next change an hour away.
    std::io::Write::flush(&mut std::io::stdout())?;
    Ok(())
}

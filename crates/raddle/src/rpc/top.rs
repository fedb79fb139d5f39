//! `raddle rpc top`: what connections carry, refreshed.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use raddle_control::Proxy;
use raddle_rpc_paths::rates::{Report, report, text};
use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::screen::Screen;
use crate::cli;
use crate::error::Failure;

/// How often signals are looked for where there is no screen.
const TICK: Duration = Duration::from_millis(100);

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the command. The first report is since the start, each other one since that before it.
pub(super) fn run(args: &cli::RpcTop) -> Result<(), Failure> {
    let stop = crate::signals::stop_flag()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let look = || Ok::<_, Failure>(super::ask(&args.ask, args.name.as_deref())?.servers);
    // Before the terminal is touched: there may be nobody to ask.
    let mut now = look()?;
    let mut at = Instant::now();
    let screen = match args.ask.json {
        true => None,
        false => Screen::take()?,
    };
    let delay = Duration::from_secs_f64(args.delay);
    let mut before: Option<(Vec<Proxy>, f64)> = None;
    let mut reports = 0;
    loop {
        let made: Vec<Report> = now
            .iter()
            .filter_map(|proxy| {
                let earlier = before.as_ref().and_then(|(proxies, seconds)| {
                    let before = proxies.iter().find(|before| before.name == proxy.name)?;
                    Some((before.serving.status()?, *seconds))
                });
                Some(report(&proxy.name, earlier, proxy.serving.status()?))
            })
            .collect();
        match &screen {
            Some(screen) => screen.show(|width| joined(&made, Some(width)))?,
            None => print(&made, args.ask.json, reports > 0)?,
        }
        reports += 1;
        if args.count.is_some_and(|most| reports >= most) {
            return Ok(());
        }
        let goes_on = match &screen {
            Some(screen) => screen.wait(delay, stopped)?,
            None => wait(delay, stopped),
        };
        if !goes_on {
            return Ok(());
        }
        let next = look()?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        before = Some((std::mem::replace(&mut now, next), seconds));
    }
}

/// Whether to go on after this time.
fn wait(time: Duration, stop: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !stop() {
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(TICK));
    }
    false
}

fn joined(reports: &[Report], width: Option<usize>) -> String {
    let texts = reports.iter().map(|report| text(report, width));
    let texts: Vec<String> = texts.collect();
    texts.join("\n")
}

fn print(reports: &[Report], json: bool, more: bool) -> Result<(), Failure> {
    let mut time = String::new();
    SystemTime
        .format_time(&mut Writer::new(&mut time))
        .map_err(|e| Failure::system(e.to_string()))?;
    if json {
        for report in reports {
            let time = &time;
            let line = serde_json::to_string(&Line { time, report });
            println!("{}", line.map_err(|e| Failure::system(e.to_string()))?);
        }
    } else {
        let gap = if more { "\n" } else { "" };
        print!("{gap}{time}\n{}", joined(reports, None));
    }
    // Standard output may be a pipe, and the next report a while away.
    std::io::stdout().flush()?;
    Ok(())
}

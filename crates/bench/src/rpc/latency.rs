//! Rows about time: what the proxy adds, and what small calls wait beside large ones.

use std::time::Duration;

use super::load::{self, Kind, OUTSTANDING, transfer};
use super::report::{Must, Unit};
use super::stage::{FILES, PROXY, Stage};
use super::{Trials, WARM};
use raddle_exit::Failure;

/// GETATTRs of one measurement.
const CALLS: u32 = 1000;
/// How often the round trip is measured.
const EVERY: Duration = Duration::from_millis(20);

/// The time, in microseconds, that this share of all stays below.
pub(super) fn percentile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted
        .get(place)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// One connection through the proxy, and one without it, in turn.
pub(super) fn one(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    let (nfs, mount) = (stage.nfs(), stage.mount());
    let time = trials.settings.time();
    let load = (Kind::Read, OUTSTANDING);
    let figures = trials.each(stage, || {
        let handle = stage.handle(mount, nfs, FILES[0])?;
        let direct = stage.client(|| transfer(nfs, &handle, load, time, false))?;
        let _proxy = stage.proxy(&["-n", "1"])?;
        let through = stage.client(|| transfer(PROXY, &handle, load, time, false))?;
        // Each in two halves, so that what changes meanwhile counts for both.
        let mut times = [Vec::new(), Vec::new()];
        for half in 0..4 {
            let way = half % 2;
            let address = [nfs, PROXY][way];
            times[way].extend(stage.client(|| load::getattrs(address, &handle, CALLS / 2))?);
        }
        let [before, with] = times.map(|times| percentile(&times, 0.5));
        let rate = |done: &load::Measured| done.rate(WARM, time);
        Ok([rate(&through) / rate(&direct), with - before, before])
    })?;
    let column = |n: usize| figures.iter().map(|f| f[n]).collect::<Vec<_>>();
    let must = Must::AtLeast(0.98, None);
    let what = "1 connection through raddle, of 1 direct";
    trials.line(what, Unit::Share, must, column(0));
    let what = "GETATTR, median: what the proxy adds";
    trials.line(
        what,
        Unit::Microseconds,
        Must::AtMost(60.0, None),
        column(1),
    );
    let what = "GETATTR, median, direct";
    trials.line(what, Unit::Microseconds, Must::Nothing, column(2));
    Ok(())
}

/// GETATTRs beside a saturating read on the same client's connection, and without it.
pub(super) fn beside(trials: &mut Trials<'_>, stage: &Stage) -> Result<(), Failure> {
    let server = stage.nfs();
    let time = trials.settings.time();
    let load = (Kind::Read, OUTSTANDING);
    let figures = trials.each(stage, || {
        let _proxy = stage.proxy(&[])?;
        let handle = stage.handle(PROXY, PROXY, FILES[0])?;
        let idle = stage.client(|| load::getattrs(PROXY, &handle, CALLS))?;
        let idle = percentile(&idle, 0.99);
        let (done, trips) = std::thread::scope(|scope| {
            let trips = scope.spawn(|| {
                stage.client(|| {
                    std::thread::sleep(WARM);
                    let mut trips = Vec::new();
                    let count = (time - WARM).as_millis() / EVERY.as_millis();
                    for _ in 0..count.saturating_sub(5) {
                        trips.push(load::round_trip(server)?);
                        std::thread::sleep(EVERY);
                    }
                    Ok(trips)
                })
            });
            let done = stage.client(|| transfer(PROXY, &handle, load, time, true));
            let broken = |_| Err(Failure::system("measuring round trips broke off"));
            (done, trips.join().unwrap_or_else(broken))
        });
        let (done, trips) = (done?, trips?);
        let busy = percentile(&done.getattrs, 0.99);
        let trip = percentile(&trips, 0.99);
        let medians = [&done.getattrs, &trips].map(|times| percentile(times, 0.5));
        let most = 3.0 * idle + trip;
        Ok([busy / most, busy, idle, trip, medians[0], medians[1]])
    })?;
    let rows = [
        "GETATTR p99 beside a read, of 3 x idle p99 and a round trip",
        "GETATTR p99 beside a saturating read",
        "GETATTR p99, idle",
        "round trip (TCP connect) p99 beside the read",
        "GETATTR median beside the read",
        "round trip median beside the read",
    ];
    for (n, what) in rows.into_iter().enumerate() {
        let (unit, must) = match n {
            0 => (Unit::Ratio, Must::AtMost(1.0, None)),
            _ => (Unit::Microseconds, Must::Nothing),
        };
        let column = figures.iter().map(|f| f[n]).collect();
        trials.line(what, unit, must, column);
    }
    trials.note("the GETATTRs are on the same client's connection as the read; the round trip is its p99, as the links' queues are full");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile(&times, 0.5), 51.0);
        assert_eq!(percentile(&times, 0.99), 100.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}

//! raddle starts and stops in mid-transfer: does any stream notice?

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use raddle_lab::Interrupt;
use serde::Serialize;

use super::daemons::Daemons;
use super::fabric::Fabric;
use super::iperf::{self, Interval};
use super::measure::{predict, taken};
use super::plan::STREAMS;
use super::tap::{Seen, Sightings, Tap};
use raddle_exit::Failure;

/// A silence of this length is a stall: TCP's shortest retransmission timeout in Linux.
pub(super) const STALL: Duration = Duration::from_millis(200);
/// What comes after a start or stop is counted to it for so long, in seconds.
const AFTERMATH: f64 = 0.3;
const ROUND: Duration = Duration::from_millis(20);

/// When things happened, in seconds since the first segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Events {
    /// raddle was started on all routers.
    pub start: f64,
    /// The last of them forwards.
    pub ready: f64,
    /// All were told to stop.
    pub stop: f64,
    /// The last has ended.
    pub stopped: f64,
}

/// A time between two segments of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Silence {
    /// When it began, in seconds since the first segment of all.
    pub at: f64,
    /// How long it was, in milliseconds.
    pub ms: f64,
}

/// A stream under all this.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Stream {
    /// The sender's port.
    pub port: u16,
    /// The link that `raddle explain` names; none where the kernel hides its hash seed.
    pub predicted: Option<String>,
    /// The links that it was seen on.
    pub taken: Vec<String>,
    /// Its longest silence while raddle came, forwarded and went.
    pub silence: Silence,
    /// Payload that arrived, in Mbit/s.
    pub mbits: f64,
    /// Mbit/s in each interval: seconds since the begin, value.
    pub timeline: Vec<(f64, f64)>,
}

/// A part of the transfer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Phase {
    /// What happens in it.
    pub name: &'static str,
    /// Seconds since the first segment.
    pub from: f64,
    /// Seconds since the first segment.
    pub until: f64,
    /// Payload that arrived over all streams, in Mbit/s.
    pub mbits: f64,
    /// The same in the slowest of iperf3's intervals.
    pub slowest_mbits: f64,
    /// Segments sent again, for each second.
    pub retransmits_per_second: f64,
    /// The longest silence of any stream, in milliseconds.
    pub silence_ms: f64,
}

/// How the takeover went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Takeover {
    /// When things happened.
    pub events: Events,
    /// Every stream.
    pub streams: Vec<Stream>,
    /// Before, at the start, under raddle, at the stop, after.
    pub phases: Vec<Phase>,
    /// Segments that were looked at.
    pub segments: u64,
    /// Segments for which the observer had no room.
    pub unseen: u64,
}

impl Takeover {
    /// The longest silence of any stream while raddle came, forwarded and went, in milliseconds.
    pub(super) fn longest_silence(&self) -> f64 {
        let all = self.streams.iter().map(|stream| stream.silence.ms);
        all.fold(0.0, f64::max)
    }
}

impl Stream {
    /// Whether it was silent for as long as a retransmission timeout.
    pub(super) fn stalled(&self) -> bool {
        self.silence.ms >= STALL.as_secs_f64() * 1e3
    }
}

/// Transfers, and starts and stops raddle meanwhile. `pause` passes before the start, between start
/// and stop, and at least half of it after the stop; `takes` is how long a start takes here.
pub(super) fn run(
    fabric: &Fabric,
    interrupt: &Interrupt,
    first_port: u16,
    pause: Duration,
    takes: Duration,
) -> Result<Takeover, Failure> {
    // A start takes longer beside a transfer.
    let length = (pause * 3 + takes * 2).as_secs() + 1;
    let length = Duration::from_secs(length);
    let seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX);
    let tap = Tap::start(fabric, 1)?;
    let mut run = iperf::Run::start(fabric, STREAMS, Some(first_port), seconds)?;
    let began = Instant::now();
    let mut wait = |until: Duration| -> Result<Duration, Failure> {
        while began.elapsed() < until && run.is_running()? {
            interrupt.check()?;
            std::thread::sleep(ROUND);
        }
        Ok(since_epoch())
    };
    let start = wait(pause)?;
    let daemons = Daemons::start(fabric)?;
    let ready = since_epoch();
    let stop = wait(began.elapsed() + pause)?;
    daemons.stop()?;
    let stopped = since_epoch();
    if began.elapsed() + pause / 2 > length {
        return Err(Failure::system(format!(
            "raddle took {:.1} s to start and {:.1} s to stop, so that the transfer did not see \
             the end of it; is the machine busy? Try again, with a longer --seconds",
            (ready - start).as_secs_f64(),
            (stopped - stop).as_secs_f64()
        )));
    }
    // The client ends a little after its time.
    wait(length + Duration::from_secs(5))?;
    let reports = run.finish()?;
    let sightings = tap.finish()?;
    evaluate(fabric, &reports, &sightings, [start, ready, stop, stopped])
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn evaluate(
    fabric: &Fabric,
    reports: &[iperf::Stream],
    sightings: &Sightings,
    times: [Duration; 4],
) -> Result<Takeover, Failure> {
    let ports: Vec<u16> = reports.iter().map(|report| report.port).collect();
    let mut seen: Vec<Seen> = sightings.seen.clone();
    seen.retain(|sighting| ports.contains(&sighting.port));
    seen.sort_unstable_by_key(|sighting| sighting.at);
    let origin = seen.first().map_or(times[0], |first| first.at);
    let [start, ready, stop, stopped] = times.map(|at| seconds_since(origin, at));
    let events = Events {
        start,
        ready,
        stop,
        stopped,
    };
    let names: Vec<&str> = fabric.links.iter().map(|link| link.name.as_str()).collect();
    let mut streams = Vec::new();
    let mut all_silences = Vec::new();
    for (report, prediction) in reports.iter().zip(predict(fabric, &ports)?) {
        let silences = silences(&seen, report.port, origin);
        streams.push(Stream {
            port: report.port,
            predicted: prediction.explained,
            taken: taken(&seen, report.port, &names),
            silence: longest(&silences, start, stopped + AFTERMATH),
            mbits: report.mbits,
            timeline: report.received.iter().map(|i| (i.start, i.value)).collect(),
        });
        all_silences.extend(silences);
    }
    let phases = phases(&events, reports, &all_silences);
    Ok(Takeover {
        events,
        streams,
        phases,
        segments: seen.len() as u64,
        unseen: sightings.lost,
    })
}

fn seconds_since(origin: Duration, at: Duration) -> f64 {
    at.as_secs_f64() - origin.as_secs_f64()
}

/// The times between the segments of a port.
fn silences(seen: &[Seen], port: u16, origin: Duration) -> Vec<Silence> {
    let own = seen.iter().filter(|sighting| sighting.port == port);
    let times: Vec<f64> = own.map(|s| seconds_since(origin, s.at)).collect();
    let silence = |pair: &[f64]| Silence {
        at: pair[0],
        ms: (pair[1] - pair[0]) * 1e3,
    };
    times.windows(2).map(silence).collect()
}

/// The longest of the silences that reach into a part of the transfer.
fn longest(silences: &[Silence], from: f64, until: f64) -> Silence {
    let inside = silences
        .iter()
        .filter(|silence| silence.at < until && silence.at + silence.ms / 1e3 > from);
    let longest = inside.max_by(|a, b| a.ms.total_cmp(&b.ms));
    longest.copied().unwrap_or_default()
}

/// Cuts the transfer at the events.
fn phases(events: &Events, reports: &[iperf::Stream], silences: &[Silence]) -> Vec<Phase> {
    let all = || reports.iter().flat_map(|report| &report.received);
    let end = all().map(|interval| interval.end).fold(0.0, f64::max);
    let cuts = [
        ("kernel", 0.0, events.start),
        ("raddle starts", events.start, events.ready + AFTERMATH),
        ("raddle", events.ready + AFTERMATH, events.stop),
        ("raddle stops", events.stop, events.stopped + AFTERMATH),
        ("kernel", events.stopped + AFTERMATH, end),
    ];
    let cut = |(name, from, until): (&'static str, f64, f64)| {
        let within = |interval: &&Interval| {
            let middle = f64::midpoint(interval.start, interval.end);
            from <= middle && middle < until
        };
        let received = all().filter(within);
        let megabits: f64 = received.map(|i| i.value * (i.end - i.start)).sum();
        let resent = reports
            .iter()
            .flat_map(|report| &report.resent)
            .filter(within);
        let resent: f64 = resent.map(|interval| interval.value).sum();
        // Of the first stream: all streams' intervals cover the same time.
        let first = reports.first().map_or(&[][..], |report| &report.received);
        let own = first.iter().enumerate().filter(|(_, i)| within(i));
        let seconds: f64 = own.clone().map(|(_, i)| i.end - i.start).sum();
        let together = own.map(|(at, _)| {
            let intervals = reports.iter().filter_map(|report| report.received.get(at));
            intervals.map(|interval| interval.value).sum()
        });
        let slowest: Option<f64> = together.reduce(f64::min);
        let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        Phase {
            name,
            from,
            until,
            mbits: rate(megabits),
            slowest_mbits: slowest.unwrap_or(0.0),
            retransmits_per_second: rate(resent),
            silence_ms: longest(silences, from, until).ms,
        }
    };
    cuts.map(cut).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_is_found() {
        let seen = |ms: u64, port| Seen {
            at: Duration::from_millis(1000 + ms),
            link: 0,
            port,
        };
        let all = [
            seen(0, 1),
            seen(10, 1),
            seen(11, 2),
            seen(40, 1),
            seen(45, 1),
            seen(311, 2),
        ];
        let silences = |port| silences(&all, port, Duration::from_secs(1));
        let near = |silence: Silence, at: f64, ms: f64| {
            (silence.at - at).abs() < 1e-9 && (silence.ms - ms).abs() < 1e-6
        };
        let one = silences(1);
        assert_eq!(one.len(), 3);
        assert!(near(longest(&one, 0.0, 1.0), 0.010, 30.0));
        // One that began before the part, and one that is over before it.
        assert!(near(longest(&one, 0.030, 1.0), 0.010, 30.0));
        assert!(near(longest(&one, 0.041, 1.0), 0.040, 5.0));
        assert!(near(longest(&silences(2), 0.0, 1.0), 0.011, 300.0));
        assert_eq!(longest(&silences(3), 0.0, 1.0), Silence::default());
    }

    #[test]
    fn phases_count_what_falls_into_them() {
        let intervals = |value: fn(usize) -> f64| -> Vec<Interval> {
            let at = |i: usize| i as f64 / 10.0;
            (0..60)
                .map(|i| Interval {
                    start: at(i),
                    end: at(i + 1),
                    value: value(i),
                })
                .collect()
        };
        let report = iperf::Stream {
            port: 1,
            mbits: 0.0,
            retransmits: 0,
            received: intervals(|i| match i {
                0..20 => 100.0,
                30 => 150.0,
                _ => 200.0,
            }),
            // Five segments right after the start of raddle at 2.0 s.
            resent: intervals(|i| if i == 20 { 5.0 } else { 0.0 }),
        };
        let events = Events {
            start: 2.0,
            ready: 2.2,
            stop: 4.0,
            stopped: 4.2,
        };
        let silence = Silence { at: 3.0, ms: 7.0 };
        let phases = phases(&events, &[report.clone(), report], &[silence]);
        let silences: Vec<f64> = phases.iter().map(|phase| phase.silence_ms).collect();
        assert_eq!(silences, [0.0, 0.0, 7.0, 0.0, 0.0]);
        let names: Vec<&str> = phases.iter().map(|phase| phase.name).collect();
        assert_eq!(
            names,
            [
                "kernel",
                "raddle starts",
                "raddle",
                "raddle stops",
                "kernel"
            ]
        );
        assert!((phases[0].mbits - 200.0).abs() < 1e-6);
        assert!((phases[2].mbits - 393.333).abs() < 1e-3, "{phases:?}");
        assert!((phases[0].slowest_mbits - 200.0).abs() < 1e-6);
        assert!((phases[2].slowest_mbits - 300.0).abs() < 1e-6);
        assert!((phases[1].retransmits_per_second - 20.0).abs() < 1e-6);
        assert!(phases[2].retransmits_per_second.abs() < 1e-6);
    }
}

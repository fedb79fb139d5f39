//! One measurement: streams through the fabric, and what became of each.

use std::time::{Duration, Instant};

use raddle_lab::{Counters, Interrupt};
use serde::Serialize;

use super::daemons::Forwarded;
use super::fabric::Fabric;
use super::iperf::{self, PORT};
use super::plan::{Measurement, STREAMS};
use super::predict::{Oracle, Prediction};
use super::tap::{Seen, Tap};
use raddle_exit::Failure;

/// Of so many data segments, one is looked at.
const SAMPLE: u32 = 16;
/// How often the links' counters are read.
const ROUND: Duration = Duration::from_millis(100);
/// Megabits.
const MEGA: f64 = 1e6;

/// A stream, and its links.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Stream {
    /// The sender's port.
    pub port: u16,
    /// The link that `raddle explain` names; none where the kernel hides its hash seed.
    pub predicted: Option<String>,
    /// The link that the kernel names when it is asked.
    pub kernel: String,
    /// The links that the stream was seen on, the one it was seen on most first.
    pub taken: Vec<String>,
    /// Payload that arrived, in Mbit/s.
    pub mbits: f64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// What a link of the leaf delivered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Link {
    /// Its name.
    pub name: String,
    /// Frames, headers included, in Mbit/s, while the streams ran at full speed.
    pub mbits: f64,
}

/// A measurement's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Outcome {
    /// What was measured.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Every stream, by port.
    pub streams: Vec<Stream>,
    /// Every link of the sender's leaf to a spine.
    pub links: Vec<Link>,
    /// The share of what the leaf forwarded that raddle did; none when it did not run.
    pub by_raddle: Option<f64>,
}

impl Outcome {
    /// Mbit/s over all links.
    pub(super) fn total(&self) -> f64 {
        self.links.iter().map(|link| link.mbits).sum()
    }
}

/// What the links delivered up to a moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Duration,
    links: Vec<Counters>,
}

/// Measures. `forwarded` tells what the leaf has forwarded so far, if raddle runs on it.
pub(super) fn measure(
    fabric: &Fabric,
    interrupt: &Interrupt,
    measurement: Measurement,
    first_port: Option<u16>,
    seconds: u32,
    forwarded: &dyn Fn() -> Result<Option<Forwarded>, Failure>,
) -> Result<Outcome, Failure> {
    let before = forwarded()?;
    let tap = Tap::start(fabric, SAMPLE)?;
    let start = Instant::now();
    let mut samples = vec![Sample {
        at: start.elapsed(),
        links: fabric.delivered()?,
    }];
    let mut run = iperf::Run::start(fabric, STREAMS, first_port, seconds)?;
    while run.is_running()? {
        interrupt.check()?;
        std::thread::sleep(ROUND);
        samples.push(Sample {
            at: start.elapsed(),
            links: fabric.delivered()?,
        });
    }
    let mut reports = run.finish()?;
    let sightings = tap.finish()?;
    reports.sort_unstable_by_key(|report| report.port);
    let ports: Vec<u16> = reports.iter().map(|report| report.port).collect();
    let predictions = predict(fabric, &ports)?;
    let after = forwarded()?;
    let names: Vec<&str> = fabric.links.iter().map(|link| link.name.as_str()).collect();
    let streams = reports
        .iter()
        .zip(predictions)
        .map(|(report, prediction)| Stream {
            port: report.port,
            predicted: prediction.explained,
            kernel: prediction.kernel,
            taken: taken(&sightings.seen, report.port, &names),
            mbits: report.mbits,
            retransmits: report.retransmits,
        });
    let rates = link_rates(&samples, Duration::from_secs(u64::from(seconds)));
    let links = names.iter().zip(rates);
    Ok(Outcome {
        measurement,
        streams: streams.collect(),
        links: links
            .map(|(name, mbits)| Link {
                name: (*name).to_owned(),
                mbits,
            })
            .collect(),
        by_raddle: before
            .zip(after)
            .map(|(before, after)| after.share_since(&before)),
    })
}

/// Predicts the links of streams from these ports.
pub(super) fn predict(fabric: &Fabric, ports: &[u16]) -> Result<Vec<Prediction>, Failure> {
    Oracle::consult(fabric, PORT, |oracle| {
        ports.iter().map(|p| oracle.predict(*p)).collect()
    })
}

/// The links that a port was seen on, the one it was seen on most first.
pub(super) fn taken(seen: &[Seen], port: u16, names: &[&str]) -> Vec<String> {
    let mut counts = vec![0u64; names.len()];
    for sighting in seen.iter().filter(|sighting| sighting.port == port) {
        counts[sighting.link] += 1;
    }
    let mut links: Vec<usize> = (0..names.len()).filter(|link| counts[*link] > 0).collect();
    links.sort_by_key(|link| std::cmp::Reverse(counts[*link]));
    links
        .into_iter()
        .map(|link| names[link].to_owned())
        .collect()
}

/// Each link's Mbit/s at full speed: without the start, when TCP looks for the rate, and the end.
fn link_rates(samples: &[Sample], length: Duration) -> Vec<f64> {
    let links = samples.first().map_or(0, |sample| sample.links.len());
    let bytes = |sample: &Sample| sample.links.iter().map(|link| link.bytes).sum::<u64>();
    let idle = samples.first().map_or(0, bytes);
    // The control connection's few kilobytes are not the streams' begin.
    let began = samples
        .iter()
        .rposition(|sample| bytes(sample) < idle + 100_000);
    let began = began.map_or(Duration::ZERO, |i| samples[i].at);
    let from = samples
        .iter()
        .find(|sample| sample.at >= began + length / 4);
    let until = samples
        .iter()
        .rev()
        .find(|sample| sample.at <= began + length);
    let (Some(from), Some(until)) = (from, until) else {
        return vec![0.0; links];
    };
    let seconds = until.at.saturating_sub(from.at).as_secs_f64();
    if seconds == 0.0 {
        return vec![0.0; links];
    }
    let rate = |link: usize| (until.links[link].bytes - from.links[link].bytes) as f64 * 8.0 / MEGA;
    (0..links).map(|link| rate(link) / seconds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: u64, bytes: [u64; 2]) -> Sample {
        let counters = |bytes| Counters {
            bytes,
            packets: bytes / 1000,
            dropped: 0,
        };
        Sample {
            at: Duration::from_millis(millis),
            links: bytes.map(counters).to_vec(),
        }
    }

    #[test]
    fn rates_are_those_of_full_speed() {
        // Nothing for 200 ms, slowly until 1200 ms, then 8 and 4 Mbit in 100 ms.
        let mut samples = vec![
            sample(0, [7, 9]),
            sample(100, [500, 9]),
            sample(200, [900, 9]),
        ];
        for i in 3..42 {
            let fast = u64::max(i, 12) - 12;
            let bytes = 200_000 + 1_000_000 * fast;
            samples.push(sample(i * 100, [bytes, bytes / 2]));
        }
        let last = samples.last().unwrap().links[0].bytes;
        samples.push(sample(4300, [last, last / 2]));
        let rates = link_rates(&samples, Duration::from_secs(4));
        assert!(
            (rates[0] - 80.0).abs() < 1.0 && (rates[1] - 40.0).abs() < 0.5,
            "{rates:?}"
        );
        assert_eq!(
            link_rates(&samples[..1], Duration::from_secs(4)),
            [0.0, 0.0]
        );
        assert!(link_rates(&[], Duration::from_secs(4)).is_empty());
    }

    #[test]
    fn links_are_told_by_how_often() {
        let at = Duration::ZERO;
        let seen = [(0, 1), (1, 1), (1, 1), (0, 2)].map(|(link, port)| Seen { at, link, port });
        assert_eq!(taken(&seen, 1, &["a", "b"]), ["b", "a"]);
        assert_eq!(taken(&seen, 2, &["a", "b"]), ["a"]);
        assert!(taken(&seen, 3, &["a", "b"]).is_empty());
    }
}

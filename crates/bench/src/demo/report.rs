//! What the demo found, for programs, and whether it was as promised.

use raddle_lab::Rate;
use serde::Serialize;

use super::measure::Outcome;
use super::plan::policy_name;
use super::takeover::Takeover;

/// The whole run: `demo.json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// The form of this file.
    pub format: &'static str,
    /// raddle's version.
    pub version: &'static str,
    /// The rate of each link of the fabric, in bit/s.
    pub rate: Rate,
    /// Seconds of each measurement.
    pub seconds: u32,
    /// All measurements, in order.
    pub measurements: Vec<Outcome>,
    /// raddle's start and stop in mid-transfer.
    pub takeover: Takeover,
    /// What was not as promised; empty when all was.
    pub problems: Vec<String>,
}

impl Report {
    /// Puts the results together and judges them.
    pub(super) fn new(
        rate: Rate,
        seconds: u32,
        measurements: Vec<Outcome>,
        takeover: Takeover,
    ) -> Report {
        let problems = problems(&measurements, &takeover);
        Report {
            format: "raddle-demo-1",
            version: env!("CARGO_PKG_VERSION"),
            rate,
            seconds,
            measurements,
            takeover,
            problems,
        }
    }
}

/// What was not as promised.
///
/// 1. Every stream is seen, on one link only.
/// 2. It is the link that the kernel names when it is asked, whoever forwards.
/// 3. It is the link that `raddle explain` names, where it names one.
/// 4. raddle forwards what it is there for: nine packets of ten, at least.
/// 5. No stream moves, nor falls silent for a retransmission timeout, while raddle starts and stops.
fn problems(measurements: &[Outcome], takeover: &Takeover) -> Vec<String> {
    let mut problems = Vec::new();
    for outcome in measurements {
        let it = outcome.measurement;
        let (forwarder, policy) = (it.forwarder.name(), policy_name(it.policy));
        for stream in &outcome.streams {
            let mut complain = |what: &str| {
                let port = stream.port;
                problems.push(format!(
                    "{forwarder}, {policy}: the stream from port {port} {what}"
                ));
            };
            let [taken] = stream.taken.as_slice() else {
                complain(&format!("was seen on {}", list(&stream.taken)));
                continue;
            };
            if *taken != stream.kernel {
                complain(&format!(
                    "took {taken}, and the kernel names {}",
                    stream.kernel
                ));
            }
            if let Some(predicted) = stream.predicted.as_ref().filter(|p| *p != taken) {
                complain(&format!("took {taken}, and explain predicts {predicted}"));
            }
        }
        if let Some(share) = outcome.by_raddle.filter(|share| *share < 0.9) {
            let percent = share * 100.0;
            problems.push(format!(
                "{policy}: raddle forwarded only {percent:.1} % of the packets"
            ));
        }
    }
    for stream in &takeover.streams {
        let port = stream.port;
        if stream.taken.len() != 1 {
            let links = list(&stream.taken);
            problems.push(format!(
                "takeover: the stream from port {port} was seen on {links}"
            ));
        } else if stream
            .predicted
            .as_ref()
            .is_some_and(|p| *p != stream.taken[0])
        {
            problems.push(format!(
                "takeover: the stream from port {port} took another link than predicted"
            ));
        }
        if stream.stalled() {
            let (silence, at) = (stream.silence.ms, stream.silence.at);
            problems.push(format!(
                "takeover: the stream from port {port} was silent for {silence:.0} ms, {at:.2} s \
                 into the transfer"
            ));
        }
    }
    problems
}

fn list(links: &[String]) -> String {
    if links.is_empty() {
        "no link".to_owned()
    } else {
        links.join(" and ")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demo::measure::{Link, Stream};
    use crate::demo::plan::measurements;
    use crate::demo::takeover::{self, Events, Phase};

    /// A run in which all is as promised.
    pub(in crate::demo) fn sample() -> (Vec<Outcome>, Takeover) {
        let link = |at: usize| ["spine1", "spine2"][at % 2].to_owned();
        let stream = |i: usize| Stream {
            port: 20_000 + i as u16,
            predicted: Some(link(i)),
            kernel: link(i),
            taken: vec![link(i)],
            mbits: 490.0,
            retransmits: 3,
        };
        let links = || {
            (0..2)
                .map(|i| Link {
                    name: link(i),
                    mbits: 995.5 + i as f64,
                })
                .collect()
        };
        let outcomes = measurements().map(|measurement| Outcome {
            measurement,
            streams: (0..3).map(stream).collect(),
            links: links(),
            by_raddle: (measurement.forwarder == crate::demo::plan::Forwarder::Raddle)
                .then_some(0.9991),
        });
        let phase = |name, from, until| Phase {
            name,
            from,
            until,
            mbits: 1960.0,
            slowest_mbits: 1940.0,
            retransmits_per_second: 12.0,
            silence_ms: 9.5,
        };
        let moving = |i: usize| takeover::Stream {
            port: 20_000 + i as u16,
            predicted: Some(link(i)),
            taken: vec![link(i)],
            silence: takeover::Silence {
                at: 2.25,
                ms: 4.0 + i as f64,
            },
            mbits: 490.0,
            timeline: vec![(0.0, 480.0), (0.1, 500.0)],
        };
        let takeover = Takeover {
            events: Events {
                start: 2.0,
                ready: 2.4,
                stop: 6.0,
                stopped: 6.2,
            },
            streams: (0..3).map(moving).collect(),
            phases: vec![phase("kernel", 0.0, 2.0), phase("raddle starts", 2.0, 2.7)],
            segments: 123_456,
            unseen: 0,
        };
        (outcomes.collect(), takeover)
    }

    #[test]
    fn all_is_well() {
        let (outcomes, takeover) = sample();
        assert_eq!(problems(&outcomes, &takeover), Vec::<String>::new());
    }

    #[test]
    fn every_broken_promise_is_told() {
        type Break = fn(&mut Vec<Outcome>, &mut Takeover);
        let breaks: [(Break, &str); 8] = [
            (|o, _| o[0].streams[0].taken.clear(), "was seen on no link"),
            (
                |o, _| o[1].streams[1].taken.push("spine1".into()),
                "on spine2 and spine1",
            ),
            (
                |o, _| o[2].streams[0].kernel = "spine2".into(),
                "and the kernel names spine2",
            ),
            (
                |o, _| o[3].streams[0].predicted = Some("x".into()),
                "explain predicts x",
            ),
            (|o, _| o[4].by_raddle = Some(0.5), "only 50.0 %"),
            (
                |_, t| t.streams[2].taken.push("spine2".into()),
                "on spine1 and spine2",
            ),
            (
                |_, t| t.streams[0].predicted = Some("x".into()),
                "another link than predicted",
            ),
            (|_, t| t.streams[0].silence.ms = 250.0, "silent for 250 ms"),
        ];
        for (break_it, said) in breaks {
            let (mut outcomes, mut takeover) = sample();
            break_it(&mut outcomes, &mut takeover);
            let problems = problems(&outcomes, &takeover);
            assert_eq!(problems.len(), 1, "{said}: {problems:?}");
            assert!(problems[0].contains(said), "{problems:?}");
        }
        // A kernel that hides its seed cannot be predicted: nobody's fault.
        let (mut outcomes, takeover) = sample();
        outcomes[0].streams[0].predicted = None;
        assert!(problems(&outcomes, &takeover).is_empty());
    }

    #[test]
    fn the_file_is_flat_enough() {
        let (outcomes, takeover) = sample();
        let rate = "1gbit".parse().unwrap();
        let json = serde_json::to_value(Report::new(rate, 4, outcomes, takeover)).unwrap();
        assert_eq!(json["measurements"][0]["forwarder"], "kernel");
        assert_eq!(json["measurements"][0]["policy"], "l3");
        assert_eq!(json["measurements"][5]["ports"], "chosen");
        assert_eq!(json["measurements"][0]["streams"][0]["predicted"], "spine1");
        assert_eq!(json["rate"], 1_000_000_000);
        assert_eq!(json["problems"], serde_json::json!([]));
    }
}

//! The report for people.

use std::fmt::Write;

use super::measure::Outcome;
use super::plan::{Forwarder, Ports, one_in, policy_name};
use super::report::Report;
use raddle_lab::HashPolicy;
use raddle_text::Table;

/// A line about a measurement, for while the others still run.
pub(super) fn line(outcome: &Outcome) -> String {
    let it = outcome.measurement;
    let links: Vec<String> = outcome
        .links
        .iter()
        .map(|link| format!("{} {:.0}", link.name, link.mbits))
        .collect();
    format!(
        "{}, {}, {} ports: {:.0} Mbit/s ({})",
        it.forwarder.name(),
        policy_name(it.policy),
        it.ports.name(),
        outcome.total(),
        links.join(", ")
    )
}

/// The tables, what they mean, and the verdict.
pub(super) fn render(report: &Report) -> String {
    let mut text =
        String::from("\nTCP streams, and the links that the sender's leaf sent them over\n\n");
    text += &measurements(&report.measurements);
    text.push('\n');
    text += &notes(report);
    text += "\nOne transfer, raddle started and stopped in the middle of it\n\n";
    text += &takeover(report);
    text.push('\n');
    text += &verdict(report);
    text
}

fn measurements(outcomes: &[Outcome]) -> String {
    let links: Vec<&str> = match outcomes.first() {
        Some(first) => first.links.iter().map(|link| link.name.as_str()).collect(),
        None => Vec::new(),
    };
    let columns = [
        "forwarder",
        "policy",
        "ports",
        "from port",
        "predicted",
        "taken",
        "Mbit/s",
    ];
    let headings = columns.into_iter().chain(links).chain(["total"]);
    let mut table = Table::new(headings);
    for outcome in outcomes {
        let it = outcome.measurement;
        for (i, stream) in outcome.streams.iter().enumerate() {
            let mut row = match i {
                0 => vec![it.forwarder.name(), policy_name(it.policy), it.ports.name()],
                _ => vec![""; 3],
            };
            let (port, mbits) = (stream.port.to_string(), format!("{:.0}", stream.mbits));
            let taken = stream.taken.join("+");
            row.extend([
                &port,
                stream.predicted.as_deref().unwrap_or("-"),
                &taken,
                &mbits,
            ]);
            let mut row: Vec<String> = row.into_iter().map(str::to_owned).collect();
            if i == 0 {
                let rates = outcome.links.iter().map(|link| link.mbits);
                row.extend(
                    rates
                        .chain([outcome.total()])
                        .map(|rate| format!("{rate:.0}")),
                );
            }
            table.row(row);
        }
    }
    table.render()
}

fn notes(report: &Report) -> String {
    let mut text = String::new();
    let links = report
        .measurements
        .first()
        .map_or(0, |outcome| outcome.links.len());
    let count = report
        .measurements
        .first()
        .map_or(0, |outcome| outcome.streams.len());
    let streams = report
        .measurements
        .iter()
        .flat_map(|outcome| &outcome.streams);
    let all = streams.clone().count();
    let agreed = streams.filter(|s| s.taken == [s.kernel.as_str()]).count();
    let _ = writeln!(
        text,
        "Streams count payload, links count frames. L3 hashes addresses only: all streams between \
         two hosts\nshare one link. L4 hashes ports as well: with ports that the system picks, \
         all {count} share one link in\n1 of {} runs; this time {}. Chosen ports cover all links.",
        one_in(count as u16, links),
        chance(&report.measurements),
    );
    let _ = writeln!(
        text,
        "Asked for each stream (RTM_GETROUTE), the kernel names the link that was taken: {agreed} \
         of {all}."
    );
    let shares = report
        .measurements
        .iter()
        .filter_map(|outcome| outcome.by_raddle);
    if let Some(least) = shares.reduce(f64::min) {
        let _ = writeln!(
            text,
            "Where raddle forwards, it forwarded {:.2} % of the packets, the kernel the rest.",
            least * 100.0
        );
    }
    text
}

/// How the system's ports fell out, by forwarder.
fn chance(outcomes: &[Outcome]) -> String {
    let used = |forwarder| {
        let of = |outcome: &&Outcome| {
            let it = outcome.measurement;
            (it.forwarder, it.policy, it.ports) == (forwarder, HashPolicy::L4, Ports::System)
        };
        let outcome = outcomes.iter().find(of)?;
        let mut links: Vec<&str> = outcome
            .streams
            .iter()
            .flat_map(|s| &s.taken)
            .map(String::as_str)
            .collect();
        links.sort_unstable();
        links.dedup();
        Some(links.len())
    };
    let words = [Forwarder::Kernel, Forwarder::Raddle]
        .into_iter()
        .filter_map(|forwarder| {
            let links = match used(forwarder)? {
                1 => "one link".to_owned(),
                n => format!("{n} links"),
            };
            Some(format!("{links} under {}", forwarder.name()))
        });
    words.collect::<Vec<_>>().join(", ")
}

fn takeover(report: &Report) -> String {
    let takeover = &report.takeover;
    let mut table = Table::new([
        "forwarder",
        "seconds",
        "Mbit/s",
        "slowest 0.1 s",
        "sent again, per s",
        "longest silence, ms",
    ]);
    for phase in &takeover.phases {
        table.row([
            phase.name.to_owned(),
            format!("{:.1}-{:.1}", phase.from, phase.until),
            format!("{:.0}", phase.mbits),
            format!("{:.0}", phase.slowest_mbits),
            format!("{:.0}", phase.retransmits_per_second),
            format!("{:.1}", phase.silence_ms),
        ]);
    }
    let mut text = table.render();
    let unseen = match takeover.unseen {
        0 => "none missed".to_owned(),
        n => format!("{n} missed"),
    };
    let _ = writeln!(
        text,
        "\nLooked at {} segments where they leave the leaf, {unseen}:",
        takeover.segments
    );
    for stream in &takeover.streams {
        let _ = writeln!(
            text,
            "  from port {}: all on {}",
            stream.port,
            stream.taken.join(" and "),
        );
    }
    text
}

fn verdict(report: &Report) -> String {
    if report.problems.is_empty() {
        let predicted = report
            .measurements
            .iter()
            .flat_map(|outcome| &outcome.streams);
        let start = match predicted
            .filter(|stream| stream.predicted.is_none())
            .count()
        {
            0 => "Every prediction was right",
            _ => {
                "This kernel hides its hash seed (it can be set from Linux 6.11 on), so that nobody \
                 can predict;\nevery link was the kernel's choice"
            }
        };
        let silence = report.takeover.longest_silence();
        let stall = super::takeover::STALL.as_millis();
        format!(
            "{start}. No stream moved, none stalled (was silent for {stall} ms or more);\nthe \
             longest silence while raddle came and went was {silence:.1} ms.\n"
        )
    } else {
        let mut text = String::from("Not as promised:\n");
        for problem in &report.problems {
            let _ = writeln!(text, "  {problem}");
        }
        text
    }
}

/// What to try next; `program` is how raddle can be called.
pub(super) fn next(program: &str, flow: &str, files: &[String]) -> String {
    format!(
        "Written: {}\n\n\
         Try next, with a fabric that stays until you take it down:\n  \
         {program} lab up clos --rate 1gbit\n  \
         {program} lab exec leaf1 -- {program} explain {flow}\n  \
         {program} lab exec leaf1 -- {program} run &\n  \
         {program} lab exec leaf1 -- {program} status\n  \
         {program} lab down\n\
         On a router of your own: {program} run --check. More: README.md, {program} --help\n",
        files.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::sample;

    fn report() -> Report {
        let (outcomes, takeover) = sample();
        Report::new("1gbit".parse().unwrap(), 4, outcomes, takeover)
    }

    #[test]
    fn the_story_is_told() {
        let text = render(&report());
        let lines: Vec<&str> = text.lines().collect();
        let at = lines
            .iter()
            .position(|line| line.starts_with("forwarder"))
            .unwrap();
        let heading: Vec<&str> = lines[at].split_whitespace().collect();
        assert_eq!(
            heading[6..],
            ["taken", "Mbit/s", "spine1", "spine2", "total"]
        );
        let first: Vec<&str> = lines[at + 1].split_whitespace().collect();
        assert_eq!(
            first,
            "kernel L3 system 20000 spine1 spine1 490 996 996 1992"
                .split(' ')
                .collect::<Vec<_>>()
        );
        let second: Vec<&str> = lines[at + 2].split_whitespace().collect();
        assert_eq!(second, ["20001", "spine2", "spine2", "490"]);
        for said in [
            "in\n1 of 4 runs; this time 2 links under kernel, 2 links under raddle",
            "18 of 18",
            "forwarded 99.91 %",
            "123456 segments where they leave the leaf, none missed",
            "20002: all on spine1",
            "Every prediction was right. No stream moved, none stalled (was silent for 200 ms or more);\nthe longest silence while raddle came and went was 6.0 ms.",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        assert!(
            lines.iter().all(|line| line.chars().count() <= 110),
            "{text}"
        );
    }

    #[test]
    fn what_went_wrong_is_told() {
        let (mut outcomes, takeover) = sample();
        outcomes[3].streams[0].taken = vec!["spine2".into()];
        let text = render(&Report::new(
            "1gbit".parse().unwrap(),
            4,
            outcomes,
            takeover,
        ));
        assert!(text.contains("Not as promised:\n  raddle, L3: the stream from port 20000"));
        assert!(text.contains("17 of 18"));
    }

    #[test]
    fn a_line_for_the_impatient() {
        assert_eq!(
            line(&report().measurements[2]),
            "kernel, L4, chosen ports: 1992 Mbit/s (spine1 996, spine2 996)"
        );
    }
}

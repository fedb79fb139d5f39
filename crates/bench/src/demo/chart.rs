//! The report as pictures.

use std::path::{Path, PathBuf};

use super::measure::Outcome;
use super::plan::policy_name;
use super::report::Report;
use super::takeover::Takeover;
use raddle_exit::Failure;
use raddle_plot::{Group, Line};

/// Draws both pictures into a directory, and returns their files.
pub(super) fn draw(report: &Report, directory: &Path) -> Result<[PathBuf; 2], Failure> {
    let failed = |e: raddle_plot::Error| Failure::system(e.to_string());
    let files = [
        directory.join("demo.svg"),
        directory.join("demo-takeover.svg"),
    ];
    let title = "Three TCP streams: what each link of the leaf carries";
    raddle_plot::bars(&files[0], title, &groups(&report.measurements), "Mbit/s").map_err(failed)?;
    let title = "raddle starts and stops in mid-transfer";
    let lines = lines(&report.takeover);
    raddle_plot::lines(&files[1], title, &lines, "seconds", "Mbit/s").map_err(failed)?;
    Ok(files)
}

/// A group for each measurement, with a bar for each link.
fn groups(outcomes: &[Outcome]) -> Vec<Group> {
    let group = |outcome: &Outcome| {
        let it = outcome.measurement;
        let (forwarder, policy) = (it.forwarder.name(), policy_name(it.policy));
        let label = format!("{forwarder}, {policy}\n{} ports", it.ports.name());
        // Whole numbers: what a neighbour's messages add is not worth a decimal.
        let bars = outcome
            .links
            .iter()
            .map(|link| (link.name.clone(), link.mbits.round()));
        (label, bars.collect())
    };
    outcomes.iter().map(group).collect()
}

/// A line for each stream, and upright ones where raddle starts and stops.
fn lines(takeover: &Takeover) -> Vec<Line> {
    let stream = |stream: &super::takeover::Stream| {
        (
            format!("{}: {}", stream.port, stream.taken.join("+")),
            stream.timeline.clone(),
        )
    };
    let mut lines: Vec<Line> = takeover.streams.iter().map(stream).collect();
    let values = lines
        .iter()
        .flat_map(|(_, points)| points)
        .map(|(_, value)| *value);
    let top = values.fold(0.0, f64::max);
    for (name, at) in [
        ("raddle starts", takeover.events.start),
        ("forwards", takeover.events.ready),
        ("stopped", takeover.events.stopped),
    ] {
        lines.push((name.to_owned(), vec![(at, 0.0), (at, top)]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::sample;

    #[test]
    fn links_stand_side_by_side() {
        let (outcomes, _) = sample();
        let groups = groups(&outcomes);
        assert_eq!(groups.len(), 6);
        assert_eq!(groups[0].0, "kernel, L3\nsystem ports");
        assert_eq!(
            groups[5].1,
            [("spine1".to_owned(), 996.0), ("spine2".to_owned(), 997.0)]
        );
    }

    #[test]
    fn events_are_marked() {
        let (_, takeover) = sample();
        let lines = lines(&takeover);
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[1].0, "20001: spine2");
        assert_eq!(
            lines[4],
            ("forwards".to_owned(), vec![(2.4, 0.0), (2.4, 500.0)])
        );
        let directory = tempfile::tempdir().unwrap();
        let (outcomes, takeover) = sample();
        let report = Report::new("1gbit".parse().unwrap(), 4, outcomes, takeover);
        for file in draw(&report, directory.path()).unwrap() {
            assert!(std::fs::read_to_string(file).unwrap().contains("<svg"));
        }
        assert!(draw(&report, Path::new("/nowhere")).is_err());
    }
}

//! The results, for people and for programs.

use std::fmt::Write;

use raddle_text::Table;
use serde_json::{Value, json};

use super::kinds::Told;
use crate::select::median;

/// Bars, in milliseconds, for changes that netlink groups announce.
const MEDIAN: f64 = 2.0;
const WORST: f64 = 10.0;

/// One change. Times in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// From handing the change to what makes it until that was done, or had ended.
    pub(super) took: f64,
    /// Until the last frame around the change, from these two moments; 0 where it was sent before.
    pub(super) since_start: f64,
    pub(super) since_end: f64,
    /// The stream ended first: it took longer.
    pub(super) open: bool,
    /// Frames a second.
    pub(super) rate: f64,
}

/// All changes of a kind.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) told: Told,
    pub(super) rounds: Vec<Round>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) kinds: Vec<Measured>,
    pub(super) skipped: Vec<(&'static str, String)>,
}

/// The median and the worst of some rounds.
fn figures<'a>(
    rounds: impl IntoIterator<Item = &'a Round>,
    of: impl Fn(&Round) -> f64,
) -> (f64, f64) {
    let all: Vec<f64> = rounds.into_iter().map(of).collect();
    (
        median(&all),
        all.iter()
            .copied()
            .max_by(f64::total_cmp)
            .unwrap_or(f64::NAN),
    )
}

impl Measured {
    fn since_end(&self) -> (f64, f64) {
        figures(&self.rounds, |round| round.since_end)
    }

    fn since_start(&self) -> (f64, f64) {
        figures(&self.rounds, |round| round.since_start)
    }

    fn open(&self) -> usize {
        self.rounds.iter().filter(|round| round.open).count()
    }

    /// Whether it is within the bars; what nobody tells has none.
    fn met(&self) -> Option<bool> {
        let (median, worst) = self.since_end();
        let met = median <= MEDIAN && worst <= WORST && self.open() == 0;
        (self.told != Told::Polled).then_some(met)
    }
}

impl Results {
    /// The kinds that are over a bar.
    pub(super) fn missed(&self) -> impl Iterator<Item = &'static str> {
        let missed = self.kinds.iter().filter(|kind| kind.met() == Some(false));
        missed.map(|kind| kind.name)
    }

    /// All rounds of kinds of which somebody tells, or nobody.
    fn rounds(&self, told: bool) -> Vec<&Round> {
        let kinds = self.kinds.iter();
        let kinds = kinds.filter(|kind| (kind.told != Told::Polled) == told);
        kinds.flat_map(|kind| &kind.rounds).collect()
    }
}

/// A table, and lines below it.
pub(super) fn text(results: &Results) -> String {
    let mut table = Table::new([
        "kind",
        "told",
        "median ms",
        "worst ms",
        "from start",
        "worst",
        "command",
        "rounds",
        "met",
    ]);
    let ms = |value: f64| format!("{value:.2}");
    for kind in &results.kinds {
        let (end, start) = (kind.since_end(), kind.since_start());
        let met = match kind.met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        table.row([
            kind.name.to_owned(),
            kind.told.name().to_owned(),
            ms(end.0),
            ms(end.1),
            ms(start.0),
            ms(start.1),
            ms(figures(&kind.rounds, |round| round.took).0),
            kind.rounds.len().to_string(),
            met.to_owned(),
        ]);
    }
    let mut out = table.render();
    for kind in results.kinds.iter().filter(|kind| kind.open() > 0) {
        let _ = writeln!(
            out,
            "{}: in {} rounds frames went around it to the end of the stream",
            kind.name,
            kind.open()
        );
    }
    for (name, why) in &results.skipped {
        let _ = writeln!(out, "skipped: {name}: {why}");
    }
    for (told, what) in [(true, "told"), (false, "polled")] {
        let rounds = results.rounds(told);
        if rounds.is_empty() {
            continue;
        }
        let end = figures(rounds.iter().copied(), |round| round.since_end);
        let start = figures(rounds.iter().copied(), |round| round.since_start);
        let _ = writeln!(
            out,
            "all that is {what}: median {:.2} ms, worst {:.2} ms; from the start of the change {:.2} ms, {:.2} ms",
            end.0, end.1, start.0, start.1
        );
    }
    let every = results.kinds.iter().flat_map(|kind| &kind.rounds);
    let _ = writeln!(
        out,
        "when the last frame around the change was sent, after what makes the change had ended (median, worst) and after it was \
         told to (from start, worst);\nmust, where a netlink group tells: median {MEDIAN} ms, worst {WORST} ms; \
         {:.0} frames a second in the median",
        figures(every, |round| round.rate).0
    );
    out
}

/// The same as JSON, with every round.
pub(super) fn json(results: &Results) -> Value {
    let kinds = results.kinds.iter().map(|kind| {
        let list = |of: fn(&Round) -> f64| kind.rounds.iter().map(of).collect::<Vec<f64>>();
        let (end, start) = (kind.since_end(), kind.since_start());
        json!({
            "kind": kind.name,
            "told": kind.told.name(),
            "median_ms": end.0,
            "worst_ms": end.1,
            "median_from_start_ms": start.0,
            "worst_from_start_ms": start.1,
            "met": kind.met(),
            "open": kind.open(),
            "since_end_ms": list(|round| round.since_end),
            "since_start_ms": list(|round| round.since_start),
            "command_ms": list(|round| round.took),
            "frames_per_second": list(|round| round.rate),
        })
    });
    let skipped = results.skipped.iter();
    let skipped = skipped.map(|(name, why)| json!({ "kind": name, "why": why }));
    json!({
        "kinds": kinds.collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
        "must_ms": { "median": MEDIAN, "worst": WORST },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &'static str, told: Told, ends: &[f64]) -> Measured {
        let round = |end: &f64| Round {
            took: 1.0,
            since_start: end + 1.0,
            since_end: *end,
            open: false,
            rate: 1e5,
        };
        Measured {
            name,
            told,
            rounds: ends.iter().map(round).collect(),
        }
    }

    #[test]
    fn bars_are_for_median_and_worst_of_what_is_told() {
        let mut results = Results {
            kinds: vec![
                measured("fine", Told::Announced, &[9.0, 2.0, 0.0, 0.5, 2.0]),
                measured("slow", Told::Followed, &[3.0, 3.0, 0.0]),
                measured("once", Told::Followed, &[0.0, 0.0, 11.0]),
                measured("looked", Told::Polled, &[50.0, 60.0, 70.0]),
            ],
            skipped: vec![("vrf", "no such device".to_owned())],
        };
        assert_eq!(results.missed().collect::<Vec<_>>(), ["slow", "once"]);
        results.kinds[0].rounds[0].open = true;
        assert_eq!(results.missed().count(), 3);
        let said = text(&results);
        for line in [
            "skipped: vrf: no such device",
            "fine: in 1 rounds frames went around it to the end of the stream",
            "all that is told: median 2.00 ms, worst 11.00 ms; from the start of the change 3.00 ms, 12.00 ms",
            "all that is polled: median 60.00 ms, worst 70.00 ms",
            "100000 frames a second",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        let json = json(&results);
        assert_eq!(json["kinds"][1]["median_ms"], 3.0);
        assert_eq!(json["kinds"][1]["met"], false);
        assert_eq!(json["kinds"][3]["met"], Value::Null);
        assert_eq!(json["kinds"][0]["since_end_ms"][0], 9.0);
        assert_eq!(json["skipped"][0]["kind"], "vrf");
    }
}

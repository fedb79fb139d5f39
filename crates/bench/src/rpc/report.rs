//! The results, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use raddle_text::Table;

/// What a row has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Must {
    /// Nothing: it is there to compare with.
    Nothing,
    /// At least: the mean and the worst trial.
    AtLeast(f64, Option<f64>),
    /// At most: the mean and the worst trial.
    AtMost(f64, Option<f64>),
}

/// What the numbers of a row are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    /// A share, shown as per cent.
    Share,
    /// Gbit/s.
    Gigabits,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
    /// A number of things.
    Count,
    /// One figure over another.
    Ratio,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Share => format!("{:.1} %", value * 100.0),
            Unit::Gigabits => format!("{value:.2} Gbit/s"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Microseconds => format!("{value:.0} us"),
            Unit::Count => format!("{value:.2}"),
            Unit::Ratio => format!("{value:.2}"),
        }
    }
}

/// A row: one figure of each trial.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// As `--only` takes it.
    pub row: &'static str,
    pub what: String,
    pub unit: Unit,
    pub must: Must,
    pub trials: Vec<f64>,
}

impl Line {
    fn mean(&self) -> f64 {
        self.trials.iter().sum::<f64>() / self.trials.len() as f64
    }

    /// The highest where less is better, otherwise the lowest.
    fn worst(&self) -> f64 {
        let most = match self.must {
            Must::AtMost(..) => true,
            Must::AtLeast(..) => false,
            Must::Nothing => matches!(self.unit, Unit::Seconds | Unit::Microseconds),
        };
        let all = self.trials.iter().copied();
        match most {
            true => all.fold(f64::NEG_INFINITY, f64::max),
            false => all.fold(f64::INFINITY, f64::min),
        }
    }

    /// Whether it reaches what it must.
    fn is_met(&self) -> Option<bool> {
        let (mean, worst) = (self.mean(), self.worst());
        match self.must {
            Must::Nothing => None,
            Must::AtLeast(m, w) => Some(mean >= m && w.is_none_or(|w| worst >= w)),
            Must::AtMost(m, w) => Some(mean <= m && w.is_none_or(|w| worst <= w)),
        }
    }

    fn bar(&self) -> String {
        let (sign, mean, worst) = match self.must {
            Must::Nothing => return String::new(),
            Must::AtLeast(mean, worst) => (">=", mean, worst),
            Must::AtMost(mean, worst) => ("<=", mean, worst),
        };
        let worst = worst.map(|worst| format!(", {}", self.unit.show(worst)));
        format!(
            "{sign} {}{}",
            self.unit.show(mean),
            worst.unwrap_or_default()
        )
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub lines: Vec<Line>,
    /// Where and against what, and what was left out and why.
    pub notes: Vec<String>,
}

/// Which rows do not reach what they must; none where all do.
pub(super) fn missed(results: &Results) -> Option<String> {
    let missed = results.lines.iter().filter(|l| l.is_met() == Some(false));
    let missed: Vec<String> = missed.map(|l| format!("{} ({})", l.row, l.what)).collect();
    let count = missed.len();
    let bars = if count == 1 {
        "1 bar is"
    } else {
        &format!("{count} bars are")
    };
    (count > 0).then(|| format!("{bars} missed: {}", missed.join("; ")))
}

/// A table, and what to know about it.
pub(super) fn text(results: &Results) -> String {
    let mut table = Table::new(["row", "what", "mean", "worst", "trials", "must", "met"]);
    for line in &results.lines {
        table.row([
            line.row.to_owned(),
            line.what.clone(),
            line.unit.show(line.mean()),
            line.unit.show(line.worst()),
            line.trials.len().to_string(),
            line.bar(),
            match line.is_met() {
                None => String::new(),
                Some(true) => "yes".into(),
                Some(false) => "NO".into(),
            },
        ]);
    }
    let mut out = table.render();
    for note in &results.notes {
        let _ = writeln!(out, "{note}");
    }
    out
}

/// The same, with every trial.
pub(super) fn json(results: &Results) -> Value {
    let lines = results.lines.iter().map(|line| {
        let (sign, mean, worst) = match line.must {
            Must::Nothing => (None, None, None),
            Must::AtLeast(mean, worst) => (Some(">="), Some(mean), worst),
            Must::AtMost(mean, worst) => (Some("<="), Some(mean), worst),
        };
        json!({
            "row": line.row, "what": line.what, "unit": format!("{:?}", line.unit).to_lowercase(),
            "trials": line.trials, "mean": line.mean(), "worst": line.worst(),
            "must": sign.map(|sign| json!({ "sign": sign, "mean": mean, "worst": worst })),
            "met": line.is_met(),
        })
    });
    json!({ "rows": lines.collect::<Vec<_>>(), "notes": results.notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_held_against_its_bar() {
        let mut line = Line {
            row: "reads",
            what: "reads, 4 connections".into(),
            unit: Unit::Share,
            must: Must::AtLeast(0.97, Some(0.95)),
            trials: vec![1.0, 0.96],
        };
        assert_eq!(
            (line.mean(), line.worst(), line.is_met()),
            (0.98, 0.96, Some(true))
        );
        line.trials.push(0.94);
        assert_eq!(line.is_met(), Some(false));
        let results = Results {
            lines: vec![line.clone()],
            notes: vec!["a note".into()],
        };
        assert_eq!(
            text(&results),
            "row    what                    mean   worst  trials  must               met\n\
             reads  reads, 4 connections  96.7 %  94.0 %       3  >= 97.0 %, 95.0 %  NO\n\
             a note\n"
        );
        let said = "1 bar is missed: reads (reads, 4 connections)";
        assert_eq!(missed(&results).as_deref(), Some(said));
        assert_eq!(missed(&Results::default()), None);
        assert_eq!(json(&results)["rows"][0]["must"]["worst"], 0.95);
        line.must = Must::AtMost(60.0, None);
        assert_eq!((line.worst(), line.is_met()), (1.0, Some(true)));
        line.must = Must::Nothing;
        assert_eq!(line.is_met(), None);
        assert_eq!(line.bar(), "");
    }
}

//! What a check finds.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Packets are lost, or paths that should be used are not: the exit code is 1.
    Serious,
    /// It works, but not as well or as surely as it could.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// All, the worst first.
    pub const ALL: [Severity; 3] = [Severity::Serious, Severity::Warning, Severity::Note];

    /// Its name, in the singular or the plural.
    pub fn name(self, count: usize) -> &'static str {
        match (self, count) {
            (Severity::Serious, _) => "serious",
            (Severity::Warning, 1) => "warning",
            (Severity::Warning, _) => "warnings",
            (Severity::Note, 1) => "note",
            (Severity::Note, _) => "notes",
        }
    }
}

/// What a check found, before it is known which check it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter, in one sentence without a full stop.
    pub what: String,
    /// The numbers and names behind it.
    pub evidence: Vec<String>,
    /// What follows from it.
    pub effect: String,
    /// The command that fixes it; none where no command on this machine does.
    pub fix: Option<String>,
    /// What to know about the command, or what to do where there is none.
    pub advice: Option<String>,
}

impl Found {
    /// A finding without evidence and without a fix.
    pub fn new(severity: Severity, what: impl Into<String>, effect: impl Into<String>) -> Found {
        Found {
            severity,
            what: what.into(),
            evidence: Vec::new(),
            effect: effect.into(),
            fix: None,
            advice: None,
        }
    }

    /// With evidence; of many lines the first are kept, and how many there are besides.
    pub fn evidence<S: Into<String>>(mut self, lines: impl IntoIterator<Item = S>) -> Found {
        let mut lines: Vec<String> = lines.into_iter().map(S::into).collect();
        let more = lines.len().saturating_sub(MOST_LINES);
        if more > 1 {
            lines.truncate(MOST_LINES);
            lines.push(format!("and {more} more"));
        }
        self.evidence.extend(lines);
        self
    }

    /// With the command that fixes it.
    pub fn fix(mut self, command: impl Into<String>) -> Found {
        self.fix = Some(command.into());
        self
    }

    /// With advice.
    pub fn advice(mut self, text: impl Into<String>) -> Found {
        self.advice = Some(text.into());
        self
    }
}

/// Lines of evidence that a finding shows.
const MOST_LINES: usize = 6;

/// A finding as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's stable name.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter.
    pub what: String,
    /// The numbers and names behind it.
    pub evidence: Vec<String>,
    /// What follows from it.
    pub effect: String,
    /// The command that fixes it.
    pub fix: Option<String>,
    /// What to know about the command, or what to do where there is none.
    pub advice: Option<String>,
    /// Where this is known from: a kernel function, a commit, an RFC.
    pub source: &'static str,
}

impl Finding {
    /// What the check named `id` found.
    pub fn of(id: &'static str, source: &'static str, found: Found) -> Finding {
        Finding {
            id,
            severity: found.severity,
            what: found.what,
            evidence: found.evidence,
            effect: found.effect,
            fix: found.fix,
            advice: found.advice,
            source,
        }
    }
}

/// `1 route`, `2 routes`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_evidence_is_cut_and_counted() {
        let lines = |n: usize| {
            let found = Found::new(Severity::Note, "w", "e");
            found.evidence((0..n).map(|i| i.to_string())).evidence
        };
        assert_eq!(lines(2), ["0", "1"]);
        // One more line takes no more room than saying so.
        assert_eq!(lines(7).last().unwrap(), "6");
        assert_eq!(lines(9).last().unwrap(), "and 3 more");
        assert_eq!(lines(9).len(), MOST_LINES + 1);
    }

    #[test]
    fn counts_have_plurals() {
        assert_eq!(
            (count(1, "route"), count(0, "route")),
            ("1 route".into(), "0 routes".into())
        );
        assert_eq!(Severity::Note.name(2), "notes");
        assert!(Severity::Serious < Severity::Warning);
    }
}

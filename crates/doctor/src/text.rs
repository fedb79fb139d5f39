//! The answer for people.

use std::fmt::Write;

use super::Answer;
use super::finding::{Finding, Severity, count};

/// Columns of a line.
const WIDTH: usize = 100;
/// Where the text of a labelled line begins.
const INDENT: usize = 14;

/// A line of figures, the findings by severity, and what could not be seen.
pub fn render(answer: &Answer) -> String {
    let mut out = summary(answer);
    for severity in Severity::ALL {
        let findings: Vec<&Finding> = answer
            .findings
            .iter()
            .filter(|f| f.severity == severity)
            .collect();
        if findings.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}", severity.name(2));
        for finding in findings {
            one(&mut out, finding);
        }
    }
    if !answer.not_seen.is_empty() {
        out.push_str("\nnot seen\n");
        for missing in &answer.not_seen {
            let text = format!("{}: {}", missing.what, missing.why);
            wrapped(&mut out, "  ", 4, &text);
            wrapped(
                &mut out,
                "    ",
                6,
                &format!("say less: {}", missing.checks.join(", ")),
            );
        }
    }
    out
}

fn summary(answer: &Answer) -> String {
    let found = Severity::ALL.map(|severity| {
        let n = answer.count(severity);
        format!("{n} {}", severity.name(n))
    });
    let kernel = match answer.kernel {
        Some(version) => format!("Linux {version}"),
        None => "an unknown kernel".to_owned(),
    };
    format!(
        "{}\n{} on {kernel}, {}, {} with several paths\n",
        found.join(", "),
        count(answer.checks.len(), "check"),
        count(answer.links, "link"),
        count(answer.multipath_routes, "route"),
    )
}

fn one(out: &mut String, finding: &Finding) {
    wrapped(out, "  ", 4, &format!("{}: {}", finding.id, finding.what));
    let mut label = "evidence";
    for line in &finding.evidence {
        wrapped(out, &labelled(label), INDENT, line);
        label = "";
    }
    wrapped(out, &labelled("effect"), INDENT, &finding.effect);
    if let Some(command) = &finding.fix {
        // Not wrapped: it is to be copied.
        let _ = writeln!(out, "{}{command}", labelled("fix"));
    }
    if let Some(advice) = &finding.advice {
        wrapped(out, &labelled("advice"), INDENT, advice);
    }
    wrapped(out, &labelled("source"), INDENT, finding.source);
}

fn labelled(label: &str) -> String {
    format!("    {label:<width$}", width = INDENT - 4)
}

/// A paragraph that begins with `start` and goes on `indent` columns from the left. A word that is
/// too long has a line of its own.
fn wrapped(out: &mut String, start: &str, indent: usize, text: &str) {
    let mut line = start.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        let long = line.chars().count() + 1 + word.chars().count() > WIDTH;
        if !empty && long {
            let _ = writeln!(out, "{line}");
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paragraphs_are_wrapped() {
        let mut out = String::new();
        wrapped(&mut out, "  a: ", 4, &"word ".repeat(30));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  a: word word") && lines[0].len() <= WIDTH);
        assert!(lines[1].starts_with("    word"));
        let mut out = String::new();
        wrapped(&mut out, "", 2, &format!("x {} y", "l".repeat(120)));
        assert_eq!(out, format!("x\n  {}\n  y\n", "l".repeat(120)));
    }
}

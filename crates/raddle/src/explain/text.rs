//! The answer for people.

use std::fmt::Write;

use super::steps::Answer;

/// The flow, the numbered steps, and the conclusion.
pub(super) fn render(answer: &Answer) -> String {
    let mut out = format!("{}\n", answer.flow);
    for step in &answer.steps {
        let _ = writeln!(out, "{:>3}. {:<10} {}", step.step, step.name, step.text);
        for detail in &step.details {
            let _ = writeln!(out, "{:16}{detail}", "");
        }
    }
    match (&answer.link, &answer.via, answer.reason) {
        (Some(link), Some(via), _) => {
            let _ = writeln!(out, "=> dev {link} via {via}");
        }
        (Some(link), None, _) => {
            let _ = writeln!(out, "=> dev {link}");
        }
        (None, _, reason) => {
            let _ = writeln!(out, "=> not predicted: {}", reason.unwrap_or("unknown"));
        }
    }
    out
}

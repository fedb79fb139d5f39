//! The answer for people.

use std::fmt::Write;

use super::answer::Answer;
use super::confidence::{Confidence, Level};
use super::packet::Framing;

/// The flow, the numbered steps, the conclusion and how sure it is; then the other direction.
pub(super) fn render(answer: &Answer) -> String {
    let mut out = String::new();
    if let Some(packet) = &answer.packet {
        let framing = match packet.framing {
            Framing::Ethernet => "an Ethernet frame",
            Framing::Ip => "an IP packet without a link-layer header",
        };
        let _ = writeln!(out, "{}, taken as {framing}: {}", packet.from, packet.about);
    }
    one(&mut out, answer);
    if let Some(back) = &answer.reverse {
        let _ = writeln!(out, "\nreverse:");
        one(&mut out, back);
    }
    if let Some(symmetry) = &answer.symmetry {
        let _ = writeln!(out, "\nboth directions:");
        for line in &symmetry.text {
            let _ = writeln!(out, "   - {line}");
        }
    }
    out
}

fn one(out: &mut String, answer: &Answer) {
    let _ = writeln!(out, "{}", answer.flow);
    for step in &answer.steps {
        let function = match step.function {
            "" => String::new(),
            function => format!(" [{function}]"),
        };
        let _ = writeln!(
            out,
            "{:>3}. {:<10} {}{function}",
            step.step, step.name, step.text
        );
        for detail in &step.details {
            let _ = writeln!(out, "{:16}{detail}", "");
        }
    }
    match (&answer.link, &answer.via, answer.reason) {
        (Some(link), Some(via), _) => {
            let _ = writeln!(out, "=> dev {link} via {via}");
        }
        (Some(link), None, None) => {
            let _ = writeln!(out, "=> dev {link}");
        }
        (Some(link), None, Some(reason)) => {
            let _ = writeln!(out, "=> dev {link}, by the kernel: {reason}");
        }
        (None, _, reason) => {
            let what = match answer.confidence.level {
                Level::Unknown => "not predicted",
                Level::Exact | Level::ExactUnless => "no link",
            };
            let _ = writeln!(out, "=> {what}: {}", reason.unwrap_or("unknown"));
        }
    }
    confidence(out, &answer.confidence);
}

fn confidence(out: &mut String, confidence: &Confidence) {
    let level = match confidence.level {
        Level::Exact => "exact",
        Level::ExactUnless => "exact, unless",
        Level::Unknown => "unknown, because",
    };
    let _ = writeln!(out, "   confidence: {level}");
    for why in &confidence.why {
        let _ = writeln!(out, "   - {why}");
    }
}

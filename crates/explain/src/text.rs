//! The answer for people.

use std::fmt::Write;

use super::answer::Answer;
use super::confidence::{Confidence, Level};
use super::packet::Framing;
use super::steps::Step;

/// The flow, the numbered steps, the conclusion and how sure it is; then the other direction.
pub fn render(answer: &Answer) -> String {
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
    let width = answer.steps.iter().map(|step| number(step).len()).max();
    let width = width.unwrap_or(0).max(3);
    for step in &answer.steps {
        let function = match step.function {
            "" => String::new(),
            function => format!(" [{function}]"),
        };
        let _ = writeln!(
            out,
            "{:>width$}. {:<10} {}{function}",
            number(step),
            step.name,
            step.text
        );
        for detail in &step.details {
            let _ = writeln!(out, "{:1$}{detail}", "", width + 13);
        }
    }
    match (&answer.link, &answer.via, answer.reason) {
        (Some(link), Some(via), None) => {
            let _ = writeln!(out, "=> dev {link} via {via}");
        }
        (Some(link), Some(via), Some(reason)) => {
            let _ = writeln!(out, "=> dev {link} via {via}, by the kernel: {reason}");
        }
        (Some(link), None, None) => {
            let _ = writeln!(out, "=> dev {link}");
        }
        (Some(link), None, Some(reason)) => {
            let _ = writeln!(out, "=> dev {link}, by the kernel: {reason}");
        }
        (None, _, reason) => {
            let reason = reason.unwrap_or("unknown");
            let _ = match (&answer.fate, answer.confidence.level) {
                (_, Level::Unknown) => writeln!(out, "=> not predicted: {reason}"),
                (Some(fate), _) => writeln!(out, "=> no link: {reason}, {}", fate.text),
                (None, _) => writeln!(out, "=> no link: {reason}"),
            };
        }
    }
    confidence(out, "confidence", &answer.confidence);
    if let Some(bond) = &answer.bond {
        let what = match &bond.member {
            Some(member) => format!("member {member} of {}", bond.dev),
            None => format!("member of {}", bond.dev),
        };
        confidence(out, &what, &bond.confidence);
    }
}

/// A step's number; behind the first look-up with that of the look-up in front.
fn number(step: &Step) -> String {
    match step.look_up {
        1 => step.step.to_string(),
        look_up => format!("{look_up}.{}", step.step),
    }
}

fn confidence(out: &mut String, what: &str, confidence: &Confidence) {
    let level = match confidence.level {
        Level::Exact => "exact",
        Level::ExactUnless => "exact, unless",
        Level::Unknown => "unknown, because",
    };
    let _ = writeln!(out, "   {what}: {level}");
    for why in &confidence.why {
        let _ = writeln!(out, "   - {why}");
    }
}

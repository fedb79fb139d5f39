//! The other direction of a flow.

use serde::Serialize;

use super::answer::{Answer, answer};
use super::error::Error;
use super::flow::FlowWords;
use super::steps::{Question, View};

/// How the two directions of a flow compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Symmetry {
    /// The reverse leaves by the link that the flow came in on; for this machine's own flow, it is
    /// delivered here.
    pub same_link: bool,
    /// Both have one hash; none where one of them needs no hash.
    pub same_hash: Option<bool>,
    /// The same in words.
    pub text: Vec<String>,
}

/// Answers for a flow, and for its reverse: what comes back on the link that the flow left by. A flow
/// that leaves by none has no reverse.
///
/// # Errors
/// [`Error::NoSource`] when the flow has no source address, and none that the kernel would give it is known.
pub fn both(view: View<'_>, question: Question<'_>) -> Result<Answer, Error> {
    let mut forth = answer(view, question);
    let Some(link) = forth.link.clone() else {
        return Ok(forth);
    };
    let words = question.words;
    let reverse = FlowWords {
        dst: forth.source.unwrap_or(words.src),
        src: words.dst,
        iif: Some(link),
        proto: words.proto,
        sport: words.dport,
        dport: words.sport,
        flow_label: words.flow_label,
        tos: words.tos,
        connected: false,
    };
    if reverse.dst.is_unspecified() {
        return Err(Error::NoSource);
    }
    let question = Question {
        words: &reverse,
        packet: None,
    };
    let back = answer(view, question);
    forth.symmetry = Some(compare(&forth, &back));
    forth.reverse = Some(Box::new(back));
    Ok(forth)
}

fn compare(forth: &Answer, back: &Answer) -> Symmetry {
    let mut text = Vec::new();
    let same_link = match (&forth.flow.iif, &back.link) {
        (Some(iif), Some(link)) if iif == link => {
            text.push(format!(
                "the reverse leaves by {link}, where the flow came in: one path both ways"
            ));
            true
        }
        (Some(iif), Some(link)) => {
            text.push(format!(
                "the reverse leaves by {link}, and the flow came in on {iif}: two paths"
            ));
            false
        }
        (None, _) if back.reason == Some("local") => {
            text.push("the reverse is delivered here".to_owned());
            true
        }
        _ => {
            text.push("the reverse leaves by no link that can be named".to_owned());
            false
        }
    };
    let same_hash = forth.hash31.zip(back.hash31).map(|(a, b)| a == b);
    match same_hash {
        Some(true) => text.push("both have the same hash".to_owned()),
        Some(false) => text.push("their hashes differ".to_owned()),
        None => {}
    }
    // What packets bring along has another key, and need not be the same both ways.
    let by_fields = forth.hash31.filter(|_| forth.giver.is_none());
    text.extend(by_fields.map(|_| other_end(forth)));
    if forth.flow.flow_label != 0 {
        text.push(
            "the reverse was taken to have the same flow label; policy 0 hashes it, and most \
             senders draw one for each direction"
                .to_owned(),
        );
    }
    Symmetry {
        same_link,
        same_hash,
        text,
    }
}

const TCP: u8 = 6;

/// What the machine at the other end makes of the reverse.
fn other_end(forth: &Answer) -> String {
    let link = forth.link.as_deref().unwrap_or_default();
    match forth.source {
        Some(source) if forth.flow.proto != TCP => format!(
            "the look-up hashed {} for the source, and the reverse carries {source}: whether it \
             comes back by {link} is chance",
            forth.flow.src
        ),
        _ => format!(
            "the direction does not count: addresses are put in order before they are hashed, and \
             so are ports. A machine at the other end with this policy and seed, and as many \
             members of these weights in this order, sends the reverse back by {link}"
        ),
    }
}

//! The whole answer.

use std::net::IpAddr;

use raddle_rib::Reason;
use serde::Serialize;

use super::both::Symmetry;
use super::confidence::Confidence;
use super::flow::FlowWords;
use super::local::walk_local;
use super::packet::Packet;
use super::segments::Outcome;
use super::steps::{Question, Step, View, link_name, walk};

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// The flow that was asked about.
    pub flow: FlowWords,
    /// The packet that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Packet>,
    /// How the answer was found.
    pub steps: Vec<Step>,
    /// The link that the flow leaves by; none when it leaves by none, or nobody can know.
    pub link: Option<String>,
    /// The neighbour that it is sent to.
    pub via: Option<String>,
    /// Why there is no link, or why only the kernel sends there, in a word.
    pub reason: Option<&'static str>,
    /// How sure that is.
    pub confidence: Confidence,
    /// The kernel by whose rules it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The source address that the kernel gives a flow of this machine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The 31-bit hash, where one was needed.
    #[serde(skip)]
    pub hash31: Option<u32>,
    /// What came out of SIDs and encapsulations.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
    /// The other direction, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse: Option<Box<Answer>>,
    /// How the directions compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symmetry: Option<Symmetry>,
}

/// Explains which link a flow or a packet takes: forwarded where it has an input link, this machine's
/// own where it has none.
pub(crate) fn answer(view: View<'_>, question: Question<'_>) -> Answer {
    let words = question.words;
    let (walked, source) = match (&words.iif, question.packet) {
        (None, None) => walk_local(view, words),
        _ => (walk(view, question), None),
    };
    let (link, via, reason) = match &walked.hop {
        Ok(hop) => {
            let via = hop.gateway.map(|g| g.to_string());
            // The link is clear, but no engine forwards to a neighbour that nobody knows.
            let unknown = words.iif.is_some() && hop.gateway.is_none();
            let reason = unknown.then(|| Reason::Unresolved.name());
            (Some(link_name(view.rib, hop.index)), via, reason)
        }
        Err(Reason::None) => (None, None, Some("takes-turns")),
        Err(reason) => (None, None, Some(reason.name())),
    };
    Answer {
        flow: words.clone(),
        packet: question.packet.cloned(),
        steps: walked.steps,
        link,
        via,
        reason,
        confidence: walked.confidence,
        kernel: view.around.kernel.map(|kernel| kernel.to_string()),
        source,
        hash31: walked.hash31,
        outcome: walked.outcome,
        reverse: None,
        symmetry: None,
    }
}

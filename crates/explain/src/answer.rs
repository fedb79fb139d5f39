//! The whole answer.

use std::net::IpAddr;

use raddle_image::Reason;
use raddle_rib::Hop;
use raddle_select::Giver;
use serde::Serialize;

use super::bond::OfBond;
use super::both::Symmetry;
use super::confidence::{Confidence, Level};
use super::engine::Engine;
use super::fate::Fate;
use super::flow::FlowWords;
use super::local::walk_local;
use super::packet::Packet;
use super::segments::Outcome;
use super::steps::{Question, Step, View, Walked, link_name, walk};

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The flow that was asked about.
    pub flow: FlowWords,
    /// The packet that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Packet>,
    /// How the answer was found.
    pub steps: Vec<Step>,
    /// The link that the flow leaves by; none when it leaves by none, or nobody can know.
    pub link: Option<String>,
    /// Which member of the link it leaves by, where the link is a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<OfBond>,
    /// The neighbour that it is sent to.
    pub via: Option<String>,
    /// Why there is no link, or why only the kernel sends there, in a word.
    pub reason: Option<&'static str>,
    /// What becomes of a packet that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fate: Option<Fate>,
    /// What an engine of raddle does with a packet that was asked about, where it may forward from and by all links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
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
    /// Who has given the packet that hash, where it brings one along.
    #[serde(skip)]
    pub giver: Option<Giver>,
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
pub fn answer(view: View<'_>, question: Question<'_>) -> Answer {
    let words = question.words;
    let (walked, source) = match (&words.iif, question.packet) {
        (None, None) => walk_local(view, words),
        _ => (forwarded(view, question), None),
    };
    let leaves = walked.fate.as_ref().is_none_or(Fate::leaves);
    let engines = walked.engine.as_ref().and_then(Engine::reason);
    let (link, via, reason) = match (&walked.hop, &walked.engine) {
        (Ok(hop), engine) if leaves => {
            let via = hop.gateway.map(|g| g.to_string());
            // The link is clear, but no engine forwards to a neighbour that nobody knows.
            let unknown = words.iif.is_some() && hop.gateway.is_none() && !walked.whole_frame;
            let reason = match engine {
                Some(_) => engines,
                None => unknown.then_some(Reason::Unresolved),
            };
            let link = link_name(view.rib, hop.index);
            (Some(link), via, reason.map(Reason::name))
        }
        // What the kernel never gets ends as the engine says.
        (_, Some(Engine::Drop { reason })) => (None, None, Some(reason.name())),
        (Ok(_), _) => (None, None, engines.map(Reason::name)),
        (Err(Reason::None), _) => (None, None, Some("round-robin")),
        (Err(reason), _) => (None, None, Some(reason.name())),
    };
    Answer {
        flow: words.clone(),
        packet: question.packet.cloned(),
        steps: walked.steps,
        bond: walked.bond.filter(|_| link.is_some()),
        link,
        via,
        reason,
        fate: walked.fate,
        engine: walked.engine,
        confidence: walked.confidence,
        kernel: view.around.kernel.map(|kernel| kernel.to_string()),
        source,
        hash31: walked.hash31,
        giver: walked.giver,
        outcome: walked.outcome,
        reverse: None,
        symmetry: None,
    }
}

/// Walks for a flow or a packet that comes in by a link. Where raddle spreads the route otherwise than the
/// kernel (`mp-algo`), or passes over the hash that packets bring along, two choices are possible:
///
/// 1. A packet that engines leave to the kernel is the kernel's, and goes by its hash policy.
/// 2. Everything else is raddle's while it runs, and the kernel's while it does not: the answer is raddle's, and
///    says what the kernel's would be, unless both are the same.
fn forwarded(view: View<'_>, question: Question<'_>) -> Walked {
    let mut walked = walk(view, question);
    if let Some(why) = view
        .around
        .unasked
        .as_deref()
        .filter(|_| !view.kernel_alone)
    {
        walked.confidence.unless(format!(
            "the raddle daemon here, which cannot be asked ({why}), spreads the route otherwise \
             (mp-algo) or has a SID of its own for it",
        ));
    }
    if (walked.algo.is_none() && !walked.passed_over) || view.kernel_alone {
        return walked;
    }
    let kernel_alone = View {
        kernel_alone: true,
        ..view
    };
    let kernel = walk(kernel_alone, question);
    if walked.punted.is_some() {
        return kernel;
    }
    let place = |hop: &Hop| {
        let via = hop.gateway.map_or(String::new(), |g| format!(" via {g}"));
        format!("dev {}{via}", link_name(view.rib, hop.index))
    };
    let same = match (&walked.hop, &kernel.hop) {
        (Ok(ours), Ok(theirs)) => place(ours) == place(theirs),
        _ => false,
    };
    let only = match walked.algo {
        Some(_) => {
            "raddle does not forward it (no daemon with this mp-algo runs here, the link is not one of its, or the \
             gateway has not been resolved yet): the kernel then chooses by its own hash policy"
        }
        None => {
            "raddle leaves it to the kernel (raddle status says which packets it does, and the gateway may not be resolved yet), \
             which chooses by the hash that the packet brings and raddle does not read"
        }
    };
    match (&kernel.hop, same) {
        (_, true) => walked.confidence.merge(&kernel.confidence),
        (Ok(hop), false) => {
            let sure = match kernel.confidence.level {
                Level::Exact => "",
                Level::ExactUnless => ", but for the reasons that make its choice unsure",
                Level::Unknown => ", as far as anybody can tell",
            };
            let text = format!("{only}, {}{sure}", place(hop));
            walked.confidence.unless(text);
        }
        (Err(reason), false) => {
            let text = format!("{only}, and nobody can tell what: {reason}");
            walked.confidence.unless(text);
        }
    }
    walked
}

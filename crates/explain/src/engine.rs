//! What raddle's forwarding engine does with a packet: asked of the engine itself.

use std::net::IpAddr;

use raddle_forward::Verdict;
use raddle_image::Reason;
use raddle_rib::Hop;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::confidence::Level;
use super::fate::{Fate, What};
use super::packet::Packet;
use super::steps::Walk;

/// What an engine does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Engine {
    /// It forwards it.
    Forward {
        /// By this link.
        link: String,
        /// To this neighbour; none of a frame that leaves as it is (End.DX2).
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<IpAddr>,
    },
    /// It punts it to the kernel, untouched.
    Punt {
        /// Why.
        #[serde(serialize_with = "name")]
        reason: Reason,
    },
    /// It drops it.
    Drop {
        /// Why.
        #[serde(serialize_with = "name")]
        reason: Reason,
    },
}

fn name<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

impl Engine {
    /// Why it does not forward it.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Engine::Forward { .. } => None,
            Engine::Punt { reason } | Engine::Drop { reason } => Some(*reason),
        }
    }
}

impl Walk<'_> {
    /// Step 18: what an engine does with the packet (P1 to P5, A1 to A14, B1 to B10, S1 to S10), asked of the
    /// engine itself. An answer that it does not agree with is no answer.
    pub(super) fn engine(&mut self, packet: &Packet, fate: &Fate, found: Result<&Hop, Reason>) {
        let Some((frame, index)) = self
            .ingress()
            .and_then(|link| Some((packet.as_frame(link.mac?), link.index)))
        else {
            return;
        };
        let image = self.view.images.of(self.view);
        let verdict = image.verdict(&frame, index);
        let fits = match (verdict, found) {
            (Verdict::Forward { index, .. }, Ok(hop)) => {
                (fate.what == What::Forwarded && hop.index == index)
                    || matches!(self.confidence.level, Level::Unknown)
            }
            (Verdict::Forward { .. }, Err(reason)) => matches!(reason, Reason::None),
            (Verdict::Drop(_), _) => fate.what == What::Dropped,
            (Verdict::Kernel(_), _) => true,
        };
        let (text, engine) = match verdict {
            Verdict::Forward {
                index, adjacency, ..
            } => {
                let link = self.link_name(index);
                let via = image.neighbour(adjacency);
                (
                    format!("forwards it by {link}"),
                    Engine::Forward { link, via },
                )
            }
            Verdict::Kernel(reason) => (
                format!("leaves it to the kernel: {reason}"),
                Engine::Punt { reason },
            ),
            Verdict::Drop(reason) => (format!("drops it: {reason}"), Engine::Drop { reason }),
        };
        if !fits {
            self.confidence.unknown(format!(
                "raddle's engine {text}: please report this with a snapshot (raddle snapshot) and the packet"
            ));
        }
        self.punted = match verdict {
            Verdict::Kernel(reason) => Some(reason),
            _ => None,
        };
        self.add(18, "engine", "", text, json!(engine));
        self.engine = Some(engine);
    }
}

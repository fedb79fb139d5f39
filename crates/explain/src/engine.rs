//! What raddle's forwarding engine does with a packet: asked of the engine itself.

use std::net::IpAddr;

use raddle_forward::Verdict;
use raddle_image::{LINK_TABLE, Reason};
use raddle_rib::Hop;
use raddle_select::Giver;
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
    /// It forwards it by the member whose turn it is (`mp-algo` round-robin, flowlet), or punts it where that one cannot be
    /// sent to: nobody knows which.
    RoundRobin,
}

fn name<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

impl Engine {
    /// Why it does not forward it.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Engine::Forward { .. } | Engine::RoundRobin => None,
            Engine::Punt { reason } | Engine::Drop { reason } => Some(*reason),
        }
    }
}

impl Walk<'_> {
    /// Step 18: what an engine does with the packet (P1 to P5, A1 to A14, B1 to B10, S1 to S10), asked of the
    /// engine itself; and what becomes of the packet then.
    ///
    /// 1. An answer that the engine does not agree with is no answer.
    /// 2. Where packets are spread round robin, the engine's next turn says nothing about others: what it would do with this one
    ///    is said only where that comes before the choice.
    /// 3. Of what is to an address that a tunnel has, it may forward what is inside, which is nothing to the answer about the packet.
    /// 4. What comes to raddle's own SIDs and encapsulations, and is not forwarded, is dropped whatever the reason: the
    ///    kernel, which has none of these, must not get it.
    pub(super) fn engine(
        &mut self,
        packet: &Packet,
        fate: Fate,
        found: Result<&Hop, Reason>,
    ) -> Fate {
        let Some((frame, index, marks)) = self.ingress().and_then(|link| {
            let marks = self.view.around.marks(&link);
            Some((packet.as_frame(link.mac?), link.index, marks))
        }) else {
            return fate;
        };
        let image = self.view.images.of(self.view);
        let verdict = image.verdict(&frame, index);
        let memory = image.memory();
        let arrived = (packet.family, packet.l3.as_slice());
        let refused = raddle_forward::check_again(&memory, index, arrived, LINK_TABLE, false);
        if matches!(found, Err(Reason::None)) && self.may_be_the_turn(verdict, refused.err()) {
            let text = "forwards it by the member whose turn it is, or leaves it to the kernel where that one cannot \
                        be sent to";
            self.add(18, "engine", "", text.to_owned(), json!(Engine::RoundRobin));
            self.engine = Some(Engine::RoundRobin);
            return fate;
        }
        let own = match verdict {
            Verdict::Drop(reason) if !reason.is_drop() => Some(reason),
            _ => None,
        };
        let comes_out = fate.what == What::Delivered && self.ends_tunnels();
        let fits = match (verdict, found) {
            // It is about what is inside.
            (Verdict::Forward { .. }, _) if comes_out => true,
            // It is asked about the link that was named, by which nothing is routed.
            _ if self.is_taken => true,
            // The hash that a packet brings is not the image's: the program may read it, or go by seed and fields.
            (Verdict::Forward { .. }, _) if self.giver.is_some() => true,
            (Verdict::Forward { index, .. }, Ok(hop)) => {
                let same = match &self.outer_links {
                    Some(links) => links.contains(&index),
                    None => hop.index == index,
                };
                (fate.what == What::Forwarded && same)
                    || matches!(self.confidence.level, Level::Unknown)
            }
            (Verdict::Forward { .. }, Err(_)) => false,
            (Verdict::Drop(_), _) => fate.what == What::Dropped || own.is_some(),
            (Verdict::Kernel(_), _) => true,
        };
        let (text, engine) = match verdict {
            Verdict::Forward {
                index, adjacency, ..
            } => {
                let read = self.giver == Some(Giver::Nic) && marks.ours == Some(true);
                let (link, via) = match found {
                    // The image knows nothing of that hash.
                    Ok(hop) if read => (self.link_name(hop.index), hop.gateway),
                    // What it is about is the outer packet.
                    Ok(hop) if self.outer_links.is_some() => {
                        (self.link_name(hop.index), hop.gateway)
                    }
                    _ => (self.link_name(index), image.neighbour(adjacency)),
                };
                let text = match self.giver {
                    _ if comes_out => format!(
                        "takes out what is in it, as a tunnel ends here, and forwards that by {link}"
                    ),
                    Some(_) if read => format!("forwards it by {link}, by the hash that it brings"),
                    Some(_) => format!(
                        "forwards it by {link}, by seed and fields, where it does not read the hash that packets bring (rx-hash)"
                    ),
                    None if self.outer_links.is_some() => {
                        let by = self.link_name(index);
                        format!("forwards it by {link}, in a packet that leaves by {by}")
                    }
                    None => format!("forwards it by {link}"),
                };
                (text, Engine::Forward { link, via })
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
        let details = self.where_bridged(&engine);
        self.add(18, "engine", "", text, json!(engine)).details = details;
        self.engine = Some(engine);
        match own {
            None => fate,
            Some(reason) => {
                // Bytes that are missing have been made up for the engine.
                if packet.raw.cut == 0 && packet.missing == 0 {
                    self.confidence.settle();
                }
                let text = format!(
                    "{reason}: raddle drops it, as its SID or encapsulation is raddle's own, and the kernel must not get it"
                );
                Fate::new(What::Dropped, "S10.3", text)
            }
        }
    }

    /// Whether the packet is to an address of this machine that a tunnel has, so that an engine may take out what is in it.
    fn ends_tunnels(&self) -> bool {
        let mut tunnels = self.view.rib.links().filter_map(|link| link.tunnel);
        tunnels.any(|tunnel| tunnel.local.map(IpAddr::V4) == Some(self.words.dst))
    }

    /// Whether this verdict may be about the member whose turn it is, of a packet that is `refused` as it came in:
    /// what forbids all members is not.
    fn may_be_the_turn(&self, verdict: Verdict, refused: Option<Reason>) -> bool {
        use Reason::{Mtu, OutLink, SameLink, Unresolved};
        match verdict {
            Verdict::Forward { .. } => true,
            Verdict::Kernel(reason) | Verdict::Drop(reason) if refused == Some(reason) => false,
            Verdict::Kernel(reason) | Verdict::Drop(reason) => {
                self.turn_to_segment || matches!(reason, Mtu | OutLink | SameLink | Unresolved)
            }
        }
    }
}

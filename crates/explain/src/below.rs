//! What is below the link that a packet leaves by: the links below a VLAN, a bridge and a macvlan.

use raddle_image::{Reason, Vlan};
use raddle_rib::event::Link;
use raddle_rib::{Egress, Hop, Rib, below};
use serde_json::{Value, json};

use super::engine::Engine;
use super::fate::{Fate, What};
use super::route::mac_text;
use super::steps::Walk;

/// What a packet leaves by that is below other links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lower {
    /// The link: a bond, if it is one, and no member of it.
    pub index: u32,
    /// How many tags frames have there.
    pub tags: usize,
}

impl Walk<'_> {
    /// Step 11 once more, of a link that has others below it: which of them its frames leave by, and with which tags. The link itself
    /// of any other; none where it is not known.
    ///
    /// 1. A VLAN, or several: see [`Walk::vlan`]; then what is below them, as here.
    /// 2. A bridge: by the port that its FDB names, see [`Walk::bridge`].
    /// 3. A macvlan: by its lower link, see [`Walk::macvlan`].
    /// 4. If what is left is a tunnel: see [`Walk::tunnel`].
    pub(super) fn below(&mut self, hop: &Hop) -> Option<Lower> {
        let lower = self.vlan(hop)?;
        let lower = match self.view.rib.link(lower.index) {
            Some(link) if is_bridge(link) => self.bridge(hop, link),
            Some(link) if is_macvlan(link) => self.macvlan(hop, link),
            _ => Some(lower),
        }?;
        self.tunnel(hop, lower);
        Some(lower)
    }

    /// Which link the frames of a VLAN leave by, and with which tags (`vlan_dev_hard_start_xmit`).
    fn vlan(&mut self, hop: &Hop) -> Option<Lower> {
        let (rib, function) = (self.view.rib, "vlan_dev_hard_start_xmit");
        let Some(link) = rib.link(hop.index).filter(|link| link.is_vlan()) else {
            return Some(Lower {
                index: hop.index,
                tags: 0,
            });
        };
        let name = &link.name;
        let Some(below) = below(link, |index| rib.link(index)) else {
            let text = format!(
                "{name} is a VLAN: what it leaves by, and with which tags, is not known here"
            );
            self.add(11, "vlan", function, text, json!({ "dev": name }));
            return None;
        };
        let tags = below.through.iter().map(|(index, vlan)| {
            let set = rib.link(*index).and_then(|link| link.vlan);
            (*vlan, set.is_some_and(|set| set.egress_qos))
        });
        let (text, data) = with_tags(tags);
        let lower = self.link_name(below.lower);
        let text = format!("{name} is a VLAN: the packet leaves by {lower} {text}");
        let data = json!({ "dev": name, "lower": lower, "tags": data });
        self.add(11, "vlan", function, text, data);
        Some(Lower {
            index: below.lower,
            tags: below.through.len(),
        })
    }

    /// By which port the frames of a bridge leave, or those of VLANs upon it (`br_dev_xmit`; [`Rib::egress`]).
    ///
    /// 1. Where the FDB has an entry for the neighbour's MAC address: by its port, with the tags of the VLAN there; if the port is a
    ///    VLAN itself, by the link below that.
    /// 2. Where it has none: by all ports, as the kernel floods it.
    /// 3. What is not known of the bridge, or not modelled, may have it drop the packet.
    /// 4. A packet that is longer than the port takes is dropped there (`is_skb_forwardable`).
    fn bridge(&mut self, hop: &Hop, bridge: &Link) -> Option<Lower> {
        let (rib, name) = (self.view.rib, &bridge.name);
        let sender = rib.link(hop.index)?;
        let target = hop.gateway.unwrap_or(self.words.dst);
        let known = rib.neighbour(hop.index, target);
        let known = known.filter(|known| known.is_valid() && !self.whole_frame);
        let mac = known.and_then(|known| known.mac);
        let egress = rib.egress(sender, mac);
        let (vlan, id) = vlan_of(rib, sender, bridge);
        let lladdr = mac.map(mac_text);
        let to = lladdr.as_deref().unwrap_or_default();
        let mut data = json!({ "dev": name, "lladdr": lladdr, "vlan": id });
        let text = match &egress {
            Ok(egress) => {
                let (by, of_way) = self.way_text(egress);
                data["port"] = json!(egress.port.map(|port| self.link_name(port)));
                data["lower"] = json!(self.link_name(egress.lower));
                data["tags"] = of_way;
                format!("its FDB has {to}{vlan}: the packet leaves by {by}")
            }
            Err(_) if self.whole_frame => {
                "the frame's destination decides by which port it leaves, and is not looked at here"
                    .to_owned()
            }
            Err(Reason::Unresolved) if mac.is_none() => {
                format!(
                    "the MAC address of {target}, by which its FDB finds the port, is not known yet"
                )
            }
            Err(Reason::Unresolved) => {
                data["floods"] = json!(true);
                format!(
                    "its FDB has no entry for {to}{vlan}: the kernel floods it to all its ports"
                )
            }
            Err(_) => "by which port the packet leaves is not known here".to_owned(),
        };
        let text = format!("{name} is a bridge: {text}");
        self.add(11, "bridge", "br_dev_xmit", text, data);
        self.bridge_doubts(bridge, egress.as_ref());
        egress.ok().map(|egress| Lower {
            index: egress.lower,
            tags: egress.tags.len(),
        })
    }

    /// Rules 3 and 4 of [`Walk::bridge`], of packets that leave.
    fn bridge_doubts(&mut self, bridge: &Link, egress: Result<&Egress, &Reason>) {
        let leaves = |fate: &&Fate| matches!(fate.what, What::Forwarded | What::Resolving);
        let (Some(packet), true) = (self.packet, self.fate.iter().any(|fate| leaves(&fate))) else {
            return;
        };
        match egress {
            Ok(egress) if packet.l3.len() > egress.room as usize => {
                let port = self.link_name(egress.port.unwrap_or(egress.lower));
                self.confidence.unless(format!(
                    "it is too long for {port}: {} bytes, and {} get through there",
                    packet.l3.len(),
                    egress.room
                ));
            }
            Err(Reason::OutLink) => self.confidence.unless(format!(
                "{} drops it: it has no port that forwards in this VLAN, or is not in it itself",
                bridge.name
            )),
            _ => {}
        }
    }

    /// By which link the frames of a macvlan leave (`macvlan_queue_xmit`).
    ///
    /// 1. By its lower link, and what is below that.
    /// 2. In mode bridge a macvlan upon the same link may have the MAC address, even one of another namespace: what is for that stays here.
    fn macvlan(&mut self, hop: &Hop, link: &Link) -> Option<Lower> {
        const BRIDGE: u32 = 4;
        let (rib, name) = (self.view.rib, &link.name);
        let mode = link.macvlan.map(|set| set.mode);
        let lower = link.lower.filter(|_| link.lower_netns.is_none());
        let lower = lower.map(|lower| self.link_name(lower));
        let egress = rib.link(hop.index).map(|link| rib.egress(link, None));
        let mut data = json!({ "dev": name, "mode": mode.map(mode_word) });
        let text = match (&egress, lower) {
            (Some(Ok(egress)), _) => {
                let (by, of_way) = self.way_text(egress);
                data["lower"] = json!(self.link_name(egress.lower));
                data["tags"] = of_way;
                format!("the packet leaves by {by}")
            }
            (_, Some(lower)) => {
                data["lower"] = json!(lower);
                match mode {
                    Some(BRIDGE) => format!(
                        "the packet leaves by {lower}, or stays on this machine where another macvlan upon that has the \
                         neighbour's MAC address"
                    ),
                    _ => format!("the packet leaves by {lower}"),
                }
            }
            (_, None) => "what it leaves by is not known here".to_owned(),
        };
        let mode = mode.map(|mode| format!(" in mode {}", mode_word(mode)));
        let text = format!("{name} is a macvlan{}: {text}", mode.unwrap_or_default());
        self.add(11, "macvlan", "macvlan_queue_xmit", text, data);
        let egress = egress?.ok()?;
        Some(Lower {
            index: egress.lower,
            tags: egress.tags.len(),
        })
    }

    /// The port of a bridge, the link below it and the tags there, in words and as data.
    fn way_text(&self, egress: &Egress) -> (String, Value) {
        let lower = self.link_name(egress.lower);
        let port = egress.port.filter(|port| *port != egress.lower);
        let by = match port {
            Some(port) => format!("{}, and so by {lower}", self.link_name(port)),
            None => lower,
        };
        let (tags, data) = with_tags(egress.tags.iter().map(|tag| (*tag, false)));
        let by = match tags.is_empty() {
            true => by,
            false => format!("{by} {tags}"),
        };
        (by, data)
    }

    /// What an engine's answer about a link upon a bridge depends on: it sees what comes in by the ports.
    pub(super) fn where_bridged(&self, engine: &Engine) -> Vec<String> {
        let rib = self.view.rib;
        let link = self.ingress();
        let base = link.and_then(|link| match link.is_vlan() {
            true => rib
                .link(below(&link, |index| rib.link(index))?.lower)
                .cloned(),
            false => Some(link),
        });
        match (base, engine) {
            (Some(base), Engine::Forward { .. }) if is_bridge(&base) => vec![format!(
                "as far as it comes in by a port that raddle is on, and the FDB of {} has its source there; else it is left to \
                 the kernel: {}",
                base.name,
                Reason::Bridge
            )],
            _ => Vec::new(),
        }
    }
}

/// Whether a link is a bridge.
fn is_bridge(link: &Link) -> bool {
    link.bridge.is_some() || link.kind.as_deref() == Some("bridge")
}

/// Whether a link is a macvlan, and no macvtap.
pub(super) fn is_macvlan(link: &Link) -> bool {
    link.kind.as_deref() == Some("macvlan")
}

/// In which VLAN a bridge looks for an address, in words, and its identifier where a tag says it: that of the first VLAN upon the
/// bridge. Nothing of a bridge that does not filter VLANs.
fn vlan_of(rib: &Rib, sender: &Link, bridge: &Link) -> (String, Option<u16>) {
    if !bridge.bridge.is_some_and(|set| set.filters_vlans) {
        return (String::new(), None);
    }
    let below = below(sender, |index| rib.link(index));
    match below.and_then(|below| below.tags().next()) {
        Some(tag) => (format!(" in VLAN {}", tag.id), Some(tag.id)),
        None => (" in the VLAN of its own PVID".to_owned(), None),
    }
}

/// Tags in words and as data, the outermost first, each with whether an `egress-qos-map` gives it priorities. No words where there are
/// none.
fn with_tags(tags: impl Iterator<Item = (Vlan, bool)>) -> (String, Value) {
    let tags = tags.map(|(vlan, maps)| {
        let priority = match maps {
            true => "priority by its egress-qos-map",
            false => "priority 0",
        };
        let data = json!({ "protocol": vlan.tag() >> 16, "id": vlan.id, "priority": (!maps).then_some(0) });
        (format!("{} ({priority})", tag_text(vlan)), data)
    });
    let (texts, data): (Vec<String>, Vec<Value>) = tags.unzip();
    let text = match texts.as_slice() {
        [] => String::new(),
        [outer, inner] => format!("with tag {outer}, and {inner} behind it"),
        texts => format!("with tag {}", texts.join(", ")),
    };
    (text, json!(data))
}

/// A tag as people write it.
fn tag_text(vlan: Vlan) -> String {
    let kind = match vlan.service {
        true => "802.1ad",
        false => "802.1Q",
    };
    format!("{kind} {}", vlan.id)
}

/// `MACVLAN_MODE_*` as `ip` writes it.
fn mode_word(mode: u32) -> String {
    match mode {
        1 => "private".to_owned(),
        2 => "vepa".to_owned(),
        4 => "bridge".to_owned(),
        8 => "passthru".to_owned(),
        16 => "source".to_owned(),
        other => other.to_string(),
    }
}

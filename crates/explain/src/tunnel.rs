//! What packets are put into that leave by a tunnel, and where that goes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use raddle_image::{Reason, tunnel_flags, tunnel_kind};
use raddle_rib::event::Link;
use raddle_rib::{Hop, NoRemote, Outer, Resolved, Trace};
use serde_json::{Value, json};

use super::below::Lower;
use super::route::mac_text;
use super::steps::{Walk, kernel_text};

impl Walk<'_> {
    /// Step 11 once more, of a link that is a tunnel, or of one that is upon a VXLAN: what the packet is put into
    /// ([`raddle_rib::Rib::outer`]), and by which links that leaves. Any of a route's: the kernel keeps a route for each CPU, chosen by
    /// the first packet.
    pub(super) fn tunnel(&mut self, hop: &Hop, lower: Lower) {
        let rib = self.view.rib;
        let Some(link) = rib.link(lower.index).filter(|link| link.tunnel.is_some()) else {
            return;
        };
        let target = hop.gateway.unwrap_or(self.words.dst);
        let known = rib.neighbour(hop.index, target);
        let known = known.filter(|known| known.is_valid() && !self.whole_frame);
        let mac = match rib.has_one_end(link.index) {
            true => Some([0; 6]),
            // Tags inside are not followed.
            false => known
                .and_then(|known| known.mac)
                .filter(|_| lower.tags == 0),
        };
        let outer = mac.and_then(|mac| rib.outer(link, mac));
        let Some(Outer { tunnel, lookup, .. }) = outer else {
            let text = format!(
                "{} is a tunnel: what it puts the packet into is not known here",
                link.name
            );
            let why = mac.and_then(|mac| self.no_remote(link, mac));
            let data = json!({ "dev": link.name });
            let step = self.add(11, "tunnel", function(link), text, data);
            step.details.extend(why);
            return;
        };
        let [src, dst] = [tunnel.src, tunnel.dst].map(Ipv4Addr::from);
        let (inside, data) = inside(&tunnel);
        let text = format!("{}: in IPv4 from {src} to {dst}{inside}", link.name);
        let trace = lookup.map(|lookup| rib.trace_by(lookup, IpAddr::V4(dst)));
        let (way, links) = self.outer_way(trace.as_ref());
        let names: Vec<String> = links.iter().map(|index| self.link_name(*index)).collect();
        let data = json!({
            "dev": link.name, "src": src.to_string(), "dst": dst.to_string(), "header": data, "links": names,
        });
        let step = self.add(11, "tunnel", function(link), text, data);
        step.details.push(format!("{dst} {way}"));
        if self.packet.is_some() {
            self.confidence.unless(format!(
                "{} drops it: the outer packet has no way or no neighbour, or is too long for it or for what the kernel has learnt of \
                 the way to {dst} (ip route show cache {dst})",
                link.name
            ));
        }
        self.outer_links = Some(links);
    }

    /// Why a VXLAN's own FDB leads frames to a MAC address to no other end that engines go by, and what changes that.
    fn no_remote(&self, link: &Link, mac: [u8; 6]) -> Option<String> {
        let is_vxlan = link.kind.as_deref() == Some("vxlan");
        let why = self.view.rib.remote_of(link.index, mac).err();
        let (name, mac) = (&link.name, mac_text(mac));
        Some(match why.filter(|_| is_vxlan)? {
            NoRemote::NoEntry => format!(
                "its FDB has no entry for {mac}, and the kernel drops the packet: bridge fdb replace {mac} dev {name} dst ADDRESS self"
            ),
            NoRemote::Several => format!(
                "its FDB has no entry for {mac}, and several for all others, which get a copy each: bridge fdb replace {mac} dev {name} \
                 dst ADDRESS self"
            ),
            NoRemote::Elsewhere => format!(
                "its FDB leads {mac} to another port, VNI or link, to IPv6, or by a nexthop object, which is the kernel's: bridge fdb \
                 show dev {name}"
            ),
        })
    }

    /// Where the outer packet leads, in words, and the links that it may leave by.
    fn outer_way(&self, trace: Option<&Trace>) -> (String, BTreeSet<u32>) {
        let Some(trace) = trace else {
            let text = "is looked up as rules say, by more than its addresses".to_owned();
            return (text, BTreeSet::new());
        };
        let hops: &[Hop] = match &trace.resolved {
            Resolved::Kernel(Reason::NoRoute) => {
                return ("has no route".to_owned(), BTreeSet::new());
            }
            Resolved::Kernel(reason) => {
                return (kernel_text(*reason).to_owned(), BTreeSet::new());
            }
            Resolved::One(hop) => std::slice::from_ref(hop),
            Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. } => hops,
        };
        let words = |hop: &Hop| {
            let dev = self.link_name(hop.index);
            hop.gateway.map_or_else(
                || format!("dev {dev}"),
                |via| format!("via {via} dev {dev}"),
            )
        };
        let all: Vec<String> = hops.iter().map(words).collect();
        let by = trace
            .route
            .as_ref()
            .map(|route| format!("by {} ", route.dst));
        let by = by.unwrap_or_default();
        let text = match all.as_slice() {
            [only] => format!("{by}{only}"),
            all => format!(
                "{by}any of {}: the kernel keeps a route for each CPU; raddle goes by the flow inside",
                all.join(", ")
            ),
        };
        (text, hops.iter().map(|hop| hop.index).collect())
    }
}

/// What stands between the outer header and the packet, in words and as data.
fn inside(tunnel: &raddle_image::Tunnel) -> (String, Value) {
    let [a, b, c, d] = tunnel.key;
    match tunnel.kind {
        tunnel_kind::GRE if tunnel.flags & tunnel_flags::HAS_KEY != 0 => {
            let key = u32::from_be_bytes(tunnel.key);
            (
                format!(", GRE key {key}"),
                json!({ "kind": "gre", "key": key }),
            )
        }
        tunnel_kind::GRE => (", GRE".to_owned(), json!({ "kind": "gre" })),
        tunnel_kind::VXLAN => {
            let (vni, port) = (u32::from_be_bytes([d, a, b, c]), tunnel.port);
            let data = json!({ "kind": "vxlan", "vni": vni, "port": port });
            (format!(", UDP port {port}, VXLAN {vni}"), data)
        }
        _ => (String::new(), json!({ "kind": "ip" })),
    }
}

/// What sends by a tunnel.
fn function(link: &Link) -> &'static str {
    match link.kind.as_deref() {
        Some("sit") => "ipip6_tunnel_xmit",
        Some("vxlan") => "vxlan_xmit_one",
        _ => "ip_tunnel_xmit",
    }
}

//! What keeps a forwarded flow from being forwarded before any route is looked up: its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_rib::Reason;
use serde_json::json;

use super::steps::Walk;

impl Walk<'_> {
    /// Part of step 1, for flows that come in.
    ///
    /// 1. Addresses that may not appear on the wire, and destinations that are not unicast, by the rules
    ///    of the engines ([`raddle_forward::check_addresses`]). A source that was not named is not
    ///    judged.
    /// 2. IPv4: a source that is an address of this machine, unless `accept_local` is set for the link.
    /// 3. IPv4 with `rp_filter`: the flow goes on, but engines leave it to the kernel, which also looks
    ///    the source up.
    pub(super) fn addresses(&mut self) -> Result<(), Reason> {
        let Some(link) = self
            .words
            .iif
            .as_ref()
            .and_then(|name| self.view.rib.link_named(name))
        else {
            return Ok(());
        };
        let device = self.view.rib.device(link.index);
        let (src, dst) = (self.words.src, self.words.dst);
        let unnamed = src.is_unspecified() && self.packet.is_none();
        let judged = if unnamed { stand_in(dst) } else { src };
        // Engines leave sources of this kind to the kernel, which forwards them.
        let mapped = matches!(src, IpAddr::V6(src) if src.to_ipv4_mapped().is_some());
        if !mapped && let Err(reason) = raddle_forward::check_addresses(judged, dst) {
            return Err(self.refuse(reason, why(reason, src, dst)));
        }
        if self.is_v4() && !unnamed && !device.accept_local && self.is_own(src) {
            let text = format!("{src} is an address of this machine: the kernel drops the packet");
            return Err(self.refuse(Reason::OwnSource, text));
        }
        if self.is_v4() && device.rp_filter != 0 {
            self.confidence.unless(format!(
                "rp_filter of {} refuses it: the kernel looks for a route back to {src} by this link, \
                 and engines leave all IPv4 of the link to it",
                link.name
            ));
        }
        Ok(())
    }

    fn is_own(&self, address: IpAddr) -> bool {
        let addresses = self.view.rib.addresses();
        addresses.iter().any(|own| own.local == address)
    }

    fn refuse(&mut self, reason: Reason, text: String) -> Reason {
        let function = self.by_family("ip_route_input_slow", "ip6_rcv_core");
        let data = json!({ "reason": reason.name() });
        self.add(1, "addresses", function, text, data);
        reason
    }
}

/// A source that nobody objects to.
fn stand_in(dst: IpAddr) -> IpAddr {
    match dst {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    }
}

fn why(reason: Reason, src: IpAddr, dst: IpAddr) -> String {
    match reason {
        Reason::MartianSource => {
            format!("{src} may not be the source of a packet: the kernel drops it")
        }
        Reason::MartianDestination => {
            format!("{dst} may not be the destination of a packet: the kernel drops it")
        }
        Reason::Multicast => format!("{dst} is a multicast address: the kernel's business"),
        Reason::Broadcast => format!("{dst} is the broadcast address: delivered here"),
        _ => format!("{src} or {dst} is of one link only: the kernel does not forward it"),
    }
}

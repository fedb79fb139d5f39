//! What an answer about a packet depends on that is not modelled, or not known.

use std::net::IpAddr;

use raddle_image::Reason;
use raddle_rib::event::{Link, ROUTE_FPM, Route, RouteKind, RouteTarget};
use raddle_rib::{Hop, Resolved, Trace};

use super::below::is_macvlan;
use super::onward::NO_ARP;
use super::steps::Walk;

impl Walk<'_> {
    /// Links above the one that a packet comes in on may take it before IP does (`rx_handler`).
    pub(super) fn taken_above(&mut self, link: &Link) {
        let rib = self.view.rib;
        let kind_of = |link: &Link| link.kind.clone().unwrap_or_default();
        if let Some(master) = link.master.and_then(|index| rib.link(index))
            && kind_of(master) != "vrf"
        {
            let or_vlan = match kind_of(master).as_str() {
                "bridge" => ", or for the VLAN upon it that its tag leads to",
                _ => "",
            };
            self.is_taken = true;
            self.confidence.unknown(format!(
                "{} belongs to {} ({}), which takes what comes in: ask for iif {}{or_vlan}",
                link.name,
                master.name,
                kind_of(master),
                master.name
            ));
        }
        for above in rib.links() {
            let may_take = matches!(
                above.kind.as_deref(),
                Some("macvlan" | "macvtap" | "ipvlan" | "ipvtap")
            );
            if !may_take || above.lower != Some(link.index) || above.lower_netns.is_some() {
                continue;
            }
            let takes = self.macvlan_takes(above, link);
            let (name, lower) = (&above.name, &link.name);
            match takes {
                Some(true) => {
                    self.is_taken = true;
                    self.confidence
                        .unknown(format!("{name} above {lower} takes it: ask for iif {name}"));
                }
                Some(false) => {}
                None => self
                    .confidence
                    .unless(format!("{name} above {lower} takes it")),
            }
        }
    }

    /// Whether a macvlan takes what comes in by the link below it (`macvlan_handle_frame`); none where that is not known.
    ///
    /// 1. Of frames to one MAC address in the modes private, vepa and bridge those to its own; in mode passthru all.
    /// 2. A flow, or a packet without a frame, came in a frame to the lower link.
    /// 3. Other modes, kinds and frames: not known.
    fn macvlan_takes(&self, above: &Link, lower: &Link) -> Option<bool> {
        const PASSTHRU: u32 = 8;
        let set = above.macvlan.filter(|_| is_macvlan(above))?;
        let frame = self.packet.and_then(|packet| packet.raw.frame.as_deref());
        let dst = match frame {
            Some(frame) => *frame.first_chunk::<6>()?,
            None => lower.mac?,
        };
        match set.mode {
            _ if dst[0] & 1 != 0 => None,
            1 | 2 | 4 => Some(above.mac? == dst),
            PASSTHRU => Some(true),
            _ => None,
        }
    }

    /// Step K14 of IPv4 comes with the look-up of the route, and so before K11 to K13: packets that are sure to go back
    /// by the link that they came in on end here.
    pub(super) fn way_back(&mut self, trace: &Trace) -> Result<(), Reason> {
        let (IpAddr::V4(_), Some(link)) = (self.words.src, self.ingress()) else {
            return Ok(());
        };
        let (src, device) = (self.words.src, self.view.rib.input_settings(&link));
        if !device.send_redirects {
            return Ok(());
        }
        let accept_local = device.accept_local;
        let target = trace.route.as_ref().map(|route| &route.target);
        match (&trace.resolved, target) {
            (Resolved::One(hop), _) if hop.index == link.index => self.looked_up(src, accept_local),
            (Resolved::Kernel(Reason::Unresolved), Some(RouteTarget::Single(hop)))
                if hop.index == link.index =>
            {
                self.looked_up(src, accept_local)
            }
            (Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. }, _)
                if hops.iter().any(|hop| hop.index == link.index)
                    && self.is_refused(src, accept_local) =>
            {
                self.confidence.unless(format!(
                    "the kernel chooses the way back by {}, and then drops it for its source, {src}",
                    link.name
                ));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What a path MTU that the kernel has learnt makes of a packet of this length; the mirror sees none
    /// (`__ip_rt_update_pmtu`, `rt6_find_cached_rt`).
    ///
    /// 1. IPv4: one is learnt from `min_pmtu` on. With `ip_forward_use_pmtu` all count for what is forwarded, else
    ///    those that are locked at `min_pmtu`.
    /// 2. IPv6: all count, from 1280 on.
    pub(super) fn learnt_mtu(&mut self, length: usize) {
        let learnt = match (self.is_v4(), self.view.rib.settings().min_pmtu) {
            (false, _) => 1280,
            (true, 0) => 552,
            (true, least) => least,
        };
        if length > learnt as usize {
            self.confidence.unless(format!(
                "the kernel has learnt a path MTU below {length} for {}",
                self.words.dst
            ));
        }
    }

    /// What may keep a packet behind a SID or an encapsulation from leaving by its nexthop: not modelled in full.
    pub(super) fn leaves_behind(&mut self, hop: &Hop, length: usize) {
        let (name, rib) = (self.link_name(hop.index), self.view.rib);
        if !self.forwards() {
            self.confidence.unknown(
                "the link that it came in on does not forward the family of the packet now",
            );
        }
        let link = rib.link(hop.index);
        if !link.is_some_and(|link| link.is_up() && link.has_carrier()) {
            self.confidence.unknown(format!("{name} has no carrier"));
        }
        let known = hop.gateway.and_then(|via| rib.neighbour(hop.index, via));
        let asks = link.is_some_and(|link| link.is_ethernet() && link.flags & NO_ARP == 0);
        if asks && !known.is_some_and(|known| known.is_valid()) {
            self.confidence.unless(format!(
                "the neighbour behind {name} does not answer: then it is dropped, and its sender may be told"
            ));
        }
        let back = self.words.iif.as_ref() == Some(&name);
        match self.words.src {
            IpAddr::V6(src) if !back && (src.is_unspecified() || src.is_unicast_link_local()) => {
                self.confidence.unknown(format!(
                    "{src} is of its link only, and the packet leaves it"
                ));
            }
            src @ IpAddr::V4(_) if back && self.is_refused(src, false) => {
                self.confidence.unless(format!(
                    "redirects are sent: the kernel then drops it for its source, {src}"
                ));
            }
            _ => {}
        }
        self.learnt_mtu(length);
        self.other_link(hop.index);
    }

    /// Links that are not Ethernet do with packets what is not modelled.
    pub(super) fn other_link(&mut self, index: u32) {
        if let Some(link) = self.view.rib.link(index)
            && !link.is_ethernet()
        {
            self.confidence.unless(format!(
                "{}, which is not Ethernet, refuses it: it has no peer or no way for it",
                link.name
            ));
        }
    }

    /// Whether the full look-up of an IPv4 source ends at this machine, or at many.
    fn is_refused(&self, src: IpAddr, accept_local: bool) -> bool {
        let name = self.words.iif.as_deref().unwrap_or_default();
        let route = self.view.rib.trace(name, src).route;
        match route.map(|route| route.kind) {
            Some(RouteKind::Local) => !accept_local,
            Some(RouteKind::Broadcast | RouteKind::Multicast) => true,
            _ => false,
        }
    }

    /// The full look-up of an IPv4 source without `rp_filter` (`__fib_validate_source`): where it has a route,
    /// this is one to other machines.
    pub(super) fn looked_up(&mut self, src: IpAddr, accept_local: bool) -> Result<(), Reason> {
        if self.is_refused(src, accept_local) {
            let text = format!("{src} is an address of this machine or of its links: dropped");
            return Err(self.refuse(Reason::LocalSource, text));
        }
        Ok(())
    }

    /// What engines leave to the kernel goes by its own routes, to which those told by FPM do not belong.
    pub(super) fn kernel_lacks(&mut self, route: Option<&Route>) {
        let told = route.is_some_and(|route| route.flags & ROUTE_FPM != 0);
        let asked = self.steps.iter().any(|step| step.name == "engine");
        if told && self.packet.is_some() && (self.punted.is_some() || !asked) {
            self.confidence.unknown(
                "engines leave the packet to the kernel, which has no such route (FPM tells it): it goes by its own",
            );
        }
    }
}

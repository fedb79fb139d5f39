//! What is different for this machine's own packets.

use std::net::{IpAddr, Ipv4Addr};

use raddle_rib::Hop;
use raddle_select::{
    Choice, KernelVersion, LocalHop, SourcePreference, choose_local4, choose_local6,
    draws_source_port,
};
use serde_json::json;

use super::flow::FlowWords;
use super::steps::{Question, View, Walk, Walked, walk};
use crate::sources::{hop_source, source_of};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// `NUD_FAILED`.
const NUD_FAILED: u16 = 0x20;

/// Walks for a flow of this machine's own.
///
/// 1. With a source address, and over IPv6, there is one look-up: an IPv6 socket keeps what its first
///    one found, and hashes `::` where it had no address.
/// 2. Without one, an IPv4 look-up hashes 0.0.0.0, and its path decides the source
///    (`fib_result_prefsrc`). That is what an unconnected socket uses.
/// 3. A TCP socket then looks again with that source (`ip_route_connect`), and uses what it finds.
///    So does a connected UDP socket (`__ip4_datagram_connect`), which keeps that path for what it sends
///    (`sk_dst_check`), and finds it again when routes change, as it has a source now. Its port is drawn
///    before the first look-up (`inet_dgram_connect`).
pub(super) fn walk_local(view: View<'_>, words: &FlowWords) -> (Walked, Option<IpAddr>) {
    let mut first = walk(
        view,
        Question {
            words,
            packet: None,
        },
    );
    if words.src.is_unspecified() && words.dst.is_ipv4() {
        return look_again(view, words, first);
    }
    if !words.src.is_unspecified() && !view.rib.is_local(words.src) {
        first.confidence.unless(format!(
            "the socket is no transparent one: {} is not an address of this machine, and the \
             kernel refuses to send from it",
            words.src
        ));
    }
    (first, None)
}

/// Rules 2 and 3.
fn look_again(view: View<'_>, words: &FlowWords, mut first: Walked) -> (Walked, Option<IpAddr>) {
    let source = match (&first.hop, &first.route) {
        (Ok(hop), Some(route)) => source_of(view.rib, hop, route),
        _ => None,
    };
    let Some(source) = source else {
        return (first, None);
    };
    let sourced = FlowWords {
        src: source.into(),
        ..words.clone()
    };
    let question = Question {
        words: &sourced,
        packet: None,
    };
    let mut second = walk(view, question);
    let dev = |walked: &Walked| match &walked.hop {
        Ok(hop) => super::steps::link_name(view.rib, hop.index),
        Err(reason) => reason.name().to_owned(),
    };
    // Two gateways of one link are two paths.
    let via = |walked: &Walked| Some(walked.hop.as_ref().ok()?.gateway?.to_string());
    let place = |walked: &Walked| match via(walked) {
        Some(via) => format!("{} via {via}", dev(walked)),
        None => dev(walked),
    };
    let (before, after) = (place(&first), place(&second));
    if words.proto == TCP || words.connected {
        if let Some(input) = second.steps.first_mut() {
            input.details.push(format!(
                "first look-up, without a source: {before}, whose source is {source}; these steps \
                 are the second, with that source"
            ));
        }
        second.confidence.merge(&first.confidence);
        return (second, Some(source.into()));
    }
    if before != after {
        first.confidence.unless(format!(
            "the socket is connected: it then looks again with its source {source}, and takes \
             {after}"
        ));
    }
    // What it sends has that source.
    if before == after {
        let bond = |walked: &Walked| walked.steps.iter().position(|step| step.name == "bond");
        if let (Some(at), Some(with)) = (bond(&first), bond(&second)) {
            first.steps[at] = second.steps.swap_remove(with);
        }
        first.bond = second.bond.take();
    }
    first.steps.push(super::steps::Step {
        step: 12,
        look_up: 1,
        name: "source",
        text: format!("{source}, chosen for this path; a connected socket then takes {after}"),
        details: Vec::new(),
        data: json!({
            "source": source.to_string(),
            "connected": dev(&second),
            "connected_via": via(&second),
        }),
        function: "fib_result_prefsrc",
    });
    (first, Some(source.into()))
}

impl Walk<'_> {
    /// The version by which local output is explained: without one, the newest of the model.
    fn kernel(&self) -> KernelVersion {
        self.view.around.kernel.unwrap_or(KernelVersion::NEWEST)
    }

    /// The preferred source of each nexthop, where the kernel compares it: IPv4 routes' own nexthops.
    pub(super) fn member_sources(
        &self,
        hops: &[Hop],
        group: Option<u32>,
        scope: u8,
    ) -> Vec<Option<Ipv4Addr>> {
        let compared = self.is_local()
            && self.is_v4()
            && group.is_none()
            && !self.words.src.is_unspecified()
            && SourcePreference::of(self.kernel()) != SourcePreference::None;
        if !compared {
            return Vec::new();
        }
        hops.iter()
            .map(|hop| hop_source(self.view.rib, hop, scope))
            .collect()
    }

    /// Step 9 for a route's own nexthops.
    pub(super) fn local_member(&mut self, hops: &[Hop], scope: u8, hash31: u32) -> Option<Hop> {
        let choice = match self.is_v4() {
            true => self.choose4(hops, scope, hash31)?,
            false => self.choose6(hops, hash31)?,
        };
        let function = self.by_family("fib_select_multipath", "fib6_select_path");
        let Choice { member, rule } = choice;
        let hop = hops[member].clone();
        let upper = hop.upper.unwrap_or(0);
        let hash31 = self.shown(hash31);
        let why = match (rule, self.is_v4()) {
            (1, _) => format!("{hash31} <= {upper}, the first bound that holds"),
            (2, true) => format!("no valid member's bound holds {hash31}, it is the first valid"),
            (2, false) => "the neighbour of the one that the hash chooses has failed, and this is \
                           the first whose has not"
                .to_owned(),
            (5 | 7, _) => format!(
                "it has the source {}, and {hash31} <= {upper}",
                self.words.src
            ),
            (6 | 8, _) => format!("it has the source {}, whatever the hash", self.words.src),
            (9, _) => format!(
                "no member has the source {}, and this kernel then takes the last, whatever the \
                 hash (fixed in 6.18.4)",
                self.words.src
            ),
            _ => "no member is valid, it is the first".to_owned(),
        };
        let data = json!({
            "member": member, "id": hop.object, "upper_bound": hop.upper,
            "rule": rule,
        });
        let text = format!("{member}: {why}");
        self.add(9, "member", function, text, data).details = vec![format!("rule {rule}")];
        Some(hop)
    }

    fn choose4(&mut self, hops: &[Hop], scope: u8, hash31: u32) -> Option<Choice> {
        let preference = SourcePreference::of(self.kernel());
        let sources = self.member_sources(hops, None, scope);
        let IpAddr::V4(src) = self.words.src else {
            return None;
        };
        let local: Vec<LocalHop> = hops
            .iter()
            .enumerate()
            .map(|(i, hop)| LocalHop {
                upper: hop.upper,
                good: hop.eligible,
                has_source: sources.get(i) == Some(&Some(src)),
            })
            .collect();
        let sourced = !src.is_unspecified();
        if sourced && preference != SourcePreference::None {
            self.confidence.unless(
                "addresses of the links changed after the route was made: its nexthops may keep \
                 other sources than they would get now",
            );
        }
        let choice = choose_local4(preference, &local, sourced, hash31)?;
        if choice.rule >= 7 {
            self.confidence.unless(
                "Linux 6.16 to 6.18.3 does otherwise than its source says: these rules were read \
                 there, and not held against such a kernel",
            );
        }
        Some(choice)
    }

    fn choose6(&self, hops: &[Hop], hash31: u32) -> Option<Choice> {
        let rib = self.view.rib;
        // conf.all.forwarding shows at every link that takes IPv6.
        let forwards = rib.links().any(|link| rib.device(link.index).forwarding6);
        let failed = |i: usize| {
            let hop = &hops[i];
            let neighbour = hop.gateway.and_then(|g| rib.neighbour(hop.index, g));
            !forwards && neighbour.is_some_and(|n| n.state & NUD_FAILED != 0)
        };
        let uppers: Vec<_> = hops.iter().map(|hop| hop.upper).collect();
        choose_local6(&uppers, failed, hash31)
    }

    /// What a socket's look-up hashes otherwise than the words say, where its policy looks at source
    /// ports or the flow label.
    ///
    /// 1. TCP without a port: from 6.16 on a random number for each connect; before, 0 and then the
    ///    port that was drawn.
    /// 2. UDP without a port: what the socket is bound to is hashed.
    /// 3. TCP with a port: a socket that had none when it connected has another path, over IPv6
    ///    always, over IPv4 by the source that its first look-up gave it.
    /// 4. A flow label that is not the application's own is chosen after the look-up and counts as 0.
    pub(super) fn local_hash_doubts(&mut self, ports: bool, label: bool) {
        let words = self.words;
        if label && words.flow_label != 0 {
            self.confidence.unless(
                "the flow label is not set by the application: one that the kernel makes is \
                 hashed as 0 (leave flowlabel out)",
            );
        }
        if !ports || !matches!(words.proto, TCP | UDP) {
            return;
        }
        if draws_source_port(self.kernel(), words.proto, words.sport) {
            self.confidence.unknown(
                "the connection has no source port yet, and a connect hashes a random one from \
                 Linux 6.16 on: name the port that the socket is bound to (sport)",
            );
        } else if words.sport == 0 {
            self.confidence.unknown(
                "the source port is hashed: name the one that the socket is bound to (sport)",
            );
        } else if words.proto == TCP && (!self.is_v4() || words.src.is_unspecified()) {
            self.confidence.unless(
                "the socket had no port when it connected: its path was then chosen before the \
                 port was",
            );
        }
    }
}

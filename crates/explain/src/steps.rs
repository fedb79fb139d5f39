//! The steps from a flow or a packet to a link.

use std::borrow::Cow;
use std::collections::BTreeSet;

use raddle_image::Reason;
use raddle_rib::event::{NexthopKind, Route, RouteTarget};
use raddle_rib::{Hop, MpAlgo, Resolved, Rib, Trace};
use raddle_select::Giver;
use serde::Serialize;
use serde_json::{Value, json};

use super::around::Surroundings;
use super::bond::OfBond;
use super::confidence::{Confidence, reason_doubt};
use super::engine::Engine;
use super::fate::{Fate, What};
use super::flow::FlowWords;
use super::image::Images;
use super::packet::Packet;
use super::received::Received;
use super::segments::{Inner, Outcome};

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its number.
    pub step: u32,
    /// Which look-up it belongs to: 1, and one more behind each SID or encapsulation of this machine.
    #[serde(skip_serializing_if = "is_first")]
    pub look_up: u32,
    /// What is decided: input, rules, route, group, policy, ...
    pub name: &'static str,
    /// The decision, for people.
    pub text: String,
    /// More about it, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The decision, for programs.
    pub data: Value,
    /// The kernel's function that decides it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub function: &'static str,
}

fn is_first(look_up: &u32) -> bool {
    *look_up == 1
}

/// By what an answer is found.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The mirrored state.
    pub rib: &'a Rib,
    /// Names for its numbers.
    pub names: &'a dyn Names,
    /// What else it depends on.
    pub around: &'a Surroundings,
    /// What engines read, of the same state.
    pub images: &'a Images,
    /// By the kernel alone: routes are spread by its hash policy, whatever raddle is told.
    pub(crate) kernel_alone: bool,
}

impl<'a> View<'a> {
    /// Of a state, with names for its numbers.
    pub fn new(
        rib: &'a Rib,
        names: &'a dyn Names,
        around: &'a Surroundings,
        images: &'a Images,
    ) -> View<'a> {
        View {
            rib,
            names,
            around,
            images,
            kernel_alone: false,
        }
    }
}

/// Names for the numbers of tables and protocols, as iproute2's files have them.
pub trait Names {
    /// The name of a routing table, or its number.
    fn table(&self, number: u32) -> Cow<'_, str>;

    /// The name of a routing protocol, or its number.
    fn protocol(&self, number: u8) -> Cow<'_, str>;
}

/// What is asked: a flow, or a packet and the flow that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The flow. Without an input link it is this machine's own.
    pub words: &'a FlowWords,
    /// The packet, which is hashed in place of the flow.
    pub packet: Option<&'a Packet>,
}

/// What a walk through the steps came to.
#[derive(Clone, Debug)]
pub(super) struct Walked {
    pub steps: Vec<Step>,
    pub hop: Result<Hop, Reason>,
    pub confidence: Confidence,
    /// The 31-bit hash, where one was needed.
    pub hash31: Option<u32>,
    /// Who has given the packet that hash, where it brings one.
    pub giver: Option<Giver>,
    /// Raddle, which runs here, does not choose by the hash that the packet brings.
    pub passed_over: bool,
    /// The route that was taken.
    pub route: Option<Route>,
    /// What came out of segments.
    pub outcome: Option<Outcome>,
    /// How the route is spread, where that is not by the namespace's hash policy.
    pub algo: Option<MpAlgo>,
    /// What becomes of a packet.
    pub fate: Option<Fate>,
    /// Why an engine does not forward a packet itself.
    pub punted: Option<Reason>,
    /// What an engine does with a packet.
    pub engine: Option<Engine>,
    /// What leaves is a frame as it is, which needs no neighbour.
    pub whole_frame: bool,
    /// The member of the bond that it leaves by.
    pub bond: Option<OfBond>,
}

/// Collects steps.
pub(super) struct Walk<'a> {
    pub(super) view: View<'a>,
    pub(super) words: &'a FlowWords,
    pub(super) packet: Option<&'a Packet>,
    pub(super) steps: Vec<Step>,
    /// Which look-up the steps belong to that come now.
    pub(super) look_up: u32,
    pub(super) confidence: Confidence,
    pub(super) hash31: Option<u32>,
    /// Who has given the packet the hash that it is chosen for by, where it brings one.
    pub(super) giver: Option<Giver>,
    /// Raddle, which runs here, does not choose by the hash that the packet brings.
    pub(super) passed_over: bool,
    /// How the route is spread, where that is not by the namespace's hash policy.
    pub(super) algo: Option<MpAlgo>,
    /// The packet inside an encapsulated one, whose flow chooses.
    pub(super) inner: Option<Inner>,
    /// What has come out of segments so far.
    pub(super) outcome: Option<Outcome>,
    /// Of a packet that has come as far as the look-up of its route.
    pub(super) received: Option<Received>,
    /// What becomes of a packet, once that is decided.
    pub(super) fate: Option<Fate>,
    /// Why an engine does not forward a packet itself.
    pub(super) punted: Option<Reason>,
    /// What an engine does with a packet.
    pub(super) engine: Option<Engine>,
    /// Packets are spread round robin over members of which some are segments.
    pub(super) turn_to_segment: bool,
    /// One of the segments that the packet has met, or the route to one, is raddle's own.
    pub(super) own: bool,
    /// What leaves is a frame as it is (End.DX2), which needs no neighbour.
    pub(super) whole_frame: bool,
    /// The member of the bond that it leaves by.
    pub(super) bond: Option<OfBond>,
    /// What it is put into by a tunnel may leave by any of these links.
    pub(super) outer_links: Option<BTreeSet<u32>>,
    /// Another link takes what comes in by the one that was named.
    pub(super) is_taken: bool,
}

impl<'a> Walk<'a> {
    /// One that has no steps yet.
    pub(super) fn new(view: View<'a>, question: Question<'a>) -> Walk<'a> {
        Walk {
            view,
            words: question.words,
            packet: question.packet,
            steps: Vec::new(),
            look_up: 1,
            confidence: Confidence::default(),
            hash31: None,
            giver: None,
            passed_over: false,
            algo: None,
            inner: None,
            outcome: None,
            received: None,
            fate: None,
            punted: None,
            engine: None,
            turn_to_segment: false,
            own: false,
            whole_frame: false,
            bond: None,
            outer_links: None,
            is_taken: false,
        }
    }
}

/// Walks through the steps.
///
/// 1. input: the link that it comes in on, or none for this machine's own.
/// 2. rules: the tables that are asked, in order.
/// 3. route: the longest prefix of the first table with a match, and its best route.
/// 4. group: what the route leads to: a nexthop, or several with upper bounds.
/// 5. policy: what is hashed.
/// 6. fields: what the flow or the packet has there, put in order.
/// 7. seed, 8. hash: SipHash-2-4, its upper 31 of 32 bits. With policy 1 that of the packet, where it brings one.
/// 9. member: the first whose upper bound is not below the hash, for this machine's own packets also
///    by source address; of a resilient group, the owner of the bucket that is the hash modulo the
///    number of buckets.
/// 10. neighbour: who is there, and whether the kernel knows its link-layer address.
/// 11. link; of a VLAN, a bridge or a macvlan also the link below it and the tags, see [`Walk::below`]; of a bond also which member of
///     it, see [`Walk::bond`]; of a tunnel what the packet is put into, see [`Walk::tunnel`].
/// 12. source: the address that this machine's own packets get, where none was given.
///
/// 13. to 17.: through SIDs and encapsulations of this machine, see [`Walk::follow`]; steps 2 to 16 come
///     once more for each look-up behind one, and have its number in front (`2.4` is step 4 of the second).
///
/// 18. engine: of a packet, whether raddle forwards it itself, or why it leaves it to the kernel.
/// 19. fate: of a packet, what becomes of it: see [`super::received::receive`] and [`super::onward`].
///
/// Steps that decide nothing (one nexthop needs no hash) are left out; numbers stay.
pub(super) fn walk(view: View<'_>, question: Question<'_>) -> Walked {
    let mut walk = Walk::new(view, question);
    let (route, hop) = walk.run();
    walk.conclude(hop.as_ref().map_err(|reason| *reason));
    walk.kernel_lacks(route.as_ref());
    let sure = matches!(&walk.fate, Some(fate) if fate.what != What::Unknown);
    if let Err(reason) = hop
        && !sure
        && let Some(why) = reason_doubt(reason, view.around.kernel)
    {
        walk.confidence.unknown(why);
    }
    Walked {
        steps: walk.steps,
        hop,
        confidence: walk.confidence,
        hash31: walk.hash31,
        giver: walk.giver,
        passed_over: walk.passed_over,
        route,
        outcome: walk.outcome,
        algo: walk.algo,
        fate: walk.fate,
        punted: walk.punted,
        engine: walk.engine,
        whole_frame: walk.whole_frame,
        bond: walk.bond,
    }
}

impl Walk<'_> {
    pub(super) fn add(
        &mut self,
        step: u32,
        name: &'static str,
        function: &'static str,
        text: String,
        data: Value,
    ) -> &mut Step {
        self.steps.push(Step {
            step,
            look_up: self.look_up,
            name,
            text,
            details: Vec::new(),
            data,
            function,
        });
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// Whether this machine sends it itself.
    pub(super) fn is_local(&self) -> bool {
        self.words.iif.is_none()
    }

    pub(super) fn is_v4(&self) -> bool {
        self.words.dst.is_ipv4()
    }

    /// The function of the family.
    pub(super) fn by_family(&self, v4: &'static str, v6: &'static str) -> &'static str {
        if self.is_v4() { v4 } else { v6 }
    }

    pub(super) fn link_name(&self, index: u32) -> String {
        link_name(self.view.rib, index)
    }

    fn run(&mut self) -> (Option<Route>, Result<Hop, Reason>) {
        let come = self.input().and_then(|()| self.receive());
        if let Err(reason) = come.and_then(|()| self.addresses()) {
            return (None, Err(reason));
        }
        // Local output is looked up as if it came in on lo.
        let iif = self.words.iif.as_deref().unwrap_or("lo");
        let trace = self.view.rib.trace_of(iif, &self.words.fields());
        let found = self
            .rules(&trace)
            .and_then(|()| {
                let routed = self.route(&trace);
                self.admitted(&trace).and(routed)
            })
            .and_then(|()| self.choose(&trace))
            .and_then(|hop| self.outlives(hop, &trace));
        let found = match found {
            Ok(hop) if hop.segment.is_some() => self.follow(hop),
            Ok(hop) => {
                self.neighbour(&hop);
                self.out_link(&hop);
                self.onward(&hop).map(|()| {
                    self.bond(&hop);
                    hop
                })
            }
            Err(reason) => Err(reason),
        };
        (trace.route, found)
    }

    /// No flow has one link where packets or flowlets are spread round robin.
    fn round_robin(&mut self, algo: MpAlgo) -> Reason {
        let how = match algo {
            MpAlgo::RoundRobin => "packets go round robin, by weight, on each core",
            _ => "a flow goes to the next member, by weight, whenever it has been idle so long",
        };
        let data = json!({ "mp_algo": algo.to_string() });
        self.add(5, "policy", "", format!("{algo} (mp-algo): {how}"), data);
        self.confidence
            .unknown("the packets of a flow are spread round robin: it has no link of its own");
        Reason::None
    }

    pub(super) fn choose(&mut self, trace: &Trace) -> Result<Hop, Reason> {
        // The kernel, which sends this machine's own packets, knows of no such rules.
        let rules_count = !self.is_local() && !self.view.kernel_alone;
        if let Some(route) = trace.route.as_ref().filter(|_| rules_count) {
            let rules = &self.view.around.algos;
            self.algo = rules.of(&route.dst, &route.target, route.mp_algo);
        }
        match &trace.resolved {
            Resolved::Kernel(Reason::Unresolved) => self.direct(trace),
            Resolved::Kernel(reason) => {
                let data = json!({ "reason": reason.name() });
                self.add(4, "group", "", kernel_text(*reason).to_owned(), data);
                Err(*reason)
            }
            // What this machine sends itself, the kernel encapsulates.
            resolved if resolved.has_segments() && self.is_local() => {
                let reason = Reason::Encap;
                let data = json!({ "reason": reason.name() });
                self.add(4, "group", "", kernel_text(reason).to_owned(), data);
                Err(reason)
            }
            Resolved::One(hop) => {
                let text = match (trace.neighbour, hop.object) {
                    (Some(_), _) => "the destination is a neighbour on a connected prefix".into(),
                    (None, Some(id)) => format!("nexthop object {id}, nothing to choose"),
                    (None, None) => "one nexthop, nothing to choose".to_owned(),
                };
                let data = json!({ "members": [self.member_json(hop)] });
                self.add(4, "group", "", text, data);
                self.default_routes(trace);
                Ok(hop.clone())
            }
            Resolved::Many {
                hops,
                ranges,
                group,
            } => {
                let scope = trace.route.as_ref().map_or(0, |route| route.scope);
                self.group(hops, *group, scope);
                let none = Reason::OutLink;
                if !self.is_local() && ranges.len() == 1 {
                    // Whatever is hashed, and by whatever rules.
                    self.algo = None;
                    return self.only_member(hops, *group).ok_or(none);
                }
                if let Some(algo @ (MpAlgo::RoundRobin | MpAlgo::Flowlet { .. })) = self.algo {
                    self.turn_to_segment = trace.resolved.has_segments();
                    return Err(self.round_robin(algo));
                }
                let hash31 = self.hash_now()?;
                self.hash31 = Some(hash31);
                self.member(hops, *group, scope, hash31).ok_or(none)
            }
            Resolved::Resilient {
                group,
                hops,
                buckets,
                ..
            } => {
                // Hashed as the kernel does, whatever the rules say.
                self.algo = None;
                self.resilient_group(*group, hops, buckets);
                let hash31 = self.hash_now()?;
                self.hash31 = Some(hash31);
                self.bucket(hops, buckets, hash31).ok_or(Reason::Resilient)
            }
        }
    }

    /// A connected prefix whose neighbour nobody knows yet: the link is clear.
    fn direct(&mut self, trace: &Trace) -> Result<Hop, Reason> {
        let target = trace.route.as_ref().map(|route| &route.target);
        let index = match target {
            Some(RouteTarget::Single(nh)) => Some(nh.index),
            Some(RouteTarget::Object(id)) => match self.view.rib.nexthop(*id).map(|nh| &nh.kind) {
                Some(NexthopKind::Single { index, .. }) => Some(*index),
                _ => None,
            },
            _ => None,
        };
        let index = index.ok_or(Reason::Unresolved)?;
        let text = match self.is_local() {
            true => "connected prefix".to_owned(),
            false => kernel_text(Reason::Unresolved).to_owned(),
        };
        let hop = Hop {
            object: None,
            gateway: None,
            index,
            weight: 1,
            upper: None,
            eligible: true,
            mtu: trace.route.as_ref().map_or(0, mtu_of),
            segment: None,
        };
        let data = json!({
            "reason": Reason::Unresolved.name(), "members": [self.member_json(&hop)],
        });
        self.add(4, "group", "", text, data);
        Ok(hop)
    }

    /// Of several default routes of one metric the kernel takes the one whose gateway answers
    /// (`fib_select_default`); which, nobody sees.
    fn default_routes(&mut self, trace: &Trace) {
        let Some(route) = &trace.route else { return };
        if !self.is_local() || !self.is_v4() || route.dst.prefix_len() != 0 {
            return;
        }
        let of_table = |r: &Route| r.table == route.table && r.dst.prefix_len() == 0;
        let routes = self.view.rib.routes4();
        let rivals = routes
            .filter(of_table)
            .filter(|r| r.metric == route.metric)
            .count();
        if rivals > 1 {
            self.confidence.unknown(format!(
                "there are {rivals} default routes of metric {}: local output takes the one whose \
                 gateway it believes to be alive (fib_select_default)",
                route.metric
            ));
        }
    }
}

/// The name of the link with this index; `ifN` where there is none.
pub fn link_name(rib: &Rib, index: u32) -> String {
    rib.link(index)
        .map_or_else(|| format!("if{index}"), |link| link.name.clone())
}

/// The MTU of a route; 0 where it has none.
fn mtu_of(route: &Route) -> u32 {
    /// `RTAX_MTU`.
    const MTU: u8 = 2;
    let mtu = route.metrics.iter().find(|(kind, _)| *kind == MTU);
    mtu.map_or(0, |(_, mtu)| *mtu)
}

/// What happens to packets that are not forwarded by an engine.
pub(super) fn kernel_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Local => "this machine's own address: delivered here",
        Reason::Broadcast => "a broadcast address: delivered here",
        Reason::Multicast => "a multicast address: the kernel's business",
        Reason::Anycast => "an anycast address of this machine: delivered here",
        Reason::Blackhole => "dropped silently",
        Reason::Unreachable => "the kernel answers with ICMP host unreachable",
        Reason::Prohibit => "the kernel answers with ICMP administratively prohibited",
        Reason::Throw => "the kernel goes on with the next rule",
        Reason::Unresolved => {
            "connected prefix, the destination is not a known neighbour: the kernel resolves it"
        }
        Reason::OutLink => "every nexthop's link is down: the kernel looks for another route",
        Reason::Encap => "an encapsulation that engines do not model: to the kernel",
        Reason::Resilient => {
            "a resilient group, and the owners of its buckets are not all known: to the kernel"
        }
        Reason::Expiring => {
            "the route is about to expire or has expired: the kernel knows whether it uses it"
        }
        _ => "a route that engines do not model: to the kernel",
    }
}

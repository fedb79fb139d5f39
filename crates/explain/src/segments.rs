//! Steps 13 to 17: a packet through the SIDs and encapsulations of this machine.
//!
//! What is done to the packet is done by the functions of `raddle_srv6` on a packet and an image, as the
//! userspace engine does; its rules are the numbers here (S1 to S10).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_image::{LINK_TABLE, Reason, Segment, segment_flags};
use raddle_packet::Family;
use raddle_rib::seg6::{Behaviour, Seg6};
use raddle_rib::{Hop, Owner, Resolved, SegmentUse, Trace};
use raddle_select::{HashConfig, explain_packet};
use raddle_srv6::{
    Demand, ETHERNET, Flow, MAX_CHAIN, MAX_TEMPLATE, Next, Packet as Changing, Refusal, Route,
    Settings, Target, Undo, carry_out, spread,
};
use serde_json::json;

use super::flow::FlowWords;
use super::image::{Image, keys_of};
use super::packet::Packet;
use super::seen::headers;
use super::steps::{Question, Walk};
use super::words::{name_of, rules_of, what_is_done, why};

/// A segment on the way, for rule S10.
struct Passed {
    name: String,
    bytes: usize,
    counts: bool,
    own: bool,
}

impl<'a> Walk<'a> {
    /// Follows a packet from the nexthop that it was given through what that does with it, until it leaves,
    /// is dropped, or is the kernel's.
    ///
    /// 13. segment: which one, and whose (S1).
    /// 14. behaviour: what is done, or why not (S2 to S6, S8, S9).
    /// 15. packet: what it looks like then.
    /// 16. lookup: what is looked up where (S7); then steps 2 to 11 for that, and from 13 on again.
    /// 17. counted: what every segment on the way counts (S10).
    pub(super) fn follow(&mut self, first: Hop) -> Result<Hop, Reason> {
        let own;
        let packet = match self.packet {
            Some(packet) => packet,
            None => {
                own = super::made::Carried::default()
                    .packet(self.words)
                    .map_err(|_| Reason::BadHeader)?;
                &own
            }
        };
        let mut passed = Vec::new();
        let found = self.through(first, packet, &mut passed);
        self.counted(&passed, found.as_ref().map(|_| ()).map_err(|r| *r));
        found
    }

    fn through(
        &mut self,
        first: Hop,
        packet: &Packet,
        passed: &mut Vec<Passed>,
    ) -> Result<Hop, Reason> {
        let image = self.view.images.of(self.view);
        let room = MAX_CHAIN * MAX_TEMPLATE + ETHERNET;
        let mut buffer = vec![0; room + packet.l3.len()];
        buffer[room..].copy_from_slice(&packet.l3);
        let ethertype = match packet.family {
            Family::V4 => [0x08, 0x00],
            Family::V6 => [0x86, 0xdd],
        };
        buffer[room - 2..room].copy_from_slice(&ethertype);
        let frame = room - ETHERNET..buffer.len();
        let mut undo = Undo::default();
        let shape = (packet.family, packet.l3.len());
        let changing = Changing::new(&mut buffer, frame, shape, &mut undo);
        let mut now = changing.ok_or(Reason::Truncated)?;
        let keys = keys_of(self.view.rib);
        let view = self.view;
        let hash31 = |family, l3: &[u8]| view.hash31(family, l3);
        let memory = image.memory();
        let settings = Settings {
            memory: &memory,
            keys: &keys,
            demand: self.view.demand(self.words),
            hash31: &hash31,
        };
        let mut hop = first;
        loop {
            let Some(what) = hop.segment.clone() else {
                return Ok(hop);
            };
            let name = name_of(&what);
            if passed.len() == MAX_CHAIN {
                let text =
                    format!("{name}: the fifth on this packet, engines carry out four (S1.1)");
                self.add(13, "segment", "", text, json!({ "rule": "S1.1" }));
                return Err(Reason::SidChain);
            }
            self.own |= what.own;
            let segment = self.segment(image, &what, &name)?;
            passed.push(Passed {
                name,
                bytes: now.len(),
                counts: segment.flags & segment_flags::HAS_COUNTERS != 0,
                own: what.own,
            });
            let before = headers(now.l3(), now.family());
            let done = carry_out(&settings, &segment, &mut now);
            let next = self.done(&segment, &before, &now, done)?;
            hop = match next {
                Next::Frame(frame) => {
                    self.whole_frame = true;
                    let dev = self.link_name(frame.out);
                    let text = format!("{dev}: the frame leaves as it is (S8.4)");
                    self.add(11, "link", "", text, json!({ "dev": dev, "rule": "S8.4" }));
                    let hop = Hop {
                        object: None,
                        gateway: None,
                        index: frame.out,
                        weight: 1,
                        upper: None,
                        eligible: true,
                        mtu: 0,
                        segment: None,
                    };
                    self.bond(&hop);
                    return Ok(hop);
                }
                Next::Route(route) => self.look_up(&what, route, &now)?,
            };
        }
    }

    /// Step 13.
    fn segment(&mut self, image: &Image, what: &SegmentUse, name: &str) -> Result<Segment, Reason> {
        let found = image.segment(what);
        let whose = match &what.owner {
            Owner::Route { table, dst, .. } => {
                format!("{dst} table {}, ", self.view.names.table(*table))
            }
            Owner::Object { id, .. } => format!("nexthop object {id}, "),
            Owner::Shared => String::new(),
        };
        let own = if what.own { ", raddle's own" } else { "" };
        let (text, rule) = match &found {
            Ok(_) => (format!("{whose}{name}{own} (S1)"), "S1"),
            Err(reason) => {
                let fate = match what.own || reason.is_drop() {
                    true => "dropped",
                    false => "to the kernel",
                };
                (
                    format!("{whose}{name}{own}: {fate}, {reason} (S1.2)"),
                    "S1.2",
                )
            }
        };
        let data = json!({
            "rule": rule, "name": name, "own": what.own, "reason": found.as_ref().err().map(|r| r.name()),
        });
        let function = match what.what {
            Seg6::Sid(_) => "seg6_local_input",
            Seg6::Encaps(_) => "seg6_input",
        };
        self.add(13, "segment", function, text, data);
        found
    }

    /// Steps 14 and 15.
    fn done(
        &mut self,
        segment: &Segment,
        before: &[String],
        now: &Changing<'_>,
        done: Result<Next, Refusal>,
    ) -> Result<Next, Reason> {
        let rules = rules_of(segment);
        let next = match done {
            Ok(next) => next,
            Err(Refusal { reason, rule }) => {
                let rule = rule.name();
                let fate = if reason.is_drop() {
                    "dropped"
                } else {
                    "to the kernel"
                };
                let text = format!("{}: {fate}, {reason} ({rule})", why(reason));
                let data = json!({ "rules": [rule], "reason": reason.name() });
                self.add(14, "behaviour", "", text, data).details = before.to_vec();
                if reason == Reason::Hmac && !self.view.around.is_live() {
                    self.confidence
                        .unless("the kernel has the key of the HMAC, which no snapshot holds");
                }
                return Err(reason);
            }
        };
        let text = format!("{} ({})", what_is_done(segment), rules.join(", "));
        self.add(14, "behaviour", "", text, json!({ "rules": rules }));
        let after = match next {
            Next::Route(_) => headers(now.l3(), now.family()),
            // What comes out is not an IP packet of this machine any more.
            Next::Frame(frame) => vec![format!("an Ethernet frame of {} bytes", frame.len)],
        };
        let (first, rest) = after
            .split_first()
            .map_or(("", &[][..]), |(f, r)| (f.as_str(), r));
        let data = json!({ "headers": after, "bytes": now.len() });
        self.add(15, "packet", "", first.to_owned(), data).details = rest.to_vec();
        Ok(next)
    }

    /// Step 16, and steps 2 to 11 for the packet as it stands.
    fn look_up(
        &mut self,
        what: &SegmentUse,
        route: Route,
        now: &Changing<'_>,
    ) -> Result<Hop, Reason> {
        let packet = Packet::of_ip(now.l3(), "the packet now".to_owned());
        let packet = packet.map_err(|_| Reason::BadHeader)?;
        let iif = self.words.iif.clone().unwrap_or_default();
        let words = packet.words(&iif);
        let target = match route.target {
            Target::Destination => words.dst,
            Target::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip)),
            Target::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip)),
        };
        let table = match route.table {
            LINK_TABLE => None,
            _ => table_of(what),
        };
        let place = match table {
            Some(table) => format!("table {}", self.view.names.table(table)),
            None => format!("the tables of {iif}"),
        };
        let instead = match route.target {
            Target::Destination => "",
            _ => ", in place of the destination",
        };
        let next = self.look_up + 1;
        let text = format!("{target} in {place}{instead} (S7.2): look-up {next}");
        let data = json!({ "rule": "S7.2", "target": target, "table": table });
        self.add(16, "lookup", "", text, data);
        self.look_up += 1;
        let behind = table.and_then(|_| self.view.rib.trace_segment(what, target));
        let trace = behind.unwrap_or_else(|| self.view.rib.trace(&iif, target));
        let several = matches!(
            trace.resolved,
            Resolved::Many { .. } | Resolved::Resilient { .. }
        );
        self.outcome = Some(Outcome {
            words: FlowWords {
                dst: target,
                ..words.clone()
            },
            table,
            by_flow: now.flow().is_some() && several,
        });
        let question = Question {
            words: &words,
            packet: Some(&packet),
        };
        let mut sub = Walk {
            look_up: self.look_up,
            confidence: std::mem::take(&mut self.confidence),
            inner: now.flow().map(|flow| Inner::of(now, flow, &iif)),
            own: self.own,
            ..Walk::new(self.view, question)
        };
        let now_is = (now.family(), now.l3());
        let found = sub
            .checked_again(now_is, route.table)
            .and_then(|()| sub.look_up_now(&trace, table.is_none(), route.gateway_only, now.len()));
        let Walk {
            steps,
            confidence,
            hash31,
            turn_to_segment,
            algo,
            passed_over,
            bond,
            ..
        } = sub;
        self.turn_to_segment |= turn_to_segment;
        self.passed_over |= passed_over;
        self.algo = algo.or(self.algo);
        self.steps.extend(steps);
        self.confidence = confidence;
        self.hash31 = hash31.or(self.hash31);
        self.bond = bond;
        found
    }

    /// S7.1, by the engine's own function. What only an engine refuses the kernel may forward.
    fn checked_again(&mut self, now: (Family, &[u8]), table: u32) -> Result<(), Reason> {
        let Some(link) = self.ingress() else {
            return self.addresses();
        };
        let memory = self.view.images.of(self.view).memory();
        let checked = raddle_forward::check_again(&memory, link.index, now, table, self.own);
        // Why, and what is in doubt.
        self.addresses()?;
        if let Err(reason) = checked {
            let text = format!("{reason}: engines do not forward the packet as it is now (S7.1)");
            let data = json!({ "rule": "S7.1", "reason": reason.name() });
            self.add(1, "addresses", "", text, data);
        }
        checked
    }

    /// S7 for this packet.
    fn look_up_now(
        &mut self,
        trace: &Trace,
        by_rules: bool,
        gateway_only: bool,
        length: usize,
    ) -> Result<Hop, Reason> {
        if by_rules {
            self.rules(trace)?;
        }
        self.route(trace)?;
        let connected = matches!(trace.resolved, Resolved::Kernel(Reason::Unresolved));
        if gateway_only && (connected || trace.neighbour.is_some()) {
            let text = "nh4 is on a connected prefix: the kernel asks for the inner destination, not for \
                        nh4 (S7.3)";
            let data = json!({ "rule": "S7.3", "reason": Reason::Encap.name() });
            self.add(4, "group", "input_action_end_dx4", text.to_owned(), data);
            return Err(Reason::Encap);
        }
        let ends = self.packet.is_some_and(|packet| packet.ttl() <= 1);
        let decided = matches!(trace.resolved, Resolved::Kernel(_));
        if ends && !decided && !trace.resolved.has_segments() {
            return Err(self.ended());
        }
        if ends {
            // Which segment it comes to, its own hash says.
            self.inner = None;
        }
        let hop = self.choose(trace)?;
        if hop.segment.is_some() {
            return Ok(hop);
        }
        if ends {
            return Err(self.ended());
        }
        self.neighbour(&hop);
        self.out_link(&hop);
        let rib = self.view.rib;
        let mtu = rib.path_mtu_to(hop.index, hop.gateway, hop.mtu);
        let mtu = mtu.map_or(u32::MAX, |mtu| mtu.engine);
        if length > mtu as usize {
            let text = format!("{length} bytes are more than the {mtu} that get through (S7.6)");
            let data = json!({ "rule": "S7.6", "mtu": mtu, "bytes": length });
            self.add(11, "mtu", "", text, data);
            return Err(Reason::Mtu);
        }
        self.leaves_behind(&hop, length);
        self.bond(&hop);
        Ok(hop)
    }

    /// S7.5.
    fn ended(&mut self) -> Reason {
        let data = json!({ "rule": "S7.5", "reason": Reason::TtlExceeded.name() });
        let text = "its TTL is at its end (S7.5)".to_owned();
        self.add(9, "ttl", "", text, data);
        Reason::TtlExceeded
    }

    /// The hash by which an encapsulated packet chooses (S9.6); the packet's own where it is none.
    pub(super) fn hash_now(&mut self) -> Result<u32, Reason> {
        let Some(inner) = self.inner.take() else {
            return self.hash();
        };
        let question = Question {
            words: &inner.words,
            packet: Some(&inner.packet),
        };
        let mut flow = Walk {
            look_up: self.look_up,
            confidence: std::mem::take(&mut self.confidence),
            ..Walk::new(self.view, question)
        };
        let hash31 = flow.hash();
        let Walk {
            steps,
            confidence,
            passed_over,
            ..
        } = flow;
        self.passed_over |= passed_over;
        self.steps.extend(steps);
        self.confidence = confidence;
        let hash31 = hash31?;
        let chosen = spread(hash31, inner.salt) >> 1;
        let secret = self.is_secret();
        let anew = match secret {
            true => "spread anew".to_owned(),
            false => format!("spread anew with the salt {:#010x}: {chosen}", inner.salt),
        };
        let text = format!(
            "it is that of the packet inside; {anew} (S9.6); the kernel keeps one path for each core instead"
        );
        if let Some(hash) = self.steps.iter_mut().rev().find(|step| step.step == 8) {
            hash.details.push(text);
            hash.data["spread"] = match secret {
                true => json!({ "rule": "S9.6" }),
                false => json!({ "rule": "S9.6", "salt": inner.salt, "hash31": chosen }),
            };
        }
        self.confidence.unless(
            "the kernel encapsulates it (it was punted, or no daemon runs here): then all that one core \
             encapsulates takes one path, until routes change",
        );
        Ok(chosen)
    }

    /// Step 17.
    fn counted(&mut self, passed: &[Passed], found: Result<(), Reason>) {
        if passed.is_empty() {
            return;
        }
        let own = passed.iter().any(|one| one.own);
        let (what, rule) = match found {
            Ok(()) => ("a packet".to_owned(), "S10.1"),
            Err(Reason::Blackhole) => ("a packet, which is dropped".to_owned(), "S10.2"),
            Err(reason) if reason.is_drop() || own => {
                (format!("an error ({reason}), dropped"), "S10.3")
            }
            Err(reason) => (
                format!("{reason}, and the kernel gets it and counts what becomes of it"),
                "S10.3",
            ),
        };
        let bytes = rule != "S10.3";
        let dropped = own || found.is_err_and(Reason::is_drop);
        let details = passed
            .iter()
            .map(|one| match (one.counts, bytes) {
                (false, _) => format!("{}: does not count", one.name),
                (true, true) => format!("{}: 1 packet, {} bytes", one.name, one.bytes),
                (true, false) if dropped => format!("{}: 1 error", one.name),
                (true, false) => format!("{}: no error, 1 by its reason", one.name),
            })
            .collect();
        let text = format!("{what} ({rule})");
        let data =
            json!({ "rule": rule, "segments": passed.iter().map(|p| &p.name).collect::<Vec<_>>() });
        // Of the packet as a whole.
        self.look_up = 1;
        let function = "seg6_local_update_counters";
        self.add(17, "counted", function, text, data).details = details;
    }
}

/// What came out of SIDs and encapsulations, for who asks the kernel about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The flow as it was looked up at last.
    pub words: FlowWords,
    /// The table, where it was not by the rules.
    pub table: Option<u32>,
    /// One of several paths was chosen by the flow inside.
    pub by_flow: bool,
}

/// The packet by whose flow an encapsulated one chooses its path.
pub(super) struct Inner {
    packet: Packet,
    words: FlowWords,
    salt: u32,
}

impl Inner {
    fn of(now: &Changing<'_>, flow: &Flow, iif: &str) -> Inner {
        let packet = Packet::raw(now.bytes(flow.range.clone()), flow.family);
        Inner {
            words: packet.words(iif),
            packet,
            salt: flow.salt,
        }
    }
}

impl super::steps::View<'_> {
    /// The hash of a packet by the namespace's policy of its family.
    fn hash31(&self, family: Family, l3: &[u8]) -> Result<u32, Reason> {
        let settings = self.rib.settings();
        let (number, fields) = match family {
            Family::V4 => (settings.hash_policy4, settings.hash_fields4),
            Family::V6 => (settings.hash_policy6, settings.hash_fields6),
        };
        let config = HashConfig::kernel(number, fields).ok_or(Reason::HashPolicy)?;
        let key = self.rib.hash_key().ok_or(Reason::SeedUnknown)?;
        let hashed = explain_packet(&config, key, family, l3);
        hashed
            .map(|hashed| hashed.hash31)
            .map_err(|_| Reason::BadHeader)
    }

    /// What the input link wants of HMACs.
    fn demand(&self, words: &FlowWords) -> Demand {
        let link = words
            .iif
            .as_deref()
            .and_then(|name| self.rib.link_named(name));
        match link.map_or(0, |link| self.rib.input_settings(link).seg6_require_hmac) {
            ..0 => Demand::Ignored,
            0 => Demand::IfPresent,
            _ => Demand::Required,
        }
    }
}

/// The table that a SID names.
fn table_of(what: &SegmentUse) -> Option<u32> {
    let Seg6::Sid(sid) = &what.what else {
        return None;
    };
    match &sid.behaviour {
        Behaviour::T { table } => Some(*table),
        Behaviour::Dt6 { table } | Behaviour::Dt4 { table } | Behaviour::Dt46 { table } => {
            Some(table.number())
        }
        _ => None,
    }
}

//! The steps from a flow to a link.

use std::net::IpAddr;

use raddle_rib::event::{Route, RouteKind, RouteTarget};
use raddle_rib::{Hop, Reason, Resolved, Rib, Trace};
use raddle_select::{
    Explanation, Field, HashConfig, HashedKey, KeyAddresses, Part, Policy, Seed, explain_flow,
    explain_plain_packet,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::flow::FlowWords;
use crate::show::Names;

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Step {
    /// Its number.
    pub step: u32,
    /// What is decided: input, rules, route, group, policy, ...
    pub name: &'static str,
    /// The decision, for people.
    pub text: String,
    /// More about it, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The decision, for programs.
    pub data: Value,
}

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// The flow that was asked about.
    pub flow: FlowWords,
    /// How the answer was found.
    pub steps: Vec<Step>,
    /// The link that the flow leaves by; none when the kernel decides, or nobody can know.
    pub link: Option<String>,
    /// The neighbour that it is sent to.
    pub via: Option<String>,
    /// Why there is no link, in a word.
    pub reason: Option<&'static str>,
}

/// Collects steps.
struct Steps<'a> {
    rib: &'a Rib,
    names: &'a Names,
    words: &'a FlowWords,
    steps: Vec<Step>,
}

/// Explains which link a forwarded flow takes.
///
/// 1. input: the link that it comes in on.
/// 2. rules: the tables that are asked, in order.
/// 3. route: the longest prefix of the first table with a match, and its best route.
/// 4. group: what the route leads to: a nexthop, or several with upper bounds.
/// 5. policy: what is hashed.
/// 6. fields: what the flow has there, put in order.
/// 7. seed, 8. hash: SipHash-2-4, its upper 31 of 32 bits.
/// 9. member: the first whose upper bound is not below the hash; of a resilient group, the owner of
///    the bucket that is the hash modulo the number of buckets.
/// 10. neighbour: who is there, and whether the kernel knows its link-layer address.
/// 11. link.
///
/// Steps that decide nothing (one nexthop needs no hash) are left out; numbers stay.
pub(crate) fn explain(rib: &Rib, words: &FlowWords, names: &Names) -> Answer {
    let mut steps = Steps {
        rib,
        names,
        words,
        steps: Vec::new(),
    };
    let found = steps.walk();
    let (link, via, reason) = match found {
        Ok(hop) => {
            let via = hop.gateway.map(|g| g.to_string());
            (Some(steps.link_name(hop.index)), via, None)
        }
        Err(reason) => (None, None, Some(reason.name())),
    };
    Answer {
        flow: words.clone(),
        steps: steps.steps,
        link,
        via,
        reason,
    }
}

impl Steps<'_> {
    fn add(&mut self, step: u32, name: &'static str, text: String, data: Value) {
        self.steps.push(Step {
            step,
            name,
            text,
            details: Vec::new(),
            data,
        });
    }

    fn link_name(&self, index: u32) -> String {
        self.rib
            .link(index)
            .map_or_else(|| format!("if{index}"), |link| link.name.clone())
    }

    fn walk(&mut self) -> Result<Hop, Reason> {
        let v4 = self.words.dst.is_ipv4();
        self.input(v4)?;
        let iif = self.words.iif.clone().unwrap_or_default();
        let trace = self.rib.trace(&iif, self.words.dst);
        self.rules(&trace)?;
        self.route(&trace)?;
        let hop = match &trace.resolved {
            Resolved::Kernel(reason) => {
                let data = json!({ "reason": reason.name() });
                self.add(4, "group", kernel_text(*reason).to_owned(), data);
                return Err(*reason);
            }
            Resolved::One(hop) => {
                let text = match trace.neighbour {
                    Some(_) => "the destination is a neighbour on a connected prefix".to_owned(),
                    None => match hop.object {
                        Some(id) => format!("nexthop object {id}, nothing to choose"),
                        None => "one nexthop, nothing to choose".to_owned(),
                    },
                };
                self.add(
                    4,
                    "group",
                    text,
                    json!({ "members": [self.member_json(hop)] }),
                );
                hop.clone()
            }
            Resolved::Many {
                hops,
                ranges,
                group,
            } => {
                self.group(hops, *group);
                let hash31 = self.hash(v4)?;
                self.member(hops, ranges, hash31)
            }
            Resolved::Resilient {
                group,
                hops,
                buckets,
                ..
            } => {
                self.resilient_group(*group, hops, buckets);
                let hash31 = self.hash(v4)?;
                self.bucket(hops, buckets, hash31)
            }
        };
        self.neighbour(&hop)?;
        self.out_link(&hop);
        Ok(hop)
    }

    fn input(&mut self, v4: bool) -> Result<(), Reason> {
        let Some(name) = &self.words.iif else {
            let text = "no input link given: rules for input links are not asked".to_owned();
            self.add(1, "input", text, json!({ "iif": null }));
            return Ok(());
        };
        let Some(link) = self.rib.link_named(name) else {
            return Err(Reason::NotEnabled);
        };
        let device = self.rib.device(link.index);
        let family = if v4 { "IPv4" } else { "IPv6" };
        let on = if v4 {
            device.forwarding4
        } else {
            device.forwarding6
        };
        let state = if on { "on" } else { "off" };
        let text = format!(
            "link {name} (index {}), {family} forwarding is {state}",
            link.index
        );
        let data = json!({ "iif": name, "index": link.index, "forwarding": on });
        self.add(1, "input", text, data);
        if on {
            Ok(())
        } else {
            Err(Reason::ForwardingOff)
        }
    }

    fn rules(&mut self, trace: &Trace) -> Result<(), Reason> {
        match &trace.tables {
            Ok(tables) => {
                let names: Vec<String> = tables
                    .iter()
                    .map(|t| self.names.table(*t).into_owned())
                    .collect();
                let text = format!("tables {}, in this order", names.join(", "));
                self.add(2, "rules", text, json!({ "tables": names }));
                Ok(())
            }
            Err(reason) => {
                let text = "a rule decides by what engines do not look at: to the kernel";
                self.add(
                    2,
                    "rules",
                    text.to_owned(),
                    json!({ "reason": reason.name() }),
                );
                Err(*reason)
            }
        }
    }

    fn route(&mut self, trace: &Trace) -> Result<(), Reason> {
        let Some(route) = &trace.route else {
            self.add(
                3,
                "route",
                "no table has a route".to_owned(),
                json!({ "route": null }),
            );
            return Err(Reason::NoRoute);
        };
        let text = format!(
            "{}{} in table {}, proto {}, metric {}",
            kind_word(route.kind),
            if route.dst.prefix_len() == 0 {
                "default".to_owned()
            } else {
                route.dst.to_string()
            },
            self.names.table(route.table),
            self.names.protocol(route.protocol),
            route.metric,
        );
        let data = json!({
            "dst": route.dst.to_string(),
            "table": self.names.table(route.table),
            "protocol": self.names.protocol(route.protocol),
            "metric": route.metric,
            "nhid": nhid(route),
        });
        self.add(3, "route", text, data);
        Ok(())
    }

    fn group(&mut self, hops: &[Hop], group: Option<u32>) {
        let what = match group {
            Some(id) => format!("nexthop group {id}"),
            None => "multipath route".to_owned(),
        };
        let text = format!("{what}, hash-threshold over {} nexthops", hops.len());
        let members: Vec<Value> = hops.iter().map(|hop| self.member_json(hop)).collect();
        let details = hops
            .iter()
            .enumerate()
            .map(|(i, hop)| self.member_line(i, hop, &share(hop)))
            .collect();
        self.steps.push(Step {
            step: 4,
            name: "group",
            text,
            details,
            data: json!({ "group": group, "type": "hash-threshold", "members": members }),
        });
    }

    fn resilient_group(&mut self, group: u32, hops: &[Hop], buckets: &[u16]) {
        let text = format!(
            "nexthop group {group}, resilient, {} buckets over {} nexthops",
            buckets.len(),
            hops.len()
        );
        let owned = |i: usize| buckets.iter().filter(|b| usize::from(**b) == i).count();
        let details = hops
            .iter()
            .enumerate()
            .map(|(i, hop)| self.member_line(i, hop, &format!("owns {} buckets", owned(i))))
            .collect();
        let members: Vec<Value> = hops.iter().map(|hop| self.member_json(hop)).collect();
        self.steps.push(Step {
            step: 4,
            name: "group",
            text,
            details,
            data: json!({
                "group": group, "type": "resilient", "buckets": buckets.len(), "members": members,
            }),
        });
    }

    fn member_json(&self, hop: &Hop) -> Value {
        json!({
            "id": hop.object,
            "gateway": hop.gateway.map(|g| g.to_string()),
            "dev": self.link_name(hop.index),
            "weight": hop.weight,
            "upper_bound": hop.upper,
            "eligible": hop.eligible,
        })
    }

    fn member_line(&self, i: usize, hop: &Hop, share: &str) -> String {
        let id = hop.object.map_or(String::new(), |id| format!("id {id} "));
        let via = hop.gateway.map_or(String::new(), |g| format!("via {g} "));
        let (dev, weight) = (self.link_name(hop.index), hop.weight);
        format!("{i}: {id}{via}dev {dev} weight {weight}: {share}")
    }

    /// Steps 5 to 8.
    fn hash(&mut self, v4: bool) -> Result<u32, Reason> {
        let settings = self.rib.settings();
        let (number, fields, family) = match v4 {
            true => (settings.hash_policy4, settings.hash_fields4, "ipv4"),
            false => (settings.hash_policy6, settings.hash_fields6, "ipv6"),
        };
        let seed = settings.hash_seed;
        let sysctl = format!("net.{family}.fib_multipath_hash_policy");
        let Some(config) = HashConfig::kernel(number, fields) else {
            let text = format!("{number} ({sysctl}): not modelled, to the kernel");
            self.add(5, "policy", text, json!({ "policy": number }));
            return Err(Reason::HashPolicy);
        };
        let policy = config.policy;
        let mut text = format!("{number}, {policy} ({sysctl})");
        let mut data = json!({ "policy": number });
        if policy == Policy::Custom {
            text += &format!(", fields {fields:#x} (net.{family}.fib_multipath_hash_fields)");
            data["hash_fields"] = fields.into();
        }
        self.add(5, "policy", text, data);
        let Some(seed) = Seed::new(seed) else {
            let text =
                "unknown: net.ipv4.fib_multipath_hash_seed is 0, so the kernel uses a random \
                        one that nobody can read; set it to predict choices"
                    .to_owned();
            self.add(7, "seed", text, json!({ "seed": null }));
            return Err(Reason::SeedUnknown);
        };
        let flow = self.words.flow().ok_or(Reason::HashPolicy)?;
        // A flow that comes in is a router's, and policies 2 and 3 tell packets from questions.
        let hashed = match self.words.iif {
            Some(_) => explain_plain_packet(&config, seed, &flow),
            None => explain_flow(&config, seed, &flow),
        };
        self.fields(&hashed);
        let text = format!("{} (net.ipv4.fib_multipath_hash_seed)", seed.get());
        self.add(7, "seed", text, json!({ "seed": seed.get() }));
        self.sum(&hashed);
        Ok(hashed.hash31)
    }

    /// Step 8.
    fn sum(&mut self, hashed: &Explanation) {
        let of_keys: Vec<String> = hashed
            .keys
            .iter()
            .map(|key| {
                format!(
                    "SipHash-2-4 {:#018x}, low 32 bits {:#010x}",
                    key.hash64, key.hash32
                )
            })
            .collect();
        let mut text = of_keys.join("; ");
        if hashed.combined {
            text += &format!("; hashed again (jhash_2words) {:#010x}", hashed.hash32);
        } else if hashed.keys.is_empty() {
            text = "no field is hashed: 0".to_owned();
        }
        text += &format!(", without the lowest bit {}", hashed.hash31);
        let hash64 = |key: &HashedKey| format!("{:#018x}", key.hash64);
        let data = json!({
            "hash64": hashed.keys.first().map(hash64),
            "combined": hashed.combined,
            "hash32": hashed.hash32,
            "hash31": hashed.hash31,
        });
        self.add(8, "hash", text, data);
    }

    /// Step 6.
    fn fields(&mut self, hashed: &Explanation) {
        let texts: Vec<String> = hashed
            .keys
            .iter()
            .map(|key| key_text(key, self.words.flow_label))
            .collect();
        let text = match texts.is_empty() {
            true => "none of this flow".to_owned(),
            false => texts.join("; and "),
        };
        let details = hashed
            .keys
            .iter()
            .map(|key| format!("hashed bytes {}", bytes_text(key)))
            .collect();
        let mut data = hashed.keys.first().map_or(json!({}), key_json);
        if let [_, inner] = hashed.keys.as_slice() {
            data["inner"] = key_json(inner);
        }
        self.steps.push(Step {
            step: 6,
            name: "fields",
            text,
            details,
            data,
        });
    }

    fn member(&mut self, hops: &[Hop], ranges: &[(u32, usize)], hash31: u32) -> Hop {
        // The last bound is the largest hash, so there is always one.
        let place = ranges
            .partition_point(|(upper, _)| *upper < hash31)
            .min(ranges.len() - 1);
        let (upper, index) = ranges[place];
        let hop = hops[index].clone();
        let text = format!("{index}: {hash31} <= {upper}, the first bound that holds");
        let data = json!({ "member": index, "id": hop.object, "upper_bound": upper });
        self.add(9, "member", text, data);
        hop
    }

    fn bucket(&mut self, hops: &[Hop], buckets: &[u16], hash31: u32) -> Hop {
        let count = buckets.len();
        let bucket = hash31 as usize % count;
        let index = usize::from(buckets[bucket]);
        let hop = hops[index].clone();
        let text = format!("{index}: owns bucket {bucket} = {hash31} % {count}");
        let data = json!({ "member": index, "id": hop.object, "bucket": bucket });
        self.add(9, "member", text, data);
        hop
    }

    fn neighbour(&mut self, hop: &Hop) -> Result<(), Reason> {
        let Some(gateway) = hop.gateway else {
            let text = "the destination itself; the kernel resolves it".to_owned();
            self.add(10, "neighbour", text, json!({ "neighbour": null }));
            return Err(Reason::Unresolved);
        };
        let known = self.rib.neighbour(hop.index, gateway);
        let mac = known.filter(|n| n.is_valid()).and_then(|n| n.mac);
        let dev = self.link_name(hop.index);
        let text = match mac {
            Some(mac) => format!("{gateway} dev {dev} lladdr {}", mac_text(mac)),
            None => format!("{gateway} dev {dev} is not resolved: the kernel gets the packet"),
        };
        let data = json!({
            "neighbour": gateway.to_string(),
            "dev": dev,
            "lladdr": mac.map(mac_text),
        });
        self.add(10, "neighbour", text, data);
        Ok(())
    }

    fn out_link(&mut self, hop: &Hop) {
        let name = self.link_name(hop.index);
        let same = self.words.iif.as_ref() == Some(&name);
        let text = match same {
            true => format!("{name}: back where it came from, the kernel also sends a redirect"),
            false => name.clone(),
        };
        self.add(11, "link", text, json!({ "dev": name }));
    }
}

/// The fields of a key with their values, and what was swapped. `label` is the flow label as a
/// number; the key has it in the order that its policy hashes.
fn key_text(hashed: &HashedKey, label: u32) -> String {
    let key = &hashed.key;
    let (src, dst): (IpAddr, IpAddr) = match key.addresses {
        KeyAddresses::V4 { src, dst } => (src.into(), dst.into()),
        KeyAddresses::V6 { src, dst } => (src.into(), dst.into()),
    };
    let has = |field| hashed.fields.contains(&field);
    let both = |a, b, values: [String; 2]| match (has(a), has(b)) {
        (true, true) => Some(values.join(" and ")),
        (true, false) => Some(values[0].clone()),
        (false, true) => Some(values[1].clone()),
        (false, false) => None,
    };
    let mut parts = Vec::new();
    parts.extend(both(
        Field::SrcIp,
        Field::DstIp,
        [src.to_string(), dst.to_string()],
    ));
    if has(Field::IpProto) {
        let name = if src.is_ipv4() || has(Field::SrcPort) {
            "protocol"
        } else {
            "next header"
        };
        parts.push(format!("{name} {}", key.ip_proto));
    }
    let ports = [key.sport.to_string(), key.dport.to_string()];
    let plural = has(Field::SrcPort) && has(Field::DstPort);
    let name = if plural { "ports" } else { "port" };
    parts.extend(both(Field::SrcPort, Field::DstPort, ports).map(|p| format!("{name} {p}")));
    if has(Field::FlowLabel) {
        parts.push(format!("flow label {label:#x}"));
    }
    let swapped = match (hashed.addresses_swapped, hashed.ports_swapped) {
        (false, false) => "in the order of the packet",
        (true, false) => "addresses swapped",
        (false, true) => "ports swapped",
        (true, true) => "addresses and ports swapped",
    };
    let of = match hashed.of {
        Part::Packet => "",
        Part::Innermost => "of the innermost packet ",
    };
    format!("{of}{}; {swapped}", parts.join(", "))
}

fn bytes_text(hashed: &HashedKey) -> String {
    hashed.bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn key_json(hashed: &HashedKey) -> Value {
    json!({
        "fields": hashed.fields,
        "addresses_swapped": hashed.addresses_swapped,
        "ports_swapped": hashed.ports_swapped,
        "bytes": bytes_text(hashed),
    })
}

/// The share of the hash that a member of a hash-threshold group has.
fn share(hop: &Hop) -> String {
    match (hop.upper, hop.eligible) {
        (Some(upper), true) => format!("hash <= {upper}"),
        (Some(upper), false) => {
            format!("hash <= {upper}, passed over: its neighbour is not valid")
        }
        (None, _) => "no share: its link is down".to_owned(),
    }
}

fn nhid(route: &Route) -> Option<u32> {
    match route.target {
        RouteTarget::Object(id) => Some(id),
        _ => None,
    }
}

fn kind_word(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Unspec | RouteKind::Unicast => "",
        RouteKind::Local => "local ",
        RouteKind::Broadcast => "broadcast ",
        RouteKind::Anycast => "anycast ",
        RouteKind::Multicast => "multicast ",
        RouteKind::Blackhole => "blackhole ",
        RouteKind::Unreachable => "unreachable ",
        RouteKind::Prohibit => "prohibit ",
        RouteKind::Throw => "throw ",
        RouteKind::Nat => "nat ",
        RouteKind::Xresolve => "xresolve ",
    }
}

/// What happens to packets that are not forwarded by an engine.
fn kernel_text(reason: Reason) -> &'static str {
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
        _ => "a route that engines do not model: to the kernel",
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

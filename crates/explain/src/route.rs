//! The steps around the choice: input, rules and route before it, neighbour and link behind it.

use raddle_image::Reason;
use raddle_rib::event::{ROUTE_FPM, ROUTE_STATIC, Route, RouteKind, RouteTarget};
use raddle_rib::{Asked, Hop, TableLookup, Trace, describe_rule, lookup_apart, lookup_of};
use serde_json::json;

use super::steps::Walk;

impl Walk<'_> {
    /// Step 1.
    pub(super) fn input(&mut self) -> Result<(), Reason> {
        let Some(name) = &self.words.iif else {
            let text = "none: this machine's own packet (local output)".to_owned();
            let function = self.by_family("ip_route_output_key_hash_rcu", "ip6_route_output_flags");
            self.add(1, "input", function, text, json!({ "iif": null }));
            return Ok(());
        };
        let Some(link) = self.view.rib.link_named(name) else {
            return Err(Reason::NotEnabled);
        };
        let device = self.view.rib.input_settings(link);
        let v4 = self.is_v4();
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
        let function = self.by_family("ip_route_input_slow", "ip6_route_input");
        self.add(1, "input", function, text, data);
        Ok(())
    }

    /// Step 2.
    pub(super) fn rules(&mut self, trace: &Trace) -> Result<(), Reason> {
        let function = "fib_rules_lookup";
        match &trace.lookup {
            Ok(lookup) => {
                let name = |look: &TableLookup| self.view.names.table(look.table).into_owned();
                let names: Vec<String> = lookup.tables.iter().map(name).collect();
                let asked = lookup.tables.iter().zip(&names);
                let asked: Vec<String> = asked
                    .map(|(look, name)| match look.suppress {
                        Some(most) => format!("{name} (routes longer than /{most})"),
                        None => name.clone(),
                    })
                    .collect();
                let mut text = match asked.is_empty() {
                    true => "no table".to_owned(),
                    false => format!("tables {}, in this order", asked.join(", ")),
                };
                if lookup.end != Reason::NoRoute {
                    text += &format!("; a rule says {} of all else", lookup.end.name());
                }
                let mut data = json!({ "tables": names });
                if lookup.tables.iter().any(|look| look.suppress.is_some()) {
                    let most = lookup.tables.iter().map(|look| look.suppress);
                    data["suppress_prefixlength"] = json!(most.collect::<Vec<_>>());
                }
                let asks = self.rules_that_ask();
                if !asks.is_empty() {
                    text += &format!("; it is asked for by {}", asks.join(" and "));
                    data["rules"] = json!(asks);
                }
                self.add(2, "rules", function, text, data);
                self.rule_doubts();
                Ok(())
            }
            Err(reason) => {
                let iif = self.words.iif.as_deref().unwrap_or("lo");
                let family = if self.is_v4() { 4 } else { 6 };
                let rib = self.view.rib;
                let arrival = rib.arrival(iif);
                let followed = lookup_of(rib.rules(), family, arrival, &self.words.fields());
                let (rule, does) = match (followed, lookup_apart(rib.rules(), family, arrival)) {
                    (Err(rule), _) | (_, Err(rule)) => {
                        (Some(rule), "decides by what engines do not look at")
                    }
                    // Behind a segment.
                    (_, Ok(apart)) => {
                        let first = apart.by_packet.first().copied();
                        (first, "asks for what a packet shows")
                    }
                };
                let rule = rule.map_or_else(|| "a rule".to_owned(), describe_rule);
                let text = format!("{rule} {does}: to the kernel");
                let data = json!({ "reason": reason.name(), "rule": rule });
                self.add(2, "rules", function, text, data);
                Err(*reason)
            }
        }
    }

    /// A rule that asks for what is not named decides by it.
    fn rule_doubts(&mut self) {
        if self.look_up != 1 || self.packet.is_some() {
            return;
        }
        let rib = self.view.rib;
        let iif = self.words.iif.as_deref().unwrap_or("lo");
        if let Err(rule) = rib.trace_all(iif, &self.words.packets()) {
            let rule = describe_rule(rule);
            self.confidence.unless(format!(
                "rule {rule} asks for the packet: it looks at what is not named here (from, ipproto, sport, dport)"
            ));
        }
    }

    /// The rules that ask for what the packet shows, in words, and are followed.
    fn rules_that_ask(&self) -> Vec<String> {
        if self.look_up != 1 {
            return Vec::new();
        }
        let iif = self.words.iif.as_deref().unwrap_or("lo");
        let rib = self.view.rib;
        let family = if self.is_v4() { 4 } else { 6 };
        let fields = self.words.fields();
        let apart = lookup_apart(rib.rules(), family, rib.arrival(iif));
        let rules = apart.map(|apart| apart.by_packet).unwrap_or_default();
        let asks = rules
            .into_iter()
            .filter(|rule| Asked::of(rule).holds(&fields));
        asks.map(|rule| format!("rule {}", describe_rule(rule)))
            .collect()
    }

    /// Step 3.
    pub(super) fn route(&mut self, trace: &Trace) -> Result<(), Reason> {
        let function = self.by_family("fib_table_lookup", "fib6_table_lookup");
        let Some(route) = &trace.route else {
            let text = "no table has a route".to_owned();
            self.add(3, "route", function, text, json!({ "route": null }));
            return Err(trace
                .lookup
                .as_ref()
                .map_or_else(|reason| *reason, |lookup| lookup.end));
        };
        let names = self.view.names;
        let own = route.flags & ROUTE_STATIC != 0;
        let fpm = route.flags & ROUTE_FPM != 0;
        let text = format!(
            "{}{} in table {}, {}",
            kind_word(route.kind),
            if route.dst.prefix_len() == 0 {
                "default".to_owned()
            } else {
                route.dst.to_string()
            },
            names.table(route.table),
            match (own, fpm) {
                (true, _) => "raddle's own, which the kernel does not have".to_owned(),
                (false, true) => format!(
                    "proto {}, told by FPM; the kernel does not have it",
                    names.protocol(route.protocol)
                ),
                (false, false) => format!(
                    "proto {}, metric {}",
                    names.protocol(route.protocol),
                    route.metric
                ),
            },
        );
        let data = json!({
            "own": own,
            "fpm": fpm,
            "dst": route.dst.to_string(),
            "table": names.table(route.table),
            "protocol": names.protocol(route.protocol),
            "metric": route.metric,
            "nhid": nhid(route),
        });
        let function = if own || fpm { "" } else { function };
        self.add(3, "route", function, text, data);
        Ok(())
    }

    /// Step 10.
    pub(super) fn neighbour(&mut self, hop: &Hop) {
        let function = self.by_family("ip_neigh_for_gw", "ip6_finish_output2");
        if self.view.rib.has_one_end(hop.index) {
            let dev = self.link_name(hop.index);
            let text = format!("{dev} has one other end, whoever the neighbour is");
            let data = json!({ "neighbour": null, "dev": dev });
            self.add(10, "neighbour", function, text, data);
            return;
        }
        let Some(gateway) = hop.gateway else {
            let text = "the destination itself; the kernel resolves it".to_owned();
            let data = json!({ "neighbour": null });
            self.add(10, "neighbour", function, text, data);
            return;
        };
        let known = self.view.rib.neighbour(hop.index, gateway);
        let mac = known.filter(|n| n.is_valid()).and_then(|n| n.mac);
        let dev = self.link_name(hop.index);
        let text = match mac {
            Some(mac) => format!("{gateway} dev {dev} lladdr {}", mac_text(mac)),
            None if self.is_local() => {
                format!("{gateway} dev {dev} is not resolved: the kernel asks for it first")
            }
            None => format!("{gateway} dev {dev} is not resolved: the kernel gets the packet"),
        };
        let data = json!({
            "neighbour": gateway.to_string(),
            "dev": dev,
            "lladdr": mac.map(mac_text),
        });
        self.add(10, "neighbour", function, text, data);
    }

    /// Step 11.
    pub(super) fn out_link(&mut self, hop: &Hop) {
        let name = self.link_name(hop.index);
        let same = self.words.iif.as_ref() == Some(&name);
        let mtu = self.view.rib.path_mtu(hop.index, hop.mtu);
        let mtu = mtu.map(|mtu| if self.is_v4() { mtu.v4 } else { mtu.v6 });
        let text = match same {
            true => format!("{name}: back where it came from, the kernel also sends a redirect"),
            false => name.clone(),
        };
        self.add(11, "link", "", text, json!({ "dev": name, "mtu": mtu }));
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

/// A MAC address as people write it.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

//! What `ip -j` shows, one line for each object, in the words of `state`.

use serde_json::Value;

fn json(arguments: &str) -> Vec<Value> {
    let text = crate::support::ip(&format!("-N -j -d {arguments}"));
    match text.trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).unwrap(),
    }
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn hop(value: &Value) -> String {
    let via = value["via"]["host"]
        .as_str()
        .or(value["gateway"].as_str())
        .unwrap_or("-");
    let weight = value["weight"].as_u64().unwrap_or(1);
    format!("{via} dev {} weight {weight}", string(value, "dev"))
}

/// All routes, in the order of tables, prefixes, metrics, and within these the kernel's.
pub(crate) fn routes() -> Vec<String> {
    let mut lines = Vec::new();
    for (family, any, full) in [("-4", "0.0.0.0/0", "/32"), ("-6", "::/0", "/128")] {
        for route in json(&format!("{family} route show table all")) {
            let dst = match string(&route, "dst") {
                "default" => any.to_owned(),
                net if net.contains('/') => net.to_owned(),
                host => format!("{host}{full}"),
            };
            let target = if let Some(id) = route["nhid"].as_u64() {
                format!("object {id}")
            } else if let Some(hops) = route["nexthops"].as_array() {
                hops.iter().map(hop).collect::<Vec<_>>().join(", ")
            } else if route.get("dev").is_some() {
                hop(&route)
            } else {
                "nowhere".to_owned()
            };
            let table: u32 = string(&route, "table").parse().unwrap();
            let metric = route["metric"].as_u64().unwrap_or(0);
            lines.push((
                (table, dst.clone(), metric),
                format!(
                    "{table} {} {dst} metric {metric} {target}",
                    string(&route, "type")
                ),
            ));
        }
    }
    lines.sort_by(|a, b| a.0.cmp(&b.0)); // stable: the kernel's order within a key
    lines.into_iter().map(|(_, line)| line).collect()
}

/// All nexthop objects by id.
pub(crate) fn nexthops() -> Vec<String> {
    let mut nexthops: Vec<_> = json("nexthop show")
        .iter()
        .map(|nexthop| {
            let id = nexthop["id"].as_u64().unwrap();
            let what = if let Some(group) = nexthop["group"].as_array() {
                let members: Vec<_> = group
                    .iter()
                    .map(|m| format!("{}*{}", m["id"], m["weight"].as_u64().unwrap_or(1)))
                    .collect();
                let kind = nexthop["type"].as_str().unwrap_or("threshold");
                format!("{kind} {}", members.join(" "))
            } else if nexthop.get("blackhole").is_some() {
                "blackhole".to_owned()
            } else {
                hop(nexthop)
            };
            (id, format!("{id} {what}"))
        })
        .collect();
    nexthops.sort();
    nexthops.into_iter().map(|(_, line)| line).collect()
}

/// All buckets of resilient groups.
pub(crate) fn buckets() -> Vec<String> {
    let mut buckets: Vec<_> = json("nexthop bucket show")
        .iter()
        .map(|b| {
            let bucket = &b["bucket"];
            format!("{} {} {}", b["id"], bucket["index"], bucket["nhid"])
        })
        .collect();
    buckets.sort();
    buckets
}

/// Neighbours that are not multicast: address, device, link-layer address, states.
pub(crate) fn neighbours() -> Vec<String> {
    let mut lines: Vec<_> = json("neigh show nud all")
        .iter()
        .filter(|n| !string(n, "dst").starts_with("ff02"))
        .map(|n| {
            let state = n["state"][0].as_str().unwrap_or("");
            format!(
                "{} {} {} {state}",
                string(n, "dst"),
                string(n, "dev"),
                string(n, "lladdr")
            )
        })
        .collect();
    lines.sort();
    lines
}

/// What `ip route get` shows.
pub(crate) fn route_get(arguments: &str) -> Value {
    json(&format!("route get {arguments}")).remove(0)
}

//! A proxy's status, for people.

use std::fmt::Write;

use raddle_rpc::histogram::Histogram;
use serde::Deserialize;
use serde_json::Value;

use raddle_text::Table;

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// A time, in the unit that has few digits.
pub(super) fn time(us: Option<u64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 1000 => format!("{us}us"),
        Some(us) if us < 100_000 => format!("{:.1}ms", us as f64 / 1e3),
        Some(us) if us < 10_000_000 => format!("{}ms", us / 1000),
        Some(us) => format!("{}s", us / 1_000_000),
    }
}

/// What a connection is called.
pub(super) fn connection(transport: &Value) -> String {
    let number = |key: &str| transport[key].as_u64().unwrap_or(0) as usize;
    let lane = transport["lane"] == true;
    called(number("service"), number("number"), lane)
}

/// What a connection of a service is called.
pub(super) fn called(service: usize, number: usize, lane: bool) -> String {
    let service = if service == 0 { "" } else { "mount " };
    let lane = if lane { " small" } else { "" };
    format!("{service}{number}{lane}")
}

/// How long calls of a transport have taken, `small` or `large`.
pub(super) fn trips(transport: &Value, size: &str) -> Histogram {
    Histogram::deserialize(&transport[size]).unwrap_or_default()
}

/// How many clients.
pub(super) fn clients(count: usize) -> String {
    match count {
        1 => "1 client".into(),
        count => format!("{count} clients"),
    }
}

/// How many calls no connection has taken.
pub(super) fn waiting(count: u64) -> String {
    match count {
        1 => "1 call waits for a connection".into(),
        count => format!("{count} calls wait for a connection"),
    }
}

/// For people.
pub(super) fn text(status: &Value, details: bool) -> String {
    let mut out = String::new();
    if let Some(why) = status["not_served"].as_str() {
        return format!("{}: not served: {why}\n", word(&status["name"]));
    }
    let _ = writeln!(
        out,
        "{}: up {} s, {}, {}",
        word(&status["name"]),
        status["uptime_seconds"],
        clients(list(&status["clients"]).len()),
        waiting(status["waiting"].as_u64().unwrap_or(0)),
    );
    let mut table = Table::new([
        "connection",
        "from",
        "to",
        "out",
        "back",
        "calls",
        "MB out",
        "MB in",
        "waiting",
        "Mbit/s",
        "us",
    ]);
    let mb = |bytes: &Value| format!("{:.1}", bytes.as_f64().unwrap_or(0.0) / 1e6);
    for transport in list(&status["transports"]) {
        let rate = transport["rate"].as_f64();
        table.row([
            connection(transport),
            word(&transport["local"]),
            word(&transport["peer"]),
            word(&transport["out"]),
            word(&transport["back"]),
            transport["calls"].to_string(),
            mb(&transport["bytes_out"]),
            mb(&transport["bytes_in"]),
            transport["outstanding_calls"].to_string(),
            rate.map_or_else(|| "-".into(), |rate| format!("{:.0}", rate * 8.0 / 1e6)),
            format!("{:.0}", transport["latency_us"].as_f64().unwrap_or(0.0)),
        ]);
    }
    out += &table.render();
    if details {
        out += "\n";
        out += &trip_table(list(&status["transports"])).render();
    }
    // What is down for the same reason shares a line.
    let mut down: Vec<(&str, Vec<String>)> = Vec::new();
    for transport in list(&status["transports"]) {
        let Some(why) = transport["why"].as_str() else {
            continue;
        };
        match down.iter_mut().find(|(of, _)| *of == why) {
            Some((_, list)) => list.push(connection(transport)),
            None => down.push((why, vec![connection(transport)])),
        }
    }
    for (why, of) in down {
        let (s, are) = if of.len() == 1 {
            ("", "is")
        } else {
            ("s", "are")
        };
        let _ = writeln!(out, "connection{s} {} {are} down: {why}", of.join(", "));
    }
    for note in list(&status["notes"]) {
        let _ = writeln!(out, "{}", word(note));
    }
    for held in list(&status["held"]) {
        let _ = writeln!(
            out,
            "held for {} s, as it must not be run twice: {} of {}",
            held["seconds"],
            word(&held["procedure"]),
            word(&held["client"]),
        );
    }
    for ended in list(&status["disconnected"]) {
        let (client, why) = (word(&ended["client"]), word(&ended["why"]));
        let _ = writeln!(out, "client {client} was disconnected: {why}");
    }
    let counters = status["counters"].as_object().into_iter().flatten();
    let counters = counters.filter(|(_, count)| count.as_u64() != Some(0));
    let counters: Vec<String> = counters
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    if !counters.is_empty() {
        let _ = writeln!(out, "since the start: {}", counters.join(", "));
    }
    out
}

/// When the configuration was read, and whether it was refused since.
pub(super) fn config(config: &Value) -> String {
    let file = word(&config["file"]);
    let read = time_ago(&config["read_seconds"]);
    let mut out = format!("configuration {file}, read {read}\n");
    if !config["refused"].is_null() {
        let (when, why) = (&config["refused"]["seconds"], &config["refused"]["why"]);
        let _ = writeln!(
            out,
            "read again {} and refused, so that the one before holds: {}",
            time_ago(when),
            word(why)
        );
    }
    out
}

/// A number of seconds, in the largest unit that is not coarse.
fn time_ago(seconds: &Value) -> String {
    match seconds.as_u64().unwrap_or(0) {
        s @ 0..120 => format!("{s} s ago"),
        s @ 120..7200 => format!("{} min ago", s / 60),
        s @ 7200..172_800 => format!("{} h ago", s / 3600),
        s => format!("{} days ago", s / 86_400),
    }
}

/// Round trips, and what was sent again.
fn trip_table(transports: &[Value]) -> Table {
    let mut table = Table::new([
        "connection",
        "small calls",
        "half within",
        "99% within",
        "large calls",
        "half within",
        "99% within",
        "resent",
        "replayed",
        "tcp again",
    ]);
    for transport in transports {
        let mut row = vec![connection(transport)];
        for size in ["small", "large"] {
            let trips = trips(transport, size);
            row.push(trips.count().to_string());
            row.extend([0.5, 0.99].map(|part| time(trips.quantile(part))));
        }
        row.extend(["resent", "replayed", "tcp_retransmits"].map(|key| transport[key].to_string()));
        table.row(row);
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// Two servers.
    pub(in crate::rpc) fn status() -> Value {
        let mut small = Histogram::default();
        for _ in 0..99 {
            small.add(Duration::from_micros(100));
        }
        small.add(Duration::from_millis(5));
        let transport = |number: usize, lane: bool| {
            json!({ "service": 0, "number": number, "lane": lane, "state": "up", "local": "10.0.0.1:800",
                "peer": "10.9.0.1:2049", "out": format!("l{number}"), "back": "l1", "calls": 12, "replies": 12,
                "bytes_out": 1_000_000, "bytes_in": 25_000_000, "outstanding_calls": 3,
                "outstanding_bytes": 300, "rate": 25e6, "latency_us": 850.4, "connections": 1,
                "resent": 2, "replayed": 0, "tcp_retransmits": 7, "small": small, "large": Histogram::default() })
        };
        let other = json!({ "name": "other", "uptime_seconds": 9, "waiting": 0, "clients": [], "held": [],
            "transports": [], "counters": {} });
        json!({ "servers": [{ "name": "nas", "uptime_seconds": 9, "waiting": 0, "clients": [{}],
            "transports": [transport(0, false), transport(1, true)],
            "held": [{ "client": "127.0.0.1:700", "procedure": "MKDIR", "seconds": 4 }],
            "counters": { "resent": 2, "replayed": 0 } }, other],
            "config": { "file": "/etc/raddle/rpc.toml", "read_seconds": 7, "refused": null } })
    }

    #[test]
    fn people_see_where_connections_lie() {
        let said = text(&status()["servers"][0], false);
        assert!(
            said.starts_with("nas: up 9 s, 1 client, 0 calls wait for a connection\n"),
            "{said}"
        );
        assert!(
            said.contains("10.0.0.1:800  10.9.0.1:2049  l0   l1"),
            "{said}"
        );
        assert!(said.contains("held for 4 s, as it must not be run twice: MKDIR of 127.0.0.1:700"));
        assert!(said.ends_with("since the start: resent 2\n"), "{said}");
        let mut status = status()["servers"][0].clone();
        for number in [0, 1] {
            status["transports"][number] =
                json!({ "number": number, "state": "down", "why": "refused" });
        }
        let said = text(&status, false);
        assert!(
            said.contains("connections 0, 1 are down: refused\n"),
            "{said}"
        );
    }

    #[test]
    fn the_configuration_has_a_time_and_may_have_been_refused() {
        let mut of =
            json!({ "file": "/etc/raddle/rpc.toml", "read_seconds": 7300, "refused": null });
        assert_eq!(
            config(&of),
            "configuration /etc/raddle/rpc.toml, read 2 h ago\n"
        );
        of["refused"] = json!({ "seconds": 12, "why": "line 3: no" });
        assert_eq!(
            config(&of),
            "configuration /etc/raddle/rpc.toml, read 2 h ago\n\
             read again 12 s ago and refused, so that the one before holds: line 3: no\n"
        );
    }

    #[test]
    fn details_are_round_trips() {
        let said = text(&status()["servers"][0], true);
        let expected = "\
connection  small calls  half within  99% within  large calls  half within  99% within  resent  replayed  tcp again
         0          100        104us       104us            0            -           -       2         0          7
   1 small          100        104us       104us            0            -           -       2         0          7
";
        assert!(said.contains(expected), "{said}");
        let times = [9, 999, 1000, 99_999, 100_000, 9_999_999, 10_000_000].map(|us| time(Some(us)));
        assert_eq!(
            times,
            ["9us", "999us", "1.0ms", "100.0ms", "100ms", "9999ms", "10s"]
        );
    }
}

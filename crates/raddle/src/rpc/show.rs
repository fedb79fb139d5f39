//! A proxy's status, for people and for Prometheus.

use std::fmt::Write;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::metrics::Rows;
use crate::show::table::Table;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// For people.
pub(super) fn text(status: &Value) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "up {} s, {} clients, {} calls wait for a connection",
        status["uptime_seconds"],
        list(&status["clients"]).len(),
        status["waiting"],
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
        let lane = if transport["lane"] == true {
            " small"
        } else {
            ""
        };
        let service = match transport["service"].as_u64() {
            Some(0) | None => "",
            Some(_) => "mount ",
        };
        let rate = transport["rate"].as_f64();
        table.row([
            format!("{service}{}{lane}", transport["number"]),
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
    for transport in list(&status["transports"]) {
        if let Some(why) = transport["why"].as_str() {
            let _ = writeln!(out, "connection {} is down: {why}", transport["number"]);
        }
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
    for (name, count) in status["counters"].as_object().into_iter().flatten() {
        if count.as_u64() != Some(0) {
            let _ = writeln!(out, "{}: {count}", name.replace('_', " "));
        }
    }
    out
}

/// For Prometheus, from the answer to any question.
pub(super) fn metrics(status: &Value, _: &Value, _: &Value) -> Option<String> {
    let mut registry = Registry::with_prefix("raddle_rpc");
    let transports = list(&status["transports"]);
    let labels = |transport: &Value| {
        ["service", "number", "lane"]
            .map(|name| (name.to_owned(), transport[name].to_string()))
            .to_vec()
    };
    let mut of_transports = |name: &'static str, help, counter, value: &dyn Fn(&Value) -> u64| {
        let rows = transports.iter().map(|t| (labels(t), value(t))).collect();
        registry.register_collector(Box::new(Rows {
            name,
            help,
            counter,
            rows,
        }));
    };
    let number = |name: &'static str| move |t: &Value| t[name].as_u64().unwrap_or(0);
    of_transports("up", "1 while connected", false, &|t| {
        u64::from(t["state"] == "up")
    });
    of_transports("calls", "Calls sent", true, &number("calls"));
    of_transports("replies", "Replies received", true, &number("replies"));
    of_transports("sent_bytes", "Bytes sent", true, &number("bytes_out"));
    of_transports(
        "received_bytes",
        "Bytes received",
        true,
        &number("bytes_in"),
    );
    of_transports(
        "connections",
        "Connections made",
        true,
        &number("connections"),
    );
    of_transports(
        "outstanding_calls",
        "Calls without a reply",
        false,
        &number("outstanding_calls"),
    );
    of_transports(
        "outstanding_bytes",
        "Bytes that they move",
        false,
        &number("outstanding_bytes"),
    );
    of_transports("rate_bytes_per_second", "Measured rate", false, &|t| {
        t["rate"].as_f64().unwrap_or(0.0) as u64
    });
    let held = list(&status["held"]).len() as u64;
    let mut single = |name: &'static str, help, counter, value| {
        registry.register_collector(Box::new(Rows {
            name,
            help,
            counter,
            rows: vec![(Vec::new(), value)],
        }));
    };
    let clients = list(&status["clients"]).len() as u64;
    single("clients", "Clients that are connected", false, clients);
    single(
        "held_calls",
        "Calls that are held as they must not be run twice",
        false,
        held,
    );
    let counters = &status["counters"];
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    single(
        "resent_calls",
        "Calls sent again by another connection",
        true,
        count("resent"),
    );
    single(
        "replayed_calls",
        "Calls sent again from the same port",
        true,
        count("replayed"),
    );
    single(
        "bad_records",
        "Records of clients that made no sense",
        true,
        count("bad_records"),
    );
    single(
        "unknown_replies",
        "Replies that answer no call",
        true,
        count("unknown_replies"),
    );
    let mut text = String::new();
    encode(&mut text, &registry).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        let transport = |number: usize, lane: bool| {
            json!({ "service": 0, "number": number, "lane": lane, "state": "up", "local": "10.0.0.1:800",
                "peer": "10.9.0.1:2049", "out": format!("l{number}"), "back": "l1", "calls": 12, "replies": 12,
                "bytes_out": 1_000_000, "bytes_in": 25_000_000, "outstanding_calls": 3,
                "outstanding_bytes": 300, "rate": 25e6, "latency_us": 850.4, "connections": 1 })
        };
        json!({ "uptime_seconds": 9, "waiting": 0, "clients": [{}],
            "transports": [transport(0, false), transport(1, true)],
            "held": [{ "client": "127.0.0.1:700", "procedure": "MKDIR", "seconds": 4 }],
            "counters": { "resent": 2, "replayed": 0 } })
    }

    #[test]
    fn people_see_where_connections_lie() {
        let said = text(&status());
        assert!(
            said.starts_with("up 9 s, 1 clients, 0 calls wait for a connection\n"),
            "{said}"
        );
        assert!(
            said.contains("10.0.0.1:800  10.9.0.1:2049  l0   l1"),
            "{said}"
        );
        assert!(said.contains("held for 4 s, as it must not be run twice: MKDIR of 127.0.0.1:700"));
        assert!(said.ends_with("resent: 2\n"), "{said}");
    }

    #[test]
    fn prometheus_gets_every_transport() {
        let said = metrics(&status(), &Value::Null, &Value::Null).unwrap();
        for line in [
            "raddle_rpc_up{service=\"0\",number=\"0\",lane=\"false\"} 1",
            "raddle_rpc_received_bytes_total{service=\"0\",number=\"1\",lane=\"true\"} 25000000",
            "raddle_rpc_held_calls 1",
            "raddle_rpc_resent_calls_total 2",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
    }
}

//! A proxy's status, for people.

use std::fmt::Write;

use raddle_control::{Proxy, ProxyConfig, Serving};
use raddle_rpc::proxy::{Status, TransportState, TransportStatus};
use raddle_text::Table;

/// A time, in the unit that has few digits.
pub(crate) fn time(us: Option<u64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 1000 => format!("{us}us"),
        Some(us) if us < 100_000 => format!("{:.1}ms", us as f64 / 1e3),
        Some(us) if us < 10_000_000 => format!("{}ms", us / 1000),
        Some(us) => format!("{}s", us / 1_000_000),
    }
}

/// What a connection is called.
pub(crate) fn connection(transport: &TransportStatus) -> String {
    called(transport.service, transport.number, transport.lane)
}

/// The links that a connection goes out and comes back by, where it stands and they are known.
pub(crate) fn links(transport: &TransportStatus) -> [String; 2] {
    let links = transport.state.links();
    links.map(|link| link.unwrap_or("-").to_owned())
}

/// What a connection of a service is called.
pub(crate) fn called(service: usize, number: usize, lane: bool) -> String {
    let service = if service == 0 { "" } else { "mount " };
    let lane = if lane { " small" } else { "" };
    format!("{service}{number}{lane}")
}

/// How many clients.
pub(crate) fn clients(count: usize) -> String {
    match count {
        1 => "1 client".into(),
        count => format!("{count} clients"),
    }
}

/// How many calls no connection has taken.
pub(crate) fn waiting(count: usize) -> String {
    match count {
        1 => "1 call waits for a connection".into(),
        count => format!("{count} calls wait for a connection"),
    }
}

/// What the proxy of a server does; with `details` also round trips.
pub fn text(proxy: &Proxy, details: bool) -> String {
    match &proxy.serving {
        Serving::Not { not_served } => format!("{}: not served: {not_served}\n", proxy.name),
        Serving::Yes(status) => status_text(&proxy.name, status, details),
    }
}

fn status_text(name: &str, status: &Status, details: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{name}: up {} s, {}, {}",
        status.uptime_seconds,
        clients(status.clients.len()),
        waiting(status.waiting),
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
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for transport in &status.transports {
        let [from, to] = match &transport.state {
            TransportState::Up { local, peer, .. } => [local, peer].map(ToString::to_string),
            TransportState::Down { .. } => ["-"; 2].map(str::to_owned),
        };
        let [out, back] = links(transport);
        let rate = transport.rate;
        table.row([
            connection(transport),
            from,
            to,
            out,
            back,
            transport.calls.to_string(),
            mb(transport.bytes_out),
            mb(transport.bytes_in),
            transport.outstanding_calls.to_string(),
            rate.map_or_else(|| "-".into(), |rate| format!("{:.0}", rate * 8.0 / 1e6)),
            format!("{:.0}", transport.latency_us),
        ]);
    }
    out += &table.render();
    if details {
        out += "\n";
        out += &trip_table(&status.transports).render();
    }
    // What is down for the same reason shares a line.
    let mut down: Vec<(&str, Vec<String>)> = Vec::new();
    for transport in &status.transports {
        let TransportState::Down { why } = &transport.state else {
            continue;
        };
        match down.iter_mut().find(|(of, _)| of == why) {
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
    for note in &status.notes {
        let _ = writeln!(out, "{note}");
    }
    for held in &status.held {
        let _ = writeln!(
            out,
            "held for {} s, as it must not be run twice: {} of {}",
            held.seconds, held.procedure, held.client,
        );
    }
    for ended in &status.disconnected {
        let _ = writeln!(
            out,
            "client {} was disconnected: {}",
            ended.client, ended.why
        );
    }
    let counters = status.counters.each().filter(|(_, count)| *count > 0);
    let counters: Vec<String> = counters
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !counters.is_empty() {
        let _ = writeln!(out, "since the start: {}", counters.join(", "));
    }
    out
}

/// When the configuration was read, and whether it was refused since.
pub fn config(config: &ProxyConfig) -> String {
    let (file, read) = (&config.file, time_ago(config.read_seconds));
    let mut out = format!("configuration {file}, read {read}\n");
    if let Some(refused) = &config.refused {
        let _ = writeln!(
            out,
            "read again {} and refused, so that the one before holds: {}",
            time_ago(refused.seconds),
            refused.why
        );
    }
    out
}

/// A number of seconds, in the largest unit that is not coarse.
fn time_ago(seconds: u64) -> String {
    match seconds {
        s @ 0..120 => format!("{s} s ago"),
        s @ 120..7200 => format!("{} min ago", s / 60),
        s @ 7200..172_800 => format!("{} h ago", s / 3600),
        s => format!("{} days ago", s / 86_400),
    }
}

/// Round trips, and what was sent again.
fn trip_table(transports: &[TransportStatus]) -> Table {
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
        for trips in [&transport.small, &transport.large] {
            row.push(trips.count().to_string());
            row.extend([0.5, 0.99].map(|part| time(trips.quantile(part))));
        }
        row.push(transport.resent.to_string());
        row.push(transport.replayed.to_string());
        row.push(transport.tcp_retransmits.to_string());
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use raddle_control::RefusedConfig;

    use super::*;
    use crate::proxies::proxies;

    #[test]
    fn people_see_where_connections_lie() {
        let said = text(&proxies().servers[0], false);
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
        let mut proxies = proxies();
        if let Serving::Yes(status) = &mut proxies.servers[0].serving {
            for transport in &mut status.transports {
                transport.lane = false;
                transport.state = TransportState::Down {
                    why: "refused".into(),
                };
            }
        }
        let said = text(&proxies.servers[0], false);
        assert!(
            said.contains("connections 0, 1 are down: refused\n"),
            "{said}"
        );
    }

    #[test]
    fn the_configuration_has_a_time_and_may_have_been_refused() {
        let mut of = ProxyConfig {
            file: "/etc/raddle/rpc.toml".into(),
            read_seconds: 7300,
            refused: None,
        };
        assert_eq!(
            config(&of),
            "configuration /etc/raddle/rpc.toml, read 2 h ago\n"
        );
        of.refused = Some(RefusedConfig {
            seconds: 12,
            why: "line 3: no".into(),
        });
        assert_eq!(
            config(&of),
            "configuration /etc/raddle/rpc.toml, read 2 h ago\n\
             read again 12 s ago and refused, so that the one before holds: line 3: no\n"
        );
    }

    #[test]
    fn details_are_round_trips() {
        let said = text(&proxies().servers[0], true);
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

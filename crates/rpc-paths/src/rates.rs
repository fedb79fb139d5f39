//! What has happened between two looks at a server's proxy.

use std::collections::BTreeMap;

use raddle_rpc::histogram::Histogram;
use raddle_rpc::proxy::{Status, TransportState, TransportStatus};
use raddle_text::Table;
use serde::Serialize;

use crate::show::{clients, connection, links, time, waiting};

/// What one connection, or all, have carried; rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Carried {
    /// What it is called.
    pub connection: String,
    /// Whether it is connected.
    pub up: bool,
    /// The link that it goes out by.
    pub out: String,
    /// The link that it comes back by.
    pub back: String,
    /// Bits from the server.
    pub bits_in: f64,
    /// Bits to the server.
    pub bits_out: f64,
    /// Replies.
    pub calls: f64,
    /// Half of the calls had their reply within so many microseconds.
    pub p50_us: Option<u64>,
    /// 99 of 100 had.
    pub p99_us: Option<u64>,
    /// Calls without a reply.
    pub waiting: usize,
    /// Calls that were sent again, by another connection or from the same port; in all, no rate.
    pub repeated: u64,
}

/// A server's connections between two looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The server.
    pub name: String,
    /// How long, in seconds.
    pub seconds: f64,
    /// Clients now.
    pub clients: usize,
    /// Calls that wait for a connection now.
    pub waiting: usize,
    /// Calls that are held now.
    pub held: usize,
    /// The connections.
    pub connections: Vec<Carried>,
    /// All together.
    pub total: Carried,
}

/// What has happened since an earlier look, so many seconds ago; since the start where there was none, or where
/// the proxy has been started since.
pub fn report(name: &str, before: Option<(&Status, f64)>, now: &Status) -> Report {
    let uptime = now.uptime_seconds;
    let before = before.filter(|(before, _)| before.uptime_seconds <= uptime);
    let seconds = before.map_or(uptime.max(1) as f64, |(_, seconds)| seconds.max(1e-3));
    let key = |transport: &TransportStatus| (transport.service, transport.number);
    let earlier: BTreeMap<_, _> = before
        .map_or(&[][..], |(before, _)| &before.transports)
        .iter()
        .map(|transport| (key(transport), transport))
        .collect();
    let mut connections = Vec::new();
    let mut all = Histogram::default();
    for transport in &now.transports {
        let before = earlier.get(&key(transport)).copied();
        let grown = |of: fn(&TransportStatus) -> u64| {
            of(transport).saturating_sub(before.map_or(0, of)) as f64
        };
        let mut since = Histogram::default();
        let trips = |of: fn(&TransportStatus) -> &Histogram| match before {
            Some(before) => of(transport).since(of(before)),
            None => of(transport).clone(),
        };
        since.join(&trips(|t| &t.small));
        since.join(&trips(|t| &t.large));
        all.join(&since);
        let [out, back] = links(transport);
        connections.push(Carried {
            connection: connection(transport),
            up: matches!(transport.state, TransportState::Up { .. }),
            out,
            back,
            bits_in: 8.0 * grown(|t| t.bytes_in) / seconds,
            bits_out: 8.0 * grown(|t| t.bytes_out) / seconds,
            calls: grown(|t| t.replies) / seconds,
            p50_us: since.quantile(0.5),
            p99_us: since.quantile(0.99),
            waiting: transport.outstanding_calls,
            repeated: transport.resent + transport.replayed,
        });
    }
    let sum = |of: fn(&Carried) -> f64| connections.iter().map(of).sum();
    Report {
        name: name.to_owned(),
        seconds,
        clients: now.clients.len(),
        waiting: now.waiting,
        held: now.held.len(),
        total: Carried {
            connection: "all".into(),
            up: connections.iter().all(|c| c.up),
            out: String::new(),
            back: String::new(),
            bits_in: sum(|c| c.bits_in),
            bits_out: sum(|c| c.bits_out),
            calls: sum(|c| c.calls),
            p50_us: all.quantile(0.5),
            p99_us: all.quantile(0.99),
            waiting: connections.iter().map(|c| c.waiting).sum(),
            repeated: connections.iter().map(|c| c.repeated).sum(),
        },
        connections,
    }
}

/// The columns, most needed first.
const NEEDED: [&str; 10] = [
    "connection",
    "Mbit/s in",
    "Mbit/s out",
    "out",
    "back",
    "waiting",
    "calls/s",
    "99% within",
    "half within",
    "repeated",
];

/// For people, on a screen of so many columns if there is one.
pub fn text(report: &Report, width: Option<usize>) -> String {
    let mut table = Table::new([
        "connection",
        "out",
        "back",
        "Mbit/s in",
        "Mbit/s out",
        "calls/s",
        "half within",
        "99% within",
        "waiting",
        "repeated",
    ]);
    for of in report.connections.iter().chain([&report.total]) {
        let down = if of.up || of.connection == "all" {
            ""
        } else {
            " down"
        };
        table.row([
            format!("{}{down}", of.connection),
            of.out.clone(),
            of.back.clone(),
            format!("{:.1}", of.bits_in / 1e6),
            format!("{:.1}", of.bits_out / 1e6),
            format!("{:.0}", of.calls),
            time(of.p50_us),
            time(of.p99_us),
            of.waiting.to_string(),
            of.repeated.to_string(),
        ]);
    }
    let first = [
        format!("{}: {},", report.name, clients(report.clients)),
        format!("{},", waiting(report.waiting)),
        format!("{} are held;", report.held),
        format!("the last {:.1} s", report.seconds),
    ];
    let width = width.unwrap_or(usize::MAX);
    let left_out = table.fit(width, &NEEDED);
    let mut out = wrapped(first.iter().map(String::as_str), width) + &table.render();
    if !left_out.is_empty() {
        let list = format!("no room for: {}", left_out.join(", "));
        out += &wrapped(list.split_inclusive(", ").map(str::trim_end), width);
    }
    out
}

/// Parts in lines that are at most so wide, as far as each part is.
fn wrapped<'a>(parts: impl Iterator<Item = &'a str>, width: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for part in parts {
        let long = part.chars().count();
        if used > 0 && used + 1 + long > width {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out += part;
        used += long;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proxies::{client, idle, transport};

    fn look(uptime_seconds: u64, bytes: u64, calls: u64) -> Status {
        let mut small = Histogram::default();
        for us in 0..calls {
            small.add(Duration::from_micros(us));
        }
        let carried = |number| TransportStatus {
            bytes_in: bytes,
            bytes_out: bytes / 10,
            replies: calls,
            outstanding_calls: 2,
            resent: 1,
            replayed: 2,
            small: small.clone(),
            ..transport(number, false)
        };
        let mut transports = vec![
            TransportStatus {
                number: 0,
                ..carried(0)
            },
            TransportStatus {
                number: 1,
                ..carried(0)
            },
        ];
        transports[1].state = TransportState::Down { why: "x".into() };
        Status {
            uptime_seconds,
            clients: vec![client()],
            waiting: 3,
            transports,
            ..idle()
        }
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let (first, second) = (look(10, 1_000_000, 100), look(12, 6_000_000, 300));
        let first_report = report("nas", None, &first);
        assert_eq!(first_report.seconds, 10.0);
        assert_eq!(first_report.connections[0].bits_in, 8e5);
        let said = report("nas", Some((&first, 2.0)), &second);
        assert_eq!(said.total.calls, 200.0);
        // The first hundred, which were faster, do not count.
        assert_eq!(said.total.p50_us, Some(208));
        assert_eq!(
            text(&said, None),
            "\
nas: 1 client, 3 calls wait for a connection, 0 are held; the last 2.0 s
connection  out  back  Mbit/s in  Mbit/s out  calls/s  half within  99% within  waiting  repeated
0           l0   l1         20.0         2.0      100        208us       320us        2         3
1 down      -    -          20.0         2.0      100        208us       320us        2         3
all                         40.0         4.0      200        208us       320us        4         6
"
        );
        assert_eq!(
            text(&said, Some(80)),
            "\
nas: 1 client, 3 calls wait for a connection, 0 are held; the last 2.0 s
connection  out  back  Mbit/s in  Mbit/s out  calls/s  99% within  waiting
0           l0   l1         20.0         2.0      100       320us        2
1 down      -    -          20.0         2.0      100       320us        2
all                         40.0         4.0      200       320us        4
no room for: half within, repeated
"
        );
        assert_eq!(
            text(&said, Some(40)),
            "\
nas: 1 client,
3 calls wait for a connection,
0 are held; the last 2.0 s
connection  out  Mbit/s in  Mbit/s out
0           l0        20.0         2.0
1 down      -         20.0         2.0
all                   40.0         4.0
no room for: back, calls/s, half within,
99% within, waiting, repeated
"
        );
        // Started again: what was before does not count.
        assert_eq!(report("nas", Some((&second, 2.0)), &first), first_report);
    }
}

//! `raddle status` and `raddle counters`: questions to the daemon, answers for people or programs.

use std::fmt::Write;

use serde_json::Value;

use crate::cli;
use crate::control::{Command, ask};
use crate::error::Failure;
use crate::seed;
use raddle_text::Table;

/// Runs `raddle status`.
pub(crate) fn status(args: &cli::Ask) -> Result<(), Failure> {
    let value = match ask(args.socket.as_deref(), Command::Status) {
        Ok(value) => value,
        Err(failure) => {
            // No daemon, but what one has left may forward.
            match crate::kept::status() {
                Some(kept) if args.json => println!("{kept}"),
                Some(kept) => print!("{}", kept_text(&kept)),
                None => {}
            }
            return Err(failure);
        }
    };
    if args.json {
        println!("{value}");
    } else {
        print!("{}", status_text(&value));
    }
    Ok(())
}

/// Runs `raddle counters`.
pub(crate) fn counters(args: &cli::Counters) -> Result<(), Failure> {
    let value = ask(args.ask.socket.as_deref(), Command::Counters)?;
    if args.ask.json {
        println!("{value}");
    } else {
        print!("{}", counters_text(&value, args.all));
    }
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn status_text(status: &Value) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "raddle {} pid {}, up {} s: {}",
        text(&status["version"]),
        status["pid"],
        status["uptime_seconds"],
        text(&status["state"]),
    );
    if let Some(why) = status["held_because"].as_str() {
        let _ = writeln!(out, "  everything goes to the kernel because: {why}");
    }
    if let Some(lapses) = status["deadline"]["lapses"].as_u64().filter(|n| *n > 0) {
        let _ = writeln!(
            out,
            "  the daemon was late {lapses} time(s): everything went to the kernel after {} s without a look at \
             the firewall",
            status["deadline"]["seconds"],
        );
    }
    status_lag(&mut out, status);
    status_links(&mut out, status);
    let image = &status["image"];
    let _ = writeln!(
        out,
        "  routes: {} IPv4, {} IPv6; image: {} + {} entries, {} groups, {} adjacencies{}",
        status["routes"]["inet"],
        status["routes"]["inet6"],
        image["inet_entries"],
        image["inet6_entries"],
        image["groups"],
        image["adjacencies"],
        if image["full"] == true { ", FULL" } else { "" },
    );
    let keys = image["raise"].as_array().into_iter().flatten();
    let keys: Vec<&str> = keys.filter_map(|key| key.as_str()).collect();
    if !keys.is_empty() {
        let _ = writeln!(
            out,
            "    part of the traffic goes to the kernel as image-full: raise {} in the configuration and restart",
            keys.join(", ")
        );
    }
    status_segments(&mut out, &status["segments"]);
    status_fpm(&mut out, &status["fpm"]);
    let settings = &status["settings"];
    let _ = writeln!(
        out,
        "  hash policy: {} IPv4, {} IPv6; seed {}",
        settings["hash_policy4"],
        settings["hash_policy6"],
        match settings["hash_seed"].as_u64() {
            Some(0) | None if status["hash_seed_can_be_set"] == false => format!(
                "unknown: multipath packets go to the kernel, which {}",
                seed::CANNOT_BE_SET
            ),
            Some(0) | None => "unknown: multipath packets go to the kernel".to_owned(),
            Some(seed) => seed.to_string(),
        },
    );
    for rule in list(&status["mp_algos"]) {
        let _ = writeln!(out, "  mp-algo: {}", text(rule));
    }
    for warning in list(&status["warnings"]) {
        // What has been fixed is no cause for alarm.
        let kind = match warning["finding"]["fixed"] == true {
            true => "note",
            false => "warning",
        };
        let _ = writeln!(out, "  {kind}: {}", text(&warning["text"]));
    }
    out
}

/// How far behind the kernel the daemon is, and what it does about it.
fn status_lag(out: &mut String, status: &Value) {
    let (lag, priority) = (&status["lag"], &status["priority"]);
    if lag["count"].as_u64().is_some_and(|count| count > 0) {
        let millis = |what: &str| lag[what].as_u64().unwrap_or(0) as f64 / 1e3;
        let _ = writeln!(
            out,
            "  changes are in use {:.1} ms after the kernel's word (the last), {:.1} ms (99 of 100), {:.1} ms (the slowest)",
            millis("last_microseconds"),
            millis("p99_microseconds"),
            millis("max_microseconds"),
        );
    }
    if priority["have"] != priority["wanted"] {
        let _ = writeln!(
            out,
            "  priority {}: {} is not permitted without CAP_SYS_NICE",
            text(&priority["have"]),
            text(&priority["wanted"]),
        );
    }
}

fn kept_text(kept: &Value) -> String {
    let mut out = match kept["forwards_for_seconds"].as_u64() {
        Some(0) => "programs of an earlier daemon hand everything to the kernel".to_owned(),
        Some(left) => format!("programs of an earlier daemon forward for {left} s more"),
        None => "programs of an earlier daemon are attached".to_owned(),
    };
    out.push_str("; raddle detach removes them\n");
    for link in list(&kept["links"]) {
        let (dev, mode) = (text(&link["dev"]), text(&link["mode"]));
        let _ = writeln!(out, "  link {dev}: {mode}");
    }
    out
}

/// What there is to say of SRv6, where there is any.
fn status_segments(out: &mut String, segments: &Value) {
    if segments["all"].as_u64().is_none_or(|all| all == 0) {
        return;
    }
    let _ = writeln!(
        out,
        "  SRv6: {} SIDs and segment lists, {} of raddle's own, {} left to the kernel{}",
        segments["all"],
        segments["own"],
        segments["kernel"],
        match segments["dropped"].as_u64() {
            Some(0) | None => String::new(),
            Some(n) => format!(", {n} NOT READY: their packets are dropped"),
        },
    );
    let idle = &segments["not_carried_out"];
    if let Some(why) = idle["why"].as_str() {
        let names: Vec<&str> = list(&idle["names"]).iter().map(text).collect();
        let more = match (idle["count"].as_u64().unwrap_or(0)).saturating_sub(names.len() as u64) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let _ = writeln!(
            out,
            "    not carried out by raddle: {}{more}: {why}",
            names.join(", ")
        );
    }
}

/// The line about FPM, if it is listened for.
fn status_fpm(out: &mut String, fpm: &Value) {
    let Some(listen) = fpm["listen"].as_str() else {
        return;
    };
    let peer = match fpm["peer"].as_str() {
        Some(peer) if fpm["resync"] == true => format!("{peer} is telling its routes"),
        Some(peer) => format!("{peer} is connected"),
        None => "nobody is connected".to_owned(),
    };
    let left = match fpm["grace_seconds"].as_u64() {
        Some(left) => format!(", what is not told again goes in {left} s"),
        None => String::new(),
    };
    let sum = |what: &str| {
        let of = |family: &str| fpm[what][family].as_u64().unwrap_or(0);
        of("inet") + of("inet6")
    };
    let _ = writeln!(
        out,
        "  FPM at {listen}: {peer}{left}; {} routes, {} of them used, the kernel has the others",
        sum("routes"),
        sum("used"),
    );
}

/// A line for each link: what it is used for, or why it is not.
fn status_links(out: &mut String, status: &Value) {
    let left = &status["left_to_kernel"];
    // What nothing passes says so first.
    let state = |link: &Value| match text(&link["state"]) {
        "up" | "-" => String::new(),
        state => format!(" ({state})"),
    };
    let mut told = Vec::new();
    for link in list(&status["links"]) {
        let (dev, mode) = (text(&link["dev"]), text(&link["mode"]));
        let _ = write!(out, "  link {dev}{}: {mode}, in", state(link));
        match (link["out"] == true, left[dev].as_str()) {
            (true, _) => out.push_str(" and out\n"),
            (false, Some(why)) => _ = writeln!(out, ", not out: {why}"),
            (false, None) => out.push('\n'),
        }
        let hash = &link["rx_hash"];
        if hash["read"] == true {
            out.push_str("    chooses by the receive hash of packets that bring one (policy 1)\n");
        } else if hash["lacking"] == true {
            let _ = writeln!(out, "    receive hash not read: {}", text(&hash["why"]));
        }
        told.push(dev);
    }
    for link in list(&status["out_only"]) {
        let dev = text(&link["dev"]);
        let _ = writeln!(
            out,
            "  link {dev}{}: out only: {}",
            state(link),
            text(&left[dev])
        );
        told.push(dev);
    }
    for (dev, why) in left.as_object().into_iter().flatten() {
        if !told.contains(&dev.as_str()) {
            let _ = writeln!(out, "  link {dev}: left to the kernel: {}", text(why));
        }
    }
}

fn counters_text(counters: &Value, all: bool) -> String {
    let mut table = Table::new(["packets", "bytes", "what"]);
    let mut row = |count: &Value, what: String| {
        let zero = count["packets"].as_u64() == Some(0);
        if all || !zero {
            table.row([
                count["packets"].to_string(),
                count["bytes"].to_string(),
                what,
            ]);
        }
    };
    for link in list(&counters["links"]) {
        let dev = match link["dev"].as_str() {
            Some("") => "links that have gone",
            _ => text(&link["dev"]),
        };
        for (count, what) in [("received", "received on"), ("sent", "forwarded through")] {
            if link[count].is_object() {
                row(&link[count], format!("{what} {dev}"));
            }
        }
    }
    for nexthop in list(&counters["nexthops"]) {
        let (via, dev) = (text(&nexthop["via"]), text(&nexthop["dev"]));
        row(nexthop, format!("forwarded via {via} dev {dev}"));
    }
    for reason in list(&counters["reasons"]) {
        let verdict = if reason["verdict"] == "drop" {
            "dropped"
        } else {
            "to the kernel"
        };
        row(reason, format!("{verdict}: {}", text(&reason["reason"])));
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kept_programs_are_told_with_their_time() {
        let kept = |left: Option<u64>| {
            let links = [json!({ "ifindex": 2, "dev": "a", "mode": "native" })];
            kept_text(&json!({ "links": links, "forwards_for_seconds": left }))
        };
        assert_eq!(
            kept(Some(9)),
            "programs of an earlier daemon forward for 9 s more; raddle detach removes them\n  \
             link a: native\n"
        );
        assert!(kept(Some(0)).contains("hand everything to the kernel"));
        assert!(kept(None).contains("are attached"));
    }

    #[test]
    fn each_link_has_one_line_and_says_that_it_is_down() {
        let status = json!({
            "links": [
                { "dev": "a", "mode": "native", "state": "up", "out": true,
                  "rx_hash": { "read": true, "lacking": false, "why": null } },
                { "dev": "b", "mode": "native", "state": "up", "out": false,
                  "rx_hash": { "read": false, "lacking": true, "why": "no BTF" } },
                { "dev": "c", "mode": "generic", "state": "down", "out": false },
                { "dev": "d", "mode": "native", "state": "no carrier", "out": true },
            ],
            "out_only": [{ "dev": "e", "state": "up", "out": true }],
            "left_to_kernel": { "b": "qdisc tbf", "e": "not named", "lo": "loopback" },
        });
        let mut out = String::new();
        status_links(&mut out, &status);
        assert_eq!(
            out,
            "  link a: native, in and out\n    \
             chooses by the receive hash of packets that bring one (policy 1)\n  \
             link b: native, in, not out: qdisc tbf\n    receive hash not read: no BTF\n  \
             link c (down): generic, in\n  link d (no carrier): native, in and out\n  \
             link e: out only: not named\n  link lo: left to the kernel: loopback\n"
        );
    }

    #[test]
    fn segments_that_nothing_carries_out_are_named() {
        let said = |segments: Value| {
            let mut out = String::new();
            status_segments(&mut out, &segments);
            out
        };
        assert_eq!(said(json!({ "all": 0 })), "");
        assert_eq!(
            said(json!({ "all": 3, "own": 1, "kernel": 1, "dropped": 0, "not_carried_out": null })),
            "  SRv6: 3 SIDs and segment lists, 1 of raddle's own, 1 left to the kernel\n"
        );
        let refused = json!({ "count": 9, "names": ["End fc00::1/128", "encap fc00::7"],
                              "why": "the kernel's verifier refused it" });
        assert_eq!(
            said(
                json!({ "all": 9, "own": 0, "kernel": 9, "dropped": 0, "not_carried_out": refused })
            ),
            "  SRv6: 9 SIDs and segment lists, 0 of raddle's own, 9 left to the kernel\n    \
             not carried out by raddle: End fc00::1/128, encap fc00::7 and 7 more: the kernel's verifier \
             refused it\n"
        );
    }

    #[test]
    fn counters_are_aligned_and_zeros_left_out() {
        let counters = json!({
            "links": [
                { "dev": "eth0", "received": { "packets": 1234, "bytes": 99 },
                  "sent": { "packets": 0, "bytes": 0 } },
                { "dev": "", "sent": { "packets": 7, "bytes": 8 } },
            ],
            "nexthops": [{ "dev": "eth1", "via": "10.0.0.2", "packets": 0, "bytes": 0 }],
            "reasons": [{ "reason": "mtu", "verdict": "kernel", "packets": 2, "bytes": 3000 }],
        });
        assert_eq!(
            counters_text(&counters, false),
            "packets  bytes  what\n   1234     99  received on eth0\n      7      8  forwarded through \
             links that have gone\n      2   3000  to the kernel: mtu\n"
        );
        assert!(counters_text(&counters, true).contains("via 10.0.0.2 dev eth1"));
    }
}

//! `raddle status` and `raddle counters`: questions to the daemon, answers for people or programs.

use std::fmt::Write;

use raddle_text::Table;

use crate::error::Failure;
use raddle_control::status::{Fpm, Lag, Priority, SegmentNumbers};
use raddle_control::{Count, Counters, Error, Status, Verdict, ask};
use serde::Serialize;

use crate::cli;
use raddle_daemon::kept::{self, Kept};
use raddle_preflight::seed;
use raddle_select::KeyKind;

/// Runs `raddle status`.
pub(crate) fn status(args: &cli::Ask) -> Result<(), Failure> {
    let status: Status = match ask(args.socket.as_deref()) {
        Ok(status) => status,
        Err(failure) => {
            // No daemon, but what one has left may forward.
            let nobody = matches!(failure, Error::Nobody { .. });
            match nobody.then(kept::status).flatten() {
                Some(kept) if args.json => print_json(&kept)?,
                Some(kept) => print!("{}", kept_text(&kept)),
                None if nobody => kept::check_unseen()?,
                None => {}
            }
            return Err(failure.into());
        }
    };
    if args.json {
        return print_json(&status);
    }
    print!("{}", status_text(&status));
    Ok(())
}

/// Runs `raddle counters`.
pub(crate) fn counters(args: &cli::Counters) -> Result<(), Failure> {
    let counters: Counters = ask(args.ask.socket.as_deref()).map_err(or_kept)?;
    if args.ask.json {
        return print_json(&counters);
    }
    print!("{}", counters_text(&counters, args.all));
    Ok(())
}

/// Who learns that no daemon runs is told of programs that one has left.
fn or_kept(error: Error) -> Failure {
    if matches!(error, Error::Nobody { .. })
        && let Some(kept) = kept::status()
    {
        eprint!("raddle: {}", kept_text(&kept));
    }
    error.into()
}

fn print_json(answer: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(answer).map_err(|e| Failure::system(e.to_string()))?;
    println!("{line}");
    Ok(())
}

fn status_text(status: &Status) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "raddle {} pid {}, up {} s: {}",
        status.version,
        status.pid,
        status.uptime_seconds,
        status.state.name(),
    );
    if let Some(why) = &status.held_because {
        let _ = writeln!(out, "  everything goes to the kernel because: {why}");
    }
    if status.deadline.lapses > 0 {
        let _ = writeln!(
            out,
            "  the daemon was late {} time(s): everything went to the kernel after {} s without a look at \
             the firewall",
            status.deadline.lapses, status.deadline.seconds,
        );
    }
    status_lag(&mut out, &status.lag, &status.priority);
    status_links(&mut out, status);
    status_lost(&mut out, status);
    let image = &status.image;
    let _ = writeln!(
        out,
        "  routes: {} IPv4, {} IPv6; image: {} + {} entries, {} groups, {} adjacencies{}",
        status.routes.inet,
        status.routes.inet6,
        image.inet_entries,
        image.inet6_entries,
        image.groups,
        image.adjacencies,
        if image.full { ", FULL" } else { "" },
    );
    if !image.raise.is_empty() {
        let _ = writeln!(
            out,
            "    part of the traffic goes to the kernel as image-full: raise {} in the configuration and restart",
            image.raise.join(", ")
        );
    }
    status_segments(&mut out, &status.segments);
    if let Some(fpm) = &status.fpm {
        status_fpm(&mut out, fpm);
    }
    let settings = &status.settings;
    let _ = writeln!(
        out,
        "  hash policy: {} IPv4, {} IPv6; seed {}",
        settings.hash_policy4,
        settings.hash_policy6,
        match settings.hash_seed {
            0 if status.hash_key == KeyKind::Kernel =>
                "unset: the kernel's own key, which has been read".to_owned(),
            0 if !status.hash_seed_can_be_set => format!(
                "unknown: multipath packets go to the kernel, which {}",
                seed::CANNOT_BE_SET
            ),
            0 => "unknown: multipath packets go to the kernel".to_owned(),
            seed => seed.to_string(),
        },
    );
    for punted in &status.punted {
        let _ = writeln!(out, "  left to the kernel: {punted}");
    }
    for rule in &status.mp_algos {
        let _ = writeln!(out, "  mp-algo: {rule}");
    }
    for warning in &status.warnings {
        // What has been fixed is no cause for alarm.
        let kind = match warning.finding.fixed {
            true => "note",
            false => "warning",
        };
        let _ = writeln!(out, "  {kind}: {}", warning.text);
    }
    out
}

/// How far behind the kernel the daemon is, and what it does about it.
fn status_lag(out: &mut String, lag: &Lag, priority: &Priority) {
    if lag.count > 0 {
        let millis = |micros: u64| micros as f64 / 1e3;
        let _ = writeln!(
            out,
            "  changes are in use {:.1} ms after the kernel's word (the last), {:.1} ms (99 of 100), {:.1} ms (the slowest)",
            millis(lag.last_microseconds),
            millis(lag.p99_microseconds),
            millis(lag.max_microseconds),
        );
    }
    if priority.have != priority.wanted {
        let _ = writeln!(
            out,
            "  priority {}: {} is not permitted without CAP_SYS_NICE",
            priority.have, priority.wanted,
        );
    }
}

fn kept_text(kept: &Kept) -> String {
    let mut out = match kept.forwards_for_seconds {
        Some(0) => "programs of an earlier daemon punt everything".to_owned(),
        Some(left) => format!("programs of an earlier daemon forward for {left} s more"),
        None => "programs of an earlier daemon are attached".to_owned(),
    };
    out.push_str("; raddle detach removes them\n");
    for link in &kept.links {
        let _ = writeln!(out, "  link {}: {}", link.dev, link.mode);
    }
    out
}

/// What there is to say of SRv6, where there is any.
fn status_segments(out: &mut String, segments: &SegmentNumbers) {
    if segments.all == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "  SRv6: {} SIDs and segment lists, {} of raddle's own, {} left to the kernel{}",
        segments.all,
        segments.own,
        segments.kernel,
        match segments.dropped {
            0 => String::new(),
            n => format!(", {n} NOT READY: their packets are dropped"),
        },
    );
    if let Some(idle) = &segments.not_carried_out {
        let more = match idle.count.saturating_sub(idle.names.len() as u64) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let _ = writeln!(
            out,
            "    not carried out by raddle: {}{more}: {}",
            idle.names.join(", "),
            idle.why
        );
    }
}

/// The line about FPM.
fn status_fpm(out: &mut String, fpm: &Fpm) {
    let Some(listen) = &fpm.listen else {
        return;
    };
    let peer = match &fpm.peer {
        Some(peer) if fpm.resync => format!("{peer} is telling its routes"),
        Some(peer) => format!("{peer} is connected"),
        None => "nobody is connected".to_owned(),
    };
    let left = match fpm.grace_seconds {
        Some(left) => format!(", what is not told again goes in {left} s"),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "  FPM at {listen}: {peer}{left}; {} routes, {} of them used, the kernel has the others",
        fpm.routes.inet + fpm.routes.inet6,
        fpm.used.inet + fpm.used.inet6,
    );
}

/// A line for each link: what it is used for, or why it is not.
fn status_links(out: &mut String, status: &Status) {
    let left = &status.left_to_kernel;
    // What nothing passes says so first.
    let state = |state: Option<&str>| match state {
        None | Some("up") => String::new(),
        Some(state) => format!(" ({state})"),
    };
    let mut told = Vec::new();
    for link in &status.links {
        let (dev, mode) = (&link.dev, &link.mode);
        let state = state(link.state.as_deref());
        let _ = write!(out, "  link {dev}{state}: {mode}, ");
        let not_out = left.get(dev).filter(|_| !link.out);
        let not_out = not_out.map_or(String::new(), |why| format!(", not out: {why}"));
        let _ = match (link.out_only(), link.out) {
            (None, true) => writeln!(out, "in and out"),
            (None, false) => writeln!(out, "in{not_out}"),
            (Some(why), true) => writeln!(out, "out only: {why}"),
            (Some(why), false) => writeln!(out, "not in: {why}{not_out}"),
        };
        let some = link.not_in.iter().filter(|_| link.out_only().is_none());
        for (tunnel, why) in some {
            let _ = writeln!(out, "    nothing in by {tunnel}: {why}");
        }
        if let Some(why) = &link.lacking {
            let _ = writeln!(out, "    tagged frames are left to the kernel: {why}");
        }
        if let Some(hash) = &link.rx_hash {
            if hash.read {
                out.push_str(
                    "    chooses by the receive hash of packets that bring one (policy 1)\n",
                );
            } else if hash.lacking {
                let why = hash.why.as_deref().unwrap_or("-");
                let _ = writeln!(out, "    receive hash not read: {why}");
            }
        }
        told.push(dev);
    }
    for link in &status.out_only {
        let why = left.get(&link.dev).map_or("-", String::as_str);
        let state = state(Some(&link.state));
        let _ = writeln!(out, "  link {}{state}: out only: {why}", link.dev);
        told.push(&link.dev);
    }
    for (dev, why) in left {
        if !told.contains(&dev) {
            let _ = writeln!(out, "  link {dev}: left to the kernel: {why}");
        }
    }
}

/// What has been lost where no counter of the engine's tells it, where there is any.
fn status_lost(out: &mut String, status: &Status) {
    for of in &status.lost {
        let dev = name_or_gone(&of.dev);
        if of.lost > 0 {
            let (lost, why) = (of.lost, of.why());
            let _ = writeln!(
                out,
                "  LOST: {lost} packet(s) that XDP programs sent to {dev}; of the last: {why}"
            );
        }
        if of.aborted > 0 {
            let _ = writeln!(
                out,
                "  LOST: {} packet(s) that came in by {dev}: an XDP program has failed on them",
                of.aborted
            );
        }
    }
    if let Some(why) = &status.lost_not_counted {
        let _ = writeln!(out, "  packets that drivers lose are not counted: {why}");
    }
}

/// What a link is called by whose name it is counted.
fn name_or_gone(dev: &str) -> &str {
    match dev {
        "" => "links that have gone",
        dev => dev,
    }
}

fn counters_text(counters: &Counters, all: bool) -> String {
    let mut table = Table::new(["packets", "bytes", "what"]);
    let mut row = |count: Count, what: String| {
        if all || count.packets > 0 {
            table.row([count.packets.to_string(), count.bytes.to_string(), what]);
        }
    };
    for link in &counters.links {
        let dev = name_or_gone(&link.dev);
        if let Some(received) = link.received {
            row(received, format!("received on {dev}"));
        }
        if let Some(left) = link.left {
            row(left, format!("of these left to the kernel, of {dev}"));
        }
        row(link.sent, format!("forwarded through {dev}"));
    }
    for of in &counters.lost {
        let dev = name_or_gone(&of.dev);
        // How long they were nobody tells.
        let mut row = |packets: u64, what: String| {
            if all || packets > 0 {
                table.row([packets.to_string(), "-".to_owned(), what]);
            }
        };
        row(of.lost, format!("lost that were to leave by {dev}"));
        row(of.aborted, format!("lost that came in by {dev}"));
    }
    let mut row = |count: Count, what: String| {
        if all || count.packets > 0 {
            table.row([count.packets.to_string(), count.bytes.to_string(), what]);
        }
    };
    for nexthop in &counters.nexthops {
        let via = nexthop
            .via
            .map_or_else(|| "-".to_owned(), |via| via.to_string());
        row(
            nexthop.count,
            format!("forwarded via {via} dev {}", nexthop.dev),
        );
    }
    for reason in &counters.reasons {
        let verdict = match reason.verdict {
            Verdict::Drop => "dropped",
            Verdict::Punt => "to the kernel",
        };
        row(reason.count, format!("{verdict}: {}", reason.reason));
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_control::status::{Link, NotCarriedOut, OutOnly, RxHash};
    use raddle_control::{LinkCount, LinkLoss, NexthopCount, ReasonCount};
    use raddle_daemon::kept::KeptLink;

    #[test]
    fn kept_programs_are_told_with_their_time() {
        let kept = |left: Option<u64>| {
            let link = KeptLink {
                ifindex: 2,
                dev: "a".into(),
                mode: "native".into(),
            };
            kept_text(&Kept {
                state: "kept",
                links: vec![link],
                forwards_for_seconds: left,
            })
        };
        assert_eq!(
            kept(Some(9)),
            "programs of an earlier daemon forward for 9 s more; raddle detach removes them\n  \
             link a: native\n"
        );
        assert!(kept(Some(0)).contains("punt everything"));
        assert!(kept(None).contains("are attached"));
    }

    #[test]
    fn each_link_has_one_line_and_says_that_it_is_down() {
        let link = |dev: &str, mode: &str, state: &str, out, rx_hash| Link {
            ifindex: 0,
            dev: dev.into(),
            state: Some(state.into()),
            mode: mode.into(),
            rx_hash,
            out,
            lacking: mode
                .starts_with("by")
                .then(|| "the verifier refused".into()),
            not_in: Default::default(),
        };
        let not_in = |names: &[&str]| {
            let dropped = |name: &&str| ((*name).to_owned(), "a drop".to_owned());
            names.iter().map(dropped).collect()
        };
        let hash = |why: Option<&str>| {
            Some(RxHash {
                read: why.is_none(),
                lacking: why.is_some(),
                why: why.map(str::to_owned),
            })
        };
        let left = [("b", "qdisc tbf"), ("e", "not named"), ("lo", "loopback")];
        let status = Status {
            links: vec![
                link("a", "native", "up", true, hash(None)),
                link("b", "native", "up", false, hash(Some("no BTF"))),
                link("c", "generic", "down", false, None),
                link("d", "native", "no carrier", true, None),
                link("a.5", "by a", "up", true, None),
                Link {
                    not_in: not_in(&["gre1"]),
                    ..link("gre1", "tunnel", "up", true, None)
                },
                Link {
                    not_in: not_in(&["gre2"]),
                    ..link("gre2", "tunnel", "up", false, None)
                },
                Link {
                    not_in: not_in(&["vx1", "vx2"]),
                    lacking: None,
                    ..link("br1", "by vx1, vx2", "up", true, None)
                },
                Link {
                    not_in: not_in(&["vx3"]),
                    lacking: None,
                    ..link("br3", "by eth1, vx3", "up", true, None)
                },
            ],
            out_only: vec![OutOnly {
                ifindex: 0,
                dev: "e".into(),
                state: "up".into(),
                out: true,
            }],
            left_to_kernel: left.map(|(dev, why)| (dev.into(), why.into())).into(),
            ..Status::default()
        };
        let mut out = String::new();
        status_links(&mut out, &status);
        assert_eq!(
            out,
            "  link a: native, in and out\n    \
             chooses by the receive hash of packets that bring one (policy 1)\n  \
             link b: native, in, not out: qdisc tbf\n    receive hash not read: no BTF\n  \
             link c (down): generic, in\n  link d (no carrier): native, in and out\n  \
             link a.5: by a, in and out\n    tagged frames are left to the kernel: the verifier refused\n  \
             link gre1: tunnel, out only: a drop\n  link gre2: tunnel, not in: a drop\n  \
             link br1: by vx1, vx2, out only: a drop\n  \
             link br3: by eth1, vx3, in and out\n    nothing in by vx3: a drop\n  \
             link e: out only: not named\n  link lo: left to the kernel: loopback\n"
        );
    }

    #[test]
    fn what_is_lost_is_said_and_why_it_is_not_counted() {
        let said = |lost: Vec<LinkLoss>, not_counted: Option<&str>| {
            let mut out = String::new();
            let status = Status {
                lost,
                lost_not_counted: not_counted.map(str::to_owned),
                ..Status::default()
            };
            status_lost(&mut out, &status);
            out
        };
        assert_eq!(said(Vec::new(), None), "");
        let of = |dev: &str, lost, aborted, errno| LinkLoss {
            dev: dev.into(),
            lost,
            aborted,
            errno,
        };
        assert_eq!(
            said(vec![of("eth0", 3, 0, Some(6)), of("", 1, 2, None)], None),
            "  LOST: 3 packet(s) that XDP programs sent to eth0; of the last: No such device or address (os error 6)\n  \
             LOST: 1 packet(s) that XDP programs sent to links that have gone; of the last: its driver did not take it\n  \
             LOST: 2 packet(s) that came in by links that have gone: an XDP program has failed on them\n"
        );
        assert_eq!(
            said(Vec::new(), Some("no BTF")),
            "  packets that drivers lose are not counted: no BTF\n"
        );
    }

    #[test]
    fn segments_that_nothing_carries_out_are_named() {
        let said = |segments: SegmentNumbers| {
            let mut out = String::new();
            status_segments(&mut out, &segments);
            out
        };
        assert_eq!(said(SegmentNumbers::default()), "");
        let numbers = |all, own, kernel, not_carried_out| SegmentNumbers {
            all,
            own,
            kernel,
            dropped: 0,
            not_carried_out,
        };
        assert_eq!(
            said(numbers(3, 1, 1, None)),
            "  SRv6: 3 SIDs and segment lists, 1 of raddle's own, 1 left to the kernel\n"
        );
        let refused = NotCarriedOut {
            count: 9,
            names: vec!["End fc00::1/128".into(), "encap fc00::7".into()],
            why: "the kernel's verifier refused it".into(),
        };
        assert_eq!(
            said(numbers(9, 0, 9, Some(refused))),
            "  SRv6: 9 SIDs and segment lists, 0 of raddle's own, 9 left to the kernel\n    \
             not carried out by raddle: End fc00::1/128, encap fc00::7 and 7 more: the kernel's verifier \
             refused it\n"
        );
    }

    #[test]
    fn counters_are_aligned_and_zeros_left_out() {
        let count = |packets, bytes| Count { packets, bytes };
        let link = |dev: &str, received, sent| LinkCount {
            dev: dev.into(),
            received,
            left: received.map(|_| count(34, 9)),
            sent,
        };
        let counters = Counters {
            links: vec![
                link("eth0", Some(count(1234, 99)), count(0, 0)),
                link("", None, count(7, 8)),
            ],
            nexthops: vec![NexthopCount {
                ifindex: 3,
                dev: "eth1".into(),
                via: "10.0.0.2".parse().ok(),
                mtu: 1500,
                forwards: true,
                stale: false,
                count: count(0, 0),
            }],
            reasons: vec![ReasonCount {
                reason: "mtu".into(),
                verdict: Verdict::Punt,
                count: count(2, 3000),
            }],
            lost: vec![LinkLoss {
                dev: "eth1".into(),
                lost: 4,
                ..LinkLoss::default()
            }],
        };
        assert_eq!(
            counters_text(&counters, false),
            "packets  bytes  what\n   1234     99  received on eth0\n     34      9  of these left to the kernel, of eth0\n      7      8  forwarded through \
             links that have gone\n      4      -  lost that were to leave by eth1\n      2   3000  to the kernel: mtu\n"
        );
        assert!(counters_text(&counters, true).contains("via 10.0.0.2 dev eth1"));
    }
}

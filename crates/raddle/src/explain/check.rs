//! `--check`: the kernel's choice beside ours.

use std::net::IpAddr;

use raddle_explain::{Answer, Outcome, link_name};
use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::Rib;

use crate::error::Failure;

/// Asks the kernel for its choice (`RTM_GETROUTE`) and compares.
///
/// 1. IPv4: the kernel makes up a packet, and runs the path of a forwarded one with an input link, and
///    local output without. A socket has no packet there, which policy 3 hashes otherwise.
/// 2. IPv6: the kernel has no packet, whatever the path. A forwarded flow has one, which policy 3
///    hashes otherwise, and policy 2 where there is a flow label.
/// 3. Of a packet that comes out of SIDs, what comes out is asked about.
/// 4. Of a hash that packets bring along it knows nothing.
/// 5. Without an input link it looks once. So of a TCP flow without a source the second look-up is
///    checked.
pub(super) fn check(rib: &Rib, answer: &Answer, as_json: bool) -> Result<(), Failure> {
    // JSON is not to be mixed with words.
    let say = |text: String| match as_json {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    };
    let words = match &answer.outcome {
        None => &answer.flow,
        Some(outcome) => &checkable(outcome)?.words,
    };
    let settings = rib.settings();
    let policy = if words.dst.is_ipv4() {
        settings.hash_policy4
    } else {
        settings.hash_policy6
    };
    if answer.giver.is_some() && answer.outcome.is_none() {
        return Err(Failure::usage(
            "the kernel is asked about a packet without a hash, and these bring one along (step 8): there is nothing to check",
        ));
    }
    // One nexthop is the same whatever the protocol.
    let chosen = answer.hash31.is_some();
    if chosen && policy == 1 && words.proto == 0 {
        return Err(Failure::usage(
            "the kernel takes a question without a protocol for UDP, and hash policy 1 looks at it: \
             add ipproto, sport and dport to check",
        ));
    }
    // Policy 0 hashes addresses alone, whatever the protocol.
    let can_be_told = [0, 1, 6, 17, 58].contains(&words.proto);
    if chosen && policy != 0 && !can_be_told {
        return Err(Failure::usage(
            "the kernel takes no question about this protocol, and the hash policy looks at it: there is \
             nothing to check",
        ));
    }
    let local = words.iif.is_none();
    let otherwise = match (words.dst.is_ipv4(), local, policy) {
        (true, true, 3) | (false, false, 3) => true,
        (false, false, 2) => words.flow_label != 0,
        _ => false,
    };
    if otherwise {
        return Err(Failure::usage(format!(
            "under hash policy {policy} the kernel answers this question by other rules than it {} \
             by, so there is nothing to check",
            if local { "sends" } else { "forwards" }
        )));
    }
    if local && !words.src.is_unspecified() && !rib.is_local(words.src) {
        return Err(Failure::usage(format!(
            "the kernel answers no question about local packets from {}, which is not its own \
             address: name the input link (iif), or leave out from",
            words.src
        )));
    }
    let iif = words.iif.as_deref().and_then(|name| rib.link_named(name));
    let src = match answer.source {
        Some(source) if words.proto == 6 => source,
        _ => words.src,
    };
    let query = RouteQuery {
        src: (!local || !src.is_unspecified()).then_some(src),
        iif: iif.map(|link| link.index),
        ip_proto: (words.proto != 0 && can_be_told).then_some(words.proto),
        sport: (words.sport != 0).then_some(words.sport),
        dport: (words.dport != 0).then_some(words.dport),
        // Rules look at it, but not at ECN's two bits.
        tos: words.tos & 0xfc,
        flow_label: (words.flow_label != 0).then_some(words.flow_label),
        ..RouteQuery::default()
    };
    let kernel = match Socket::open()?.get_route(words.dst, &query) {
        Ok(kernel) => kernel,
        Err(e) => return nowhere(e, answer, say),
    };
    let via = |gateway: Option<IpAddr>| gateway.map_or(String::new(), |g| format!(" via {g}"));
    let dev = link_name(rib, kernel.index);
    let theirs = format!("dev {dev}{}", via(kernel.gateway));
    if let (Some(ours), Some(theirs)) = (answer.source, kernel.prefsrc)
        && ours != theirs
    {
        return Err(Failure::found(format!(
            "the kernel chooses the source {theirs}, not {ours}: please report this with a \
             snapshot (raddle snapshot)"
        )));
    }
    match &answer.link {
        Some(link) if *link == dev => {
            // It was asked about a packet that brings none.
            let of = if answer.confidence.brought {
                ", about packets that bring no hash along"
            } else {
                ""
            };
            say(format!("the kernel agrees{of}: {theirs}"));
            Ok(())
        }
        Some(link) => Err(Failure::found(format!(
            "the kernel chooses {theirs}, not {link}: please report this with a snapshot \
             (raddle snapshot)"
        ))),
        None => {
            say(format!("the kernel says: {theirs}"));
            Ok(())
        }
    }
}

/// What came out of SIDs and encapsulations, if the kernel can be asked where it would send it.
fn checkable(outcome: &Outcome) -> Result<&Outcome, Failure> {
    if let Some(table) = outcome.table {
        return Err(Failure::usage(format!(
            "the SID looks in table {table}, and the kernel is asked by the rules only: there is nothing \
             to check"
        )));
    }
    if outcome.by_flow {
        return Err(Failure::usage(
            "the kernel keeps one path for all that one core encapsulates, whatever the flow: there is \
             nothing to check",
        ));
    }
    Ok(outcome)
}

/// Whether the answer says that the kernel may refuse the source.
fn may_be_filtered(answer: &Answer) -> bool {
    let mut conditions = answer.confidence.why.iter();
    conditions.any(|condition| condition.contains("rp_filter"))
}

/// The kernel sends the flow nowhere, or could not be asked.
fn nowhere(
    error: raddle_netlink::Error,
    answer: &Answer,
    say: impl Fn(String),
) -> Result<(), Failure> {
    // No route; unreachable, also for want of forwarding; prohibit; blackhole.
    let none = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EACCES,
        libc::EINVAL,
    ];
    match &answer.link {
        None if error.errno().is_some_and(|errno| none.contains(&errno)) => {
            say(format!("the kernel agrees that there is no link: {error}"));
            Ok(())
        }
        None => Err(error.into()),
        // `fib_validate_source`.
        Some(link) if error.errno() == Some(libc::EXDEV) && may_be_filtered(answer) => {
            say(format!(
                "the kernel's rp_filter refuses the source, as the answer says it may: it does not say whether {link} is right"
            ));
            Ok(())
        }
        Some(link) => Err(Failure::found(format!(
            "{error}, and raddle says {link}: please report this with a snapshot (raddle snapshot)"
        ))),
    }
}

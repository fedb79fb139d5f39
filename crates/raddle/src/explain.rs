//! `raddle explain`: which link a flow takes, in numbered steps, and why.
//!
//! The steps are computed from the mirrored state by the same functions that compile the image, so
//! that what is explained is what engines do.

mod flow;
#[cfg(test)]
mod resilient_test;
mod steps;
mod text;

use std::net::IpAddr;

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::Rib;

use crate::cli;
use crate::error::Failure;
use crate::show::Names;
use crate::source;
pub(crate) use flow::FlowWords;
pub(crate) use steps::{Answer, explain};

/// Runs the command.
pub(crate) fn run(args: &cli::Explain) -> Result<(), Failure> {
    let words = FlowWords::parse(&args.flow).map_err(Failure::usage)?;
    let rib = source::mirror(args.snapshot.as_deref())?;
    let iif = match &words.iif {
        None => None,
        Some(name) => Some(
            rib.link_named(name)
                .ok_or_else(|| Failure::usage(format!("there is no link '{name}'")))?
                .index,
        ),
    };
    let answer = explain(&rib, &words, &Names::load());
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&answer).map_err(|e| Failure::system(e.to_string()))?
        );
    } else {
        print!("{}", text::render(&answer));
    }
    if args.check {
        check(&rib, &words, iif, &answer)?;
    }
    Ok(())
}

/// Asks the kernel for its choice and compares.
fn check(rib: &Rib, words: &FlowWords, iif: Option<u32>, answer: &Answer) -> Result<(), Failure> {
    let settings = rib.settings();
    let policy = if words.dst.is_ipv4() {
        settings.hash_policy4
    } else {
        settings.hash_policy6
    };
    if policy == 1 && words.proto == 0 {
        return Err(Failure::usage(
            "the kernel takes a question without a protocol for UDP, and hash policy 1 looks at it: \
             add ipproto, sport and dport to check",
        ));
    }
    let query = RouteQuery {
        src: Some(words.src),
        iif,
        ip_proto: (words.proto != 0).then_some(words.proto),
        sport: (words.sport != 0).then_some(words.sport),
        dport: (words.dport != 0).then_some(words.dport),
        flow_label: (words.flow_label != 0).then_some(words.flow_label),
        ..RouteQuery::default()
    };
    let kernel = match Socket::open()?.get_route(words.dst, &query) {
        Ok(kernel) => kernel,
        Err(e) => return nowhere(e, answer),
    };
    let name = |index: u32| {
        rib.link(index)
            .map_or(format!("if{index}"), |l| l.name.clone())
    };
    let via = |gateway: Option<IpAddr>| gateway.map_or(String::new(), |g| format!(" via {g}"));
    let theirs = format!("dev {}{}", name(kernel.index), via(kernel.gateway));
    match &answer.link {
        Some(link) if *link == name(kernel.index) => {
            eprintln!("the kernel agrees: {theirs}");
            Ok(())
        }
        Some(link) => Err(Failure::system(format!(
            "the kernel chooses {theirs}, not {link}: please report this with a snapshot \
             (raddle snapshot)"
        ))),
        None => {
            eprintln!("the kernel says: {theirs}");
            Ok(())
        }
    }
}

/// The kernel forwards the flow nowhere, or could not be asked.
fn nowhere(error: raddle_netlink::Error, answer: &Answer) -> Result<(), Failure> {
    // No route; unreachable, also for want of forwarding; prohibit; blackhole.
    let none = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EACCES,
        libc::EINVAL,
    ];
    match &answer.link {
        None if error.errno().is_some_and(|errno| none.contains(&errno)) => {
            eprintln!("the kernel agrees that there is no link: {error}");
            Ok(())
        }
        None => Err(error.into()),
        Some(link) => Err(Failure::system(format!(
            "{error}, and raddle says {link}: please report this with a snapshot (raddle snapshot)"
        ))),
    }
}

//! `raddle explain`: which link a flow takes, in numbered steps, and why.
//!
//! The steps are computed from the mirrored state by the same functions that compile the image, so
//! that what is explained is what engines do. This machine's own packets, which no engine sees, are
//! explained by the rules of `raddle_select` for local output.

mod answer;
mod around;
mod both;
mod check;
mod choice;
mod confidence;
mod flow;
mod hash;
mod image;
mod local;
mod made;
mod packet;
mod refused;
#[cfg(test)]
mod resilient_test;
mod route;
mod seen;
mod segments;
#[cfg(test)]
mod segments_test;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod watch;
mod words;

use std::time::Duration;

use raddle_rib::Rib;

use crate::cli;
use crate::config;
use crate::error::Failure;
use crate::names::Names;
use crate::source;
pub(crate) use answer::{Answer, answer};
pub(crate) use around::Surroundings;
pub(crate) use flow::FlowWords;
use packet::Packet;
pub(crate) use steps::{Question, View};

/// Runs the command.
pub(crate) fn run(args: &cli::Explain) -> Result<(), Failure> {
    let packet = match (&args.pcap, &args.hex) {
        (Some(file), _) => Some(Packet::of_capture(file, args.packet)),
        (None, Some(hex)) => Some(Packet::of_hex(hex)),
        (None, None) => None,
    };
    let packet = packet.transpose().map_err(Failure::usage)?;
    let carried = made::Carried::parse(args.srh.as_deref(), args.inner.as_deref());
    let carried = carried.map_err(Failure::usage)?;
    let words = match &packet {
        Some(packet) => FlowWords::parse_input(&args.flow).map(|iif| packet.words(&iif)),
        None => FlowWords::parse(&args.flow),
    };
    let words = words.map_err(Failure::usage)?;
    let packet = match packet {
        None if !carried.is_empty() => Some(carried.packet(&words).map_err(Failure::usage)?),
        packet => packet,
    };
    let asked = Asked {
        words,
        packet,
        names: Names::load(),
        both: args.both,
    };
    // The kernel, which is to be asked, does not have them, nor does this machine send by them.
    let own = match &args.snapshot {
        None if !args.check && asked.words.iif.is_some() => source::own_of_daemon(),
        _ => Vec::new(),
    };
    if args.watch {
        let around = around(args, Surroundings::live());
        let limits = watch::Limits {
            time: args.seconds.map(Duration::from_secs),
            answers: args.count,
        };
        return watch::watch(limits, args.json, own, |rib| asked.answer(rib, &around));
    }
    let (mut rib, kernel) = source::mirror_and_kernel(args.snapshot.as_deref())?;
    own.into_iter().for_each(|event| rib.apply(event));
    let found = match args.snapshot {
        None => Surroundings::live(),
        Some(_) => Surroundings {
            kernel,
            ..Surroundings::default()
        },
    };
    let answer = asked.answer(&rib, &around(args, found))?;
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&answer).map_err(|e| Failure::system(e.to_string()))?
        );
    } else {
        print!("{}", text::render(&answer));
    }
    if args.check {
        check::check(&rib, &answer)?;
        if let Some(reverse) = &answer.reverse {
            check::check(&rib, reverse)?;
        }
    }
    Ok(())
}

/// What the command line says goes before what was found. Without rules of its own, those of a daemon
/// that runs here count.
fn around(args: &cli::Explain, found: Surroundings) -> Surroundings {
    let rules = match args.mp_algo.as_slice() {
        // The kernel, which is to be asked, has no such rules.
        [] if found.live && !args.check => source::algos_of_daemon(),
        rules => rules.to_vec(),
    };
    Surroundings {
        kernel: args.kernel.or(found.kernel),
        algos: config::algo_rules(&rules),
        ..found
    }
}

/// What the user asked.
struct Asked {
    words: FlowWords,
    packet: Option<Packet>,
    names: Names,
    both: bool,
}

impl Asked {
    fn answer(&self, rib: &Rib, around: &Surroundings) -> Result<Answer, Failure> {
        if let Some(name) = &self.words.iif
            && rib.link_named(name).is_none()
        {
            return Err(Failure::usage(format!("there is no link '{name}'")));
        }
        let view = View {
            rib,
            names: &self.names,
            around,
        };
        let question = Question {
            words: &self.words,
            packet: self.packet.as_ref(),
        };
        Ok(match self.both {
            true => both::both(view, question).map_err(Failure::usage)?,
            false => answer(view, question),
        })
    }
}

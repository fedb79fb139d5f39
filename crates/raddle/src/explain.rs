//! `raddle explain`: questions from the command line to `raddle_explain`, and its answers to text.

mod check;
mod watch;

use std::io::{BufWriter, Read as _, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use raddle_explain::{
    Answer, Carried, Error, FlowWords, Images, Packet, Question, Surroundings, View, answer, both,
    render,
};
use raddle_plan::flows::{Line, read_list};
use raddle_rib::Rib;
use raddle_rib::event::Event;

use crate::cli;
use crate::error::Failure;
use crate::machine::ThisMachine;
use crate::names::ByIproute;
use crate::peers::Peers;
use crate::source;
use raddle_daemon::algo_rules;
use raddle_iproute::Names;

/// Runs the command.
pub(crate) fn run(args: &cli::Explain) -> Result<(), Failure> {
    if let (Some(file), None) = (&args.pcap, args.packet) {
        return packets(args, file);
    }
    if let Some(file) = &args.flows {
        return flows(args, file);
    }
    let packet = match (&args.pcap, &args.hex) {
        (Some(file), _) => Some(Packet::of_capture(file, args.packet.unwrap_or(1))),
        (None, Some(hex)) => Some(Packet::of_hex(&digits(hex)?)),
        (None, None) => None,
    };
    let packet = packet.transpose()?;
    let carried = Carried::parse(args.srh.as_deref(), args.inner.as_deref())?;
    let words = match &packet {
        Some(packet) => FlowWords::parse_input(&args.flow).map(|iif| packet.words(&iif)),
        None => FlowWords::parse(&args.flow),
    };
    let words = words?;
    let packet = match packet {
        None if !carried.is_empty() => Some(carried.packet(&words)?),
        packet => packet,
    };
    let asked = Asked {
        words,
        packet,
        names: ByIproute(Names::load()),
        both: args.both,
    };
    let own = own(args, &asked.words);
    if args.watch {
        let around = around(args, live(args.check));
        let limits = watch::Limits {
            time: args.seconds.map(Duration::from_secs),
            answers: args.count,
        };
        return watch::watch(limits, args.json, own, |rib| asked.answer(rib, &around));
    }
    let (rib, found) = state(args, own)?;
    let peers = Peers::read(&args.peers)?;
    let answer = asked.answer(&rib, &around(args, found))?;
    let mut out = std::io::stdout().lock();
    write_answer(&mut out, args.json, &answer, (&peers, &asked.words))?;
    drop(out);
    if args.check {
        check::check(&rib, &answer, args.json)?;
        if let Some(reverse) = &answer.reverse {
            check::check(&rib, reverse, args.json)?;
        }
    }
    Ok(())
}

/// An answer and what other routers do with the flow, as text or a line of JSON.
fn write_answer(
    out: &mut impl Write,
    as_json: bool,
    answer: &Answer,
    (peers, words): (&Peers, &FlowWords),
) -> Result<(), Failure> {
    let peers = peers.of(words, answer);
    if !as_json {
        write!(out, "{}", render(answer))?;
        for peer in peers {
            write!(out, "{peer}")?;
        }
        return Ok(());
    }
    let failed = |e: serde_json::Error| Failure::system(e.to_string());
    if peers.is_empty() {
        writeln!(out, "{}", serde_json::to_string(answer).map_err(failed)?)?;
        return Ok(());
    }
    let mut all = serde_json::to_value(answer).map_err(failed)?;
    all["peers"] = serde_json::to_value(peers).map_err(failed)?;
    writeln!(out, "{all}")?;
    Ok(())
}

/// What a daemon here has beyond the kernel's state. The kernel, which may be to be asked, does not have it, nor
/// does this machine send by it.
fn own(args: &cli::Explain, words: &FlowWords) -> Vec<Event> {
    match &args.snapshot {
        None if !args.check && words.iif.is_some() => source::static_of_daemon(),
        _ => Vec::new(),
    }
}

/// The state that is explained, and what was found around it.
fn state(args: &cli::Explain, own: Vec<Event>) -> Result<(Rib, Surroundings), Failure> {
    let (mut rib, kernel) = source::mirror_and_kernel(args.snapshot.as_deref())?;
    own.into_iter().for_each(|event| rib.apply(event));
    let found = match args.snapshot {
        None => Surroundings {
            no_key: source::know_key(&mut rib).err(),
            ..live(args.check)
        },
        Some(_) => Surroundings {
            kernel,
            ..Surroundings::default()
        },
    };
    Ok((rib, found))
}

/// Every packet of a capture, by one state.
fn packets(args: &cli::Explain, file: &Path) -> Result<(), Failure> {
    if args.watch {
        return Err(Failure::usage(
            "one packet at a time can be watched: name it (--packet N)",
        ));
    }
    let iif = FlowWords::parse_input(&args.flow)?;
    let packets = Packet::all_of_capture(file)?;
    let questions = packets.map(|packet| {
        let packet = packet?;
        Ok((String::new(), packet.words(&iif), Some(packet)))
    });
    all(args, questions)
}

/// Every flow of a file, by one state; a link that is named is that of flows which name none themselves.
fn flows(args: &cli::Explain, file: &Path) -> Result<(), Failure> {
    let iif = match args.flow.as_slice() {
        [] => None,
        [word, name] if word == "iif" => Some(name),
        _ => {
            return Err(Failure::usage(
                "the flows are in the file: beside --flows FILE name only the link that they come in by, as iif LINK",
            ));
        }
    };
    let lines = read_list(file)?;
    let questions = lines.into_iter().map(|Line { number, mut words }| {
        if !words.connected {
            words.iif = words.iif.or_else(|| iif.cloned());
        }
        let place = format!("{}: line {number}: ", file.display());
        Ok((place, words, None))
    });
    all(args, questions)
}

/// Every question by one state: an answer after the other, or one line of JSON for each. A question's place is what
/// mistakes in it begin with.
fn all(
    args: &cli::Explain,
    questions: impl Iterator<Item = Result<(String, FlowWords, Option<Packet>), Error>>,
) -> Result<(), Failure> {
    let peers = Peers::read(&args.peers)?;
    let names = ByIproute(Names::load());
    let images = Images::default();
    let own = match args.snapshot {
        None => source::static_of_daemon(),
        Some(_) => Vec::new(),
    };
    let (mut rib, found) = state(args, Vec::new())?;
    // By what is a daemon's own this machine does not send.
    let kernels = (!own.is_empty()).then(|| {
        let mut kernels = Rib::detached();
        kernels.know_as(&rib);
        rib.snapshot()
            .into_events()
            .for_each(|event| kernels.apply(event));
        kernels
    });
    own.into_iter().for_each(|event| rib.apply(event));
    let around = around(args, found);
    let view = View::new(&rib, &names, &around, &images);
    let images = Images::default();
    let local = View::new(kernels.as_ref().unwrap_or(&rib), &names, &around, &images);
    let mut out = BufWriter::new(std::io::stdout().lock());
    for (n, question) in questions.enumerate() {
        let (place, words, packet) = question?;
        let tos = words.check_tos();
        tos.map_err(|e| Failure::usage(format!("{place}{e}")))?;
        known(&rib, &words, &place)?;
        let question = Question {
            words: &words,
            packet: packet.as_ref(),
        };
        let is_local = words.iif.is_none() && packet.is_none();
        let answer = answer(if is_local { local } else { view }, question);
        if !args.json && n > 0 {
            writeln!(out)?;
        }
        write_answer(&mut out, args.json, &answer, (&peers, &words))?;
    }
    out.flush()?;
    Ok(())
}

/// The input link has to be one; `place` is what the message begins with.
fn known(rib: &Rib, words: &FlowWords, place: &str) -> Result<(), Failure> {
    match &words.iif {
        Some(name) if rib.link_named(name).is_none() => {
            Err(Failure::usage(format!("{place}there is no link '{name}'")))
        }
        _ => Ok(()),
    }
}

/// Most digits that are read from standard input: a super-frame with blanks between.
const MOST_HEX: u64 = 1 << 20;

/// The digits of `--hex`; `-` reads them from standard input.
fn digits(hex: &str) -> Result<String, Failure> {
    if hex != "-" {
        return Ok(hex.to_owned());
    }
    let mut text = String::new();
    let mut input = std::io::stdin().lock().take(MOST_HEX);
    let read = input.read_to_string(&mut text);
    read.map_err(|e| Failure::usage(format!("cannot read standard input: {e}")))?;
    Ok(text)
}

/// The surroundings of this machine; for a check of its kernel alone.
fn live(kernel_alone: bool) -> Surroundings {
    Surroundings {
        kernel: raddle_preflight::running_kernel().ok(),
        machine: Some(Arc::new(ThisMachine::kernel_alone(kernel_alone))),
        ..Surroundings::default()
    }
}

/// What the command line says goes before what was found. Without rules of its own, those of a daemon
/// that runs here count.
fn around(args: &cli::Explain, found: Surroundings) -> Surroundings {
    let rules = match args.mp_algo.as_slice() {
        // The kernel, which is to be asked, has no such rules.
        [] if found.machine.is_some() && !args.check => source::algos_of_daemon(),
        rules => rules.to_vec(),
    };
    let asks = found.machine.is_some() && !args.check && args.mp_algo.is_empty();
    Surroundings {
        unasked: asks.then(source::unasked).flatten(),
        kernel: args.kernel.or(found.kernel),
        algos: algo_rules(&rules),
        show_key: args.show_key,
        ..found
    }
}

/// What the user asked.
struct Asked {
    words: FlowWords,
    packet: Option<Packet>,
    names: ByIproute,
    both: bool,
}

impl Asked {
    fn answer(&self, rib: &Rib, around: &Surroundings) -> Result<Answer, Failure> {
        known(rib, &self.words, "")?;
        let images = Images::default();
        let view = View::new(rib, &self.names, around, &images);
        let question = Question {
            words: &self.words,
            packet: self.packet.as_ref(),
        };
        Ok(match self.both {
            true => both(view, question)?,
            false => answer(view, question),
        })
    }
}

#[cfg(test)]
mod tests {
    use raddle_iproute::import;

    /// The state that most answers in the tests of `raddle_explain` are about, as `ip` would print it.
    #[test]
    fn the_state_of_topologies_is_what_ip_says() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = crates.join("explain/tests/topologies/net");
        let file = folder.join("state.json");
        let said = import::snapshot(&[folder.join("ip")]).unwrap();
        if std::env::var_os("RADDLE_BLESS").is_some() {
            std::fs::write(&file, serde_json::to_string_pretty(&said).unwrap() + "\n").unwrap();
        }
        let held: raddle_rib::Snapshot =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(held, said, "RADDLE_BLESS=1 writes it");
    }
}

//! `raddle-bench srv6`: behaviours and encapsulations, beside the kernel's; what counters and many
//! SIDs cost; and the userspace engine in memory.

mod memory;
mod network;
mod packets;
mod report;

use std::collections::BTreeMap;
use std::thread;

use crate::cli;
use crate::measure::{Machine, Row, Settings, progress};
use crate::router;
use network::{Counting, What};
use raddle_exit::Failure;

/// Million packets a second, by round.
type Rates = Vec<f64>;

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
struct Results {
    rounds: u32,
    packets: u32,
    sids: u32,
    /// End.DX2 in XDP, in the order of [`Counting::ALL`].
    counting: [Rates; 3],
    /// Those of [`BESIDE`].
    beside: Vec<(What, [Rates; 4])>,
    /// One core, in memory.
    memory: Vec<(What, Rates)>,
    /// End.DX2 with one SID, and with many.
    many: [Rates; 2],
    /// Packets of raddle's rows that the kernel got, by reason.
    punted: BTreeMap<&'static str, u64>,
}

/// What is measured with every behaviour. The bare redirect is the floor: it sends on what came.
const BESIDE: [Row; 4] = [Row::Kernel, Row::Raddle, Row::Redirect, Row::Absorb];

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Memory,
    Counters,
    Behaviours,
    Sids,
}

impl Part {
    const ALL: [Part; 4] = [Part::Memory, Part::Counters, Part::Behaviours, Part::Sids];

    /// As `--only` takes it.
    fn name(self) -> &'static str {
        match self {
            Part::Memory => "memory",
            Part::Counters => "counters",
            Part::Behaviours => "behaviours",
            Part::Sids => "sids",
        }
    }

    /// Those that are named, or all.
    fn named(only: &[String]) -> Result<Vec<Part>, Failure> {
        let known = |name: &String| Part::ALL.iter().any(|part| part.name() == name);
        if let Some(name) = only.iter().find(|name| !known(name)) {
            let names = Part::ALL.map(Part::name).join(", ");
            return Err(Failure::usage(format!("'{name}' is not a part: {names}")));
        }
        let wanted = |part: &Part| only.is_empty() || only.iter().any(|name| name == part.name());
        Ok(Part::ALL.into_iter().filter(wanted).collect())
    }
}

/// Runs `raddle-bench srv6`.
pub(crate) fn srv6(args: &cli::Srv6) -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root(
            "raddle-bench srv6 makes a network namespace, attaches XDP programs and",
        ));
    }
    let parts = Part::named(&args.only)?;
    if args.rounds == 0 || args.millions == 0 || args.sids == 0 {
        return Err(Failure::usage(
            "--rounds, --millions and --sids are at least 1",
        ));
    }
    let settings = Settings {
        rounds: args.rounds,
        packets: args.millions.saturating_mul(1_000_000),
        routes: args.sids,
        columns: Vec::new(),
        segments: args.sids as usize + 4096,
    };
    // The namespace is this thread's own and goes with it, however it ends.
    let measured = thread::spawn(move || run(&settings, &parts)).join();
    let results = measured.map_err(|_| Failure::system("the measurement broke off"))??;
    if args.json {
        println!("{}", report::json(&results));
    } else {
        print!("{}", report::text(&results));
    }
    Ok(())
}

fn run(settings: &Settings, parts: &[Part]) -> Result<Results, Failure> {
    let &Settings {
        rounds,
        packets,
        routes: sids,
        ..
    } = settings;
    router::build()?;
    router::batch(&network::routes())?;
    let mut results = Results {
        rounds,
        packets,
        sids,
        ..Results::default()
    };
    if parts.contains(&Part::Memory) {
        results.memory = memory::measure(rounds)?;
    }
    if parts == [Part::Memory] {
        return Ok(results);
    }
    let mut machine = Machine::start(settings)?;
    machine.engine.load_srv6()?;
    machine.send_bare_to("out0")?;
    let before = machine.punted();
    // The last of them changes the table.
    for part in parts {
        match part {
            Part::Memory => {}
            Part::Counters => counters(&mut machine, settings, &mut results)?,
            Part::Behaviours => behaviours(&mut machine, settings, &mut results)?,
            Part::Sids => many_sids(&mut machine, settings, &mut results)?,
        }
    }
    for (reason, packets) in machine.punted() {
        let packets = packets - before.get(reason).copied().unwrap_or(0);
        if packets > 0 {
            results.punted.insert(reason, packets);
        }
    }
    progress("");
    Ok(results)
}

fn counters(
    machine: &mut Machine,
    settings: &Settings,
    results: &mut Results,
) -> Result<(), Failure> {
    let counted = packets::payload(What::Dx2, network::DX2)?;
    let uncounted = packets::payload(What::Dx2, network::DX2_UNCOUNTED)?;
    for round in 0..settings.rounds {
        progress(&format!("round {}: counters", round + 1));
        for (counting, rates) in Counting::ALL.into_iter().zip(&mut results.counting) {
            let template = match counting {
                Counting::On => &counted,
                Counting::Off | Counting::Absent => &uncounted,
            };
            machine.count_segments(counting != Counting::Absent, settings)?;
            rates.push(machine.template_rate(Row::Raddle, template, settings.packets)?);
        }
        machine.count_segments(true, settings)?;
    }
    Ok(())
}

fn behaviours(
    machine: &mut Machine,
    settings: &Settings,
    results: &mut Results,
) -> Result<(), Failure> {
    for what in What::ALL {
        let template = packets::payload(what, network::sid_of(what))?;
        let mut rates = [const { Vec::new() }; 4];
        for round in 0..settings.rounds {
            progress(&format!("{} round {}", what.name(), round + 1));
            for (row, rates) in BESIDE.into_iter().zip(&mut rates) {
                rates.push(machine.template_rate(row, &template, settings.packets)?);
            }
        }
        results.beside.push((what, rates));
    }
    Ok(())
}

fn many_sids(
    machine: &mut Machine,
    settings: &Settings,
    results: &mut Results,
) -> Result<(), Failure> {
    let sids = settings.routes;
    progress(&format!("installing {sids} SIDs"));
    router::batch(&network::many(sids))?;
    machine.settle()?;
    let counted = packets::payload(What::Dx2, network::DX2)?;
    // Both go through a list, so that the generator does the same for both.
    let one = vec![network::DX2; sids as usize];
    let many = network::many_sids(sids).collect();
    let templates = [counted.clone().to_each(one), counted.to_each(many)];
    for round in 0..settings.rounds {
        progress(&format!("one and {sids} SIDs, round {}", round + 1));
        for (template, rates) in templates.iter().zip(&mut results.many) {
            rates.push(machine.template_rate(Row::Raddle, template, settings.packets)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named() {
        let only = ["sids".to_owned(), "memory".to_owned()];
        assert_eq!(Part::named(&only).unwrap(), [Part::Memory, Part::Sids]);
        assert_eq!(Part::named(&[]).unwrap(), Part::ALL);
        assert!(Part::named(&["sid".to_owned()]).is_err());
    }
}

//! `raddle-bench select`: what a choice among several nexthops costs, beside the scan that the kernel
//! does, and how much it adds to a forward in the XDP program.

mod choices;
mod decisions;
mod packets;
mod report;
mod xdp;

use std::thread;
use std::time::Instant;

use crate::cli;
use crate::measure::progress;
use crate::router;
use raddle_exit::Failure;

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
struct Results {
    rounds: u32,
    choices: Vec<choices::Cell>,
    decisions: Vec<decisions::Cell>,
    /// None without root.
    xdp: Option<Vec<xdp::Cell>>,
}

/// Runs `raddle-bench select`.
pub(crate) fn select(args: &cli::Select) -> Result<(), Failure> {
    if args.rounds == 0 {
        return Err(Failure::usage("--rounds is at least 1"));
    }
    let rounds = args.rounds;
    // CPU and namespace are this thread's own and go with it, however it ends.
    let measured = thread::spawn(move || run(rounds)).join();
    let results = measured.map_err(|_| Failure::system("the measurement broke off"))??;
    if args.json {
        println!("{}", report::json(&results));
    } else {
        print!("{}", report::text(&results));
    }
    Ok(())
}

fn run(rounds: u32) -> Result<Results, Failure> {
    router::pin_to_cpu()?;
    let choices = choices::measure(rounds)?;
    let decisions = decisions::measure(rounds)?;
    let root = nix::unistd::geteuid().is_root();
    let xdp = root.then(|| xdp::measure(rounds)).transpose()?;
    progress("");
    Ok(Results {
        rounds,
        choices,
        decisions,
        xdp,
    })
}

/// The median; of an even number of values, the upper one of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median over rounds of the ratio within a round: what drifts with the machine cancels.
pub(crate) fn ratio(a: &[f64], b: &[f64]) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
}

/// The same of what is left of both when the time of a third, which each of them holds, is taken off.
pub(crate) fn ratio_without(a: &[f64], b: &[f64], third: &[f64]) -> f64 {
    let alone = |rate: f64, third: f64| 1.0 / rate - 1.0 / third;
    let rounds = a.iter().zip(b).zip(third);
    median(
        &rounds
            .map(|((&a, &b), &third)| alone(b, third) / alone(a, third))
            .collect::<Vec<_>>(),
    )
}

/// Nanoseconds of each of `count` pieces of work.
pub(crate) fn nanoseconds(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

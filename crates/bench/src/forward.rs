//! `raddle-bench forward`: raddle beside the kernel, in one run on this machine.

mod report;

use std::thread;

use crate::cli;
use crate::measure::{self, Column};
use raddle_exit::Failure;

/// Runs `raddle-bench forward`.
pub(crate) fn forward(args: &cli::Forward) -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::needs_root(
            "raddle-bench forward makes a network namespace, attaches XDP programs and",
        ));
    }
    let columns = columns(&args.only)?;
    let packets = args
        .packets
        .unwrap_or(args.millions.saturating_mul(1_000_000));
    // A twentieth of them comes before, uncounted.
    if args.rounds == 0 || packets < 20 {
        return Err(Failure::usage(
            "--rounds and --millions are at least 1, --packets 20",
        ));
    }
    let settings = measure::Settings {
        rounds: args.rounds,
        packets,
        routes: args.routes,
        columns,
        segments: 0,
    };
    // The namespace is this thread's own and goes with it, however it ends.
    let measured = thread::spawn(move || measure::run(&settings)).join();
    let results = measured.map_err(|_| Failure::system("the measurement broke off"))??;
    if args.json {
        println!("{}", report::json(&results));
    } else {
        print!("{}", report::text(&results));
    }
    Ok(())
}

fn columns(only: &[String]) -> Result<Vec<Column>, Failure> {
    if only.is_empty() {
        return Ok(Column::ALL.to_vec());
    }
    only.iter()
        .map(|name| {
            Column::ALL
                .into_iter()
                .find(|column| column.name() == name)
                .ok_or_else(|| {
                    let names: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
                    Failure::usage(format!("'{name}' is not a column: {}", names.join(", ")))
                })
        })
        .collect()
}

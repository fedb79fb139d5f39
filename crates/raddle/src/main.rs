//! raddle: multipath forwarding for Linux. See `raddle --help` and the README.

mod ask;
mod bench;
mod cli;
mod config;
mod control;
mod demo;
mod error;
mod explain;
mod kept;
mod lab;
mod logging;
mod man;
mod metrics;
mod plot;
mod preflight;
mod replay;
mod run;
mod show;
mod signals;
mod source;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use error::Failure;

fn main() -> ExitCode {
    // Rust ignores SIGPIPE, and `raddle route show | head` would end with an error.
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::from(e.use_stderr()));
        }
    };
    match dispatch(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("raddle: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Status(args) => ask::status(args),
        Command::Counters(args) => ask::counters(args),
        Command::Explain(args) => explain::run(args),
        Command::Route(args) => show::run("route", args),
        Command::Nexthop(args) => show::run("nexthop", args),
        Command::Neigh(args) => show::run("neigh", args),
        Command::Snapshot(args) => source::save(args.file.as_deref()),
        Command::Replay(args) => replay::run(args),
        Command::Lab(command) => lab::run(command),
        Command::Demo(args) => demo::run(args),
        Command::Bench(cli::Bench::Forward(args)) => bench::forward(args),
        Command::Completions { shell } => {
            clap_complete::generate(
                *shell,
                &mut Cli::command(),
                "raddle",
                &mut std::io::stdout(),
            );
            Ok(())
        }
        Command::Man { directory } => man::write(directory),
    }
}

//! raddle: multipath forwarding for Linux. See `raddle --help` and the README.

mod ask;
mod cli;
mod doctor;
mod explain;
mod key;
mod lab;
mod logging;
mod machine;
mod man;
mod names;
mod output;
mod peers;
mod ports;
mod replay;
mod rpc;
mod run;
mod show;
mod signals;
mod snapshot;
mod source;
mod spread;
mod what_if;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command, KeyCommand};
use error::{Failure, exit};
use raddle_exit as error;
use raddle_iproute::show::{Object, help_of, options_first};

fn main() -> ExitCode {
    // Words that are no text are the parser's to complain about.
    let words = std::env::args_os().skip(1).map(|word| word.into_string());
    let words: Vec<String> = words.collect::<Result<_, _>>().unwrap_or_default();
    let done = match options_first(&words) {
        Some((object, words)) => {
            raddle_exit::end_with_readers();
            show::run(object, &words)
        }
        None => match help_of(&words).map_or_else(Cli::try_parse, Cli::try_parse_from) {
            Ok(cli) => {
                if !cli.command.serves() {
                    raddle_exit::end_with_readers();
                }
                dispatch(&cli.command)
            }
            Err(e) => {
                let _ = e.print();
                return match e.use_stderr() {
                    true => ExitCode::from(exit::USAGE),
                    false => ExitCode::SUCCESS,
                };
            }
        },
    };
    match done {
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
        Command::Detach => detach(),
        Command::Counters(args) => ask::counters(args),
        Command::Explain(args) => explain::run(args),
        Command::WhatIf(args) => what_if::run(args),
        Command::Ports(command) => ports::run(command),
        Command::Spread(args) => spread::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Key(KeyCommand::Find(args)) => key::find(args),
        Command::Route(args) => show::run(Object::Route, &args.words),
        Command::Nexthop(args) => show::run(Object::Nexthop, &args.words),
        Command::Neigh(args) => show::run(Object::Neigh, &args.words),
        Command::Sr(args) => show::run(Object::Sr, &args.words),
        Command::Snapshot(args) => snapshot::save(args),
        Command::Replay(args) => replay::run(args),
        Command::Rpc(args) => rpc::run(args),
        Command::Lab(command) => lab::run(command),
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

/// `raddle detach`.
fn detach() -> Result<(), Failure> {
    let links = raddle_daemon::kept::detach()?;
    for link in &links {
        println!("link {link}: detached, the kernel forwards");
    }
    if links.is_empty() {
        println!("no programs are kept in this network namespace");
    }
    Ok(())
}

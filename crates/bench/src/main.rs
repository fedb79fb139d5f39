//! raddle-bench: raddle measured beside the kernel, and shown on a small fabric. See `raddle-bench --help`.
//!
//! What forwards is measured in this process, over the engines' own libraries; what goes by the program, the proxy and the
//! demo's routers, runs the `raddle` that is beside this one ([`program`]).

mod cli;
mod demo;
mod forward;
mod measure;
mod program;
mod router;
mod rpc;
mod select;
mod srv6;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use raddle_exit::{Failure, exit};

use cli::{Cli, Command};

fn main() -> ExitCode {
    raddle_exit::end_with_readers();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return match e.use_stderr() {
                true => ExitCode::from(exit::USAGE),
                false => ExitCode::SUCCESS,
            };
        }
    };
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("raddle-bench: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Forward(args) => forward::forward(args),
        Command::Select(args) => select::select(args),
        Command::Srv6(args) => srv6::srv6(args),
        Command::Watch(args) => watch::watch(args),
        Command::Rpc(args) => rpc::rpc(args),
        Command::Demo(args) => demo::run(args),
    }
}

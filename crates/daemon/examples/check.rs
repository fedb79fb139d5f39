//! Reads a configuration, and says what a start of the daemon by it would come to in this network namespace. Without an
//! argument it is the default one.

use std::path::PathBuf;
use std::process::ExitCode;

use raddle_daemon::{Config, Error};

fn main() -> ExitCode {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    match report(path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("a daemon would not start: {e}");
            ExitCode::FAILURE
        }
    }
}

fn report(path: Option<PathBuf>) -> Result<(), Error> {
    let config = Config::load(path.as_deref())?;
    println!(
        "mode {}, {} s until the kernel forwards alone",
        config.mode.name(),
        config.deadline
    );
    if !nix::unistd::geteuid().is_root() {
        println!(
            "the configuration is fine; whether the daemon would start needs root: run this with sudo"
        );
        return Ok(());
    }
    raddle_daemon::check(&config, &mut |line| println!("{line}"))
}

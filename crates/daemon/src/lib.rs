#![doc = include_str!("../README.md")]

mod config;
mod daemon;
mod error;
mod expiry;
mod fpm;
mod guard;
pub mod kept;
mod lag;
mod links;
mod losses;
mod path_mtus;
mod priority;
mod report;
mod rx_hash;
mod seed;
mod source_ports;
mod static_routes;
mod statics;
mod survey;
mod veths;

use std::sync::atomic::AtomicBool;

use raddle_control::{Server, default_path, lock};
use raddle_metrics::{Endpoint, Source};

pub use config::{
    AlgoRule, AlgoRuleError, BadSeed, Config, Conntrack, DEFAULT_PATH, Fpm, FpmInvalid, Invalid,
    Mode, OnExit, Priority, Room, RxHash, Seed, Target, algo_rules,
};
pub use daemon::check;
pub use error::Error;
pub use expiry::Expiry;
pub use statics::{StaticEncap, StaticError, StaticSid, Which};

/// Runs the daemon of this network namespace until `stop` is raised: it forwards by the kernel's routes, and answers at the
/// control socket. Signals are the caller's, which blocks them for the threads that this makes.
///
/// # Errors
/// It cannot start, and no program is attached. What an earlier daemon has left attached goes on where the configuration, the
/// control socket or an address to listen at was the reason; where it was a later one, it may be detached, too.
///
/// Or it cannot go on, as when the kernel's notifications end. Programs are then kept or detached as [`Config::on_exit`] says.
pub fn run(config: &Config, stop: &AtomicBool) -> Result<(), Error> {
    config.check()?;
    let _lock = lock()?;
    let server = Server::start(config.socket.clone().unwrap_or_else(default_path))?;
    server.set_starting(true);
    // Before anything is attached: who else has the address stops the start.
    let metrics = config.metrics.map(Endpoint::bind).transpose()?;
    tracing::info!(
        "starting: loading the programs takes some seconds, and the kernel forwards until then"
    );
    let mut daemon = daemon::Daemon::start(config.clone())?;
    server.set_starting(false);
    let metrics = metrics.map(|endpoint| endpoint.serve(Source::Daemon));
    daemon.serve(stop, &server.requests, metrics.transpose()?.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_checked_before_anything_is_done() {
        let config = Config {
            deadline: 0,
            // What comes next would fail.
            socket: Some("/nonexistent/raddle.sock".into()),
            ..Config::default()
        };
        let error = run(&config, &AtomicBool::new(true)).unwrap_err();
        assert!(
            matches!(error, Error::Invalid(Invalid::Deadline)),
            "{error}"
        );
    }
}

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
mod priority;
mod report;
mod rx_hash;
mod seed;
mod static_routes;
mod statics;
mod survey;
mod veths;

use std::sync::atomic::AtomicBool;

use raddle_control::{Server, default_path, lock};
use raddle_metrics::Source;

pub use config::{
    AlgoRule, AlgoRuleError, BadSeed, Config, DEFAULT_PATH, Fpm, FpmInvalid, Invalid, Mode, OnExit,
    Priority, Room, RxHash, Seed, Target, algo_rules,
};
pub use daemon::check;
pub use error::Error;
pub use expiry::Expiry;
pub use statics::{StaticEncap, StaticError, StaticSid, Which};

/// Runs the daemon of this network namespace until `stop` is raised: it forwards by the kernel's routes, and answers at the
/// control socket. Signals are the caller's, which blocks them for the threads that this makes.
///
/// # Errors
/// It cannot start, and has left nothing behind; or the kernel's notifications end.
pub fn run(config: &Config, stop: &AtomicBool) -> Result<(), Error> {
    let _lock = lock()?;
    let server = Server::start(config.socket.clone().unwrap_or_else(default_path))?;
    server.set_starting(true);
    tracing::info!(
        "starting: loading the programs takes some seconds, and the kernel forwards until then"
    );
    let mut daemon = daemon::Daemon::start(config.clone())?;
    server.set_starting(false);
    let metrics = |address| raddle_metrics::serve(address, Source::Daemon);
    let metrics = config.metrics.map(metrics).transpose()?;
    daemon.serve(stop, &server.requests, metrics.as_ref())
}

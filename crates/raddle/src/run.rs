//! `raddle run`: the daemon by a configuration and the command line.

use raddle_daemon::Config;

use crate::cli;
use crate::error::Failure;

/// Runs the daemon until a signal ends it.
pub(crate) fn run(args: &cli::Run) -> Result<(), Failure> {
    crate::logging::start(args.log_json);
    let config = merge(Config::load(args.config.as_deref())?, args)?;
    if args.check {
        raddle_daemon::check(&config, &mut |line| println!("{line}"))?;
        return Ok(());
    }
    raise_file_limit();
    leave_no_core();
    // Before the first thread: one that does not block the signals would be ended by them.
    let stop = crate::signals::stop_flag_and_hangup(|| {
        tracing::warn!(
            "SIGHUP changes nothing: the configuration is read at the start; restart raddle for another \
             (with on-exit keep, packets are forwarded meanwhile)"
        );
    })?;
    raddle_daemon::run(&config, &stop)?;
    Ok(())
}

/// Each link, map and client takes descriptors, and many systems allow 1024 unless a program asks for more.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(e) = raised {
        tracing::debug!("the limit of open files stays as it is: {e}");
    }
}

/// The kernel's hash key is in this process's memory, and a core file would have it.
fn leave_no_core() {
    use nix::sys::resource::{Resource, setrlimit};
    if let Err(e) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        tracing::debug!("core files may be written: {e}");
    }
}

/// What the command line says goes before what the file says.
fn merge(mut config: Config, args: &cli::Run) -> Result<Config, Failure> {
    if !args.links.is_empty() {
        config.links.clone_from(&args.links);
    }
    config.mode = args.mode.unwrap_or(config.mode);
    config.on_exit = args.on_exit.unwrap_or(config.on_exit);
    config.deadline = args.deadline.unwrap_or(config.deadline);
    config.priority = args.priority.unwrap_or(config.priority);
    config.allow_bypass |= args.allow_bypass;
    config.conntrack = args.conntrack.unwrap_or(config.conntrack);
    config.allow_qdisc.extend(args.allow_qdisc.iter().cloned());
    config.mp_algos.extend(args.mp_algo.iter().cloned());
    config.sid.extend(args.sid.iter().cloned());
    config.encap.extend(args.encap.iter().cloned());
    config.fix_offloads &= !args.no_fix_offloads;
    config.seed = args.seed.or(config.seed);
    config.rx_hash = args.rx_hash.unwrap_or(config.rx_hash);
    if let Some(listen) = args.fpm {
        config.fpm.get_or_insert_default().listen = listen;
    }
    config.metrics = args.metrics.or(config.metrics);
    config.socket = args.socket.clone().or(config.socket);
    config.check().map_err(raddle_daemon::Error::from)?;
    Ok(config)
}

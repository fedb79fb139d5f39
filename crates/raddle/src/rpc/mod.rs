//! `raddle rpc`: a proxy that passes NFS and other ONC RPC over several connections to a server, each on a
//! path of its own.

mod again;
mod back;
mod candidates;
mod config;
mod connect;
mod detour;
mod dial;
mod follow;
mod health;
mod journal;
mod missing;
mod moves;
mod options;
mod place;
mod placing;
mod rates;
mod reload;
mod resolve;
mod screen;
mod served;
mod servers;
mod show;
mod suspects;
mod top;
mod trim;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use crate::cli;
use crate::error::Failure;
use raddle_control::{
    Command, PROXIES, Proxies, Proxy, ProxyConfig, Reply, Request, Server, ask_at, path_of,
};
use reload::Reads;
use serde::Serialize;
use servers::Servers;
use trim::Trim;

/// How often questions and signals are looked for.
const TICK: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &cli::Rpc) -> Result<(), Failure> {
    match &args.command {
        Some(cli::RpcCommand::Status(args)) => status(args),
        Some(cli::RpcCommand::Top(args)) => top::run(args),
        None => serve(args),
    }
}

/// The proxies that run here, or the one of the server with this name; and what is known of their configuration.
fn ask(args: &cli::Ask, name: Option<&str>) -> Result<Proxies, Failure> {
    let path = args.socket.clone().unwrap_or_else(|| path_of("rpc"));
    let mut said: Proxies = ask_at(&path, PROXIES)?;
    if let Some(name) = name {
        let names: Vec<String> = said.servers.iter().map(|s| s.name.clone()).collect();
        said.servers.retain(|server| server.name == name);
        if said.servers.is_empty() {
            return Err(Failure::usage(format!(
                "no server is called '{name}'; there are: {}",
                names.join(", ")
            )));
        }
    }
    Ok(said)
}

/// A server's proxy, and the configuration that all have.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    proxy: &'a Proxy,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a ProxyConfig>,
}

fn status(args: &cli::RpcStatus) -> Result<(), Failure> {
    let Proxies { servers, config } = ask(&args.ask, args.name.as_deref())?;
    for (i, proxy) in servers.iter().enumerate() {
        if args.ask.json {
            let config = config.as_ref();
            let line = serde_json::to_string(&Line { proxy, config });
            println!("{}", line.map_err(|e| Failure::system(e.to_string()))?);
            continue;
        }
        if i > 0 {
            println!();
        }
        print!("{}", show::text(proxy, args.details));
    }
    if let Some(config) = config.filter(|_| !args.ask.json) {
        print!("\n{}", show::config(&config));
    }
    Ok(())
}

/// What is to be served, and how.
fn wanted(args: &cli::Rpc) -> Result<config::File, Failure> {
    let Some(path) = &args.config else {
        return Ok(config::File {
            daemon: args.daemon.clone(),
            servers: vec![args.proxy.clone()],
        });
    };
    config::load(path)
}

/// Options beside those of servers; the command line goes before the file.
fn with_options(file: &cli::RpcDaemon, options: &cli::RpcDaemon) -> cli::RpcDaemon {
    cli::RpcDaemon {
        metrics: options.metrics.or(file.metrics),
        socket: options.socket.clone().or_else(|| file.socket.clone()),
        log_json: options.log_json || file.log_json,
    }
}

fn serve(args: &cli::Rpc) -> Result<(), Failure> {
    let wanted = wanted(args)?;
    let daemon = with_options(&wanted.daemon, &args.daemon);
    crate::logging::start(daemon.log_json);
    daemon
        .metrics
        .map_or(Ok(()), raddle_metrics::require_loopback)?;
    // Before the first thread: one that does not block the signals would be ended by them.
    let (stop, reload) = crate::signals::stop_and_reload_flags()?;
    let socket = daemon.socket.clone().unwrap_or_else(|| path_of("rpc"));
    let control = Server::start(socket.clone())?;
    let metrics = |address| raddle_metrics::serve(address, raddle_metrics::Source::Proxies);
    let scrapes = daemon.metrics.map(metrics).transpose()?;
    keep_memory();
    open_many();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let done = runtime.block_on(LocalSet::new().run_until(async {
        let mut servers = Servers::start(wanted.servers.clone(), socket.with_extension("")).await?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        let asked = [Some(&control.requests), scrapes.as_ref()];
        let mut file = args.config.as_deref().map(|path| Watched {
            path,
            first: &wanted,
            reads: Reads::first(path.to_owned(), Instant::now()),
        });
        let done = attend(&mut servers, (&stop, &reload), asked, &mut file).await;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        servers.drain().await;
        done
    }));
    // A name server that does not answer holds nobody up.
    runtime.shutdown_background();
    done
}

/// Has the C library keep what is freed: buffers of replies come and go by hundreds of KiB, and pages that
/// are given back and asked for again, zeroed, take a sixth of the proxy's time.
fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the options are known, the values in range; no other thread changes them.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TOP_PAD, 1 << 20);
    }
}

/// Has the C library give back what is free, once nothing is under way that would ask for it again.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and looks at the library's own lists, with their lock.
    unsafe {
        libc::malloc_trim(1 << 20);
    }
}

/// Has the process open as many files as it may: many systems start programs with 1024, which is fewer than the
/// clients of one server.
fn open_many() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // What cannot be raised stays.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// The file that it was started by.
struct Watched<'a> {
    path: &'a Path,
    /// What it said then.
    first: &'a config::File,
    reads: Reads,
}

/// What all servers do, and what is known of the configuration.
fn answer(servers: &Servers, file: Option<&Watched<'_>>) -> Proxies {
    Proxies {
        servers: servers.status(),
        config: file.map(|file| file.reads.said(Instant::now())),
    }
}

/// Answers questions until it is to stop, or a listener fails.
async fn attend(
    servers: &mut Servers,
    (stop, reload): (&Arc<AtomicBool>, &Arc<AtomicBool>),
    asked: [Option<&Receiver<Request>>; 2],
    file: &mut Option<Watched<'_>>,
) -> Result<(), Failure> {
    let mut trim = Trim::default();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(TICK).await;
        if trim.is_due(servers.kept(), Instant::now()) {
            give_memory_back();
        }
        for requests in asked.iter().flatten() {
            while let Ok(request) = requests.try_recv() {
                let answer = match request.command {
                    Command::Rpc => Reply::of(&answer(servers, file.as_ref())),
                    command => Reply::not_mine(command, PROXIES),
                };
                let _ = request.answer.send(answer);
            }
        }
        if reload.swap(false, Ordering::Relaxed) {
            match file {
                Some(file) => read_again(servers, file).await,
                None => tracing::warn!(
                    "SIGHUP does nothing without --config: there is no file to read again"
                ),
            }
        }
        servers.tend().await;
        if let Some(failure) = servers.ended().await {
            return Err(failure);
        }
    }
    Ok(())
}

async fn read_again(servers: &mut Servers, file: &mut Watched<'_>) {
    let result = match config::load(file.path) {
        Ok(read) => {
            if read.daemon != file.first.daemon {
                tracing::warn!(
                    "metrics, socket and log-json are as they were; they change when raddle rpc starts again"
                );
            }
            servers.change_to(read.servers).await;
            Ok(())
        }
        Err(e) => {
            let why = config::in_a_line(&e.to_string());
            tracing::error!("configuration refused, what was read before holds: {why}");
            Err(why)
        }
    };
    file.reads.again(result, Instant::now());
}

//! `raddle rpc`: a proxy that passes NFS and other ONC RPC over several connections to a server, each on a
//! path of its own.

mod back;
mod connect;
mod place;
mod show;

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use raddle_rpc::proxy::{Config, Proxy, Service};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use crate::cli;
use crate::control::{Command, Request, Server, ask_at, path_of};
use crate::error::Failure;
use crate::metrics;
use connect::Connector;

/// How often questions and signals are looked for.
const TICK: Duration = Duration::from_millis(50);
/// How long a client may stall within a record, or take no reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most clients at once.
const CLIENTS: usize = 1024;

/// Runs the command.
pub(crate) fn run(args: &cli::Rpc) -> Result<(), Failure> {
    match &args.command {
        Some(cli::RpcCommand::Status(ask)) => status(ask),
        None => serve(&args.proxy),
    }
}

fn status(args: &cli::Ask) -> Result<(), Failure> {
    let path = args.socket.clone().unwrap_or_else(|| path_of("rpc"));
    let value = ask_at(&path, Command::Status, "raddle rpc --server HOST:PORT")?;
    match args.json {
        true => println!("{value}"),
        false => print!("{}", show::text(&value)),
    }
    Ok(())
}

/// The addresses of the server, the first one first.
fn servers(args: &cli::RpcProxy) -> Result<Vec<SocketAddr>, Failure> {
    let Some(server) = &args.server else {
        return Err(Failure::usage(
            "name the server: --server HOST:PORT, such as nas.example:2049",
        ));
    };
    let resolved = server
        .to_socket_addrs()
        .map_err(|e| Failure::usage(format!("cannot find the server '{server}': {e}")))?;
    let first = resolved.into_iter().next();
    let first = first.ok_or_else(|| Failure::usage(format!("'{server}' has no address")))?;
    let mut servers = vec![first];
    for address in &args.server_addresses {
        let more = SocketAddr::new(*address, first.port());
        if !servers.contains(&more) {
            servers.push(more);
        }
    }
    Ok(servers)
}

fn serve(args: &cli::RpcProxy) -> Result<(), Failure> {
    crate::logging::start(args.log_json);
    let servers = servers(args)?;
    let lanes = usize::from(!args.no_lane && args.connections > 1);
    let mut services = vec![Service {
        programs: Vec::new(),
        connections: usize::from(args.connections),
        lanes,
    }];
    if args.mount_port.is_some() {
        services.push(Service {
            programs: vec![raddle_rpc::program::number::MOUNT],
            connections: 1,
            lanes: 0,
        });
    }
    let mut listen = args.listen.clone();
    if listen.is_empty() {
        listen.push(SocketAddr::from(([127, 0, 0, 1], 2049)));
    }
    // Before the first thread: one that does not block the signals would be ended by them.
    let stop = crate::signals::stop_flag()?;
    let listeners = listen
        .iter()
        .map(|address| listener(*address))
        .collect::<Result<Vec<_>, Failure>>()?;
    let port = listeners[0].local_addr()?.port();
    let config = Config {
        services,
        policy: args.policy.into(),
        most: args.max_record << 20,
        memory: (args.memory as usize) << 20,
        patience: PATIENCE,
        clients: CLIENTS,
        port,
    };
    let control = Server::start(args.socket.clone().unwrap_or_else(|| path_of("rpc")))?;
    let scrapes = match args.metrics {
        Some(address) => {
            let (sender, requests) = channel();
            metrics::serve_as(address, sender, show::metrics)?;
            Some(requests)
        }
        None => None,
    };
    let connector = Connector::new(args, servers)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    runtime.block_on(LocalSet::new().run_until(async move {
        let start = RandomState::new().hash_one(std::process::id()) as u32;
        let proxy = Proxy::start(config, Rc::new(connector), start);
        let mut serving = Vec::new();
        for listener in listeners {
            let listener = TcpListener::from_std(listener)?;
            let proxy = proxy.clone();
            let serve = async move { proxy.serve(listener).await };
            serving.push(tokio::task::spawn_local(serve));
        }
        let asked = [Some(&control.requests), scrapes.as_ref()];
        attend(&proxy, &stop, asked, &mut serving).await
    }))
}

fn listener(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(address).map_err(|e| {
        Failure::system(format!(
            "cannot listen on {address}: {e}; choose another --listen"
        ))
    })?;
    listener.set_nonblocking(true)?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "everybody who reaches this address can use the server through it");
    }
    Ok(listener)
}

/// Answers questions until it is to stop, or a listener fails.
async fn attend(
    proxy: &Proxy,
    stop: &Arc<AtomicBool>,
    asked: [Option<&Receiver<Request>>; 2],
    serving: &mut [tokio::task::JoinHandle<std::io::Result<()>>],
) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(TICK).await;
        for requests in asked.iter().flatten() {
            while let Ok(request) = requests.try_recv() {
                let status = serde_json::to_value(proxy.status())
                    .map_err(|e| Failure::system(e.to_string()))?;
                let _ = request.answer.send(status);
            }
        }
        for task in &mut *serving {
            if task.is_finished() {
                return match task.await {
                    Ok(Err(e)) => Err(Failure::system(format!("cannot accept clients: {e}"))),
                    _ => Err(Failure::system("a listener has ended")),
                };
            }
        }
    }
    Ok(())
}

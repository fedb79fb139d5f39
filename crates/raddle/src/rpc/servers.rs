//! The servers that are served: each has a proxy of its own, with its own connections, segments and memory.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use raddle_rpc::program::number::MOUNT;
use raddle_rpc::proxy::{Config, Proxy, Service, Status};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::connect::Connector;
use crate::cli::RpcProxy;
use crate::error::Failure;

/// How long a client may stall within a record, or take no reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most clients of a server at once.
const CLIENTS: usize = 1024;

/// Where clients connect.
pub(super) fn listen(args: &RpcProxy) -> Vec<SocketAddr> {
    match args.listen.as_slice() {
        [] => vec![SocketAddr::from(([127, 0, 0, 1], 2049))],
        some => some.to_vec(),
    }
}

/// What a server is called.
pub(super) fn name(args: &RpcProxy) -> String {
    let server = args.server.as_deref().unwrap_or_default();
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    args.name.clone().unwrap_or_else(|| host.to_owned())
}

/// The addresses of the server, the first one first.
async fn addresses(args: &RpcProxy) -> Result<Vec<SocketAddr>, Failure> {
    let Some(server) = &args.server else {
        return Err(Failure::usage(
            "name the server: --server HOST:PORT, such as nas.example:2049",
        ));
    };
    let resolved = tokio::net::lookup_host(server).await.map_err(|e| {
        let text = format!("cannot find the server '{server}': {e}");
        // Names may be found later, when the network is there.
        match e.kind() {
            io::ErrorKind::InvalidInput => Failure::usage(text),
            _ => Failure::system(text),
        }
    })?;
    let first = resolved.into_iter().next();
    let first = first.ok_or_else(|| Failure::system(format!("'{server}' has no address")))?;
    let mut servers = vec![first];
    for address in &args.server_addresses {
        let more = SocketAddr::new(*address, first.port());
        if !servers.contains(&more) {
            servers.push(more);
        }
    }
    Ok(servers)
}

fn listener(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(address).map_err(|e| {
        Failure::system(format!(
            "cannot listen on {address}: {e}; choose another --listen"
        ))
    })?;
    listener.set_nonblocking(true)?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "everybody who reaches this address can use the server through it");
    }
    Ok(TcpListener::from_std(listener)?)
}

/// One that is served.
struct Served {
    args: RpcProxy,
    proxy: Proxy,
    serving: Vec<JoinHandle<io::Result<()>>>,
}

impl Served {
    /// Starts to serve it, within a [`tokio::task::LocalSet`].
    fn start(args: RpcProxy, servers: Vec<SocketAddr>) -> Result<Served, Failure> {
        let listeners = listen(&args)
            .into_iter()
            .map(listener)
            .collect::<Result<Vec<_>, Failure>>()?;
        let connector = Connector::new(&args, servers)?;
        let mut services = vec![Service {
            programs: Vec::new(),
            connections: usize::from(args.connections),
            lanes: usize::from(!args.no_lane && args.connections > 1),
        }];
        if args.mount_port.is_some() {
            services.push(Service {
                programs: vec![MOUNT],
                connections: 1,
                lanes: 0,
            });
        }
        let config = Config {
            services,
            policy: args.policy.into(),
            most: args.max_record << 20,
            memory: (args.memory as usize) << 20,
            patience: PATIENCE,
            clients: CLIENTS,
            port: listeners[0].local_addr()?.port(),
        };
        // Keys are drawn anew for each.
        let start = RandomState::new().hash_one(std::process::id()) as u32;
        let proxy = Proxy::start(config, Rc::new(connector), start);
        let serving = listeners.into_iter().map(|listener| {
            let proxy = proxy.clone();
            tokio::task::spawn_local(async move { proxy.serve(listener).await })
        });
        Ok(Served {
            args,
            serving: serving.collect(),
            proxy,
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
        self.proxy.stop();
    }
}

/// What a server's proxy does.
#[derive(Serialize)]
struct Named {
    name: String,
    server: Option<String>,
    listen: Vec<SocketAddr>,
    #[serde(flatten)]
    status: Status,
}

/// All that are served.
#[derive(Default)]
pub(super) struct Servers {
    served: Vec<Served>,
}

impl Servers {
    /// Serves one more.
    pub(super) async fn add(&mut self, args: RpcProxy) -> Result<(), Failure> {
        let servers = addresses(&args).await?;
        self.served.push(Served::start(args, servers)?);
        Ok(())
    }

    /// Serves these from now on. Those that are as before go on; a changed one stops and starts, and stays as it
    /// is where its server cannot be found. What cannot be done is logged, and tried again the next time.
    pub(super) async fn change_to(&mut self, wanted: Vec<RpcProxy>) {
        let mut new = Vec::new();
        for args in &wanted {
            if self.served.iter().any(|served| served.args == *args) {
                continue;
            }
            match addresses(args).await {
                Ok(servers) => new.push((args.clone(), servers)),
                Err(e) => tracing::error!(server = name(args), "not served as the file says: {e}"),
            }
        }
        self.served.retain(|served| {
            let stays = wanted.contains(&served.args);
            let is_gone = !wanted.iter().any(|args| name(args) == name(&served.args));
            let is_replaced = new.iter().any(|(args, _)| name(args) == name(&served.args));
            if !stays && (is_gone || is_replaced) {
                tracing::info!(server = name(&served.args), "stopped");
            }
            stays || !(is_gone || is_replaced)
        });
        // The listeners of those that have stopped are closed by their tasks.
        tokio::task::yield_now().await;
        for (args, servers) in new {
            let name = name(&args);
            match Served::start(args, servers) {
                Ok(served) => {
                    tracing::info!(server = name, "started");
                    self.served.push(served);
                }
                Err(e) => tracing::error!(server = name, "not served: {e}"),
            }
        }
    }

    /// Why a listener has ended, if one has.
    pub(super) async fn ended(&mut self) -> Option<Failure> {
        for served in &mut self.served {
            for task in &mut served.serving {
                if task.is_finished() {
                    return Some(match task.await {
                        Ok(Err(e)) => Failure::system(format!("cannot accept clients: {e}")),
                        _ => Failure::system("a listener has ended"),
                    });
                }
            }
        }
        None
    }

    /// What all of them do, by name.
    pub(super) fn status(&self) -> Result<serde_json::Value, serde_json::Error> {
        let mut all: Vec<Named> = self.served.iter().map(named).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(serde_json::json!({ "servers": serde_json::to_value(all)? }))
    }
}

fn named(served: &Served) -> Named {
    Named {
        name: name(&served.args),
        server: served.args.server.clone(),
        listen: listen(&served.args),
        status: served.proxy.status(),
    }
}

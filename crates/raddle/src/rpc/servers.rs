//! The servers that are served: each has a proxy of its own, with its own connections, segments and memory.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use raddle_rpc::program::number::MOUNT;
use raddle_rpc::proxy::{Config, Proxy, Service, Status};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::field::display;

use super::connect::Connector;
use super::journal;
use super::missing::{AGAIN, Missing};
use super::reload::Change;
use super::resolve;
use crate::cli::RpcProxy;
use crate::error::Failure;

/// How long a client may stall within a record, or take no reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most clients of a server at once; a user has half of them at most.
const CLIENTS: usize = 2048;
/// How long what a new configuration changes waits for that.
const SAID: Duration = Duration::from_secs(5);
/// How long calls under way, and clients that take replies, are waited for at the end.
const DRAIN: Duration = Duration::from_secs(10);
/// What a record may have beside what `max-record` allows: the call's header and arguments, or the reply's.
const HEADER: u32 = 64 << 10;
/// How often it is looked at the start whether servers have been found.
const LOOK: Duration = Duration::from_millis(5);

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

fn listener(args: &RpcProxy, address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = std::net::TcpListener::bind(address).map_err(|e| {
        Failure::system(format!(
            "cannot listen on {address}: {e}; choose another --listen"
        ))
    })?;
    listener.set_nonblocking(true)?;
    if !address.ip().is_loopback() {
        tracing::warn!(
            server = display(name(args)),
            "listens on {address}, which is not loopback: everybody who reaches it can use the server through it"
        );
    }
    Ok(TcpListener::from_std(listener)?)
}

/// An address of the server that is a listener of the proxy's own, if one is.
fn own_listener(listen: &[SocketAddr], servers: &[SocketAddr]) -> Option<SocketAddr> {
    let is_own = |server: &&SocketAddr| {
        listen.iter().any(|own| {
            let all = own.ip().is_unspecified() && server.ip().is_loopback();
            own.port() == server.port() && (own.ip() == server.ip() || all)
        })
    };
    servers.iter().find(is_own).copied()
}

/// One that is served.
struct Served {
    args: RpcProxy,
    proxy: Proxy,
    serving: Vec<JoinHandle<io::Result<()>>>,
}

impl Served {
    /// Starts to serve it, within a [`tokio::task::LocalSet`]. Journals' names begin with `journals`.
    fn start(
        args: RpcProxy,
        servers: resolve::Servers,
        journals: &Path,
    ) -> Result<Served, Failure> {
        let listeners = listen(&args)
            .into_iter()
            .map(|address| listener(&args, address))
            .collect::<Result<Vec<_>, Failure>>()?;
        if let Some(own) = own_listener(&listen(&args), &servers.named) {
            return Err(Failure::usage(format!(
                "the server {own} is where this proxy listens itself; name another --server, or --listen elsewhere"
            )));
        }
        let addresses = servers.named.clone();
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
            most: (args.max_record << 20) + HEADER,
            memory: (args.memory as usize) << 20,
            patience: PATIENCE,
            clients: CLIENTS,
            port: listeners[0].local_addr()?.port(),
            below: args.privileged_ports.then_some(resolve::CLIENTS_BELOW),
        };
        let journal = journal::open(&args, journals, &config.services, &addresses);
        // Keys are drawn anew for each.
        let start = RandomState::new().hash_one(std::process::id()) as u32;
        let proxy = Proxy::resume(config, Rc::new(connector), start, journal);
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

impl Served {
    /// Stops to serve it, for a reason to log, and waits until its listeners are closed.
    async fn stop(mut self, why: &str) {
        for task in self.serving.drain(..) {
            task.abort();
            let _ = task.await;
        }
        tracing::info!(server = display(name(&self.args)), "{why}");
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

/// What is known of one that is not served.
#[derive(Serialize)]
struct NotServed {
    name: String,
    server: Option<String>,
    listen: Vec<SocketAddr>,
    not_served: String,
}

/// All that are served, or should be.
#[derive(Default)]
pub(super) struct Servers {
    served: Vec<Served>,
    missing: Vec<Missing>,
    /// What journals' names begin with.
    journals: PathBuf,
    /// Whether it was found out of all that were wanted first whether they can be served.
    started: bool,
    /// What has changed, until it is known which of those can be served.
    change: Option<(Change, Instant)>,
}

impl Servers {
    /// Starts to serve these; journals' names begin with `journals`. One that cannot be served now holds up no others, and is tried again.
    ///
    /// # Errors
    /// Why none of them can be, or what is wrong with one for good (exit code 1).
    pub(super) async fn start(
        wanted: Vec<RpcProxy>,
        journals: PathBuf,
    ) -> Result<Servers, Failure> {
        let mut servers = Servers {
            journals,
            ..Servers::default()
        };
        servers.want(wanted).await;
        while servers.missing.iter().any(|missing| missing.why.is_none()) {
            tokio::time::sleep(LOOK).await;
            servers.tend().await;
        }
        let fatal = |failure: &Failure| failure.code == 1 || servers.served.is_empty();
        let failed = servers.missing.iter_mut();
        let failed =
            failed.filter_map(|missing| missing.why.take_if(|(failure, _)| fatal(failure)));
        match failed.map(|(failure, _)| failure).next() {
            Some(failure) => Err(failure),
            None => {
                servers.started = true;
                servers.missing.iter_mut().for_each(Missing::others_start);
                Ok(servers)
            }
        }
    }

    /// Ends all in order: takes no calls any more, and waits until those that are under way have their replies, and
    /// clients these.
    pub(super) async fn drain(mut self) {
        for served in &mut self.served {
            served.serving.drain(..).for_each(|task| task.abort());
            served.proxy.drain();
        }
        let end = Instant::now() + DRAIN;
        let busy = |served: &Served| !served.proxy.is_drained();
        while self.served.iter().any(busy) && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        for served in self.served.iter().filter(|served| busy(served)) {
            let seconds = DRAIN.as_secs();
            tracing::warn!(
                server = display(name(&served.args)),
                "ends with calls without a reply after {seconds} s: their clients repeat them when it is back"
            );
        }
    }

    /// Bytes of calls and replies that are kept now.
    pub(super) fn kept(&self) -> usize {
        self.served.iter().map(|served| served.proxy.kept()).sum()
    }

    /// Serves these from now on, and logs what that changes as soon as it is known which of them can be served.
    pub(super) async fn change_to(&mut self, wanted: Vec<RpcProxy>) {
        let missing = self.missing.iter().map(|missing| &missing.args);
        let served = self.served.iter().map(|served| &served.args);
        let mut before: Vec<RpcProxy> = missing.cloned().collect();
        for args in served {
            // Of one that is to be changed still, what is wanted counts.
            if !before.iter().any(|other| name(other) == name(args)) {
                before.push(args.clone());
            }
        }
        let change = Change::between(&before, &wanted);
        self.want(wanted).await;
        self.change = Some((change, Instant::now()));
    }

    /// Logs what has changed, once it is known which servers can be served, or takes longer to be found out.
    fn tell_change(&mut self) {
        let asked = self.missing.iter().any(|missing| missing.why.is_none());
        let due = |(_, at): &mut (Change, Instant)| !asked || at.elapsed() > SAID;
        let Some((change, _)) = self.change.take_if(due) else {
            return;
        };
        let missing = self
            .missing
            .iter()
            .map(|missing| (name(&missing.args), missing.said()));
        let refused: Vec<(String, String)> = missing.collect();
        tracing::info!("{}", change.line(&refused));
    }

    /// Those that are as before go on; a changed one goes on as it is until its server has been found, and then
    /// stops and starts.
    async fn want(&mut self, wanted: Vec<RpcProxy>) {
        let all = std::mem::take(&mut self.served);
        for served in all {
            match wanted.iter().any(|args| name(args) == name(&served.args)) {
                true => self.served.push(served),
                false => served.stop("no longer served").await,
            }
        }
        self.missing
            .retain(|missing| wanted.contains(&missing.args));
        for args in wanted {
            let known = self.served.iter().map(|served| &served.args);
            let mut known = known.chain(self.missing.iter().map(|missing| &missing.args));
            if !known.any(|known| *known == args) {
                self.missing.push(Missing::new(args));
            }
        }
    }

    /// Goes on with those that are not served.
    pub(super) async fn tend(&mut self) {
        let mut found = Vec::new();
        for missing in &mut self.missing {
            match &mut missing.asked {
                None if missing
                    .why
                    .as_ref()
                    .is_none_or(|(_, at)| at.elapsed() > AGAIN) =>
                {
                    let args = missing.args.clone();
                    let asked = async move { resolve::servers(&args).await };
                    missing.asked = Some(tokio::task::spawn_local(asked));
                }
                Some(asked) if asked.is_finished() => {
                    match asked.await {
                        Ok(Ok(servers)) => found.push((missing.args.clone(), servers)),
                        Ok(Err(failure)) => missing.failed(failure, !self.started),
                        Err(e) => {
                            missing.failed(Failure::system(e.to_string()), !self.started);
                        }
                    }
                    missing.asked = None;
                }
                _ => {}
            }
        }
        for (args, servers) in found {
            // Its listeners may be wanted again.
            let before = self
                .served
                .iter()
                .position(|s| name(&s.args) == name(&args));
            if let Some(before) = before {
                let why = "stopped, to start again as the configuration has it now";
                self.served.swap_remove(before).stop(why).await;
            }
            let is = |missing: &Missing| missing.args == args;
            match Served::start(args.clone(), servers, &self.journals) {
                Ok(served) => {
                    let missing = self.missing.iter_mut().find(|missing| is(missing));
                    let past = missing.and_then(|m| m.trouble.works(0, Instant::now()));
                    let server = display(name(&args));
                    match past {
                        None => tracing::info!(server, "served"),
                        Some((times, time)) => {
                            let seconds = time.as_secs();
                            tracing::info!(
                                server,
                                "served, after {seconds} s and {times} attempts in vain"
                            );
                        }
                    }
                    self.served.push(served);
                    self.missing.retain(|missing| !is(missing));
                }
                Err(failure) => {
                    let missing = self.missing.iter_mut().find(|missing| is(missing));
                    missing.into_iter().for_each(|m| {
                        m.failed(
                            Failure::new(failure.code, failure.to_string()),
                            !self.started,
                        )
                    });
                }
            }
        }
        self.tell_change();
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

    /// What each of them does, by name.
    pub(super) fn status(&self) -> Result<Value, serde_json::Error> {
        let mut all = Vec::new();
        for served in &self.served {
            all.push(serde_json::to_value(Named {
                name: name(&served.args),
                server: served.args.server.clone(),
                listen: listen(&served.args),
                status: served.proxy.status(),
            })?);
        }
        for missing in &self.missing {
            let args = &missing.args;
            if self
                .served
                .iter()
                .any(|served| name(&served.args) == name(args))
            {
                continue;
            }
            all.push(serde_json::to_value(NotServed {
                name: name(args),
                server: args.server.clone(),
                listen: listen(args),
                not_served: missing.said(),
            })?);
        }
        all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        Ok(Value::Array(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_does_not_serve_itself() {
        let addresses = |of: &[&str]| -> Vec<SocketAddr> {
            of.iter().map(|address| address.parse().unwrap()).collect()
        };
        let own = |listen: &[&str], servers: &[&str]| {
            own_listener(&addresses(listen), &addresses(servers)).is_some()
        };
        assert!(own(
            &["127.0.0.1:2049"],
            &["10.0.0.1:2049", "127.0.0.1:2049"]
        ));
        assert!(own(&["0.0.0.0:2049"], &["127.0.0.1:2049"]));
        assert!(!own(&["127.0.0.1:2049"], &["127.0.0.2:2049"]));
        assert!(!own(&["127.0.0.1:2049"], &["127.0.0.1:2050"]));
        assert!(!own(&["0.0.0.0:2049"], &["10.0.0.2:2049"]));
    }
}

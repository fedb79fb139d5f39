//! A server that is served: how that begins, and how it ends.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use raddle_rpc::program::number::MOUNT;
use raddle_rpc::proxy::{Config, Proxy, Service};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::Error;
use crate::connect::Connector;
use crate::journal;
use crate::resolve;
use crate::server::{MAX_RECORD, Server};
use crate::servers::LOOK;

/// How long a client may stall within a record, or take no reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most clients of a server at once; a user has half of them at most.
const CLIENTS: usize = 2048;
/// How long calls under way, and clients that take replies, are waited for at the end.
const DRAIN: Duration = Duration::from_secs(10);
/// What a record may have beside what `max-record` allows: the call's header and arguments, or the reply's.
const HEADER: u32 = 64 << 10;
// One fragment may have a whole record.
const _: () = assert!((MAX_RECORD << 20) + HEADER < raddle_rpc::record::LONGEST);

fn listener(options: &Server, address: SocketAddr) -> Result<TcpListener, Error> {
    let listener =
        std::net::TcpListener::bind(address).map_err(|e| Error::Listen { address, source: e })?;
    listener.set_nonblocking(true)?;
    if !address.ip().is_loopback() {
        tracing::warn!(
            server = display(&options.name),
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
pub(crate) struct Served {
    pub options: Server,
    pub proxy: Proxy,
    /// Its listeners.
    pub serving: Vec<JoinHandle<io::Result<()>>>,
}

impl Served {
    /// Starts to serve it, within a [`tokio::task::LocalSet`]. Journals' names begin with `journals`.
    pub(crate) fn start(
        options: Server,
        servers: resolve::Addresses,
        journals: &Path,
    ) -> Result<Served, Error> {
        let listeners = options
            .listen
            .iter()
            .map(|address| listener(&options, *address))
            .collect::<Result<Vec<_>, Error>>()?;
        if let Some(own) = own_listener(&options.listen, &servers.named) {
            return Err(Error::Itself(own));
        }
        let addresses = servers.named.clone();
        let mut services = vec![Service {
            programs: Vec::new(),
            connections: usize::from(options.connections),
            lanes: usize::from(options.lane && options.connections > 1),
        }];
        if options.mount_port.is_some() {
            services.push(Service {
                programs: vec![MOUNT],
                connections: 1,
                lanes: 0,
            });
        }
        let config = Config {
            services,
            policy: options.policy,
            most: (options.max_record << 20) + HEADER,
            memory: (options.memory as usize) << 20,
            patience: PATIENCE,
            clients: CLIENTS,
            port: listeners[0].local_addr()?.port(),
            below: options.privileged_ports.then_some(resolve::CLIENTS_BELOW),
        };
        let (journal, left) = journal::open(&options, journals, &config.services, &addresses);
        let last = left.peer.map(|peer| peer.ip());
        let connector = Connector::new(&options, servers, last)?;
        // Keys are drawn anew for each.
        let start = RandomState::new().hash_one(std::process::id()) as u32;
        let proxy = Proxy::resume(config, Rc::new(connector), start, (journal, left));
        let serving = listeners.into_iter().map(|listener| {
            let proxy = proxy.clone();
            tokio::task::spawn_local(async move { proxy.serve(listener).await })
        });
        Ok(Served {
            options,
            serving: serving.collect(),
            proxy,
        })
    }
}

impl Served {
    /// Closes its listeners, which others may want; connections that stand go on.
    pub(crate) async fn close(&mut self) {
        for task in self.serving.drain(..) {
            task.abort();
            let _ = task.await;
        }
    }

    /// Ends it in order: takes no calls any more, and waits until those that are under way have their replies, and
    /// clients these. When it returns, its ports and its journal are free.
    pub(crate) async fn end(mut self) {
        self.close().await;
        self.proxy.drain();
        let end = Instant::now() + DRAIN;
        while !self.proxy.is_drained() && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        if !self.proxy.is_drained() {
            let seconds = DRAIN.as_secs();
            tracing::warn!(
                server = display(&self.options.name),
                "ends with calls without a reply after {seconds} s: their clients repeat them when it is back"
            );
        }
        self.proxy.stop();
        while !self.proxy.is_stopped() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
        self.proxy.stop();
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

//! What tests of the proxy share.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use raddle_rpc::dispatch::Policy;
use raddle_rpc::proxy::{Config, Connect, Connected, Proxy, Review, Service, Standing, Wanted};
use raddle_rpc::record::mark;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::LocalSet;
use tokio::time::timeout;

/// A record, in fragments of this size.
pub(crate) fn fragments(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let count = bytes.len().div_ceil(size);
    for (i, part) in bytes.chunks(size).enumerate() {
        out.extend(mark(part.len() as u32, i + 1 == count));
        out.extend(part);
    }
    out
}

/// Reads a record.
pub(crate) async fn record(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let word = stream.read_u32().await?;
        let start = record.len();
        record.resize(start + (word & 0x7fff_ffff) as usize, 0);
        stream.read_exact(&mut record[start..]).await?;
        if word >> 31 == 1 {
            return Ok(record);
        }
    }
}

/// Connects without placement.
pub(crate) struct Plain(pub(crate) SocketAddr);

impl Connect for Plain {
    fn connect(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = io::Result<Connected>> + '_>> {
        Box::pin(async move {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
            if let Some(again) = wanted.again {
                socket.bind(again.from)?;
            }
            Ok(Connected {
                stream: socket.connect(self.0).await?,
                out: None,
                back: None,
                attempts: 1,
                detour: false,
            })
        })
    }

    fn review(&self, _: &[Standing]) -> Review {
        Review::default()
    }

    fn closed(&self, _: usize, _: usize) {}
}

/// A listener on a free port.
pub(crate) async fn free() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// A configuration with a lane for small calls.
pub(crate) fn config(connections: usize, memory: usize, patience: u64) -> Config {
    Config {
        services: vec![Service {
            programs: Vec::new(),
            connections,
            lanes: 1,
        }],
        policy: Policy::LeastBytes,
        most: 4 << 20,
        memory,
        patience: Duration::from_secs(patience),
        clients: 64,
        port: 2049,
    }
}

/// A proxy before a server, and where it listens.
pub(crate) async fn proxy_to(server: SocketAddr, config: Config) -> (Proxy, SocketAddr) {
    let own = free().await;
    let address = own.local_addr().unwrap();
    let proxy = Proxy::start(config, Rc::new(Plain(server)), 0xffff_fff0);
    let serving = proxy.clone();
    tokio::task::spawn_local(async move { serving.serve(own).await });
    (proxy, address)
}

/// Runs a test, two minutes at most.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_for(Duration::from_secs(120), test);
}

/// Runs a test that may take so long.
pub(crate) fn run_for(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { timeout(limit, test).await.unwrap() };
    runtime.block_on(LocalSet::new().run_until(test));
}

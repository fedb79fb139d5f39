//! What tests of the proxy share.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use raddle_rpc::client::Direct;
use raddle_rpc::dispatch::Policy;
use raddle_rpc::proxy::{Config, Proxy, Service, Status};
use raddle_rpc::record::mark;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

#[allow(unreachable_pub, reason = "a module of the end-to-end tests, too")]
#[path = "../../../../tests/src/loopback.rs"]
mod loopback;

pub(crate) use loopback::local_address;

/// Words as they are sent.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A word of a message.
pub(crate) fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap())
}

/// A record, in fragments of this size.
pub(crate) fn fragments(bytes: &[u8], size: usize) -> Vec<u8> {
    let count = bytes.len().div_ceil(size);
    let mut out = Vec::with_capacity(bytes.len() + 4 * count);
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

/// A listener on an address of its own.
pub(crate) async fn free() -> TcpListener {
    TcpListener::bind(local_address()).await.unwrap()
}

/// The way to a server, from an address of its own: nobody else can have a port that is connected from again.
pub(crate) fn direct(server: SocketAddr) -> Direct {
    Direct::to(server).from([local_address()])
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
        below: None,
    }
}

/// A proxy before a server, and where it listens.
pub(crate) async fn proxy_to(server: SocketAddr, config: Config) -> (Proxy, SocketAddr) {
    let own = free().await;
    let address = own.local_addr().unwrap();
    let proxy = Proxy::start(config, Rc::new(direct(server)), 0xffff_fff0);
    let serving = proxy.clone();
    tokio::task::spawn_local(async move { serving.serve(own).await });
    (proxy, address)
}

/// Waits until this is so.
pub(crate) async fn until(so: impl Fn() -> bool) {
    while !so() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until every connection has been made.
pub(crate) async fn connected(proxy: &Proxy) {
    until(|| proxy.status().transports.iter().all(|t| t.connections > 0)).await;
}

/// Replies that have come.
pub(crate) fn replies(status: &Status) -> u64 {
    status.transports.iter().map(|t| t.replies).sum()
}

/// Runs a test, two minutes at most.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    run_for(Duration::from_secs(120), test)
}

/// Runs a test that may take so long.
pub(crate) fn run_for<T>(limit: Duration, test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { timeout(limit, test).await.unwrap() };
    runtime.block_on(LocalSet::new().run_until(test))
}

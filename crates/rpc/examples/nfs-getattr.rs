//! Mounts an export by NFSv3, and asks for the attributes of its root, many times at once:
//!
//!     cargo run --release -p raddle-rpc --example nfs-getattr -- HOST EXPORT [CALLS [AT-ONCE]]
//!
//! HOST is an address; the ports are those that its portmapper says.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use raddle_rpc::client::{Client, Config, Credentials, Direct, Local};
use raddle_rpc::program::number::{MOUNT, NFS, PORTMAP};
use tokio::task::LocalSet;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [host, export, numbers @ ..] = words.as_slice() else {
        return Err("usage: nfs-getattr HOST EXPORT [CALLS [AT-ONCE]]".into());
    };
    let number = |i: usize, or: usize| numbers.get(i).map_or(Ok(or), |word| word.parse());
    let (calls, at_once) = (number(0, 10_000)?, number(1, 64)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(LocalSet::new().run_until(load(host.parse()?, export, calls, at_once)))
}

/// A word at the front of results.
fn word(bytes: &Bytes, at: usize) -> Result<u32, Box<dyn Error>> {
    let word = bytes
        .get(4 * at..4 * at + 4)
        .ok_or("a reply that is too short")?;
    Ok(u32::from_be_bytes(word.try_into()?))
}

/// Opaque data, with its length and padding.
fn opaque(data: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u32(data.len() as u32);
    bytes.put_slice(data);
    bytes.put_bytes(0, data.len().next_multiple_of(4) - data.len());
    bytes.freeze()
}

/// A client for a few calls.
async fn one(server: SocketAddr) -> Result<Client, Box<dyn Error>> {
    let config = Config {
        connections: 1,
        lanes: 0,
        ..Config::default()
    };
    Ok(Client::connect(Direct::to(server), config).await?)
}

/// The port of a program, as the portmapper says (GETPORT).
async fn port(host: IpAddr, program: u32) -> Result<u16, Box<dyn Error>> {
    let mut arguments = BytesMut::new();
    for word in [program, 3, 6, 0] {
        arguments.put_u32(word);
    }
    let portmapper = one((host, 111).into()).await?;
    let nobody = Credentials::none();
    let reply = portmapper.call(PORTMAP, 2, 3, &nobody, arguments.freeze());
    match word(&reply.await?.results, 0)?.try_into()? {
        0 => Err(format!("{host} has no program {program} over TCP").into()),
        port => Ok(port),
    }
}

async fn load(
    host: IpAddr,
    export: &str,
    calls: usize,
    at_once: usize,
) -> Result<(), Box<dyn Error>> {
    let root = Credentials::sys("nfs-getattr", 0, 0, &[])?;
    let mount = one((host, port(host, MOUNT).await?).into()).await?;
    // MNT: a status, then the handle.
    let path = opaque(export.as_bytes());
    let mounted = mount.call(MOUNT, 3, 1, &root, path).await?.results;
    if word(&mounted, 0)? != 0 {
        return Err(format!("{export} is refused: {}", word(&mounted, 0)?).into());
    }
    let length = word(&mounted, 1)? as usize;
    let handle = opaque(
        mounted
            .get(8..8 + length)
            .ok_or("a handle that is cut off")?,
    );

    let server = SocketAddr::new(host, port(host, NFS).await?);
    let client = Local::connect(Rc::new(Direct::to(server)), Config::default()).await?;
    let (client, start) = (Rc::new(client), Instant::now());
    let mut workers = Vec::new();
    for worker in 0..at_once {
        let (client, root, handle) = (Rc::clone(&client), root.clone(), handle.clone());
        workers.push(tokio::task::spawn_local(async move {
            for _ in (worker..calls).step_by(at_once) {
                client.call(NFS, 3, 1, &root, handle.clone()).await?;
            }
            Ok::<(), raddle_rpc::client::CallError>(())
        }));
    }
    for worker in workers {
        worker.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{calls} calls in {seconds:.3} s, {:.0} a second",
        calls as f64 / seconds
    );
    for transport in client.status().transports {
        println!(
            "connection {}: {} calls, {:.0} us",
            transport.number, transport.calls, transport.latency_us
        );
    }
    Ok(())
}

//! A server in this process, and its proxy over loopback: a few calls, and the proxy's status.
//!
//!     cargo run -p raddle-rpc-paths --example loopback

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use raddle_rpc_paths::{Server, Servers, show};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

/// NFSv3's NULL, without credentials, as a record; the XID comes first.
const NULL: [u32; 10] = [0, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
/// Calls.
const CALLS: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(LocalSet::new().run_until(all()))
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? & 0x7fff_ffff;
    let mut record = vec![0; length as usize];
    stream.read_exact(&mut record).await?;
    Ok(record)
}

async fn write(stream: &mut TcpStream, words: &[u32]) -> io::Result<()> {
    let mut record = ((1 << 31) | (4 * words.len() as u32))
        .to_be_bytes()
        .to_vec();
    record.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    stream.write_all(&record).await
}

/// Answers every call with success.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let call = read(&mut stream).await?;
        let xid = call.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
        write(&mut stream, &[xid, 1, 0, 0, 0, 0]).await?;
    }
}

async fn all() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let server = listener.local_addr()?;
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // It ends when the proxy closes the connection.
            spawn_local(answer(stream));
        }
    });

    // A port that is free, and free again when this is dropped.
    let listen: SocketAddr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await?
        .local_addr()?;
    let folder = tempfile::tempdir()?;
    let wanted = Server {
        name: "example".into(),
        listen: vec![listen],
        ..Server::new(server.into())
    };
    let mut servers = Servers::start(vec![wanted], folder.path().join("rpc")).await?;

    let mut client = TcpStream::connect(listen).await?;
    for xid in 1..=CALLS {
        let mut call = NULL;
        call[0] = xid;
        write(&mut client, &call).await?;
        read(&mut client).await?;
    }
    // Who runs for longer calls this every 50 ms.
    servers.tend().await;
    for proxy in servers.status() {
        print!("{}", show::text(&proxy, true));
    }
    drop(client);
    tokio::time::timeout(Duration::from_secs(20), servers.drain()).await?;
    Ok(())
}

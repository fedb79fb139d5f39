//! A server, the proxy before it and a client, in one process over loopback: a thousand calls over four connections.
//!
//!     cargo run -p raddle-rpc --example loopback

use std::error::Error;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use raddle_rpc::client::{Config as ClientConfig, Credentials, Direct, Local};
use raddle_rpc::dispatch::Policy;
use raddle_rpc::program::number::NFS;
use raddle_rpc::proxy::{Config, Proxy, Service};
use raddle_rpc::record::mark;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

/// Calls in all.
const CALLS: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(LocalSet::new().run_until(all()))
}

/// Answers every call of a connection with success and no results. Its records have one fragment each.
async fn serve(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let length = stream.read_u32().await? & 0x7fff_ffff;
        let mut call = vec![0; length as usize];
        stream.read_exact(&mut call).await?;
        let mut reply = mark(24, true).to_vec();
        // The call's XID; a reply, accepted, no verifier, success.
        reply.extend(&call[..4]);
        for word in [1_u32, 0, 0, 0, 0] {
            reply.extend(word.to_be_bytes());
        }
        stream.write_all(&reply).await?;
    }
}

async fn all() -> Result<(), Box<dyn Error>> {
    let server = TcpListener::bind("127.0.0.1:0").await?;
    let address = server.local_addr()?;
    spawn_local(async move {
        while let Ok((stream, _)) = server.accept().await {
            // It ends when the proxy closes the connection.
            spawn_local(serve(stream));
        }
    });

    let config = Config {
        services: vec![Service {
            programs: vec![],
            connections: 4,
            lanes: 1,
        }],
        policy: Policy::LeastBytes,
        most: 1 << 20,
        memory: 64 << 20,
        patience: Duration::from_secs(30),
        clients: 64,
        port: 2049,
        below: None,
    };
    let proxy = Proxy::start(config, Rc::new(Direct::to(address)), 0);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = proxy.clone();
    spawn_local(async move { serving.serve(listener).await });

    let one = ClientConfig {
        connections: 1,
        lanes: 0,
        ..ClientConfig::default()
    };
    let client = Rc::new(Local::connect(Rc::new(Direct::to(address)), one).await?);
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        let client = Rc::clone(&client);
        calls.push(spawn_local(async move {
            // NFSv3, GETATTR of a handle of four bytes.
            let arguments = bytes::Bytes::from_static(&[0, 0, 0, 4, 1, 2, 3, 4]);
            client
                .call(NFS, 3, 1, &Credentials::none(), arguments)
                .await
        }));
    }
    for call in calls {
        call.await??;
    }
    let status = proxy.status();
    for transport in &status.transports {
        let what = if transport.lane { "lane" } else { "connection" };
        println!("{what} {}: {} calls", transport.number, transport.calls);
    }
    let replies: u64 = status.transports.iter().map(|of| of.replies).sum();
    println!("{replies} replies");
    Ok(())
}

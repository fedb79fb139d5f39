//! Connections straight to given addresses.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::proxy::{Connect, Connected, Review, Standing, Wanted};

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to a server's addresses in turn, from ports of the kernel's choice or from those that are given.
///
/// It looks at no routes. Where each connection shall have a path of its own, `raddle ports plan` gives the
/// ports for [`Direct::from`]; another way is to connect to `raddle rpc`, which places its connections.
#[derive(Clone, Debug)]
pub struct Direct {
    servers: Vec<SocketAddr>,
    from: Vec<SocketAddr>,
}

impl Direct {
    /// To this server.
    pub fn to(server: SocketAddr) -> Direct {
        Direct {
            servers: vec![server],
            from: Vec::new(),
        }
    }

    /// Also to these addresses of the same server, in turn.
    pub fn also(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Direct {
        self.servers.extend(servers);
        self
    }

    /// From these addresses and ports, by the connection's number, again from the first where there are more
    /// connections; port 0 is any. A port serves one connection to one address of the server at a time.
    pub fn from(mut self, own: impl IntoIterator<Item = SocketAddr>) -> Direct {
        self.from = own.into_iter().collect();
        self
    }

    async fn make(&self, wanted: Wanted) -> io::Result<TcpStream> {
        let turn = self.servers[wanted.number % self.servers.len()];
        let server = wanted.again.map_or(turn, |again| again.to);
        let socket = match server.is_ipv6() {
            true => TcpSocket::new_v6()?,
            false => TcpSocket::new_v4()?,
        };
        socket.set_reuseaddr(true)?;
        // Reset when it is dropped, so that its port is free at once.
        socket.set_zero_linger()?;
        let given = self.from.get(wanted.number % self.from.len().max(1));
        if let Some(from) = wanted.again.map(|again| again.from).or(given.copied()) {
            socket.bind(from)?;
        }
        match timeout(PATIENCE, socket.connect(server)).await {
            Ok(done) => done,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{server} does not answer within {} s", PATIENCE.as_secs()),
            )),
        }
    }
}

impl Connect for Direct {
    fn connect(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = io::Result<Connected>> + '_>> {
        Box::pin(async move {
            Ok(Connected {
                stream: self.make(wanted).await?,
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

//! Makes single connections, from an address, a port, a mark.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::resolve::PRIVILEGED;

/// How long a connection may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long one may take whose path is to be found out, while the server is not known to be farther away.
pub(crate) const BRIEF: Duration = Duration::from_millis(250);
/// From any privileged port, of this address if one is given.
///
/// # Errors
/// What connecting says, or that all are in use.
pub(crate) async fn privileged(server: SocketAddr, local: Option<IpAddr>) -> io::Result<TcpStream> {
    let local = local.unwrap_or_else(|| unspecified(server));
    for port in (PRIVILEGED.0..=PRIVILEGED.1).rev() {
        match connect(server, Some(SocketAddr::new(local, port)), PATIENCE).await {
            Err(e) if is_taken(&e) => {}
            done => return done,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!(
            "all ports from {} to {} are in use",
            PRIVILEGED.0, PRIVILEGED.1
        ),
    ))
}

fn unspecified(server: SocketAddr) -> IpAddr {
    match server.is_ipv6() {
        true => IpAddr::from([0_u16; 8]),
        false => IpAddr::from([0_u8; 4]),
    }
}

/// Whether another port may do.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
    )
}

/// Connects; the connection is reset when it is dropped, so that its port is free at once.
pub(crate) async fn connect(
    server: SocketAddr,
    from: Option<SocketAddr>,
    patience: Duration,
) -> io::Result<TcpStream> {
    connect_by(server, from, patience, None).await
}

/// As [`connect`], with a mark that routing may go by.
pub(crate) async fn connect_by(
    server: SocketAddr,
    from: Option<SocketAddr>,
    patience: Duration,
    mark: Option<u32>,
) -> io::Result<TcpStream> {
    let socket = match server.is_ipv6() {
        true => TcpSocket::new_v6()?,
        false => TcpSocket::new_v4()?,
    };
    socket.set_reuseaddr(true)?;
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    if let Some(mark) = mark {
        socket2::SockRef::from(&socket).set_mark(mark)?;
    }
    if let Some(from) = from {
        socket.bind(from).map_err(|e| match e.kind() {
            // Another port would not do.
            io::ErrorKind::AddrNotAvailable => io::Error::other(format!(
                "{} is no address of this machine any more",
                from.ip()
            )),
            io::ErrorKind::PermissionDenied => io::Error::new(
                e.kind(),
                format!("port {} needs CAP_NET_BIND_SERVICE: {e}", from.port()),
            ),
            _ => e,
        })?;
    }
    match timeout(patience, socket.connect(server)).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "{server} does not answer within {} ms",
                patience.as_millis()
            ),
        )),
    }
}

//! Connected TCP and UDP sockets of the namespace (`sock_diag`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Error;
use super::talk::Talk;
use crate::codec::{Builder, DecodeError, Message};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Bytes in `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Bytes in `struct inet_diag_msg`.
const SOCKET: usize = 72;
/// `TCP_ESTABLISHED`; of UDP sockets: connected.
const ESTABLISHED: u8 = 1;

/// A socket that has a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connected {
    /// 6 (TCP) or 17 (UDP).
    pub protocol: u8,
    /// Its own address; of an IPv6 socket that talks IPv4, that.
    pub local: IpAddr,
    /// Its own port.
    pub sport: u16,
    /// The peer's address.
    pub remote: IpAddr,
    /// The peer's port.
    pub dport: u16,
}

/// TCP connections that are established and UDP sockets that are connected, of both families. Needs no
/// privilege. Without `sock_diag` for one of them in the kernel, none of those.
///
/// # Errors
/// [`Error::Io`]; [`Error::Decode`] for an answer that makes no sense.
pub fn connected() -> Result<Vec<Connected>, Error> {
    let what = "list sockets";
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
            let Some(mut talk) = Talk::open(libc::NETLINK_SOCK_DIAG, what)? else {
                return Ok(sockets);
            };
            let mut head = [0; REQUEST];
            (head[0], head[1]) = (family as u8, protocol as u8);
            head[4..8].copy_from_slice(&(1_u32 << ESTABLISHED).to_ne_bytes());
            let mut request = Builder::new();
            request.begin(SOCK_DIAG_BY_FAMILY, 0, &head).end()?;
            let decode = |message: &Message<'_>| decode(message, protocol as u8);
            match talk.dump(&mut request, what, decode) {
                Ok(list) => sockets.extend(list),
                // The module for this protocol is not there.
                Err(e) if e.errno() == Some(libc::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(sockets)
}

fn decode(message: &Message<'_>, protocol: u8) -> Result<Option<Connected>, DecodeError> {
    if message.kind != SOCK_DIAG_BY_FAMILY {
        return Ok(None);
    }
    let (head, _) = message.split::<SOCKET>("inet_diag_msg")?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let socket = Connected {
        protocol,
        sport: port(4),
        dport: port(6),
        local: address(head[0], head, 8),
        remote: address(head[0], head, 24),
    };
    Ok((head[1] == ESTABLISHED && socket.dport != 0).then_some(socket))
}

/// 16 bytes, of which IPv4 uses the first four.
fn address(family: u8, head: &[u8; SOCKET], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    if i32::from(family) == libc::AF_INET6 {
        return IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
    }
    IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn finds_this_processs_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect("127.0.0.1:9").unwrap();
        let sockets = connected().unwrap();
        let is = |protocol, local: std::net::SocketAddr, remote: std::net::SocketAddr| {
            sockets.contains(&Connected {
                protocol,
                local: local.ip(),
                sport: local.port(),
                remote: remote.ip(),
                dport: remote.port(),
            })
        };
        assert!(is(
            6,
            stream.local_addr().unwrap(),
            stream.peer_addr().unwrap()
        ));
        assert!(is(17, udp.local_addr().unwrap(), udp.peer_addr().unwrap()));
        assert!(sockets.iter().all(|s| s.dport != 0), "no listening ones");
    }
}

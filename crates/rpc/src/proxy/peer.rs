//! Who a client is: the local user, or the address that it comes from.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::core::User;

/// Who has the other end of a connection from `peer` to `own`. The kernel knows where that is on this machine, unless
/// it has no `tcp_diag`: then all local users are one.
pub(super) fn user_of(own: SocketAddr, peer: SocketAddr) -> User {
    match uid_of(own, peer) {
        Ok(Some(uid)) => User::Local(uid),
        _ => User::At(network(peer.ip().to_canonical())),
    }
}

/// An address of IPv4, or the /64 of one of IPv6.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// Bytes of the header of a netlink message.
const HEADER: usize = 16;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Where `idiag_uid` is in `struct inet_diag_msg`.
const UID: usize = 64;

/// The user who has the socket of `peer`, if that is in this network namespace.
fn uid_of(own: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    // SAFETY: no memory is involved.
    let fd = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_INET_DIAG)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let request = request(own, peer);
    // SAFETY: the slice lives through the call, and the length is its own. The kernel answers within it.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [MaybeUninit::<u8>::zeroed(); 1024];
    // SAFETY: the kernel writes at most the length of the array.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            0,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are bytes, and so is what the kernel wrote.
    let answer = answer.map(|byte| unsafe { byte.assume_init() });
    Ok(uid_in(&answer[..got.unsigned_abs()]))
}

/// Asks for one socket, whatever its state.
fn request(own: SocketAddr, peer: SocketAddr) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let mut put = |at: usize, of: &[u8]| bytes[at..at + of.len()].copy_from_slice(of);
    put(0, &((HEADER + REQUEST) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let ends = [peer, own].map(|end| (end.ip().to_canonical(), end.port()));
    let family = match ends[0].0 {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    put(HEADER, &[family as u8, libc::IPPROTO_TCP as u8]);
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    // The socket's own end first: ports, then addresses.
    for (i, (ip, port)) in ends.into_iter().enumerate() {
        put(HEADER + 8 + 2 * i, &port.to_be_bytes());
        let at = HEADER + 12 + 16 * i;
        match ip {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    // No cookie.
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

/// The user in an answer; none where it is an error.
fn uid_in(answer: &[u8]) -> Option<u32> {
    let kind = answer.get(4..6)?.try_into().ok()?;
    if u16::from_ne_bytes(kind) != BY_FAMILY {
        return None;
    }
    let uid = answer.get(HEADER + UID..HEADER + UID + 4)?;
    Some(u32::from_ne_bytes(uid.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_network_is_one_user() {
        let of = |ip: &str| {
            let peer = SocketAddr::new(ip.parse().unwrap(), 7);
            user_of("[2001:db8::1]:2049".parse().unwrap(), peer)
        };
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff:ffff:ffff:4"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    }

    #[test]
    fn a_local_user_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Without IPv6 there is nothing to see.
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let own = listener.local_addr().unwrap();
            let _client = TcpStream::connect(own).unwrap();
            let (_, peer) = listener.accept().unwrap();
            // SAFETY: it only answers.
            let uid = unsafe { libc::geteuid() };
            match uid_of(own, peer) {
                Ok(Some(found)) => {
                    assert_eq!(found, uid);
                    assert_eq!(user_of(own, peer), User::Local(uid));
                }
                // A kernel without tcp_diag.
                other => eprintln!("not known: {other:?}"),
            }
            let elsewhere = SocketAddr::new("192.0.2.1".parse().unwrap(), 7);
            assert_eq!(user_of(own, elsewhere), User::At(elsewhere.ip()));
        }
    }
}

//! Whose the other end of a connection over loopback is.

use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `TCP_ESTABLISHED`.
const ESTABLISHED: &str = "01";

/// The user who has the socket with this address that is connected to `ours`; none where there is no such socket
/// that anybody has open. Costs a walk over the connections of the calling thread's network namespace
/// (`/proc/net/tcp`).
pub(super) fn owner(peer: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let table = match peer {
        SocketAddr::V4(_) => "/proc/thread-self/net/tcp",
        SocketAddr::V6(_) => "/proc/thread-self/net/tcp6",
    };
    let text = read_to_string(table).ok()?;
    text.lines()
        .skip(1)
        .find_map(|line| owner_in(line, peer, ours))
}

/// The same for one line (`get_tcp4_sock`): number, local and remote address, state, queues, timer, retransmissions,
/// user, timeout, inode. A socket that its owner has closed has no inode, and may say that it is root's.
fn owner_in(line: &str, peer: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, state, _, _, _, user, _, inode, ..] = fields[..] else {
        return None;
    };
    let is_it = address(local)? == peer && address(remote)? == ours;
    if !is_it || state != ESTABLISHED || inode == "0" {
        return None;
    }
    user.parse().ok()
}

/// Words of an address as the machine has them in its registers, each in hexadecimal digits, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |from: usize| {
        let digits = ip.get(from..from + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn our_own_end_is_ours() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                // No IPv6 here.
                continue;
            };
            let ours = listener.local_addr().unwrap();
            let stream = TcpStream::connect(ours).unwrap();
            let peer = stream.local_addr().unwrap();
            assert_eq!(owner(peer, ours), Some(nix::unistd::geteuid().as_raw()));
            drop(stream);
            // It is closed, and nobody's.
            assert_eq!(owner(peer, ours), None);
        }
    }

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let peer = "127.0.0.1:33400".parse().unwrap();
        let ours = "127.0.0.1:2620".parse().unwrap();
        let line = |state: &str, inode: &str| {
            format!(
                "   1: 0100007F:8278 0100007F:0A3C {state} 00000000:00000000 00:00000000 00000000   102        0 {inode} 1"
            )
        };
        if cfg!(target_endian = "little") {
            assert_eq!(owner_in(&line("01", "77"), peer, ours), Some(102));
            assert_eq!(owner_in(&line("01", "77"), ours, peer), None);
        }
        for (state, inode) in [("01", "0"), ("05", "77")] {
            assert_eq!(owner_in(&line(state, inode), peer, ours), None);
        }
        for nonsense in ["", "a b c d e f g h i j k", "1: é:1 é:1 01 2 3 4 5 6 7"] {
            assert_eq!(owner_in(nonsense, peer, ours), None);
        }
    }
}

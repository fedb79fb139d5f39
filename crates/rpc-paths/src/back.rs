//! Which link a connection comes back by: that of its SYN-ACK, and of samples of what follows, which a packet
//! socket shows.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Connections that are remembered; more are tried at no time.
const MOST: usize = 4096;

/// Sees the SYN-ACKs from a port of servers, and one of 64 other segments. Needs `CAP_NET_RAW`.
#[derive(Debug)]
pub(crate) struct Returns {
    socket: Socket,
    v6: bool,
    /// The links that they came by last, by the server's address, and the own address and port.
    seen: HashMap<(IpAddr, SocketAddr), u32>,
}

/// A statement of classic BPF.
fn bpf(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code, jt, jf, k)
}

impl Returns {
    /// Those from this port, of the server's family, in this thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says, `EPERM` without `CAP_NET_RAW`.
    pub(crate) fn open(server: SocketAddr) -> io::Result<Returns> {
        let v6 = server.is_ipv6();
        let protocol = if v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
        // Closed to everything until the filter stands.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(&filter(v6, server.port()))?;
        bind(&socket, protocol as u16)?;
        Ok(Returns {
            socket,
            v6,
            seen: HashMap::new(),
        })
    }

    /// Takes in what has come.
    pub(crate) fn read(&mut self) {
        let mut packet = [MaybeUninit::<u8>::uninit(); 128];
        while let Ok((length, from)) = self.socket.recv_from(&mut packet) {
            // SAFETY: the kernel has written the first `length` bytes.
            let packet =
                unsafe { std::slice::from_raw_parts(packet.as_ptr().cast::<u8>(), length) };
            let Some(ends) = ends(self.v6, packet) else {
                continue;
            };
            // SAFETY: packet sockets give addresses of this type, and the storage is larger.
            let address = unsafe { &*from.as_ptr().cast::<libc::sockaddr_ll>() };
            if self.seen.len() >= MOST {
                self.seen.clear();
            }
            self.seen.insert(ends, address.sll_ifindex.unsigned_abs());
        }
    }

    /// The link that segments came by last, since it was asked; from this address of the server, to this one.
    pub(crate) fn link(&mut self, server: IpAddr, own: SocketAddr) -> Option<u32> {
        self.seen.remove(&(server, own))
    }
}

/// Where a TCP segment comes from, and where it goes to, from its IP header on.
fn ends(v6: bool, packet: &[u8]) -> Option<(IpAddr, SocketAddr)> {
    let header = match v6 {
        true => 40,
        false => usize::from(packet.first()? & 15) * 4,
    };
    let port = u16::from_be_bytes(packet.get(header + 2..header + 4)?.try_into().ok()?);
    let address = |at: usize| {
        Some(match v6 {
            true => IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?),
            false => IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?),
        })
    };
    let (from, to) = if v6 { (8, 24) } else { (12, 16) };
    Some((address(from)?, SocketAddr::new(address(to)?, port)))
}

/// Passes TCP segments from this port, from the IP header on: all with SYN and ACK, and one of 64 others, so
/// that a link that connections have moved to is seen soon, and a fast one costs little.
fn filter(v6: bool, port: u16) -> Vec<SockFilter> {
    const LD: u16 = 0x20;
    const LDB: u16 = 0x30;
    const LDH: u16 = 0x28;
    const LDH_X: u16 = 0x48;
    const LDB_X: u16 = 0x50;
    const LDX_IHL: u16 = 0xb1;
    const JEQ: u16 = 0x15;
    const JSET: u16 = 0x45;
    const AND: u16 = 0x54;
    const RET: u16 = 0x06;
    /// `SKF_AD_OFF` and `SKF_AD_RANDOM`: a random number.
    const RANDOM: u32 = 0xffff_f000 + 56;
    let port = u32::from(port);
    let mut filter = match v6 {
        true => vec![
            bpf(LDB, 0, 0, 6),
            bpf(JEQ, 0, 8, 6),
            bpf(LDH, 0, 0, 40),
            bpf(JEQ, 0, 6, port),
            bpf(LDB, 0, 0, 53),
        ],
        false => vec![
            bpf(LDB, 0, 0, 9),
            bpf(JEQ, 0, 11, 6),
            bpf(LDH, 0, 0, 6),
            bpf(JSET, 9, 0, 0x1fff),
            bpf(LDX_IHL, 0, 0, 0),
            bpf(LDH_X, 0, 0, 0),
            bpf(JEQ, 0, 6, port),
            bpf(LDB_X, 0, 0, 13),
        ],
    };
    filter.extend([
        bpf(AND, 0, 0, 0x12),
        bpf(JEQ, 2, 0, 0x12),
        bpf(LD, 0, 0, RANDOM),
        bpf(JSET, 1, 0, 63),
        bpf(RET, 0, 0, 128),
        bpf(RET, 0, 0, 0),
    ]);
    filter
}

fn bind(socket: &Socket, protocol: u16) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: all zeros is a value of this plain C structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    // SAFETY: the address lives through the call, and its size is its type's.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_segment_are_read() {
        let mut v4 = vec![0_u8; 40];
        v4[0] = 0x46;
        v4[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        v4[26..28].copy_from_slice(&[0x80, 1]);
        let from: IpAddr = "10.0.0.2".parse().unwrap();
        assert_eq!(
            ends(false, &v4),
            Some((from, "10.0.0.1:32769".parse().unwrap()))
        );
        for length in 0..28 {
            assert_eq!(ends(false, &v4[..length]), None);
        }
        let mut v6 = vec![0_u8; 60];
        v6[23] = 2;
        v6[39] = 1;
        v6[42..44].copy_from_slice(&[0x80, 1]);
        let from: IpAddr = "::2".parse().unwrap();
        assert_eq!(
            ends(true, &v6),
            Some((from, "[::1]:32769".parse().unwrap()))
        );
        assert_eq!(ends(true, &v6[..43]), None);
    }
}

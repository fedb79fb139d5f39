//! Which link a connection comes back by: that of its SYN-ACK, which a packet socket shows.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// Connections that are remembered; more are tried at no time.
const MOST: usize = 1024;

/// Sees the SYN-ACKs from a server's port. Needs `CAP_NET_RAW`.
#[derive(Debug)]
pub(super) struct SynAcks {
    socket: Socket,
    v6: bool,
    /// The links that they came by, by own port.
    seen: HashMap<u16, u32>,
}

/// A statement of classic BPF.
fn bpf(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code, jt, jf, k)
}

impl SynAcks {
    /// Those from this server's port, in this thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says, `EPERM` without `CAP_NET_RAW`.
    pub(super) fn open(server: SocketAddr) -> io::Result<SynAcks> {
        let v6 = server.is_ipv6();
        let protocol = if v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
        // Closed to everything until the filter stands.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(&filter(v6, server.port()))?;
        bind(&socket, protocol as u16)?;
        Ok(SynAcks {
            socket,
            v6,
            seen: HashMap::new(),
        })
    }

    /// The link that the SYN-ACK to this port came by; the newest one.
    pub(super) fn link(&mut self, port: u16) -> Option<u32> {
        let mut packet = [MaybeUninit::<u8>::uninit(); 128];
        while let Ok((length, from)) = self.socket.recv_from(&mut packet) {
            // SAFETY: the kernel has written the first `length` bytes.
            let packet =
                unsafe { std::slice::from_raw_parts(packet.as_ptr().cast::<u8>(), length) };
            let at = match (self.v6, packet.first()) {
                (true, _) => 42,
                (false, Some(first)) => usize::from(first & 15) * 4 + 2,
                (false, None) => continue,
            };
            let Some(&[high, low]) = packet.get(at..at + 2) else {
                continue;
            };
            // SAFETY: packet sockets give addresses of this type, and the storage is larger.
            let address = unsafe { &*from.as_ptr().cast::<libc::sockaddr_ll>() };
            if self.seen.len() >= MOST {
                self.seen.clear();
            }
            let port = u16::from_be_bytes([high, low]);
            self.seen.insert(port, address.sll_ifindex.unsigned_abs());
        }
        self.seen.remove(&port)
    }
}

/// Passes TCP segments from this port with SYN and ACK, from the IP header on.
fn filter(v6: bool, port: u16) -> Vec<SockFilter> {
    const LDB: u16 = 0x30;
    const LDH: u16 = 0x28;
    const LDH_X: u16 = 0x48;
    const LDB_X: u16 = 0x50;
    const LDX_IHL: u16 = 0xb1;
    const JEQ: u16 = 0x15;
    const JSET: u16 = 0x45;
    const AND: u16 = 0x54;
    const RET: u16 = 0x06;
    let port = u32::from(port);
    if v6 {
        return vec![
            bpf(LDB, 0, 0, 6),
            bpf(JEQ, 0, 6, 6),
            bpf(LDH, 0, 0, 40),
            bpf(JEQ, 0, 4, port),
            bpf(LDB, 0, 0, 53),
            bpf(AND, 0, 0, 0x12),
            bpf(JEQ, 0, 1, 0x12),
            bpf(RET, 0, 0, 128),
            bpf(RET, 0, 0, 0),
        ];
    }
    vec![
        bpf(LDB, 0, 0, 9),
        bpf(JEQ, 0, 9, 6),
        bpf(LDH, 0, 0, 6),
        bpf(JSET, 7, 0, 0x1fff),
        bpf(LDX_IHL, 0, 0, 0),
        bpf(LDH_X, 0, 0, 0),
        bpf(JEQ, 0, 4, port),
        bpf(LDB_X, 0, 0, 13),
        bpf(AND, 0, 0, 0x12),
        bpf(JEQ, 0, 1, 0x12),
        bpf(RET, 0, 0, 128),
        bpf(RET, 0, 0, 0),
    ]
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

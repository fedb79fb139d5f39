//! The kernel's table of connections.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::World;

/// `IPCTNL_MSG_CT_DELETE` of `NFNL_SUBSYS_CTNETLINK`; with no attributes it means all connections.
const DELETE: u16 = 1 << 8 | 2;

impl World {
    /// Has the router forget all connections: what one rule set made of a flow (its translation, or that there is none)
    /// holds for the flow's packets under the next one, too, as long as the connection is remembered.
    pub fn forget_connections(&self) {
        let asked = self.lab().within("router", forget);
        asked
            .unwrap()
            .unwrap_or_else(|e| panic!("connections are not forgotten: {e}"));
    }
}

fn forget() -> io::Result<()> {
    // SAFETY: no memory is passed.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_NETFILTER,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = Vec::new();
    message.extend(20u32.to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number, port; then any family.
    message.extend([0; 12]);
    // SAFETY: the bytes live through the call and are as many as said.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0; 256];
    // SAFETY: the buffer lives through the call and is as long as said.
    let got = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // Behind its header an answer has the error, 0 where there is none.
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
